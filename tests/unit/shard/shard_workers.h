// Several workers of one process. Each has a loop and a network of its own, and every network the same hosts.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/support/clock_manual.h"
#include "tests/unit/shard/shard_support.h"

namespace spillway::test {

// a is the primary, b a secondary; c is there, and no member at first.
struct Worker : World {
  Worker() : a(loop, network, "a", 1), b(loop, network, "b", 2), c(loop, network, "c", 3) {
    for (ScriptedServer* server : {&a, &b, &c}) {
      server->members = {"a:1", "b:2"};
      server->role = server == &a ? Role::primary : Role::secondary;
    }
  }
  ~Worker() { disconnect(); }
  const shard::HostState& host(std::size_t index) { return gateway->states()[0].hosts[index]; }
  std::size_t hosts() { return gateway->states()[0].hosts.size(); }
  ScriptedServer a, b, c;
};

struct Workers {
  explicit Workers(std::size_t count, const shard::GatewayOptions& options = {}) {
    for (std::size_t i = 0; i < count; ++i) each.push_back(std::make_unique<Worker>());
    for (const auto& worker : each) {
      worker->connect("mongodb://a:1/?replicaSet=rs0", options, &shared);
    }
    run(std::chrono::seconds(1));
  }
  // No loop ends before all gateways have shut down.
  ~Workers() {
    for (const auto& worker : each) worker->disconnect();
  }
  Worker& operator[](std::size_t i) { return *each[i]; }
  void poll() {
    for (bool ran = true; ran;) {
      ran = false;
      for (const auto& worker : each) ran = worker->loop.poll_until_idle() > 0 || ran;
    }
  }
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const TimePoint end = Clock::now() + limit;
    for (;;) {
      poll();
      if (done()) return true;
      if (Clock::now() >= end) return false;
      TimePoint next = end;
      for (const auto& worker : each) {
        next = std::min(next, worker->loop.next_timer().value_or(end));
      }
      set_time(std::max(next, Clock::now()));
    }
  }
  void run(Duration time) {
    run_until([] { return false; }, time);
  }
  std::shared_ptr<Call> call(std::size_t worker, shard::CallOptions options = {}, std::uint16_t shard = 0) {
    auto call = each[worker]->start(ping, options, shard);
    run_until([&] { return call->done(); }, std::chrono::minutes(2));
    return call;
  }
  int hellos(std::size_t worker) {
    return each[worker]->a.hellos + each[worker]->b.hellos + each[worker]->c.hellos;
  }

  shard::SharedShards shared;
  std::vector<std::unique_ptr<Worker>> each;
};

}  // namespace spillway::test
