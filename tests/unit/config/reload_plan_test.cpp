#include "proxy/config/reload_plan.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace spillway {
namespace {

const std::string shards =
    "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:1/\"}, {name: s1, uri: "
    "\"mongodb://127.0.0.1:2/\"}]";

LoadResult load_with(const std::string& text, const std::string& routing_rest = "") {
  LoadRequest request;
  request.text = text + shards + routing_rest + "}\n";
  request.file_name = "f.yaml";
  return load_config(request);
}

ReloadPlan plan(const LoadResult& before, const LoadResult& after) {
  REQUIRE(before.errors.empty());
  return plan_reload(before.config, before.routing.get(), after);
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a configuration that has not changed changes nothing") {
  const LoadResult now = load_with("workers: 3\n");
  const ReloadPlan same = plan(now, load_with("workers: 3\n"));
  CHECK(same.refusals.empty());
  CHECK(same.changed.empty());
  CHECK_FALSE(same.routing);
}

TEST_CASE("every key that needs a start is named") {
  const ReloadPlan refused =
      plan(load_with(""), load_with("workers: 3\nnet: {port: 1, maxIncomingConnections: 7}\n"));
  CHECK(refused.refusals == Words{"net.port cannot be changed while the process runs",
                                  "workers cannot be changed while the process runs"});
  CHECK(refused.needs_start);
}

TEST_CASE("a bad file is refused with its errors") {
  const LoadResult bad = load_with("wrokers: 3\nnet: {port: 70000}\n");
  CHECK(bad.errors.size() == 2);
  CHECK(plan(load_with(""), bad).refusals == bad.errors);
  CHECK_FALSE(plan(load_with(""), bad).needs_start);
}

TEST_CASE("what a reload may change is changed") {
  const ReloadPlan taken = plan(load_with(""), load_with(R"(
net: {maxIncomingConnections: 7}
drainTimeoutSecs: 1
systemLog: {verbosity: 1}
setParameter: {cursorTimeoutMillis: 5}
)"));
  CHECK(taken.refusals.empty());
  CHECK(taken.changed.size() == 4);
  CHECK(taken.changes("systemLog"));
  CHECK(taken.changes("systemLog.verbosity"));
  CHECK_FALSE(taken.changes("systemLog.verb"));
  CHECK_FALSE(taken.changes("system"));
  CHECK_FALSE(taken.routing);
}

TEST_CASE("of the routing, shards need a start, and owners of documents a reload or a restart") {
  const LoadResult now = load_with("");
  const ReloadPlan added = plan(now, load_with("", ", collections: [{ns: a.b, key: {_id: hashed}}]"));
  CHECK(added.refusals.empty());
  CHECK(added.routing);
  CHECK(plan(now, load_with("", ", databases: [{name: a, primary: s1}]")).routing);
  for (const char* change : {", defaultPrimary: s1", ", defaultShardKey: {_id: hashed}"}) {
    const ReloadPlan taken = plan(now, load_with("", change));
    CHECK(taken.refusals.empty());
    CHECK(taken.routing);
    CHECK(plan(now, load_with("workers: 3\n", change)).refusals ==
          Words{"workers cannot be changed while the process runs",
                "routing changes documents' shards, too: change that by a reload alone, or restart"});
  }
  CHECK_FALSE(plan(now, load_with("workers: 3\n", ", databases: [{name: a, primary: s1}]")).needs_start);
  LoadRequest one_shard;
  one_shard.text = "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:1/\"}]}\n";
  const ReloadPlan fewer = plan(now, load_config(one_shard));
  CHECK(fewer.refusals == Words{"routing.shards cannot be changed while the process runs"});
  CHECK(fewer.needs_start);
}

// What a router of a cluster sends depends on whether its servers believe it.
TEST_CASE("in a cluster another kind of login needs a start, and another user does not") {
  Config none, user, other_user, member;
  user.shard_login.user = "ann";
  other_user.shard_login.user = "bob";
  member.cluster.key_file = "/k";
  for (Config* each : {&none, &user, &other_user, &member}) each->cluster.config_db = "cfg/a:1";
  const auto refusals = [](const Config& now, const Config& next) {
    LoadResult loaded;
    loaded.config = next;
    const ReloadPlan plan = plan_reload(now, nullptr, loaded);
    CHECK(plan.needs_start == !plan.refusals.empty());
    return plan.refusals;
  };
  const Words needs_start{"whether the cluster's servers trust the router (security.keyFile, shards) cannot be "
                          "changed while the process runs"};
  CHECK(refusals(none, user) == needs_start);
  CHECK(refusals(user, none) == needs_start);
  CHECK(refusals(user, member) == needs_start);
  CHECK(refusals(member, user) == needs_start);
  CHECK(refusals(none, member).empty());
  CHECK(refusals(user, other_user).empty());
  none.cluster.config_db = user.cluster.config_db = "";
  CHECK(refusals(none, user).empty());
}

}  // namespace spillway
