// Several workers with one topology.
#include "proxy/shard/shared_shard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "proxy/auth/service_login.h"
#include "proxy/base/log.h"
#include "tests/support/clock_manual.h"
#include "tests/unit/shard/shard_support.h"
#include "tests/unit/shard/shard_workers.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

const char* const not_primary = R"({"ok": 0, "code": 10107, "errmsg": "not primary"})";

CallOptions idempotent() {
  CallOptions options;
  options.retry = RetryPolicy::idempotent;
  return options;
}
CallOptions on(const HostAddress& host) {
  CallOptions options;
  options.host = host;
  return options;
}

// Of those that were logged from `since` (a total of before) on.
std::ptrdiff_t lines_with(std::string_view text, std::uint64_t since) {
  const log::Recent recent = log::recent();
  const auto last = static_cast<std::ptrdiff_t>(recent.total - since);
  const auto has_text = [&](const std::string& line) { return line.find(text) != line.npos; };
  return std::count_if(recent.lines.end() - last, recent.lines.end(), has_text);
}

}  // namespace

TEST_CASE("a host has one monitor, however many workers there are") {
  const std::uint64_t since = log::recent().total;
  Workers workers(3);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(workers[i].hosts() == 2);
    CHECK(workers[i].host(0).primary);
    CHECK(workers[i].host(1).secondary);
    CHECK(workers.call(i)->ok());
  }
  CHECK(lines_with("host b:2 was discovered", since) == 1);
  CHECK(lines_with("a:1 is primary", since) == 1);
  const std::vector<int> before{workers.hellos(0), workers.hellos(1), workers.hellos(2)};
  workers.run(60s);
  CHECK(workers.hellos(0) == before[0] + 12);
  CHECK(workers.hellos(1) == before[1]);
  CHECK(workers.hellos(2) == before[2]);
}

TEST_CASE("a host that one worker lost is checked once, and no worker keeps connections to it") {
  Workers workers(3);
  const std::uint64_t since = log::recent().total;
  const std::size_t created = workers[2].host(0).created;
  const int hellos = workers[0].a.hellos;
  workers[1].a.cut_after = 10;
  CHECK(workers.call(1)->code() == 6);
  workers.run(10ms);
  CHECK(lines_with("lost a:1", since) == 1);
  CHECK(workers[0].a.hellos == hellos + 1);
  CHECK(workers[2].host(0).primary);
  CHECK(workers[2].host(0).available == 0);
  CHECK(workers.call(2)->ok());
  CHECK(workers[2].host(0).created == created + 1);
}

TEST_CASE("a worker keeps away from a host that it saw an error of, until that is known to all") {
  Workers workers(2);
  Worker& owner = workers[0];
  Worker& worker = workers[1];
  worker.a.answer = [&](DocView) {
    return json(worker.a.commands == 1 ? not_primary : R"({"ok": 1})");
  };
  // A publication is about to leave that does not know of the error.
  auto other = owner.start(ping, on({"d", 4}));
  REQUIRE(owner.loop.io().poll_one() == 1);
  auto call = worker.start(ping, idempotent());
  worker.loop.poll_until_idle();
  REQUIRE(worker.a.commands == 1);
  CHECK_FALSE(worker.host(0).known);
  REQUIRE(owner.loop.io().poll_one() == 1);
  CHECK(owner.host(0).known);
  CHECK(worker.loop.poll_until_idle() > 0);
  CHECK_FALSE(worker.host(0).known);
  CHECK(worker.a.commands == 1);
  CHECK_FALSE(call->done());
  // Now all hear of it, and a says that it is the primary still.
  const int hellos = owner.a.hellos;
  workers.run(1s);
  CHECK(owner.a.hellos == hellos + 1);
  CHECK(worker.a.commands == 2);
  CHECK(call->ok());
  CHECK(call->took < 100ms);
  CHECK(other->code() == 6);
}

TEST_CASE("a primary that stepped down is found by the worker that met it, for all") {
  Workers workers(3);
  for (const auto& worker : workers.each) {
    worker->a.role = Role::secondary;
    worker->a.answer = [](DocView) { return json(not_primary); };
    worker->b.role = Role::primary;
    worker->b.election = 2;
  }
  auto call = workers.call(1, idempotent());
  REQUIRE(call->ok());
  CHECK((*call->result)->host == HostAddress{"b", 2});
  CHECK(call->took <= 500ms);
  workers.run(10ms);
  for (const auto& worker : workers.each) {
    CHECK(worker->host(0).secondary);
    CHECK(worker->host(1).primary);
  }
  CHECK(workers.call(2)->ok());
  CHECK(workers[2].a.commands == 0);
}

TEST_CASE("a step-down is told once, whichever worker's commands meet it when") {
  Workers workers(3);
  const std::uint64_t since = log::recent().total;
  std::vector<std::shared_ptr<Call>> calls;
  for (std::size_t i = 0; i < 3; ++i) {
    workers[i].a.delay = 5ms * (i + 1);
    workers[i].a.role = Role::secondary;
    workers[i].a.answer = [](DocView) { return json(not_primary); };
    workers[i].b.role = Role::primary;
    workers[i].b.election = 2;
    calls.push_back(workers[i].start(ping, idempotent()));
  }
  workers.run(2s);
  for (const auto& call : calls) CHECK(call->ok());
  CHECK(lines_with("lost a:1", since) == 1);
}

TEST_CASE("a host that is lost and found a hundred times a second does not fill the log") {
  Workers workers(1);
  const std::uint64_t since = log::recent().total;
  workers[0].a.answer = [](DocView) { return json(not_primary); };  // and is the primary
  for (int i = 0; i < 200; ++i) {
    auto call = workers[0].start(ping);
    workers.run(10ms);
  }
  CHECK(lines_with("lost a:1", since) <= 10);
  CHECK(lines_with("lost and found all the time", since) == 1);
  const auto told = lines_with("lost a:1", since);
  workers.run(20s);
  workers[0].start(ping);
  workers.run(1s);
  CHECK(lines_with("lost a:1", since) == told + 1);
}

TEST_CASE("a request that waits on any worker has the hosts asked often") {
  Workers workers(2);
  for (const auto& worker : workers.each) worker->a.role = Role::secondary;
  workers.run(10s);
  auto call = workers[1].start(ping);
  workers.run(2s);
  const int hellos = workers[0].b.hellos;
  for (const auto& worker : workers.each) worker->b.role = Role::primary;
  workers.run(600ms);
  CHECK(call->ok());
  CHECK(workers[0].b.hellos >= hellos + 1);
  const int after = workers[0].b.hellos;
  workers.run(5s);
  CHECK(workers[0].b.hellos == after);
}

TEST_CASE("a cursor's host that only another worker has heard of is found") {
  Workers workers(2);
  for (const auto& worker : workers.each) {
    for (ScriptedServer* server : {&worker->a, &worker->b, &worker->c}) {
      server->members = {"a:1", "b:2", "c:3"};
    }
  }
  // Only the first worker runs: it finds c, and opens a cursor there.
  workers[0].run(11s);
  REQUIRE(workers[0].hosts() == 3);
  REQUIRE(workers[1].hosts() == 2);
  auto call = workers[1].start(ping, on({"c", 3}));
  CHECK_FALSE(call->done());
  workers.run(10ms);
  REQUIRE(call->ok());
  CHECK((*call->result)->host == HostAddress{"c", 3});
  // An unknown host is none.
  CHECK(workers.call(1, on({"d", 4}))->code() == 6);
}

TEST_CASE("a removed member's connections end with their requests, on every worker") {
  Workers workers(3);
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& worker : workers.each) {
    worker->b.delay = 15s;
    worker->a.members = {"a:1"};
    calls.push_back(worker->start(ping, on({"b", 2})));
  }
  workers.run(11s);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(workers[i].hosts() == 1);
    CHECK_FALSE(calls[i]->done());
    CHECK(workers.call(i, on({"b", 2}))->code() == 6);  // no member any more
  }
  workers.run(5s);
  for (const auto& call : calls) CHECK(call->ok());
  workers.run(1s);
  for (const auto& worker : workers.each) CHECK(worker->network.open_connections("b", 2) == 0);
}

TEST_CASE("a silent host's requests fail on every worker") {
  Workers workers(3);
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& worker : workers.each) {
    worker->a.freeze();
    calls.push_back(worker->start(ping));
  }
  workers.run(13s);
  for (const auto& call : calls) CHECK(call->code() == 89);
  for (const auto& worker : workers.each) {
    CHECK_FALSE(worker->host(0).known);
    worker->a.thaw();
  }
  workers.run(2s);
  for (std::size_t i = 0; i < 3; ++i) CHECK(workers.call(i)->ok());
}

TEST_CASE("new credentials are each worker's own to take") {
  Workers workers(2);
  REQUIRE(workers[0].host(0).available == 1);
  REQUIRE(workers[1].host(0).available == 1);
  const auto login =
      auth::ServiceLogin::make(auth::ServiceMechanism::x509, "CN=new", "$external", nullptr);
  REQUIRE(login.has_value());
  for (const std::size_t i : {1u, 0u}) {
    workers[i].gateway->use_credentials({{nullptr, *login}});
    CHECK(workers[i].host(0).available == 0);
    CHECK(workers[1 - i].host(0).available == (i == 1 ? 1 : 0));
  }
  const int hellos = workers[0].b.hellos;
  workers.run(10s);
  CHECK(workers[0].b.hellos > hellos);
  CHECK(workers[1].host(1).secondary);
}

TEST_CASE("a server that answers in plain text where TLS is wanted is called so, once") {
  const std::uint64_t since = log::recent().total;
  SharedShards shared;
  Worker worker;
  worker.connect("mongodb://a:1/?replicaSet=rs0&tls=true", {}, &shared);
  worker.run(30s);
  CHECK(lines_with("a:1 cannot be used: TLS handshake with a:1 failed", since) == 1);
  CHECK(lines_with("it answers in plain text (in a cluster, net.tls.mode", since) == 1);
  CHECK(worker.a.hellos == 1);
}

TEST_CASE("workers shut down in any order") {
  std::vector<std::size_t> order{0, 1, 2};
  do {
    Workers workers(3);
    auto waits = workers[order[1]].start(ping, on({"d", 4}));
    for (std::size_t i = 0; i < 3; ++i) {
      workers[order[i]].disconnect();
      for (std::size_t j = i + 1; j < 3; ++j) CHECK(workers.call(order[j])->ok());
      workers.run(30s);
    }
    CHECK(waits->code() == 6);
  } while (std::next_permutation(order.begin(), order.end()));
}

// What passes between loops, on threads: for the thread sanitizer.
TEST_CASE("workers on threads of their own share what they know") {
  constexpr std::size_t count = 3;
  constexpr int rounds = 100;
  Workers workers(count);
  std::atomic<bool> stop{false};
  std::vector<std::vector<std::shared_ptr<Call>>> calls(count);
  std::array<std::atomic<int>, count> done{};
  std::array<std::atomic<std::uint64_t>, count> idle{};
  for (std::size_t i = 0; i < count; ++i) {
    Worker& worker = workers[i];
    worker.a.answer = [&worker](DocView) {
      worker.a.cut_after = worker.a.commands % 10 == 5 ? 10 : 0;
      return json(worker.a.commands % 7 == 3 ? not_primary : R"({"ok": 1})");
    };
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Worker& worker = workers[i];
      while (!stop) {
        auto& own = calls[i];
        if (own.empty() || own.back()->done()) {
          done[i] = static_cast<int>(own.size());
          if (own.size() < rounds) own.push_back(worker.start(ping, idempotent()));
        }
        if (worker.loop.poll_until_idle() == 0) ++idle[i];
        std::this_thread::yield();
      }
    });
  }
  // Time passes when no worker has anything to do.
  const auto all_done = [&] {
    return std::all_of(done.begin(), done.end(), [](const auto& n) { return n == rounds; });
  };
  for (std::array<std::uint64_t, count> seen{}; !all_done();) {
    bool all_idle = true;
    for (std::size_t i = 0; i < count; ++i) all_idle = all_idle && idle[i] > seen[i] + 1;
    if (all_idle) {
      for (std::size_t i = 0; i < count; ++i) seen[i] = idle[i];
      advance_time(1ms);
    }
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : calls) {
    REQUIRE(own.size() == rounds);
    for (const auto& call : own) CHECK(call->ok());
  }
}
