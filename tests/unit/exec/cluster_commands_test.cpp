// What is sent in a cluster for each command of its administration, by version of its servers.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "proxy/exec/access/user_needs.h"
#include "proxy/exec/cluster/cluster_router.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/sharding/command_forms.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

using test::doc;

// app on s1; app.r is sharded by k over s1 (below 100) and s2, app.s lies on s1.
struct FakeCluster {
  explicit FakeCluster(std::int32_t wire_version)
      : worker(table_of_config_servers("mongodb://cfg1:27019/?replicaSet=cfg"),
               [this](std::uint16_t shard, DocView command) { return answer(shard, command); }) {
    worker.shared.cluster = std::make_unique<ClusterTable>(
        worker.context, table_of_config_servers("mongodb://cfg1:27019/?replicaSet=cfg"), ClusterLinks{});
    router.emplace(worker.context, *worker.shared.cluster, worker.shared.cluster->shards());
    worker.context.router = &*router;
    const auto started = worker.run(worker.shared.cluster->start());
    REQUIRE(!started.has_error());
    worker.loop.poll_until_idle();
    for (shard::ShardState& state : worker.gateway.states()) state.max_wire_version = wire_version;
  }

  // The reply; what was sent is in sent(), without the reads of the table.
  BsonDoc run(std::string_view json) {
    worker.gateway.sent.clear();
    test::FakeRequest fake(json);
    fake.request.strips_fields = true;  // it has no sections to forward
    return test::reply_of(worker.run(run_command(worker.context, client, fake.request)));
  }
  // The client logs in; from now on every client must.
  void log_in(auth::UserSpec user) {
    auth::UserDirectory& users = worker.shared.users;
    worker.shared.authorization = true;
    const std::string db = user.db, name = user.name;
    users.feed({std::move(user)});
    client.login.user = users.table()->find(db, name);
    client.login.generation = users.generation();
    client.user = auth::user_id(db, name);
  }
  std::vector<std::string> sent() const {
    std::vector<std::string> all;
    for (const auto& [shard, body] : worker.gateway.sent) {
      if (is_read(body.view())) continue;
      all.push_back(name_of_shard(shard) + " " + to_json(body.view()));
    }
    return all;
  }
  std::string sent_one() const {
    const auto all = sent();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  std::string name_of_shard(std::uint16_t shard) const {
    return static_cast<const shard::Gateway&>(worker.gateway).states()[shard].name;
  }
  std::size_t reads() const {
    return static_cast<std::size_t>(std::count_if(worker.gateway.sent.begin(), worker.gateway.sent.end(),
                                                  [](const auto& each) { return is_read(each.second.view()); }));
  }

  std::map<std::string, std::string> says;  // answers by "name", or "shard name"; the others: {ok: 1}

  test::FakeWorker worker;
  std::optional<ClusterRouter> router;
  Client client;

 private:
  static bool is_read(DocView command) { return command.first().name == "find"; }

  static BsonDoc cursor_of(const std::string& documents) {
    return doc("{'cursor': {'firstBatch': [" + documents +
               "], 'id': {'$numberLong': '0'}, 'ns': 'config.x'}, 'ok': 1.0}");
  }
  Result<BsonDoc> answer(std::uint16_t shard, DocView command) const {
    const Element first = command.first();
    const bool of_config = command["$db"].is_string() && command["$db"].as_string() == "config";
    const std::string name(first.name);
    for (const std::string& said : {name_of_shard(shard) + " " + name, name}) {
      if (const auto found = says.find(said); found != says.end() && !of_config) return doc(found->second);
    }
    if (first.name != "find") return doc("{'ok': 1.0}");
    const std::string_view collection = first.as_string();
    const ValueView id = command["filter"].as_document()["_id"];
    const std::string_view wanted = id.is_string() ? id.as_string() : std::string_view();
    if (collection == "version") return cursor_of("{'_id': 1, 'clusterId': {'$oid': '64b000000000000000000001'}}");
    if (collection == "shards") {
      return cursor_of(
          "{'_id': 's1', 'host': 'a/a1:27018', 'state': 1}, {'_id': 's2', 'host': 'b/b1:27018', 'state': 1}");
    }
    if (collection == "databases") {
      if (wanted != "app") return cursor_of("");
      return cursor_of(
          "{'_id': 'app', 'primary': 's1', 'partitioned': true, 'version': {'uuid': {'$binary': {'base64': "
          "'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}, 'lastMod': 1}}");
    }
    if (collection == "collections") {
      if (wanted != "app.r" && wanted != "app.s") return cursor_of("");
      return cursor_of(
          "{'_id': '" + std::string(wanted) +
          "', 'lastmodEpoch': {'$oid': '64b0000000000000000000aa'}, 'lastmod': {'$date': "
          "'1970-01-01T00:00:00Z'}, 'dropped': false, 'key': {'k': 1}, 'unique': false, 'uuid': {'$binary': {'base64': "
          "'AAAAAAAAAAAAAAAAAAAAAg==', 'subType': '04'}}}");
    }
    const ValueView ns = command["filter"].as_document()["ns"];
    if (collection == "chunks" && ns.is_string() && ns.as_string() == "app.s") {
      return cursor_of(
          "{'ns': 'app.s', 'min': {'k': {'$minKey': 1}}, 'max': {'k': {'$maxKey': 1}}, 'shard': 's1', 'lastmod': "
          "{'$timestamp': {'t': 2, 'i': 1}}, 'lastmodEpoch': {'$oid': '64b0000000000000000000aa'}}");
    }
    if (collection == "chunks") {
      return cursor_of(
          "{'ns': 'app.r', 'min': {'k': {'$minKey': 1}}, 'max': {'k': 100}, 'shard': 's1', 'lastmod': {'$timestamp': "
          "{'t': 2, 'i': 1}}, 'lastmodEpoch': {'$oid': '64b0000000000000000000aa'}}, "
          "{'ns': 'app.r', 'min': {'k': 100}, 'max': {'k': {'$maxKey': 1}}, 'shard': 's2', 'lastmod': {'$timestamp': "
          "{'t': 3, 'i': 0}}, 'lastmodEpoch': {'$oid': '64b0000000000000000000aa'}}");
    }
    return cursor_of("");
  }
};

constexpr const char* majority = "'writeConcern': {'w': 'majority', 'wtimeout': 60000}";

std::string expected(std::string_view shard, std::string text) {
  const std::size_t at = text.find("MAJORITY");
  if (at != std::string::npos) text.replace(at, 8, majority);
  return std::string(shard) + " " + to_json(doc(text).view());
}

struct Case {
  std::int32_t wire_version;
  const char* command;
  const char* shard;
  const char* sent;
};

#define ZERO_UUID "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}"

TEST_CASE("cluster: each command goes where its version has it, in its form") {
  constexpr const char* database_1 =
      "'databaseVersion': {'uuid': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}, 'lastMod': 1}";
  const Case cases[] = {
      {8, "{'enableSharding': 'app', 'primaryShard': 's1', '$db': 'admin'}", "config",
       "{'_configsvrEnableSharding': 'app', MAJORITY, '$db': 'admin'}"},
      {9, "{'enableSharding': 'app', 'primaryShard': 's1', '$db': 'admin'}", "config",
       "{'_configsvrEnableSharding': 'app', 'primaryShard': 's1', MAJORITY, '$db': 'admin'}"},
      {13, "{'enablesharding': 'app', '$db': 'admin'}", "config",
       "{'_configsvrCreateDatabase': 'app', 'enableSharding': true, MAJORITY, '$db': 'admin'}"},
      {17, "{'enableSharding': 'app', 'primaryShard': 's1', '$db': 'admin'}", "config",
       "{'_configsvrCreateDatabase': 'app', 'primaryShardId': 's1', 'enableSharding': true, MAJORITY, '$db': 'admin'}"},
      {21, "{'enableSharding': 'app', 'primaryShard': 's1', '$db': 'admin'}", "config",
       "{'_configsvrCreateDatabase': 'app', 'primaryShardId': 's1', MAJORITY, '$db': 'admin'}"},
      {8, "{'shardCollection': 'app.c', 'key': {'k': 1}, '$db': 'admin'}", "config",
       "{'_configsvrShardCollection': 'app.c', 'key': {'k': 1}, 'unique': false, 'numInitialChunks': {'$numberLong': "
       "'0'}, 'getUUIDfromPrimaryShard': true, MAJORITY, '$db': 'admin'}"},
      {13, "{'shardCollection': 'app.c', 'key': {'k': 1}, 'unique': true, '$db': 'admin'}", "s1",
       "{'_shardsvrCreateCollection': 'c', 'shardKey': {'k': 1}, 'unique': true, MAJORITY, '$db': 'app', DB}"},
      {8, "{'movePrimary': 'app', 'to': 's2', '$db': 'admin'}", "config",
       "{'_configsvrMovePrimary': 'app', 'to': 's2', MAJORITY, '$db': 'admin'}"},
      {17, "{'movePrimary': 'app', 'to': 's2', '$db': 'admin'}", "s1",
       "{'_shardsvrMovePrimary': 'app', 'to': 's2', MAJORITY, '$db': 'admin', DB}"},
      {8, "{'drop': 'r', 'maxTimeMS': 500, '$db': 'app'}", "config",
       "{'_configsvrDropCollection': 'app.r', 'maxTimeMS': 500, MAJORITY, '$db': 'admin'}"},
      {13, "{'drop': 'r', '$db': 'app'}", "s1", "{'_shardsvrDropCollection': 'r', MAJORITY, '$db': 'app', DB}"},
      {9, "{'dropDatabase': 1, '$db': 'app'}", "config",
       "{'_configsvrDropDatabase': 'app', MAJORITY, '$db': 'admin'}"},
      {21, "{'dropDatabase': 1, '$db': 'app'}", "s1", "{'_shardsvrDropDatabase': 1, MAJORITY, '$db': 'app', DB}"},
      {8, "{'create': 'c', 'capped': true, 'size': 9, '$db': 'app'}", "config",
       "{'_configsvrCreateCollection': 'app.c', 'options': {'capped': true, 'size': 9}, MAJORITY, '$db': 'admin'}"},
      {25, "{'create': 'c', '$db': 'app'}", "s1",
       "{'_shardsvrCreateCollection': 'c', 'unsplittable': true, 'shardKey': {'_id': 1}, MAJORITY, '$db': 'app', DB}"},
      {13, "{'collMod': 'r', 'validator': {}, '$db': 'app'}", "s1",
       "{'_shardsvrCollMod': 'r', 'validator': {}, MAJORITY, '$db': 'app', DB}"},
      {13, "{'deleteIndexes': 'r', 'index': '*', '$db': 'app'}", "s1",
       "{'_shardsvrDropIndexes': 'r', 'index': '*', MAJORITY, '$db': 'app', DB}"},
      {13, "{'renameCollection': 'app.r', 'to': 'app.q', '$db': 'admin'}", "s1",
       "{'_shardsvrRenameCollection': 'r', 'to': 'app.q', 'dropTarget': false, 'stayTemp': false, MAJORITY, '$db': "
       "'app', DB}"},
      {17,
       "{'renameCollection': 'app.r', 'to': 'app.q', 'dropTarget': " ZERO_UUID
       ", 'collectionUUID': 7, '$db': 'admin'}",
       "s1",
       "{'_shardsvrRenameCollection': 'r', 'to': 'app.q', 'dropTarget': true, 'expectedTargetUUID': " ZERO_UUID
       ", 'expectedSourceUUID': 7, 'stayTemp': false, 'allowEncryptedCollectionRename': true, MAJORITY, '$db': 'app', "
       "DB}"},
      {17,
       "{'compactStructuredEncryptionData': 'r', 'compactionTokens': {'a': 1}, 'encryptionInformation': {'type': 1}, "
       "'$db': 'app'}",
       "s1",
       "{'_shardsvrCompactStructuredEncryptionData': 'r', 'compactionTokens': {'a': 1}, 'encryptionInformation': "
       "{'type': 1}, MAJORITY, '$db': 'app', DB}"},
      {21, "{'cleanupStructuredEncryptionData': 'r', 'cleanupTokens': {'a': 1}, '$db': 'app'}", "s1",
       "{'_shardsvrCleanupStructuredEncryptionData': 'r', 'cleanupTokens': {'a': 1}, MAJORITY, '$db': 'app', DB}"},
      {17, "{'cleanupReshardCollection': 'app.r', '$db': 'admin'}", "config",
       "{'_configsvrCleanupReshardCollection': 'app.r', '$db': 'admin'}"},
      {17, "{'setClusterParameter': {'changeStreamOptions': {}}, '$db': 'admin'}", "config",
       "{'_configsvrSetClusterParameter': {'changeStreamOptions': {}}, '$db': 'admin'}"},
      {9, "{'refineCollectionShardKey': 'app.r', 'key': {'k': 1, 'j': 1}, '$db': 'admin'}", "config",
       "{'_configsvrRefineCollectionShardKey': 'app.r', 'key': {'k': 1, 'j': 1}, 'epoch': {'$oid': "
       "'64b0000000000000000000aa'}, MAJORITY, '$db': 'admin'}"},
      {13, "{'refineCollectionShardKey': 'app.r', 'key': {'k': 1, 'j': 1}, '$db': 'admin'}", "s1",
       "{'_shardsvrRefineCollectionShardKey': 'r', 'newShardKey': {'k': 1, 'j': 1}, MAJORITY, '$db': 'app', DB}"},
      {13, "{'reshardCollection': 'app.r', 'key': {'j': 1}, '$db': 'admin'}", "s1",
       "{'_shardsvrReshardCollection': 'app.r', 'key': {'j': 1}, MAJORITY, '$db': 'admin', DB}"},
      {13, "{'abortReshardCollection': 'app.r', '$db': 'admin'}", "config",
       "{'_configsvrAbortReshardCollection': 'app.r', MAJORITY, '$db': 'admin'}"},
      {25, "{'moveCollection': 'app.c', 'toShard': 's2', '$db': 'admin'}", "s1",
       "{'_shardsvrReshardCollection': 'app.c', 'key': {'_id': 1}, 'shardDistribution': [{'shard': 's2', 'min': "
       "{'_id': {'$minKey': 1}}, 'max': {'_id': {'$maxKey': 1}}}], 'forceRedistribution': true, 'numInitialChunks': "
       "{'$numberLong': '1'}, 'provenance': 'moveCollection', MAJORITY, '$db': 'admin', DB}"},
      {17, "{'moveRange': 'app.r', 'toShard': 's2', 'min': {'k': 1}, 'forceJumbo': true, '$db': 'admin'}", "config",
       "{'_configsvrMoveRange': 'app.r', 'toShard': 's2', 'min': {'k': 1}, 'forceJumbo': 1, MAJORITY, '$db': 'admin'}"},
      {8, "{'addShard': 'c/c1:27018', 'name': 's3', '$db': 'admin'}", "config",
       "{'_configsvrAddShard': 'c/c1:27018', 'name': 's3', MAJORITY, '$db': 'admin'}"},
      {8, "{'removeShard': 's2', 'writeConcern': {'w': 1, 'wtimeout': 7}, '$db': 'admin'}", "config",
       "{'_configsvrRemoveShard': 's2', 'writeConcern': {'w': 'majority', 'wtimeout': 7}, '$db': 'admin'}"},
      {8, "{'addShardToZone': 's1', 'zone': 'z', '$db': 'admin'}", "config",
       "{'_configsvrAddShardToZone': 's1', 'zone': 'z', MAJORITY, '$db': 'admin'}"},
      {8, "{'updateZoneKeyRange': 'app.r', 'min': {'k': 1}, 'max': {'k': 2}, 'zone': null, '$db': 'admin'}", "config",
       "{'_configsvrUpdateZoneKeyRange': 'app.r', 'min': {'k': 1}, 'max': {'k': 2}, 'zone': null, MAJORITY, '$db': "
       "'admin'}"},
      {8, "{'balancerStop': true, 'maxTimeMS': 9, '$db': 'admin'}", "config",
       "{'_configsvrBalancerStop': 1, 'maxTimeMS': 9, '$db': 'admin'}"},
      {9, "{'balancerCollectionStatus': 'app.r', '$db': 'admin'}", "config",
       "{'_configsvrBalancerCollectionStatus': 'app.r', '$db': 'admin'}"},
      {17, "{'configureCollectionBalancing': 'app.r', 'chunkSize': 9, '$db': 'admin'}", "config",
       "{'_configsvrConfigureCollectionBalancing': 'app.r', 'chunkSize': 9, '$db': 'admin'}"},
      {8, "{'setFeatureCompatibilityVersion': '4.2', '$db': 'admin'}", "config",
       "{'setFeatureCompatibilityVersion': '4.2', MAJORITY, '$db': 'admin'}"},
      {9, "{'setDefaultRWConcern': 1, 'defaultWriteConcern': {'w': 1}, 'comment': 'c', '$db': 'admin'}", "config",
       "{'setDefaultRWConcern': 1, 'defaultWriteConcern': {'w': 1}, 'comment': 'c', MAJORITY, '$db': 'admin'}"},
      {17, "{'setUserWriteBlockMode': 1, 'global': true, '$db': 'admin'}", "config",
       "{'_configsvrSetUserWriteBlockMode': 1, 'global': true, MAJORITY, '$db': 'admin'}"},
      {8, "{'createUser': 'joe', 'pwd': 'x', 'roles': [], '$db': 'app'}", "config",
       "{'createUser': 'joe', 'pwd': 'x', 'roles': [], 'writeConcern': {'w': 'majority', 'wtimeout': 0}, '$db': "
       "'app'}"},
      {8, "{'usersInfo': 1, '$db': 'app'}", "config", "{'usersInfo': 1, '$db': 'app'}"},
      {8,
       "{'_mergeAuthzCollections': 1, 'tempUsersCollection': 'admin.tempusers', 'tempRolesCollection': '', 'drop': "
       "false, 'db': '', '$db': 'admin'}",
       "config",
       "{'_mergeAuthzCollections': 1, 'tempUsersCollection': 'admin.tempusers', 'tempRolesCollection': '', 'drop': "
       "false, 'db': '', 'writeConcern': {'w': 'majority', 'wtimeout': 0}, '$db': 'admin'}"},
      // Chunks.
      {8, "{'split': 'app.r', 'middle': {'k': 5}, '$db': 'admin'}", "s1",
       "{'splitChunk': 'app.r', 'from': 's1', 'keyPattern': {'k': 1}, 'epoch': {'$oid': '64b0000000000000000000aa'}, "
       "'shardVersion': [{'$timestamp': {'t': 3, 'i': 0}}, {'$oid': '64b0000000000000000000aa'}], 'min': {'k': "
       "{'$minKey': 1}}, 'max': {'k': 100}, 'splitKeys': [{'k': 5}], '$db': 'admin'}"},
      {8, "{'moveChunk': 'app.r', 'find': {'k': 200}, 'to': 's1', '_waitForDelete': true, '$db': 'admin'}", "config",
       "{'_configsvrMoveChunk': 1, 'ns': 'app.r', 'min': {'k': 100}, 'max': {'k': {'$maxKey': 1}}, 'shard': 's2', "
       "'lastmod': {'$timestamp': {'t': 3, 'i': 0}}, 'lastmodEpoch': {'$oid': '64b0000000000000000000aa'}, 'toShard': "
       "'s1', 'maxChunkSizeBytes': {'$numberLong': '67108864'}, 'secondaryThrottle': {}, 'waitForDelete': true, "
       "'writeConcern': {'w': 'majority', 'wtimeout': 15000}, '$db': 'admin'}"},
      {17, "{'moveChunk': 'app.r', 'bounds': [{'k': 100}, {'k': {'$maxKey': 1}}], 'to': 's1', '$db': 'admin'}",
       "config",
       "{'_configsvrMoveRange': 'app.r', 'toShard': 's1', 'min': {'k': 100}, 'max': {'k': {'$maxKey': 1}}, "
       "'waitForDelete': false, 'forceJumbo': 0, 'secondaryThrottle': {}, 'writeConcern': {'w': 'majority', "
       "'wtimeout': 15000}, '$db': 'admin'}"},
      {9, "{'clearJumboFlag': 'app.r', 'find': {'k': 1}, '$db': 'admin'}", "config",
       "{'_configsvrClearJumboFlag': 'app.r', 'epoch': {'$oid': '64b0000000000000000000aa'}, 'minKey': {'k': "
       "{'$minKey': 1}}, 'maxKey': {'k': 100}, MAJORITY, '$db': 'admin'}"},
  };
  for (const Case& each : cases) {
    INFO(each.wire_version << " " << each.command);
    FakeCluster cluster(each.wire_version);
    const BsonDoc reply = cluster.run(each.command);
    INFO(to_json(reply.view()));
    std::string text = each.sent;
    if (const std::size_t at = text.find(", DB}"); at != std::string::npos) {
      text.replace(at, 5, fmt::format(", {}}}", database_1));
    }
    CHECK(cluster.sent_one() == expected(each.shard, text));
    CHECK(reply.view()["ok"].truthy());
  }
}

TEST_CASE("cluster: every form belongs to a command, and says from which version on") {
  for (const CommandForm& form : command_forms()) {
    INFO(form.command << " " << form.name);
    const CommandSpec* const spec = command_named(form.command);
    REQUIRE(spec != nullptr);
    CHECK(form.from <= form.to);
    CHECK(find_form(form.command, form.from) == &form);
  }
}

TEST_CASE("cluster: a command is sent again after a lost answer only if it may be done twice") {
  using shard::RetryPolicy;
  const std::map<std::string_view, RetryPolicy> others{{"renameCollection", RetryPolicy::none},
                                                       {"dropIndexes", RetryPolicy::not_idempotent},
                                                       {"setDefaultRWConcern", RetryPolicy::not_idempotent}};
  for (const CommandForm& form : command_forms()) {
    INFO(form.command << " " << form.name);
    const auto found = others.find(form.command);
    CHECK(form.retry == (found == others.end() ? RetryPolicy::idempotent : found->second));
  }
  const auto retry_of = [](std::string_view command) {
    FakeCluster cluster(25);
    cluster.worker.gateway.retries.clear();
    cluster.run(command);
    const auto& sent = cluster.worker.gateway.sent;
    const auto found = std::find_if(sent.begin(), sent.end(),
                                    [](const auto& each) { return each.second.view().first().name != "find"; });
    REQUIRE(found != sent.end());
    return cluster.worker.gateway.retries.at(static_cast<std::size_t>(found - sent.begin()));
  };
  CHECK(retry_of("{'renameCollection': 'app.r', 'to': 'app.q', '$db': 'admin'}") == RetryPolicy::none);
  CHECK(retry_of("{'dropIndexes': 'r', 'index': '*', '$db': 'app'}") == RetryPolicy::not_idempotent);
  CHECK(retry_of("{'setDefaultRWConcern': 1, '$db': 'admin'}") == RetryPolicy::not_idempotent);
  CHECK(retry_of("{'drop': 'r', '$db': 'app'}") == RetryPolicy::idempotent);
}

TEST_CASE("cluster: a server that does not know the form's name gets the older form") {
  FakeCluster cluster(17);
  cluster.says["_shardsvrMovePrimary"] = "{'ok': 0.0, 'errmsg': 'no such command', 'code': 59}";
  const BsonDoc reply = cluster.run("{'movePrimary': 'app', 'to': 's2', '$db': 'admin'}");
  const auto sent = cluster.sent();
  REQUIRE(sent.size() == 3);
  CHECK(sent[1].find("commandIsFromRouter") != std::string::npos);
  CHECK(sent[2].find("_configsvrMovePrimary") != std::string::npos);
  CHECK(reply.view()["ok"].truthy());
}

TEST_CASE("cluster: a shard of the version before gets that version's form") {
  const auto sent_by = [](std::string_view command) {
    FakeCluster cluster(25);
    for (auto& state : cluster.worker.gateway.states()) {
      if (state.name != "config") state.max_wire_version = 21;
    }
    const BsonDoc reply = cluster.run(command);
    std::string all = reply.view()["ok"].truthy() ? "ok" : std::to_string(*reply.view()["code"].to_int64());
    for (const std::string& each : cluster.sent()) all += " " + each;
    return all;
  };
  const std::string made = sent_by("{'create': 'u', '$db': 'app'}");
  CHECK(made.starts_with("ok"));
  CHECK(made.find("\"create\" : \"u\"") != std::string::npos);
  CHECK(made.find("_shardsvrCreateCollection") == std::string::npos);
  CHECK(sent_by("{'unshardCollection': 'app.c', '$db': 'admin'}") == "59");
  CHECK(sent_by("{'convertToCapped': 'u', 'size': 4096, '$db': 'app'}").find("\"convertToCapped\" : \"u\"") !=
        std::string::npos);
}

TEST_CASE("cluster: only the fields of create are passed on to a shard") {
  FakeCluster cluster(25);
  const BsonDoc reply = cluster.run("{'create': 'u', 'dataShard': 's2', '$db': 'app'}");
  CHECK(reply.view()["code"].to_int64() == 40415);
  CHECK(cluster.sent().empty());
}

TEST_CASE("cluster: no client makes a temporary collection") {
  const std::int32_t wire_version = GENERATE(9, 17, 25);
  CAPTURE(wire_version);
  FakeCluster cluster(wire_version);
  const BsonDoc reply = cluster.run("{'create': 'u', 'temp': true, '$db': 'app'}");
  if (wire_version < 17) {  // shards decide
    CHECK(cluster.sent().size() == 1);
    return;
  }
  CHECK(reply.view()["code"].to_int64() == 72);
  CHECK(cluster.sent().empty());
  CHECK(cluster.run("{'create': 'u', 'temp': false, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("cluster: from 8.0 on a collection is renamed into a database that does not exist yet") {
  const std::string_view rename = "{'renameCollection': 'app.r', 'to': 'new.q', '$db': 'admin'}";
  FakeCluster newer(25);
  CHECK(newer.run(rename).view()["ok"].truthy());
  const auto sent = newer.sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0] == expected("config", "{'_configsvrCreateDatabase': 'new', 'primaryShardId': 's1', MAJORITY, '$db': "
                                      "'admin'}"));
  CHECK_THAT(sent[1], Catch::StartsWith("s1 { \"_shardsvrRenameCollection\" : \"r\", \"to\" : \"new.q\""));
  newer.says["_configsvrCreateDatabase"] = "{'ok': 0.0, 'errmsg': 'no', 'code': 13297}";
  CHECK(newer.run(rename).view()["code"].to_int64() == 13297);
  CHECK(newer.sent().size() == 1);
  newer.run("{'renameCollection': 'app.r', 'to': 'app.q', '$db': 'admin'}");
  CHECK(newer.sent().size() == 1);
  CHECK(newer.run("{'renameCollection': 'nodb.r', 'to': 'new.q', '$db': 'admin'}").view()["code"].to_int64() == 26);
  CHECK(newer.sent().empty());
  FakeCluster older(21);
  CHECK(older.run(rename).view()["code"].to_int64() == 26);
  CHECK(older.sent().empty());
}

TEST_CASE("cluster: from 5.0 on no indexes of the config servers' databases are dropped") {
  const std::int32_t wire_version = GENERATE(9, 13, 17);
  for (const char* db : {"admin", "config"}) {
    CAPTURE(wire_version, db);
    FakeCluster cluster(wire_version);
    const BsonDoc reply = cluster.run(fmt::format("{{'dropIndexes': 'c', 'index': '*', '$db': '{}'}}", db));
    CHECK(reply.view()["code"].to_int64().value_or(0) == (wire_version < 13 ? 0 : 20));
    CHECK(cluster.sent().size() == (wire_version < 13 ? 1 : 0));
  }
}

TEST_CASE("cluster: its servers judge whether an index may become unique") {
  const std::int32_t wire_version = GENERATE(9, 17);
  FakeCluster cluster(wire_version);
  for (const char* index : {"{'name': 'v_1', 'prepareUnique': true}", "{'keyPattern': {'v': 1}, 'unique': true}"}) {
    CAPTURE(wire_version, index);
    const BsonDoc reply = cluster.run(fmt::format("{{'collMod': 'r', 'index': {}, '$db': 'app'}}", index));
    CHECK(reply.view()["ok"].truthy());
    CHECK(cluster.sent().size() == (wire_version < 13 ? 2 : 1));
  }
}

TEST_CASE("cluster: only who may block users' writes renames encrypted collections") {
  FakeCluster cluster(17);
  const bool may = GENERATE(true, false);
  auth::UserSpec ann{"ann", "app", {{"readWrite", "app"}}, {}, {}};
  if (may) {
    auth::Privilege rename, block;
    rename.db = "app";
    rename.actions = auth::Action::rename_collection_same_db;
    block.on = auth::Privilege::On::cluster;
    block.actions = auth::Action::set_user_write_block_mode;
    ann.resolved = auth::ResolvedRoles{{{"readWrite", "app"}}, {rename, block}};
  }
  cluster.log_in(std::move(ann));
  const BsonDoc reply = cluster.run(
      "{'renameCollection': 'app.u', 'to': 'app.v', 'allowEncryptedCollectionRename': true, '$db': 'admin'}");
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  CHECK((cluster.sent_one().find("allowEncryptedCollectionRename") != std::string::npos) == may);
}

TEST_CASE("cluster: search indexes and encrypted data have actions of their own") {
  FakeCluster cluster(21);
  const bool writes = GENERATE(true, false);
  cluster.log_in({"ann", "app", {{writes ? "readWrite" : "read", "app"}}, {}, {}});
  const auto code = [&](std::string_view command) {
    return cluster.run(fmt::format("{{'{}': 'c', '$db': 'app'}}", command)).view()["code"].to_int64().value_or(0);
  };
  CHECK(code("listSearchIndexes") == 31082);
  for (const char* command : {"createSearchIndexes", "updateSearchIndex", "dropSearchIndex"}) {
    CHECK(code(command) == (writes ? 31082 : 13));
  }
  CHECK(code("compactStructuredEncryptionData") == (writes ? 0 : 13));
  CHECK(code("cleanupStructuredEncryptionData") == (writes ? 0 : 13));
}

TEST_CASE("cluster: a database that another router has dropped is made again for a new collection") {
  FakeCluster cluster(8);
  cluster.run("{'count': 'u', '$db': 'app'}");
  cluster.says["_configsvrCreateCollection"] = "{'ok': 0.0, 'errmsg': 'database app not found', 'code': 26}";
  const BsonDoc reply = cluster.run("{'create': 'c', '$db': 'app'}");
  CHECK(cluster.reads() > 0);
  CHECK(cluster.sent().size() == 2);
  CHECK(reply.view()["code"].to_int64() == 26);
}

TEST_CASE("cluster: the extents of servers of 4.2 are added up") {
  FakeCluster cluster(8);
  cluster.says["dbStats"] = "{'db': 'app', 'collections': 1, 'objects': 2, 'numExtents': 3, 'ok': 1.0}";
  CHECK(cluster.run("{'dbStats': 1, '$db': 'app'}").view()["numExtents"].to_int64() == 6);
}

TEST_CASE("cluster: a shard keeps the session that is started") {
  FakeCluster cluster(8);
  for (auto& state : cluster.worker.gateway.states()) state.replica_set = true;
  const BsonDoc reply = cluster.run("{'startSession': 1, '$db': 'admin'}");
  const ValueView id = reply.view().find_path("id.id");
  REQUIRE(id.exists());
  REQUIRE(cluster.sent().size() == 1);
  const DocView told = cluster.worker.gateway.sent.front().second;
  REQUIRE(told["refreshSessions"].is_array());
  CHECK(told["refreshSessions"].as_document().first().as_document()["id"] == id);
}

TEST_CASE("cluster: a database that does not exist has statistics, of nothing") {
  FakeCluster cluster(8);
  cluster.says["dbStats"] = "{'db': 'nowhere', 'collections': 0, 'objects': 0, 'ok': 1.0}";
  const BsonDoc reply = cluster.run("{'dbStats': 1, '$db': 'nowhere'}");
  CHECK(reply.view()["objects"].to_int64() == 0);
  CHECK(reply.view()["ok"].truthy());
  CHECK(cluster.sent().size() == 2);
}

TEST_CASE("cluster: a query is checked where no shard will do it") {
  FakeCluster cluster(8);
  CHECK(cluster.run("{'find': 'c', 'filter': {'$nosuch': 1}, '$db': 'nowhere'}").view()["code"].to_int64() == 2);
  CHECK(cluster.run("{'find': 'c', 'filter': {'x': {'$geoIntersects': 1}}, '$db': 'nowhere'}").view()["ok"].truthy());
  cluster.says["find"] = "{'ok': 0.0, 'errmsg': '$jsonSchema keyword', 'code': 14}";
  const BsonDoc refused = cluster.run("{'find': 'c', 'filter': {'$jsonSchema': {'items': 1}}, '$db': 'nowhere'}");
  CHECK(refused.view()["code"].to_int64() == 14);
  cluster.run(
      "{'find': 'c', 'filter': {'$expr': {'$eq': ['$a', '$$x']}}, 'let': {'x': 1}, 'collation': {'locale': 'de'}, "
      "'$readPreference': {'mode': 'nearest'}, '$db': 'nowhere'}");
  const std::string sent = to_json(cluster.worker.gateway.sent.back().second.view());
  CHECK(cluster.run("{'count': 'c', 'writeConcern': {'w': 1}, '$db': 'nowhere'}").view()["code"].to_int64() == 72);
  CHECK(sent.find(
            R"("let" : { "x" : 1 }, "collation" : { "locale" : "de" }, "$readPreference" : { "mode" : "nearest" })") !=
        std::string::npos);
}

TEST_CASE("cluster: what the cluster's version does not have is unknown") {
  const auto unknown = [](std::int32_t wire_version, std::string_view command) {
    CAPTURE(wire_version, command);
    FakeCluster cluster(wire_version);
    CHECK(cluster.run(command).view()["code"].to_int64() == 59);
    CHECK(cluster.sent().empty());
  };
  unknown(8, "{'reshardCollection': 'app.r', 'key': {'j': 1}, '$db': 'admin'}");
  unknown(8, "{'getDefaultRWConcern': 1, '$db': 'admin'}");
  unknown(13, "{'compactStructuredEncryptionData': 'r', 'compactionTokens': {}, '$db': 'app'}");
  unknown(17, "{'cleanupStructuredEncryptionData': 'r', 'cleanupTokens': {}, '$db': 'app'}");
  unknown(17, "{'createSearchIndexes': 'r', 'indexes': [], '$db': 'app'}");
}

TEST_CASE("cluster: search indexes are none without a host for them") {
  FakeCluster cluster(GENERATE(21, 25));
  for (const char* command : {"{'createSearchIndexes': 'r', 'indexes': [], '$db': 'app'}",
                              "{'updateSearchIndex': 'r', 'name': 'd', 'definition': {}, '$db': 'app'}",
                              "{'dropSearchIndex': 'r', 'name': 'd', '$db': 'app'}",
                              "{'listSearchIndexes': 'r', '$db': 'nodb'}"}) {
    CAPTURE(command);
    const BsonDoc reply = cluster.run(command);
    CHECK(reply.view()["code"].to_int64() == 31082);
    CHECK(reply.view()["codeName"].as_string() == "SearchNotEnabled");
    CHECK(cluster.sent().empty());
  }
}

TEST_CASE("a static table's only owner of a collection hears of its search indexes and encrypted data") {
  test::FakeWorker worker(
      test::routing_of("routing:\n"
                       "  shards:\n"
                       "  - {name: s0, uri: \"mongodb://127.0.0.1:1/\"}\n"
                       "  - {name: s1, uri: \"mongodb://127.0.0.1:2/\"}\n"
                       "  databases: [{name: app, primary: s1}]\n"
                       "  collections: [{ns: app.r, key: {k: hashed}}]\n"),
      [](std::uint16_t, DocView) -> Result<BsonDoc> { return doc("{'ok': 1.0}"); });
  Client client;
  const auto code = [&](const std::string& json) {
    worker.gateway.sent.clear();
    test::FakeRequest fake(json);
    const BsonDoc reply = test::reply_of(worker.run(run_command(worker.context, client, fake.request)));
    return reply.view()["code"].to_int64().value_or(0);
  };
  for (const std::string name : {"createSearchIndexes", "updateSearchIndex", "dropSearchIndex", "listSearchIndexes",
                                 "compactStructuredEncryptionData", "cleanupStructuredEncryptionData"}) {
    CAPTURE(name);
    CHECK(code("{'" + name + "': 'u', '$db': 'app'}") == 0);
    REQUIRE(worker.gateway.sent.size() == 1);
    CHECK(worker.gateway.sent.front().first == 1);
    CHECK(worker.gateway.sent.front().second.view().first().name == name);
    CHECK(code("{'" + name + "': 'r', '$db': 'app'}") == (name.ends_with("Data") ? 115 : 31082));
    CHECK(worker.gateway.sent.empty());
  }
}

TEST_CASE("cluster: what a command has changed is read again by the next one") {
  FakeCluster cluster(8);
  cluster.run("{'count': 'r', '$db': 'app'}");
  CHECK(cluster.reads() > 0);
  cluster.run("{'count': 'r', '$db': 'app'}");
  CHECK(cluster.reads() == 0);
  const char* const change = GENERATE("{'drop': 'r', '$db': 'app'}", "{'flushRouterConfig': 1, '$db': 'admin'}",
                                      "{'flushRouterConfig': 'app', '$db': 'admin'}",
                                      "{'flushRouterConfig': 'app.r', '$db': 'admin'}");
  cluster.run(change);
  cluster.run("{'count': 'r', '$db': 'app'}");
  CHECK(cluster.reads() > 0);
}

TEST_CASE("cluster: a chunk command works on what the config servers have now") {
  FakeCluster cluster(8);
  cluster.run("{'count': 'r', '$db': 'app'}");
  cluster.run("{'split': 'app.r', 'middle': {'k': 5}, '$db': 'admin'}");
  CHECK(cluster.reads() > 0);
  CHECK(cluster.run("{'split': 'app.u', 'middle': {'k': 5}, '$db': 'admin'}").view()["code"].to_int64() == 118);
  const BsonDoc no_shard = cluster.run("{'moveChunk': 'app.r', 'find': {'k': 5}, 'to': 'nosuch', '$db': 'admin'}");
  CHECK(no_shard.view()["code"].to_int64() == 70);
  CHECK(cluster.sent().empty());
}

TEST_CASE("cluster: all chunks of a shard are merged by its name, or by its servers'") {
  FakeCluster cluster(21);
  const auto merge = [&](const char* shard) {
    return cluster.run(fmt::format("{{'mergeAllChunksOnShard': 'app.r'{}, '$db': 'admin'}}", shard));
  };
  for (const char* shard : {", 'shard': 's2'", ", 'shard': 'b/b1:27018'"}) {
    CHECK(merge(shard).view()["ok"].truthy());
    CHECK(cluster.sent_one().find("s2 { \"_shardsvrMergeAllChunksOnShard\" : \"app.r\"") == 0);
    CHECK(cluster.worker.gateway.retries.back() == shard::RetryPolicy::idempotent);
  }
  CHECK(merge(", 'shard': 'nosuch'").view()["code"].to_int64() == 70);
  CHECK(merge("").view()["code"].to_int64() == 40414);
}

TEST_CASE("cluster: a collection that exists as it is wanted is made again without an error") {
  struct Case {
    const char* wanted;
    const char* shown;
    bool fits;
  };
  const auto each = GENERATE(values<Case>({
      {"", "{}", true},
      {", 'capped': false", "{}", true},
      {", 'capped': true, 'size': 1000", "{'capped': true, 'size': 1024}", true},
      {", 'capped': true, 'size': 1000", "{'capped': true, 'size': 4096}", false},
      {", 'capped': true, 'size': 1000", "{}", false},
      {"", "{'capped': true, 'size': 1024}", false},
      {", 'collation': {'locale': 'de'}", "{'collation': {'locale': 'de', 'strength': 3}}", true},
      {", 'collation': {'locale': 'de'}", "{'collation': {'locale': 'fr', 'strength': 3}}", false},
      {", 'viewOn': 'r', 'pipeline': []", "{'viewOn': 'r', 'pipeline': []}", true},
      {", 'viewOn': 'r', 'pipeline': []", "{'viewOn': 's', 'pipeline': []}", false},
  }));
  CAPTURE(each.wanted, each.shown);
  FakeCluster cluster(17);
  cluster.says["create"] = "{'ok': 0.0, 'code': 48, 'codeName': 'NamespaceExists', 'errmsg': 'it is there'}";
  cluster.says["listCollections"] = fmt::format(
      "{{'cursor': {{'firstBatch': [{{'name': 'c', 'options': {}}}], 'id': 0, 'ns': 'app.$cmd.listCollections'}}, "
      "'ok': 1.0}}", each.shown);
  const BsonDoc reply = cluster.run(fmt::format("{{'create': 'c'{}, '$db': 'app'}}", each.wanted));
  CHECK(reply.view()["code"].to_int64().value_or(0) == (each.fits ? 0 : 48));
  CHECK(cluster.sent()[0].find("s1 { \"create\" : \"c\"") == 0);
}

TEST_CASE("cluster: what $currentOp asks for is asked of the shards") {
  FakeCluster cluster(17);
  const auto one = [](const char* id) {
    return fmt::format("{{'cursor': {{'firstBatch': [{{'type': 'idleSession', 'opid': 7}}], "
                       "'id': {{'$numberLong': '{}'}}, 'ns': 'admin.$cmd.aggregate'}}, 'ok': 1.0}}", id);
  };
  const char* const command =
      "{'aggregate': 1, 'pipeline': [{'$currentOp': {'allUsers': true, 'idleSessions': true, 'truncateOps': true}}, "
      "{'$match': {'type': 'idleSession'}}], 'cursor': {}, '$readPreference': {'mode': 'secondary'}, '$db': 'admin'}";
  cluster.says["aggregate"] = one("0");
  const BsonDoc reply = cluster.run(command);
  CHECK(to_json(reply).find("\"s1:7\"") != std::string::npos);
  CHECK(to_json(reply).find("\"s2:7\"") != std::string::npos);
  const auto sent = cluster.sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].find(R"("$currentOp" : { "allUsers" : true, "idleConnections" : false, "idleSessions" : true, )"
                     R"("idleCursors" : false, "truncateOps" : true })") != std::string::npos);
  CHECK(sent[0].find(R"("$readPreference" : { "mode" : "secondary" })") != std::string::npos);
  // Sessions that a transaction has left are told of by default.
  CHECK(to_json(cluster.run("{'currentOp': 1, '$db': 'admin'}")).find("\"s2:7\"") != std::string::npos);
  CHECK(cluster.sent()[0].find(R"("idleSessions" : true)") != std::string::npos);
  cluster.says["aggregate"] = one("5");  // more than one reply
  CHECK(cluster.run(command).view()["code"].to_int64() == 10334);
  cluster.worker.loop.poll_until_idle();
  const auto ended = cluster.sent();
  CHECK(std::count_if(ended.begin(), ended.end(), [](const std::string& each) {
          return each.find("killCursors") != std::string::npos;
        }) == 1);
}

TEST_CASE("cluster: how data is distributed is asked of the members that the client prefers") {
  FakeCluster cluster(21);
  cluster.says["aggregate"] = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'admin.$cmd.aggregate'}, 'ok': 1.0}";
  cluster.run("{'aggregate': 1, 'pipeline': [{'$shardedDataDistribution': {}}], 'cursor': {}, "
              "'$readPreference': {'mode': 'secondary'}, '$db': 'admin'}");
  const auto& sent = cluster.worker.gateway.sent;
  std::size_t asked = 0;
  for (const auto& [shard, body] : sent) {
    if (body.view().first().name != "aggregate" && body.view().first().as_string() != "collections") continue;
    ++asked;
    CHECK(to_json(body.view()["$readPreference"]) == R"({ "mode" : "secondary" })");
  }
  CHECK(asked == 3);
}

TEST_CASE("cluster: a range of 6.0 is moved by its lower bound") {
  const char* const no_min = "{'moveRange': 'app.r', 'max': {'k': 9}, 'toShard': 's2', '$db': 'admin'}";
  CHECK(FakeCluster(17).run(no_min).view()["code"].to_int64() == 72);
  FakeCluster newer(21);
  newer.run(no_min);
  CHECK(newer.sent_one().find("_configsvrMoveRange") != std::string::npos);
}

TEST_CASE("cluster: its own answers are those of the table") {
  FakeCluster cluster(8);
  const BsonDoc version = cluster.run("{'getShardVersion': 'app.r', '$db': 'admin'}");
  CHECK(to_json(version.view()) ==
        to_json(doc("{'version': {'$timestamp': {'t': 3, 'i': 0}}, 'versionEpoch': {'$oid': "
                    "'64b0000000000000000000aa'}, 'ok': 1.0}")
                    .view()));
  const BsonDoc database = cluster.run("{'getShardVersion': 'app', '$db': 'admin'}");
  CHECK(database.view()["primaryShard"].as_string() == "s1");
  CHECK(database.view()["shardingEnabled"].truthy());
  const BsonDoc shards = cluster.run("{'listShards': 1, '$db': 'admin'}");
  CHECK(shards.view()["shards"].as_document().count() == 2);
  CHECK(cluster.run("{'listshards': 1, '$db': 'admin'}").view()["shards"].as_document().count() == 2);
  CHECK(cluster.run("{'getshardversion': 'app', '$db': 'admin'}").view()["primaryShard"].as_string() == "s1");
  CHECK(cluster.run("{'flushrouterconfig': 1, '$db': 'admin'}").view()["flushed"].truthy());
  cluster.run("{'dropDatabase': 1, '$db': 'nodb'}");
  CHECK(cluster.sent_one().find("_configsvrDropDatabase") != std::string::npos);
  for (shard::ShardState& state : cluster.worker.gateway.states()) state.max_wire_version = 13;
  CHECK(cluster.run("{'dropDatabase': 1, '$db': 'nodb'}").view()["info"].as_string() == "database does not exist");
  CHECK(cluster.run("{'drop': 'c', '$db': 'nodb'}").view()["code"].to_int64() == 26);
}

TEST_CASE("cluster: replies of indexes are told by shard, as a mongos does") {
  FakeCluster cluster(8);
  const std::string indexes = "'indexes': [{'key': {'v': 1}, 'name': 'v_1'}], '$db': 'app'}";
  const BsonDoc both = cluster.run("{'createIndexes': 'r', " + indexes);
  CHECK(both.view()["raw"].as_document().count() == 2);
  const BsonDoc one = cluster.run("{'createIndexes': 'u', " + indexes);
  CHECK(one.view()["raw"].as_document().count() == 1);
}

TEST_CASE("cluster: in a transaction the reply about indexes of several shards has a recoveryToken, too") {
  for (const char* collection : {"r", "u"}) {
    FakeCluster cluster(17);
    for (shard::ShardState& state : cluster.worker.gateway.states()) state.replica_set = true;
    const BsonDoc reply = cluster.run(fmt::format(
        "{{'createIndexes': '{}', 'indexes': [{{'key': {{'v': 1}}, 'name': 'v_1'}}], 'lsid': {{'id': {{'$binary': "
        "{{'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}}}}, 'txnNumber': {{'$numberLong': '1'}}, "
        "'autocommit': false, 'startTransaction': true, '$db': 'app'}}", collection));
    CAPTURE(to_json(reply));
    CHECK(reply.view()["ok"].truthy());
    CHECK(reply.view()["recoveryToken"].is_document());
  }
}

TEST_CASE("cluster: from 8.0 on the answer of one shard about its indexes stands in the reply, too") {
  const std::int32_t wire_version = GENERATE(17, 25);
  FakeCluster cluster(wire_version);
  cluster.says["createIndexes"] =
      "{'numIndexesBefore': 1, 'numIndexesAfter': 2, 'createdCollectionAutomatically': false, 'note': 'n', 'ok': 1.0}";
  const std::string indexes = "'indexes': [{'key': {'v': 1}, 'name': 'v_1'}], '$db': 'app'}";
  for (const char* name : {"numIndexesBefore", "numIndexesAfter", "createdCollectionAutomatically", "note"}) {
    CAPTURE(wire_version, name);
    const BsonDoc unsharded = cluster.run("{'createIndexes': 'u', " + indexes);
    CHECK(unsharded.view()[name].exists() == (wire_version == 25));
    CHECK(unsharded.view()["raw"].as_document().count() == 1);
    const BsonDoc sharded = cluster.run("{'createIndexes': 'r', " + indexes);
    CHECK_FALSE(sharded.view()[name].exists());
    CHECK(sharded.view()["raw"].as_document().count() == 2);
  }
}

TEST_CASE("cluster: of 4.2, every shard makes the indexes of a sharded collection, and none makes the collection") {
  const bool is_4_2 = GENERATE(true, false);
  FakeCluster cluster(is_4_2 ? 8 : 9);
  const std::string indexes = "'indexes': [{'key': {'v': 1}, 'name': 'v_1'}], '$db': 'app'}";
  cluster.says["s2 createIndexes"] =
      "{'ok': 0.0, 'errmsg': 'request does not allow collection to be created implicitly', 'code': 227}";
  cluster.says["s2 setIndexCommitQuorum"] = "{'ok': 0.0, 'errmsg': 'Cannot find an index build', 'code': 27}";
  // app.s lies on s1 alone.
  for (const std::string& command :
       {"{'createIndexes': 's', " + indexes,
        std::string("{'setIndexCommitQuorum': 's', 'indexNames': ['v_1'], 'commitQuorum': 1, '$db': 'app'}")}) {
    CAPTURE(command);
    CHECK(cluster.run(command).view()["ok"].truthy());
    const auto sent = cluster.sent();
    REQUIRE(sent.size() == (is_4_2 ? 2 : 1));
    for (const std::string& each : sent) {
      const bool forbids = each.find("\"allowImplicitCollectionCreation\" : false") != std::string::npos;
      CHECK(forbids == (is_4_2 && each.find("createIndexes") != std::string::npos));
      CHECK((each.find("shardVersion") == std::string::npos) == is_4_2);
    }
  }
  cluster.says["createIndexes"] = "{'ok': 0.0, 'errmsg': 'too many', 'code': 67}";
  CHECK(cluster.run("{'createIndexes': 's', " + indexes).view()["code"].to_int64() == 67);
}

TEST_CASE("cluster: of 4.2, shards that own no chunk any more hear of changed indexes and options, too") {
  const bool is_4_2 = GENERATE(true, false);
  FakeCluster cluster(is_4_2 ? 8 : 9);
  // app.s lies on s1 alone.
  for (const char* command : {"{'dropIndexes': 's', 'index': 'v_1', '$db': 'app'}",
                              "{'collMod': 's', 'validationLevel': 'off', '$db': 'app'}"}) {
    CAPTURE(command);
    cluster.run(command);
    CHECK(cluster.sent().size() == (is_4_2 ? 2 : 1));
  }
  cluster.says["dropIndexes"] = "{'ok': 0.0, 'errmsg': 'index not found', 'code': 27}";
  CHECK(cluster.run("{'dropIndexes': 's', 'index': 'v_1', '$db': 'app'}").view()["code"].to_int64() == 27);
  const BsonDoc capped = cluster.run("{'convertToCapped': 's', 'size': 9, '$db': 'app'}");
  CHECK(capped.view()["code"].to_int64() == 20);
}

TEST_CASE("cluster: names of databases and collections are checked before anything is looked for") {
  FakeCluster cluster(8);
  for (const char* command :
       {"{'movePrimary': 'app.', 'to': 's2', '$db': 'admin'}", "{'enableSharding': 'app.', '$db': 'admin'}",
        "{'split': 'app.r\\u0000', 'find': {}, '$db': 'admin'}"}) {
    CAPTURE(command);
    CHECK(cluster.run(command).view()["code"].to_int64() == 73);
  }
}

TEST_CASE("cluster: no client tells shards of a term of elections") {
  FakeCluster cluster(8);
  CHECK(cluster.run("{'find': 'r', 'term': {'$numberLong': '9'}, '$db': 'app'}").view()["code"].to_int64() == 13);
  CHECK(cluster.run("{'find': 'u', 'term': {'$numberLong': '9'}, '$db': 'app'}").view()["code"].to_int64() == 13);
  CHECK(cluster.sent().empty());
}

TEST_CASE("cluster: users with certificates are made and changed") {
  FakeCluster cluster(8);
  CHECK(cluster.run("{'createUser': 'CN=app', 'roles': [], '$db': '$external'}").view()["ok"].truthy());
  CHECK(cluster.sent_one().find("createUser") != std::string::npos);
}

TEST_CASE("cluster: a change of users is known before its answer goes out") {
  FakeCluster cluster(8);
  cluster.worker.shared.users_from = 0;
  cluster.worker.shared.users_of_cluster = true;
  const auto stored = [&](const char* roles) {
    cluster.says["usersInfo"] =
        std::string("{'users': [{'user': 'joe', 'db': 'app', 'roles': [], 'inheritedRoles': [") + roles +
        "], 'inheritedPrivileges': []}], 'ok': 1.0}";
  };
  const auto asked = [&] {
    std::vector<std::string> names;
    for (const auto& [shard, body] : cluster.worker.gateway.sent) names.emplace_back(body.view().first().name);
    return names;
  };
  const auto joe = [&] { return cluster.worker.shared.users.table()->find("app", "joe"); };
  using Names = std::vector<std::string>;
  stored("");
  CHECK(cluster.run("{'createUser': 'joe', 'pwd': 'x', 'roles': [], '$db': 'app'}").view()["ok"].truthy());
  CHECK(asked() == Names{"createUser", "usersInfo"});
  REQUIRE(joe());
  CHECK(joe()->resolved->roles.empty());
  stored("{'role': 'read', 'db': 'app'}");
  CHECK(cluster.run("{'grantRolesToUser': 'joe', 'roles': ['read'], '$db': 'app'}").view()["ok"].truthy());
  CHECK(asked() == Names{"grantRolesToUser", "usersInfo"});
  CHECK(joe()->resolved->roles.size() == 1);
  // A role may be many users'.
  stored("{'role': 'read', 'db': 'app'}, {'role': 'read', 'db': 'other'}");
  CHECK(cluster.run("{'grantRolesToRole': 'r', 'roles': ['read'], '$db': 'app'}").view()["ok"].truthy());
  CHECK(asked() == Names{"grantRolesToRole", "_getUserCacheGeneration", "usersInfo", "usersInfo"});
  CHECK(joe()->resolved->roles.size() == 2);
  stored("");
  CHECK(cluster.run("{'invalidateUserCache': 1, '$db': 'admin'}").view()["ok"].truthy());
  CHECK(joe()->resolved->roles.empty());
  cluster.says["usersInfo"] = "{'users': [], 'ok': 1.0}";
  CHECK(cluster.run("{'dropUser': 'joe', '$db': 'app'}").view()["ok"].truthy());
  CHECK_FALSE(joe());
  // A command that only reads does not refresh the users.
  cluster.run("{'usersInfo': 1, '$db': 'app'}");
  CHECK(asked() == Names{"usersInfo"});
}

TEST_CASE("cluster: managing users needs the actions on their databases") {
  std::vector<auth::RoleGrant> roles{{"readWrite", "app"}};
  const auto may = [&](std::string_view json) {
    const auth::User user(auth::UserSpec{"joe", "app", roles, {}, {}});
    const test::FakeRequest fake(json);
    return may_manage_users(user, fake.request);
  };
  CHECK_FALSE(may("{'createUser': 'x', 'pwd': 'y', 'roles': [], '$db': 'app'}"));
  CHECK_FALSE(may("{'grantRolesToUser': 'x', 'roles': ['read'], '$db': 'app'}"));
  CHECK_FALSE(may("{'updateUser': 'x', 'pwd': 'y', '$db': 'app'}"));
  CHECK(may("{'usersInfo': 'joe', '$db': 'app'}"));
  CHECK_FALSE(may("{'usersInfo': 'jim', '$db': 'app'}"));
  CHECK(may("{'usersInfo': {'user': 'joe', 'db': 'app'}, 'showCredentials': true, '$db': 'app'}"));
  CHECK_FALSE(may("{'usersInfo': {'user': 'jim', 'db': 'app'}, 'showCredentials': true, '$db': 'app'}"));
  CHECK_FALSE(may("{'usersInfo': {'forAllDBs': true}, '$db': 'admin'}"));
  const auto merge = [](std::string_view users, std::string_view drop) {
    return "{'_mergeAuthzCollections': 1, 'tempUsersCollection': '" + std::string(users) + "', 'drop': " +
           std::string(drop) + ", 'db': '', '$db': 'admin'}";
  };
  CHECK_FALSE(may(merge("app.tempusers", "false")));
  roles = {{"root", "admin"}};
  CHECK(may("{'usersInfo': {'forAllDBs': true}, '$db': 'admin'}"));
  const auto restorer_may = [&](auth::ActionSet everywhere, auth::ActionSet on_temporary, const std::string& json) {
    using On = auth::Privilege::On;
    const std::vector<auth::Privilege> privileges{{On::collections, "", "", everywhere},
                                                  {On::collections, "admin", "tempusers", on_temporary}};
    auth::UserSpec spec{"joe", "app", {}, {}, {}};
    spec.resolved = auth::ResolvedRoles{{}, privileges};
    const auth::User user(std::move(spec));
    const test::FakeRequest fake(json);
    return may_manage_users(user, fake.request);
  };
  using enum auth::Action;
  const auth::ActionSet adds{create_user, create_role, grant_role, revoke_role};
  CHECK(restorer_may(adds, find, merge("admin.tempusers", "false")));
  CHECK_FALSE(restorer_may(adds, {}, merge("admin.tempusers", "false")));
  CHECK_FALSE(restorer_may(adds, find, merge("admin.others", "false")));
  CHECK_FALSE(restorer_may(adds, find, merge("admin.tempusers", "true")));
  CHECK_FALSE(restorer_may({create_user, create_role, grant_role}, find, merge("admin.tempusers", "false")));
}

TEST_CASE("cluster: its commands do not exist where the table is the configuration's") {
  test::FakeWorker worker(test::routing_of("routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:1/\"}]}"),
                          [](std::uint16_t, DocView) -> Result<BsonDoc> { return doc("{'ok': 1.0}"); });
  for (const CommandSpec& spec : all_commands()) {
    if (!spec.is(Trait::cluster_only)) continue;
    INFO(spec.name);
    test::FakeRequest fake("{'" + std::string(spec.name) + "': 1, '$db': 'admin'}");
    Client client;
    const auto reply = test::reply_of(worker.run(run_command(worker.context, client, fake.request)));
    CHECK(reply.view()["code"].to_int64() == 59);
  }
  CHECK(worker.gateway.sent.empty());
}

}  // namespace
}  // namespace spillway::exec
