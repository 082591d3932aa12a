// A worker's gateway in the simulated network, and calls through it.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/base/pump.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/gateway.h"
#include "tests/unit/shard/scripted_server.h"

namespace spillway::test {

inline const char* const ping = R"({"ping": 1, "$db": "admin"})";

inline shard::GatewayOptions pool_of(std::size_t max) {
  shard::GatewayOptions options;
  options.pool_max = max;
  return options;
}

inline BsonDoc json(std::string_view text) { return BsonDoc::from_json(text).value(); }

// A call under way, or ended.
struct Call {
  std::optional<Result<shard::Reply>> result;
  Duration took{};
  bool done() const { return result.has_value(); }
  bool ok() const { return result && result->has_value(); }
  std::int32_t code() const { return result && result->has_error() ? result->error().code : 0; }
  std::string message() const {
    return result && result->has_error() ? result->error().message : std::string();
  }
};

struct World {
  explicit World(const FaultOptions& faults = {}) : network(loop, faults) {}
  ~World();

  // `uri` for a shard named shard0; options for the rest. `shared`: with other workers; null: alone.
  void connect(const std::string& uri, shard::GatewayOptions options = {}, shard::SharedShards* shared = nullptr);
  void disconnect();

  // Starts a call; its result is there once done(). The command is copied.
  std::shared_ptr<Call> start(std::string_view command, shard::CallOptions options = {}, std::uint16_t shard = 0);
  // The same; the command and its suffix are the caller's.
  std::shared_ptr<Call> start(const shard::Command& command, shard::CallOptions options, std::uint16_t shard = 0);
  // Runs virtual time until it is done, for at most `limit`.
  std::shared_ptr<Call> call(std::string_view command, shard::CallOptions options = {},
                             Duration limit = std::chrono::minutes(2));
  // For so long, with the gateway's housekeeping every 250 ms.
  void run(Duration time);
  bool run_until(const std::function<bool()>& done, Duration limit);

  MemoryBudget everything{"everything", 0};
  MemoryBudget budget{"test", 0, &everything};
  MemoryBudget link_budget{"links", 0, &everything};
  Loop loop{Loop::Drive::manual};
  Pump pump{loop};
  SimNetwork network;
  std::unique_ptr<shard::Gateway> gateway;

 private:
  Task<void> housekeeping();
  bool ticking_ = false;
  bool stop_ticking_ = false;
};

// Two members; a is the primary.
struct ReplicaSet : World {
  ReplicaSet() : a(loop, network, "a", 1), b(loop, network, "b", 2) {
    for (ScriptedServer* server : {&a, &b}) server->members = {"a:1", "b:2"};
    a.role = Role::primary;
    b.role = Role::secondary;
    connect("mongodb://a:1/?replicaSet=rs0");
    run(std::chrono::milliseconds(100));
  }
  ~ReplicaSet() { disconnect(); }
  // a steps down without notice.
  void step_down(int code = 10107) {
    a.role = Role::secondary;
    a.answer = [code](DocView) {
      return json(fmt::format(R"({{"ok": 0, "code": {}, "errmsg": "not primary"}})", code));
    };
  }
  void elect_b() {
    b.role = Role::primary;
    b.election = 2;
  }
  ScriptedServer a, b;
};

}  // namespace spillway::test
