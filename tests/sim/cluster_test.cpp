// The router over a scripted cluster, whose shards enforce versions.
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

// rec.r on k over all shards, ten values of k on each; rec.u on the first one.
struct ClusterWorld {
  static constexpr int span = 10;

  explicit ClusterWorld(const SimClusterOptions& of_cluster = {}) : cluster(of_cluster, log) {
    cluster.create_database("rec", 0);
    std::vector<BsonDoc> points;
    for (std::size_t i = 1; i < cluster.shard_count(); ++i) {
      points.push_back(json(fmt::format(R"({{"k": {}}})", static_cast<int>(i) * span)));
    }
    cluster.shard_collection("rec.r", json(R"({"k": 1})"), points);
    for (int k = 0; k < static_cast<int>(cluster.shard_count()) * span; ++k) {
      cluster.store("rec.r", json(fmt::format(R"({{"_id": {0}, "k": {0}}})", k)));
    }
    cluster.store("rec.u", json(R"({"_id": 1})"));
    SimWorldOptions options;
    options.cluster = &cluster;
    world.emplace(std::move(options));
    client = world->client();
  }
  BsonDoc ask(std::string_view command) { return call(*world, *client, command); }

  SimLog log;
  SimCluster cluster;
  std::optional<SimWorld> world;
  std::unique_ptr<SimClient> client;
};

}  // namespace

TEST_CASE("a static table's router says no versions, which the shards of a cluster take", "[cluster]") {
  ClusterWorld sim({.members = 2, .config_members = 2});
  CHECK(batch_of(sim.ask(R"({"find": "u", "$db": "rec"})")).size() == 1);
  CHECK(batch_of(sim.ask(R"({"find": "r", "$db": "rec"})")).size() == ClusterWorld::span);  // of the first shard
  CHECK(is_ok(sim.ask(R"({"insert": "u", "documents": [{"_id": 2}], "$db": "rec"})")));
  CHECK(sim.cluster.role(0).versioned() == 0);
  CHECK(sim.cluster.role(0).unversioned() >= 3);
  const BsonDoc reply = sim.ask(R"({"find": "u", "$db": "rec"})");
  for (const char* field : {"$clusterTime", "operationTime", "$configServerState", "lastCommittedOpTime"}) {
    CHECK(!reply.view()[field].exists());
  }
}

}  // namespace spillway::test
