// The router over a scripted cluster's config servers (sharding.configDB), two workers, and what it sends to shards.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/sim/sim_support.h"

namespace spillway::test {

// What a shard was sent: handshakes and monitoring aside.
struct ShardAsked {
  std::size_t shard;
  std::string host;
  std::string name;
  BsonDoc command;
};

// rec.r on k over all shards, ten values of k on each; rec.u on the first one.
struct ClusterWorld {
  static constexpr int span = 10;

  explicit ClusterWorld(const SimClusterOptions& of_cluster = {}, bool config_db = true) : cluster(of_cluster, log) {
    cluster.create_database("rec", 0);
    std::vector<BsonDoc> points;
    for (std::size_t i = 1; i < cluster.shard_count(); ++i) points.push_back(key(static_cast<int>(i) * span));
    cluster.shard_collection("rec.r", json(R"({"k": 1})"), points);
    for (int k = 0; k < total(); ++k) cluster.store("rec.r", json(fmt::format(R"({{"_id": {0}, "k": {0}}})", k)));
    cluster.store("rec.u", json(R"({"_id": 1})"));
    SimWorldOptions options;
    options.cluster = &cluster;
    options.config_db = config_db;
    options.workers = 2;
    world.emplace(std::move(options));
    for (std::size_t i = 0; i < cluster.shard_count(); ++i) {
      for (std::size_t member = 0; member < of_cluster.members; ++member) {
        SimShard& server = cluster.shard(i, member);
        server.observe = [this, i, &server](DocView command) {
          if (command["$db"].is_string() && command["$db"].as_string() == "admin") return;  // hellos and logins
          asked.push_back({i, server.options().host, std::string(command.first().name), BsonDoc(command)});
        };
      }
    }
    for (std::size_t i = 0; i < of_cluster.config_members; ++i) {
      cluster.config_server(i).observe = [this](DocView command) {
        if (command.first().is_string()) config_asked.push_back(BsonDoc(command));
      };
    }
    client = world->client();
    other = world->client(1);
  }

  static BsonDoc key(int k) { return json(fmt::format(R"({{"k": {}}})", k)); }
  int total() const { return static_cast<int>(cluster.shard_count()) * span; }

  BsonDoc ask(std::string_view command) { return call(*world, *client, command); }
  BsonDoc ask_other(std::string_view command) { return call(*world, *other, command); }
  std::shared_ptr<Pending> begin(std::string_view command) { return start(*world, *client, json(command)); }
  BsonDoc end(Pending& pending) {
    REQUIRE(world->run_until([&] { return pending.done; }, minutes(2)));
    REQUIRE(pending.reply.has_value());
    INFO(to_json(*pending.reply));
    return *std::move(pending.reply);
  }

  // The values of k of a cursor's documents to its end, in their order.
  std::vector<int> read(std::string_view find) {
    std::vector<int> values;
    BsonDoc reply = ask(find);
    for (;;) {
      INFO(to_json(reply));
      REQUIRE(is_ok(reply));
      for (const BsonDoc& each : batch_of(reply)) {
        values.push_back(static_cast<int>(each.view()["k"].to_int64().value_or(-1)));
      }
      const std::int64_t id = cursor_id(reply);
      if (id == 0) return values;
      reply = ask(fmt::format(R"({{"getMore": {{"$numberLong": "{}"}}, "collection": "r", "$db": "rec"}})", id));
    }
  }
  std::vector<int> read_all() {
    std::vector<int> values = read(R"({"find": "r", "$db": "rec"})");
    std::sort(values.begin(), values.end());
    return values;
  }
  std::vector<int> stored() {
    std::vector<int> values;
    for (const BsonDoc& each : cluster.owned("rec.r")) {
      values.push_back(static_cast<int>(each.view()["k"].to_int64().value_or(-1)));
    }
    std::sort(values.begin(), values.end());
    return values;
  }

  void forget_asked() {
    asked.clear();
    config_asked.clear();
  }
  std::size_t times(std::size_t shard, std::string_view name) const {
    return static_cast<std::size_t>(std::count_if(asked.begin(), asked.end(), [&](const ShardAsked& each) {
      return each.shard == shard && each.name == name;
    }));
  }
  std::size_t config_reads(std::string_view collection) const {
    return static_cast<std::size_t>(std::count_if(
        config_asked.begin(), config_asked.end(),
        [&](const BsonDoc& each) { return each.view().first().as_string() == collection; }));
  }
  // "sh1 find": commands for documents that said no version.
  std::vector<std::string> without_version() const {
    static const std::set<std::string> named = {"find",   "aggregate", "count",  "distinct",
                                                "insert", "update",    "delete", "findAndModify"};
    std::vector<std::string> found;
    for (const ShardAsked& each : asked) {
      const bool versioned = each.command.view()["shardVersion"].exists();
      if (named.contains(each.name) && !versioned) found.push_back(fmt::format("sh{} {}", each.shard, each.name));
    }
    return found;
  }

  SimLog log;
  std::vector<ShardAsked> asked;  // shards are asked until the world has ended
  std::vector<BsonDoc> config_asked;
  SimCluster cluster;
  std::optional<SimWorld> world;
  std::unique_ptr<SimClient> client, other;  // of the two workers
};

inline std::vector<int> numbers(int from, int to) {
  std::vector<int> all;
  for (int i = from; i < to; ++i) all.push_back(i);
  return all;
}

}  // namespace spillway::test
