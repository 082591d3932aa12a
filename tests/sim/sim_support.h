// What the simulation tests share: routing texts, commands from JSON, answers in pieces.
#pragma once

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tests/support/sim_world.h"

namespace spillway::test {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

inline BsonDoc json(std::string_view text) { return BsonDoc::from_json(text).value(); }

// A collection with the key {_id: 1}: shard i owns [i * span, (i + 1) * span), the outer ones all
// that lies beyond.
inline std::string ranged_collection(const std::string& ns, std::size_t shards, int span) {
  std::string yaml = fmt::format("    - ns: {}\n      key: {{_id: 1}}\n      chunks:\n", ns);
  for (std::size_t i = 0; i < shards; ++i) {
    const auto bound = [&](std::size_t at) {
      if (at == 0) return std::string("{$minKey: 1}");
      if (at == shards) return std::string("{$maxKey: 1}");
      return std::to_string(static_cast<int>(at) * span);
    };
    yaml += fmt::format("        - {{min: {{_id: {}}}, max: {{_id: {}}}, shard: shard{}}}\n",
                        bound(i), bound(i + 1), i);
  }
  return yaml;
}

inline std::vector<SimShardOptions> shard_list(std::size_t count, SimShardOptions like = {}) {
  std::vector<SimShardOptions> all;
  for (std::size_t i = 0; i < count; ++i) {
    SimShardOptions each = like;
    each.host = fmt::format("shard{}", i);
    each.port = static_cast<std::uint16_t>(27018 + i);
    if (!like.set_name.empty()) each.set_name = fmt::format("{}{}", like.set_name, i);
    all.push_back(each);
  }
  return all;
}

// app.docs over all shards, `span` documents {_id, k, text} on each; k repeats.
inline void store_documents(SimWorld& world, int span, std::size_t text_bytes = 10) {
  for (int id = 0; id < static_cast<int>(world.shard_count()) * span; ++id) {
    BsonWriter out;
    out.append("_id", id).append("k", (id * 7) % 5).append("text", std::string(text_bytes, 'x'));
    world.shard(static_cast<std::size_t>(id / span)).store("app.docs", std::move(out).finish());
  }
}

inline SimWorldOptions sharded_world(std::size_t shards, int span, SimShardOptions like = {}) {
  SimWorldOptions options;
  options.shards = shard_list(shards, like);
  options.routing = "  collections:\n" + ranged_collection("app.docs", shards, span);
  return options;
}

inline SimWorldOptions two_workers(std::size_t shards, int span) {
  SimWorldOptions options = sharded_world(shards, span);
  options.workers = 2;
  return options;
}

inline std::optional<BsonDoc> try_call(SimWorld& world, SimClient& client, BsonDoc command) {
  return world.run(client.call(std::move(command)));
}

inline BsonDoc call(SimWorld& world, SimClient& client, std::string_view command) {
  auto reply = try_call(world, client, json(command));
  for (const std::string& violation : client.violations()) FAIL_CHECK(violation);
  REQUIRE(reply.has_value());
  INFO(to_json(*reply));
  return *std::move(reply);
}

// A hello that waits for another topology than the present one.
inline BsonDoc hello_that_waits(SimWorld& world, SimClient& client, std::int64_t most_ms) {
  const BsonDoc hello = call(world, client, R"({"hello": 1, "$db": "admin"})");
  BsonWriter out;
  out.append("hello", 1).append("topologyVersion", hello.view()["topologyVersion"]);
  out.append("maxAwaitTimeMS", most_ms).append("$db", "admin");
  return std::move(out).finish();
}

inline bool is_ok(DocView reply) { return reply["ok"].truthy(); }
inline std::int64_t code_of(DocView reply) { return reply["code"].to_int64().value_or(0); }
inline std::int64_t cursor_id(DocView reply) {
  return reply.find_path("cursor.id").to_int64().value_or(-1);
}
inline std::vector<BsonDoc> batch_of(DocView reply) {
  ValueView batch = reply.find_path("cursor.firstBatch");
  if (!batch.exists()) batch = reply.find_path("cursor.nextBatch");
  std::vector<BsonDoc> documents;
  if (!batch.is_array()) return documents;
  for (const Element& each : batch.as_document()) documents.emplace_back(each.as_document());
  return documents;
}

// batch_size 0: none is asked for. `more`: further fields, "maxTimeMS": 5, for one.
inline std::string get_more(std::int64_t id, int batch_size = 0, std::string_view more = "") {
  return fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "docs", {}{} "$db": "app"}})", id,
                     batch_size > 0 ? fmt::format("\"batchSize\": {},", batch_size) : "", more);
}

inline std::uint64_t open_shard_cursors(SimWorld& world) {
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < world.shard_count(); ++i) open += world.shard(i).cursors().open();
  return open;
}

// What others hold: all of this budget's memory but so much.
inline Reservation take_all_but(MemoryBudget& memory, std::uint64_t left_bytes = 0) {
  const BudgetUsage usage = memory.usage();
  auto taken = memory.try_reserve(usage.limit_bytes - usage.used_bytes - left_bytes);
  REQUIRE(taken);
  return *std::move(taken);
}

inline void set_level(SimWorld& world, PressureLevel level) {
  const LevelChange change{world.shared().pressure.level(), level, PressureCause::budget, 0.9};
  world.shared().pressure.publish({}, change);
}

// The length of a string, array or document of a reply becomes one that is impossible.
inline void damage(ValueView value) {
  REQUIRE(value.exists());
  const_cast<std::uint8_t*>(value.bytes.data())[3] = 0x7f;
}
inline ValueView item_of(DocView reply, std::string_view path, std::size_t index) {
  const ValueView array = reply.find_path(path);
  if (!array.is_array()) return {};
  auto at = array.as_document().begin();
  for (; index > 0 && !at.done(); --index) ++at;
  return *at;
}
// This shard damages one element of an array in its replies to a command.
inline void damage_replies(SimShard& shard, std::string command, std::string path,
                           std::size_t index) {
  shard.revise = [=](std::string_view name, BsonDoc reply) {
    if (name == command) damage(item_of(reply, path, index));
    return reply;
  };
}

// A call under way.
struct Pending {
  std::optional<BsonDoc> reply;
  bool done = false;
};
inline Task<void> run_pending(SimClient* client, BsonDoc command,
                              std::shared_ptr<Pending> pending) {
  auto calling = client->call(std::move(command));
  pending->reply = co_await calling;
  pending->done = true;
}
inline std::shared_ptr<Pending> start(SimWorld& world, SimClient& client, BsonDoc command) {
  auto pending = std::make_shared<Pending>();
  world.spawn(run_pending(&client, std::move(command), pending));
  return pending;
}

inline void require_quiet(SimWorld& world) {
  for (const std::string& line : world.leftovers()) FAIL_CHECK(line);
}

}  // namespace spillway::test
