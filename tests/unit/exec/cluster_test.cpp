// A worker in a cluster: what it asks the config servers, what it sends to shards, and what it does when they refuse.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "proxy/auth/impersonation.h"
#include "proxy/auth/privilege.h"
#include "proxy/exec/admin/live_status.h"
#include "proxy/exec/cluster/cluster_router.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/commands/sharded_view.h"
#include "proxy/exec/read/change_lookup.h"
#include "tests/support/clock_manual.h"
#include "tests/support/fake_gateway.h"
#include "tests/support/read_version.h"

using namespace spillway;

namespace {

using test::doc;

constexpr const char* epoch_text = "0123456789abcdef01234567";

// Config servers of 4.2 whose tables the test writes, and shards that check versions.
class FakeCluster {
 public:
  enum class Start { now, later };

  explicit FakeCluster(std::int32_t wire_version = 8, Start starts = Start::now)
      : worker_(exec::table_of_config_servers("mongodb://127.0.0.1:27019/"),
                [this](std::uint16_t shard, DocView command) { return answer(shard, command); }),
        table_(worker_.shared.cluster = start(wire_version)),
        router_(worker_.context, *table_, table_->shards()) {
    worker_.context.router = &router_;
    if (starts == Start::later) return;
    REQUIRE_FALSE(try_start().has_error());
    for (auto& state : worker_.gateway.states()) state.max_wire_version = wire_version;
    forget_sent();
  }
  ~FakeCluster() { worker_.context.router = &worker_.context.static_router; }

  Result<void> try_start() {
    auto started = worker_.run(table_->start());
    worker_.loop.poll_until_idle();
    return started;
  }

  // Runs a command as a client's; its reply.
  BsonDoc run(std::string_view json) {
    test::FakeRequest request(json);
    return run(request);
  }
  BsonDoc run(test::FakeRequest& request) {
    shard::ShardTime time;
    request.request.shard_time = &time;
    return test::reply_of(worker_.run(exec::run_command(worker_.context, client_, request.request)));
  }

  void set_replica_sets() {
    for (auto& state : worker_.gateway.states()) state.replica_set = true;
  }

  // The client logs in, as everybody must from now on.
  void log_in(auth::UserSpec user) {
    auth::UserDirectory& users = worker_.shared.users;
    worker_.shared.authorization = true;
    const std::string db = user.db, name = user.name;
    users.feed({std::move(user)});
    client_.login.user = users.table()->find(db, name);
    client_.login.generation = users.generation();
    client_.user = auth::user_id(db, name);
  }

  // {-inf … k} on one shard, {k … inf} on the other, as `version` (major).
  void shard_collection(const std::string& ns, int k, const char* low, const char* high, int major) {
    collections_[ns] = doc(fmt::format(
        "{{'_id': '{}', 'lastmodEpoch': {{'$oid': '{}'}}, 'key': {{'k': 1}}, 'unique': false, 'dropped': false}}", ns,
        epoch_text));
    chunks_[ns] = {chunk(ns, "{'$minKey': 1}", fmt::format("{}", k), low, major, 0),
                   chunk(ns, fmt::format("{}", k), "{'$maxKey': 1}", high, major, 1)};
  }
  static BsonDoc chunk(const std::string& ns, const std::string& min, const std::string& max, std::string_view shard,
                       int major, int minor) {
    return doc(fmt::format("{{'_id': 'unread', 'ns': '{0}', 'min': {{'k': {1}}}, 'max': {{'k': {2}}}, 'shard': '{3}', "
                           "'lastmod': {{'$timestamp': {{'t': {4}, 'i': {5}}}}}, 'lastmodEpoch': {{'$oid': '{6}'}}}}",
                           ns, min, max, shard, major, minor, epoch_text));
  }

  // Commands of this name to this shard, as they were sent.
  std::vector<BsonDoc> sent_to(std::uint16_t shard, std::string_view name) const {
    std::vector<BsonDoc> found;
    for (const auto& [to, command] : worker_.gateway.sent) {
      if (to == shard && command.view().first().name == name) found.push_back(command);
    }
    return found;
  }
  std::size_t reads_of(std::string_view collection) const {
    std::size_t reads = 0;
    for (const BsonDoc& find : sent_to(0, "find")) reads += find.view().first().as_string() == collection;
    return reads;
  }
  // {_id: 'ReadWriteConcernDefaults', …} of config.settings.
  void set_concerns(std::string_view read, std::string_view write) {
    settings_ = doc(fmt::format("{{'_id': 'ReadWriteConcernDefaults', 'defaultReadConcern': {}, "
                                "'defaultWriteConcern': {}}}", read, write));
    REQUIRE_FALSE(worker_.run(table_->read_concern_defaults()).has_error());
    worker_.loop.poll_until_idle();
  }
  void read_shards() {
    REQUIRE_FALSE(worker_.run(table_->read_shards()).has_error());
    worker_.loop.poll_until_idle();
  }
  void check_identities() {
    REQUIRE_FALSE(worker_.run(table_->check_identities()).has_error());
    worker_.loop.poll_until_idle();
  }
  void look_for_keys() {
    test::advance_time(std::chrono::seconds(1));
    REQUIRE_FALSE(worker_.run(table_->look_for_keys()).has_error());
  }
  void tick() {
    worker_.loop.poll_until_idle();
    table_->tick(Clock::now());
    worker_.loop.poll_until_idle();
  }
  void forget_sent() {
    worker_.gateway.sent.clear();
    worker_.gateway.sent_to_host.clear();
  }
  exec::ClusterRouter& router() { return router_; }
  exec::Client& client() { return client_; }
  exec::ClusterTable& table() { return *table_; }
  test::FakeWorker& worker() { return worker_; }

  std::map<std::string, BsonDoc> databases_ = {{"app", doc("{'_id': 'app', 'primary': 'sh1', 'partitioned': true, "
                                                           "'version': {'uuid': {'$binary': {'base64': "
                                                           "'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}, "
                                                           "'lastMod': 1}}")}};
  std::map<std::string, BsonDoc> collections_;
  std::map<std::string, std::vector<BsonDoc>> chunks_;
  std::vector<std::string> shards_ = {"sh1", "sh2"};
  std::map<std::string, std::string> hosts_;  // of shards that have others than at first
  std::string users_ = "[]", roles_ = "[]";
  std::optional<BsonDoc> settings_;
  std::function<void()> before_settings_;  // once, between a question about them and its answer
  bool away_ = false;  // the config servers
  bool names_cluster_ = true;
  std::vector<BsonDoc> keys_;
  std::optional<std::uint16_t> retired_;  // a shard that has left: its calls fail before anything is sent
  // What shards answer; null: {ok: 1} and, to a find, no documents.
  std::function<std::optional<BsonDoc>(std::uint16_t shard, DocView command)> shard_answer_;

 private:
  std::unique_ptr<exec::ClusterTable> start(std::int32_t wire_version) {
    worker_.gateway.states().front().max_wire_version = wire_version;
    return std::make_unique<exec::ClusterTable>(worker_.context, worker_.shared.routing, exec::ClusterLinks{});
  }

  static BsonDoc cursor_of(std::string_view ns, const std::vector<BsonDoc>& documents) {
    BsonWriter reply;
    reply.begin_document("cursor").begin_array("firstBatch");
    for (const BsonDoc& document : documents) reply.append_item(document.view());
    reply.end().append("id", std::int64_t{0}).append("ns", ns).end().append("ok", 1.0);
    return std::move(reply).finish();
  }

  Result<BsonDoc> answer(std::uint16_t shard, DocView command) {
    if (shard == 0) return answer_as_config(command);
    if (shard == retired_) return Error(ErrorCode::shard_not_found, "it is no shard of the cluster any more");
    if (shard_answer_) {
      if (auto answer = shard_answer_(shard, command)) return *std::move(answer);
    }
    const std::string_view name = command.first().name;
    if (name == "find" || name == "aggregate") return cursor_of("app.c", {});
    return doc("{'ok': 1, 'n': 1}");
  }

  Result<BsonDoc> answer_as_config(DocView command) {
    if (away_) return Error(ErrorCode::failed_to_satisfy_read_preference, "no config server answers");
    const std::string_view name = command.first().name;
    if (name == "_configsvrCreateDatabase") {
      const std::string db(command.first().as_string());
      databases_[db] = doc(fmt::format("{{'_id': '{}', 'primary': 'sh2', 'partitioned': false, 'version': {{'uuid': "
                                       "{{'$binary': {{'base64': 'AQAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}}, "
                                       "'lastMod': 1}}}}",
                                       db));
      return doc("{'ok': 1}");
    }
    if (name == "rolesInfo") return doc("{'roles': " + roles_ + ", 'ok': 1}");
    if (name == "usersInfo") return doc("{'users': " + users_ + ", 'ok': 1}");
    if (name != "find") return doc("{'ok': 1}");
    const std::string_view collection = command.first().as_string();
    const DocView filter = command["filter"].as_document();
    const std::string id(filter["_id"].is_string() ? filter["_id"].as_string() : "");
    std::vector<BsonDoc> found;
    if (collection == "version" && names_cluster_)
      found.push_back(doc("{'_id': 1, 'clusterId': {'$oid': 'aaaaaaaaaaaaaaaaaaaaaaaa'}}"));
    if (collection == "system.keys") found = keys_;
    if (collection == "settings" && settings_) found.push_back(*settings_);
    if (collection == "settings" && before_settings_) std::exchange(before_settings_, nullptr)();
    if (collection == "shards") {
      for (const std::string& shard_name : shards_) {
        const auto other = hosts_.find(shard_name);
        const std::string host = other == hosts_.end() ? shard_name + "/127.0.0.1:27018" : other->second;
        found.push_back(doc(fmt::format("{{'_id': '{}', 'host': '{}', 'state': 1}}", shard_name, host)));
      }
    }
    if (collection == "databases" && databases_.contains(id)) found.push_back(databases_[id]);
    if (collection == "databases" && filter["_id"].is_document()) {
      for (const Element& one : filter["_id"].as_document()["$in"].as_document()) {
        const auto named = databases_.find(std::string(one.as_string()));
        if (named != databases_.end()) found.push_back(named->second);
      }
    }
    if (collection == "collections" && collections_.contains(id)) found.push_back(collections_[id]);
    if (collection == "collections" && !filter["_id"].exists()) {
      for (const auto& [ns, entry] : collections_) found.push_back(entry);
    }
    if (collection == "chunks") {
      const std::uint64_t since = filter["lastmod"].is_document()
                                      ? *catalog::read_timestamp(filter["lastmod"].as_document()["$gte"])
                                      : 0;
      for (const BsonDoc& one : chunks_[std::string(filter["ns"].as_string())]) {
        if (*catalog::read_timestamp(one.view()["lastmod"]) >= since) found.push_back(one);
      }
    }
    return cursor_of("config", found);
  }

  test::FakeWorker worker_;
  std::unique_ptr<exec::ClusterTable>& table_;
  exec::ClusterRouter router_;
  exec::Client client_;
};

// {major, minor} of a shardVersion as a shard of 4.2 takes it.
std::pair<std::uint32_t, std::uint32_t> version_of(const BsonDoc& command) {
  const auto version = catalog::read_chunk_version(command.view()["shardVersion"]);
  REQUIRE(version.has_value());
  return {version->major, version->minor};
}

BsonDoc stale_config(std::string_view ns) {
  return doc(fmt::format("{{'ok': 0, 'code': 13388, 'codeName': 'StaleConfig', 'errmsg': 'stale', 'ns': '{}'}}", ns));
}

}  // namespace

TEST_CASE("in a cluster a find goes to the chunk's owner, with the version of that shard") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  const BsonDoc reply = cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  CHECK(reply.view()["ok"].truthy());
  CHECK(cluster.sent_to(1, "find").empty());
  const auto sent = cluster.sent_to(2, "find");
  REQUIRE(sent.size() == 1);
  CHECK(version_of(sent.front()) == std::pair(3U, 1U));
  cluster.forget_sent();
  cluster.run("{'find': 'c', 'filter': {'k': 2}, '$db': 'app'}");
  CHECK(version_of(cluster.sent_to(1, "find").at(0)) == std::pair(3U, 0U));
  CHECK(cluster.sent_to(0, "find").empty());  // everything was known
}

TEST_CASE("from 6.0 on a shard takes its version as a document") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  CHECK(cluster.sent_to(2, "find").at(0).view()["shardVersion"].is_document());
}

namespace {

// Shards that open cursors and, as mergers, have one document. `foreign`: app.f, sharded.
struct MergingCluster : FakeCluster {
  explicit MergingCluster(std::int32_t wire_version = 8) : FakeCluster(wire_version) {
    shard_collection("app.c", 10, "sh1", "sh2", 3);
    shard_answer_ = [this](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
      if (command.first().name != "aggregate") return std::nullopt;
      if (!merges(command)) return opened_answer ? opened_answer(shard) : cursor(100 + shard, "");
      return merger_answer ? *merger_answer : cursor(0, "{'_id': 1}");
    };
  }
  static BsonDoc cursor(int id, std::string_view documents) {
    return doc(fmt::format(
        "{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '{}'}}, 'ns': 'app.c'}}, 'ok': 1}}", documents, id));
  }
  static bool merges(DocView command) {
    const Element first = command["pipeline"].as_document().first();
    return first.is_document() && first.as_document().first().name == "$mergeCursors";
  }
  std::vector<BsonDoc> parts(std::uint16_t shard, bool merging) const {
    std::vector<BsonDoc> found;
    for (const BsonDoc& each : sent_to(shard, "aggregate")) {
      if (merges(each.view()) == merging) found.push_back(each);
    }
    return found;
  }
  // The only command of a merger; which shard it is.
  BsonDoc merger_command(std::uint16_t* merger = nullptr) const {
    std::vector<BsonDoc> found;
    for (std::uint16_t shard = 1; shard <= 2; ++shard) {
      for (const BsonDoc& each : parts(shard, true)) {
        found.push_back(each);
        if (merger != nullptr) *merger = shard;
      }
    }
    REQUIRE(found.size() == 1);
    return found.front();
  }
  static DocView merge_cursors(const BsonDoc& command) {
    return command.view()["pipeline"].as_document().first().as_document().first().as_document();
  }
  std::vector<std::int64_t> killed(std::uint16_t shard) const {
    std::vector<std::int64_t> ids;
    for (const BsonDoc& each : sent_to(shard, "killCursors")) {
      for (const Element& id : each.view()["cursors"].as_document()) ids.push_back(*id.to_int64());
    }
    return ids;
  }

  std::function<BsonDoc(std::uint16_t shard)> opened_answer;
  std::optional<BsonDoc> merger_answer;
};

constexpr const char* lookup =
    "{'aggregate': 'c', 'pipeline': [{'$match': {'a': 1}}, {'$lookup': {'from': 'u', 'as': 'j', 'localField': 'a', "
    "'foreignField': 'b'}}], 'cursor': {'batchSize': 7}, 'maxTimeMS': 5000, '$db': 'app'}";

}  // namespace

TEST_CASE("shards fetch the documents of a view from each other by the collection below it") {
  MergingCluster cluster;
  cluster.shard_answer_ = [merging = cluster.shard_answer_](std::uint16_t shard,
                                                            DocView command) -> std::optional<BsonDoc> {
    if (command.first().as_string() != "v") return merging(shard, command);
    return doc("{'ok': 0, 'code': 169, 'errmsg': 'a view', 'resolvedView': {'ns': 'app.c', 'pipeline': "
               "[{'$match': {'x': 1}}]}}");
  };
  const BsonDoc reply = cluster.run(
      "{'aggregate': 'v', 'pipeline': [{'$facet': {'n': [{'$count': 'n'}]}}], 'cursor': {}, '$db': 'app'}");
  CHECK(reply.view()["cursor"].as_document()["ns"].as_string() == "app.v");
  const BsonDoc command = cluster.merger_command();
  const DocView merging = MergingCluster::merge_cursors(command);
  CHECK(merging["nss"].as_string() == "app.c");
  std::size_t remotes = 0;
  for (const Element& remote : merging["remotes"].as_document()) {
    const DocView cursor = remote.as_document()["cursorResponse"].as_document()["cursor"].as_document();
    CHECK(cursor["ns"].as_string() == "app.c");
    ++remotes;
  }
  CHECK(remotes == 2);
}

TEST_CASE("shards merge what is evaluated here for some values only") {
  const auto [stage, by_shard] = GENERATE(values<std::pair<const char*, bool>>(
      {{"{'$project': {'y': {'$ceil': '$_id'}}}", true},  // of a decimal
       {"{'$project': {'y': {'$map': {'input': '$a', 'in': {'$toLower': '$$this'}}}}}", true},
       {"{'$project': {'y': {'$year': '$_id'}}}", true},  // {date: …, timezone: …}
       {"{'$project': {'y': {'$add': ['$_id', 1]}}}", false}}));
  INFO(stage);
  MergingCluster cluster;
  cluster.opened_answer = [](std::uint16_t) { return MergingCluster::cursor(0, ""); };
  cluster.run(fmt::format("{{'aggregate': 'c', 'pipeline': [{{'$group': {{'_id': '$k'}}}}, {}], 'cursor': {{}}, "
                          "'$db': 'app'}}",
                          stage));
  CHECK(cluster.parts(1, true).size() + cluster.parts(2, true).size() == (by_shard ? 1 : 0));
}

TEST_CASE("stages that no collection has are refused as shards refuse them") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  for (const char* stage : {"$currentOp", "$listLocalSessions", "$listSessions"}) {
    const BsonDoc reply = cluster.run(
        fmt::format("{{'aggregate': 'c', 'pipeline': [{{'{}': {{}}}}], 'cursor': {{}}, '$db': 'app'}}", stage));
    CHECK(reply.view()["code"].to_int64() == 73);
  }
}

TEST_CASE("an aggregation's cursor has no option but its batches' size") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  for (const auto& [options, code] : {std::pair("{}", 0), {"{'batchSize': 5}", 0}, {"{'batchsize': 5}", 2}}) {
    const BsonDoc reply =
        cluster.run(fmt::format("{{'aggregate': 'c', 'pipeline': [], 'cursor': {}, '$db': 'app'}}", options));
    CHECK(reply.view()["code"].to_int64().value_or(0) == code);
  }
}

TEST_CASE("a collection's name is looked at before the rest of an aggregation") {
  FakeCluster cluster;
  for (const std::string_view name : {"", ".a", "a\\u0000b"}) {
    const BsonDoc reply = cluster.run(fmt::format("{{'aggregate': '{}', 'pipeline': [], '$db': 'app'}}", name));
    CHECK(reply.view()["code"].to_int64() == 73);
  }
}

TEST_CASE("names that no collection has are refused, even if there is no such database") {
  FakeCluster cluster;
  const char* command = GENERATE("{'getMore': {'$numberLong': '5'}, 'collection': 'a\\u0000b', '$db': 'none'}",
                                 "{'renameCollection': 'none.', 'to': 'app.b', '$db': 'admin'}",
                                 "{'renameCollection': 'app.b', 'to': 'none.a\\u0000b', '$db': 'admin'}",
                                 "{'dataSize': 'none.', '$db': 'none'}", "{'datasize': 'none.', '$db': 'none'}",
                                 "{'find': 'a\\u0000b', '$db': 'none'}");
  INFO(command);
  CHECK(cluster.run(command).view()["code"].to_int64() == 73);
}

TEST_CASE("a $lookup over shards is the primary shard's, which takes over the others' cursors") {
  MergingCluster cluster;
  const BsonDoc reply = cluster.run(lookup);
  INFO(to_json(reply.view()));
  CHECK(reply.view()["cursor"].as_document()["firstBatch"].as_document().count() == 1);
  for (std::uint16_t shard = 1; shard <= 2; ++shard) {
    const auto opened = cluster.parts(shard, false);
    REQUIRE(opened.size() == 1);
    const DocView command = opened.front().view();
    CHECK(command["pipeline"].as_document().count() == 1);
    CHECK(command["cursor"].as_document()["batchSize"].to_int64() == 0);
    CHECK(version_of(opened.front()) == std::pair(3U, shard - 1U));
    for (const char* internal : {"needsMerge", "fromMongos"}) CHECK_FALSE(command[internal].exists());
    CHECK(cluster.killed(shard).empty());
  }
  std::uint16_t merger = 0;
  const BsonDoc command = cluster.merger_command(&merger);
  CHECK(merger == 1);
  CHECK(command.view()["pipeline"].as_document().count() == 2);
  CHECK(command.view()["fromMongos"].truthy());
  CHECK(command.view()["cursor"].as_document()["batchSize"].to_int64() == 7);
  CHECK(command.view()["maxTimeMS"].to_int64() == 5000);
  CHECK_FALSE(command.view()["shardVersion"].exists());
  CHECK(command.view()["databaseVersion"].exists());
  const DocView merge = MergingCluster::merge_cursors(command);
  CHECK_FALSE(merge["sort"].exists());
  CHECK(merge["nss"].as_string() == "app.c");
  int shard = 0;
  for (const Element& remote : merge["remotes"].as_document()) {
    ++shard;
    CHECK(remote.as_document()["shardId"].as_string() == fmt::format("sh{}", shard));
    CHECK(remote.as_document()["hostAndPort"].as_string() == fmt::format("127.0.0.1:{}", 27018 + shard));
    const DocView opened = remote.as_document()["cursorResponse"].as_document()["cursor"].as_document();
    CHECK(opened["id"].to_int64() == 100 + shard);
    CHECK(opened["firstBatch"].is_array());
  }
  CHECK(shard == 2);
}

TEST_CASE("a merger's version is of nothing from 4.4 on") {
  for (const std::int32_t wire : {9, 13, 17, 25}) {
    INFO(wire);
    MergingCluster cluster(wire);
    if (wire >= 13) cluster.opened_answer = [](std::uint16_t shard) { return MergingCluster::cursor(100 + shard, ""); };
    const BsonDoc reply = cluster.run(lookup);
    INFO(to_json(reply.view()));
    REQUIRE(reply.view()["ok"].truthy());
    const BsonDoc command = cluster.merger_command();
    const auto version = catalog::read_chunk_version(command.view()["shardVersion"]);
    REQUIRE(version.has_value());
    CHECK(*version == catalog::ChunkVersion::ignored());
    CHECK(command.view()["shardVersion"].is_document() == (wire >= 17));
    CHECK_FALSE(command.view()["databaseVersion"].exists());
  }
}

TEST_CASE("what a merger has refused is killed here, and begins again if it was for the table") {
  MergingCluster cluster;
  cluster.merger_answer = doc("{'ok': 0, 'code': 51108, 'errmsg': 'no'}");
  CHECK(cluster.run(lookup).view()["code"].to_int64() == 51108);
  CHECK(cluster.killed(1) == std::vector<std::int64_t>{101});
  CHECK(cluster.killed(2) == std::vector<std::int64_t>{102});
  cluster.forget_sent();
  cluster.merger_answer = doc("{'ok': 0, 'code': 249, 'errmsg': 'moved', 'db': 'app'}");
  int refusals = 0;
  cluster.opened_answer = [&](std::uint16_t shard) {
    if (++refusals > 3) cluster.merger_answer.reset();  // on the second try
    return MergingCluster::cursor(100 + shard, "");
  };
  CHECK(cluster.run(lookup).view()["ok"].truthy());
  CHECK(cluster.parts(1, false).size() == 2);
  CHECK(cluster.killed(1).size() == 1);
  CHECK(cluster.killed(2).size() == 1);
}

TEST_CASE("a shard that refuses its half ends the other's cursor, and both begin again") {
  MergingCluster cluster;
  bool stale = true;
  cluster.opened_answer = [&](std::uint16_t shard) {
    return shard == 2 && std::exchange(stale, false) ? stale_config("app.c") : MergingCluster::cursor(100 + shard, "");
  };
  CHECK(cluster.run(lookup).view()["ok"].truthy());
  CHECK(cluster.killed(1) == std::vector<std::int64_t>{101});
  CHECK(cluster.killed(2).empty());
  CHECK(cluster.parts(1, true).size() == 1);
}

TEST_CASE("only a router that its shards trust has them merge") {
  MergingCluster cluster;
  cluster.worker().shared.shards_trust_us = false;
  const BsonDoc refused = cluster.run(lookup);
  CHECK(refused.view()["code"].to_int64() == 115);
  CHECK(refused.view()["errmsg"].as_string().find("$lookup") != std::string_view::npos);
  CHECK(cluster.sent_to(1, "aggregate").empty());
  // Every shard answers these for itself.
  cluster.opened_answer = [](std::uint16_t) { return MergingCluster::cursor(0, "{'shard': 1}"); };
  const BsonDoc statistics =
      cluster.run("{'aggregate': 'c', 'pipeline': [{'$collStats': {}}], 'cursor': {}, '$db': 'app'}");
  CHECK(statistics.view()["cursor"].as_document()["firstBatch"].as_document().count() == 2);
  CHECK(cluster.sent_to(1, "aggregate").at(0).view()["fromMongos"].truthy());
}

TEST_CASE("an order is merged by the keys that shards send, and partial groups are the merger's") {
  MergingCluster cluster;
  cluster.run(
      "{'aggregate': 'c', 'pipeline': [{'$sort': {'a': -1}}, {'$bucketAuto': {'groupBy': '$a', 'buckets': 2}}], "
      "'cursor': {}, '$db': 'app'}");
  CHECK(MergingCluster::merge_cursors(cluster.merger_command())["sort"].as_document()["a"].to_int64() == -1);
  CHECK(cluster.parts(2, false).at(0).view()["needsMerge"].truthy());
  CHECK(cluster.parts(2, false).at(0).view()["fromMongos"].truthy());
  cluster.forget_sent();
  cluster.run("{'aggregate': 'c', 'pipeline': [{'$group': {'_id': '$a', 's': {'$stdDevPop': '$b'}}}], 'cursor': {}, "
              "'collation': {'locale': 'fr'}, '$db': 'app'}");
  CHECK(cluster.parts(1, false).at(0).view()["needsMerge"].truthy());
  CHECK(cluster.merger_command().view()["collation"].is_document());
}

TEST_CASE("a collation is compared with by a merger, and so is what may need a disk") {
  for (const char* option : {"'collation': {'locale': 'fr'}", "'allowDiskUse': true"}) {
    MergingCluster cluster;
    cluster.run(fmt::format(
        "{{'aggregate': 'c', 'pipeline': [{{'$group': {{'_id': '$a'}}}}], 'cursor': {{}}, {}, '$db': 'app'}}", option));
    CHECK(cluster.merger_command().view()["ok"].exists() == false);
  }
}

TEST_CASE("to 5.0 no sharded collection is joined, later ones are by any shard") {
  MergingCluster cluster;
  cluster.shard_collection("app.u", 10, "sh1", "sh2", 3);
  const BsonDoc refused = cluster.run(lookup);
  CHECK(refused.view()["code"].to_int64() == 28769);
  CHECK(refused.view()["errmsg"].as_string() == "app.u cannot be sharded");
  CHECK(cluster.sent_to(1, "aggregate").empty());
  MergingCluster newer(17);
  newer.shard_collection("app.u", 10, "sh1", "sh2", 3);
  newer.run(lookup);
  newer.merger_command();
  // In transactions from 8.0 on.
  const std::string first = fmt::format(
      "{}, 'lsid': {{'id': {{'$binary': {{'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}}}}, "
      "'txnNumber': {{'$numberLong': '1'}}, 'autocommit': false, 'startTransaction': true}}",
      std::string_view(lookup).substr(0, std::string_view(lookup).rfind('}')));
  MergingCluster within(17);
  within.shard_collection("app.u", 10, "sh1", "sh2", 3);
  CHECK(within.run(first).view()["code"].to_int64() == 28769);
}

TEST_CASE("before 8.0 a $lookup of an unsharded collection is the primary shard's, on one shard's documents, too") {
  constexpr const char* of_one =
      "{'aggregate': 'c', 'pipeline': [{'$match': {'k': 12}}, {'$lookup': {'from': 'u', 'as': 'j', 'localField': 'a', "
      "'foreignField': 'b'}}], 'cursor': {}, '$db': 'app'}";
  for (const std::int32_t wire : {13, 17, 21}) {
    CAPTURE(wire);
    MergingCluster cluster(wire);
    cluster.run(of_one);
    std::uint16_t merger = 0;
    CHECK(MergingCluster::merge_cursors(cluster.merger_command(&merger))["remotes"].as_document().count() == 1);
    CHECK(merger == 1);
  }
  MergingCluster newer(25);
  newer.run(of_one);
  CHECK(newer.parts(2, false).at(0).view()["pipeline"].as_document().count() == 2);
  CHECK(newer.sent_to(1, "aggregate").empty());
  // Shards that have not answered yet may be as old as the config servers.
  MergingCluster unknown;
  unknown.shard_collection("app.u", 10, "sh1", "sh2", 3);
  for (std::uint16_t shard = 1; shard <= 2; ++shard) unknown.worker().gateway.states()[shard].max_wire_version = 0;
  CHECK(unknown.run(of_one).view()["code"].to_int64() == 28769);
}

TEST_CASE("a pipeline that the primary shard runs whole, and that names other collections, has both versions in 4.2") {
  for (const std::int32_t wire : {8, 9}) {
    CAPTURE(wire);
    MergingCluster cluster(wire);
    cluster.run("{'aggregate': 'c', 'pipeline': [{'$match': {'k': 3}}, {'$out': 'o'}], 'cursor': {}, '$db': 'app'}");
    const auto parts = cluster.parts(1, false);
    REQUIRE(parts.size() == 1);
    CHECK(version_of(parts.front()) == std::pair(3U, 0U));
    CHECK(parts.front().view()["databaseVersion"].exists() == (wire == 8));
    cluster.forget_sent();
    cluster.run("{'aggregate': 'c', 'pipeline': [{'$match': {'k': 3}}], 'cursor': {}, '$db': 'app'}");
    CHECK_FALSE(cluster.parts(1, false).at(0).view()["databaseVersion"].exists());
  }
}

TEST_CASE("all shards of an operation have one $$NOW and one $$CLUSTER_TIME") {
  MergingCluster cluster;
  const auto constants = [&cluster](std::string_view name) {
    std::set<std::string> all;
    for (std::uint16_t shard = 1; shard <= 2; ++shard) {
      for (const BsonDoc& each : cluster.sent_to(shard, name)) {
        if (const ValueView told = each.view()["runtimeConstants"]; told.exists()) all.insert(to_json(told));
      }
    }
    cluster.forget_sent();
    return all;
  };
  cluster.run("{'aggregate': 'c', 'pipeline': [{'$group': {'_id': '$$NOW'}}, {'$lookup': {'from': 'u', 'as': 'j', "
              "'let': {'now': '$$NOW'}, 'pipeline': []}}], 'cursor': {}, '$db': 'app'}");
  CHECK(constants("aggregate").size() == 1);
  cluster.run("{'update': 'c', 'updates': [{'q': {}, 'u': [{'$set': {'at': '$$NOW'}}], 'multi': true}], '$db': 'app'}");
  CHECK(constants("update").size() == 1);
  cluster.run("{'find': 'c', 'filter': {'$expr': {'$lt': ['$at', '$$CLUSTER_TIME']}}, '$db': 'app'}");
  CHECK(constants("find").size() == 1);
  cluster.run("{'find': 'c', 'filter': {'at': 'NOW'}, '$db': 'app'}");
  CHECK(constants("find").empty());
}

TEST_CASE("a merger writes to collections of the primary shard, by the key of sharded ones") {
  MergingCluster cluster;
  const auto write = [&](std::string_view stage) {
    cluster.forget_sent();
    return cluster.run(fmt::format("{{'aggregate': 'c', 'pipeline': [{}], 'cursor': {{}}, 'writeConcern': {{'w': 1}}, "
                                   "'$db': 'app'}}", stage));
  };
  const auto last = [&] {
    Element stage;
    const BsonDoc command = cluster.merger_command();
    for (const Element& each : command.view()["pipeline"].as_document()) stage = each.as_document().first();
    return to_json(BsonDoc(stage.is_document() ? stage.as_document() : DocView()).view());
  };
  write("{'$out': 'o'}");
  CHECK(cluster.merger_command().view()["writeConcern"].exists());
  CHECK_FALSE(cluster.parts(2, false).at(0).view()["writeConcern"].exists());
  cluster.shard_collection("app.s", 10, "sh1", "sh2", 3);
  CHECK(write("{'$out': 's'}").view()["code"].to_int64() == 28769);
  write("{'$merge': 'o'}");
  CHECK(last() == to_json(doc("{'into': 'o', 'on': ['_id']}").view()));
  write("{'$merge': {'into': 's', 'whenMatched': 'replace'}}");
  CHECK(last() == to_json(doc("{'into': 's', 'whenMatched': 'replace', 'on': ['k', '_id']}").view()));
  CHECK(cluster.merger_command().view()["fromMongos"].truthy());
  write("{'$merge': {'into': 'o', 'on': 'x'}}");
  CHECK(last() == to_json(doc("{'into': 'o', 'on': 'x'}").view()));
  CHECK_FALSE(cluster.merger_command().view()["fromMongos"].exists());  // the shard looks for a unique index
}

TEST_CASE("a merger looks for the index of a collection on a shard that owns a part of it") {
  for (const auto& [wire, wanted] : {std::pair(8, 1), std::pair(9, 2), std::pair(17, 2)}) {
    CAPTURE(wire);
    MergingCluster cluster(wire);
    cluster.shard_collection("app.t", 10, "sh2", "sh2", 3);
    cluster.run("{'aggregate': 'c', 'pipeline': [{'$merge': {'into': 't', 'on': 'k'}}], 'cursor': {}, '$db': 'app'}");
    std::uint16_t merger = 0;
    cluster.merger_command(&merger);
    CHECK(merger == wanted);
  }
}

TEST_CASE("a merger looks for the index of another database's collection on that one's primary shard") {
  MergingCluster cluster;
  cluster.databases_["other"] = doc("{'_id': 'other', 'primary': 'sh2', 'partitioned': false, 'version': {'uuid': "
                                    "{'$binary': {'base64': 'AQAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}, "
                                    "'lastMod': 1}}");
  cluster.run("{'aggregate': 'c', 'pipeline': [{'$merge': {'into': {'db': 'other', 'coll': 'o'}, 'on': 'x'}}], "
              "'cursor': {}, '$db': 'app'}");
  std::uint16_t merger = 0;
  const BsonDoc command = cluster.merger_command(&merger);
  CHECK(merger == 2);
  CHECK_FALSE(command.view()["databaseVersion"].exists());
}

TEST_CASE("an aggregation that writes is not taken for done where there is no database") {
  MergingCluster cluster;
  for (const char* command :
       {"{'aggregate': 'c', 'pipeline': [{'$out': 'o'}], 'cursor': {}, '$db': 'none'}",
        "{'aggregate': 'c', 'pipeline': [{'$merge': {'into': {'db': 'none', 'coll': 'o'}}}], 'cursor': {}, "
        "'$db': 'app'}"}) {
    CHECK(cluster.run(command).view()["code"].to_int64() == 26);
  }
  CHECK(cluster.run("{'aggregate': 'c', 'pipeline': [], 'cursor': {}, '$db': 'none'}").view()["ok"].truthy());
}

TEST_CASE("a merger fetches in the session of the command") {
  MergingCluster cluster;
  for (auto& state : cluster.worker().gateway.states()) state.replica_set = true;
  const BsonDoc reply = cluster.run(
      "{'aggregate': 'c', 'pipeline': [{'$bucketAuto': {'groupBy': '$a', 'buckets': 2}}], 'cursor': {}, 'lsid': {'id': "
      "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, 'txnNumber': {'$numberLong': '4'}, "
      "'autocommit': false, 'startTransaction': true, '$db': 'app'}");
  INFO(to_json(reply.view()));
  REQUIRE(reply.view()["ok"].truthy());
  const BsonDoc command = cluster.merger_command();
  const DocView merge = MergingCluster::merge_cursors(command);
  CHECK(merge["lsid"].is_document());
  CHECK(merge["txnNumber"].to_int64() == 4);
  CHECK(merge["autocommit"].type == BsonType::boolean);
  CHECK_FALSE(command.view()["startTransaction"].exists());
}

TEST_CASE("an unsharded collection is found on the database's primary shard, with the database's version") {
  FakeCluster cluster;
  cluster.run("{'find': 'u', '$db': 'app'}");
  const auto sent = cluster.sent_to(1, "find");
  REQUIRE(sent.size() == 1);
  CHECK(version_of(sent.front()) == std::pair(0U, 0U));
  CHECK(sent.front().view()["databaseVersion"].as_document()["lastMod"].to_int64() == 1);
}

TEST_CASE("a name that is longer than a collection's is not looked up, and not kept") {
  FakeCluster cluster;
  const auto find = [&](std::size_t bytes) {
    return cluster.run(fmt::format("{{'find': '{}', '$db': 'app'}}", std::string(bytes, 'x')));
  };
  CHECK(find(255 - std::string_view("app.").size()).view()["ok"].truthy());
  CHECK(cluster.reads_of("collections") == 1);
  find(256 - std::string_view("app.").size());
  CHECK(cluster.reads_of("collections") == 1);
  const BsonDoc renamed =
      cluster.run(fmt::format("{{'renameCollection': '{}.c', 'to': 'app.d', '$db': 'admin'}}", std::string(64, 'x')));
  CHECK(renamed.view()["code"].to_int64() == 73);
  CHECK(cluster.reads_of("databases") == 1);
}

TEST_CASE("an aggregation that names very many collections is refused, and none of them looked up") {
  FakeCluster cluster;
  const auto aggregate = [&](int collections) {
    std::string stages;
    for (int i = 0; i < collections; ++i) stages += fmt::format("{{'$unionWith': 'c{}'}}, ", i);
    return cluster.run(fmt::format(
        "{{'aggregate': 'u', 'pipeline': [{}{{'$match': {{}}}}], 'cursor': {{}}, '$db': 'app'}}", stages));
  };
  CHECK(aggregate(1001).view()["code"].to_int64() == 9);
  CHECK(cluster.reads_of("collections") <= 1);
  CHECK(aggregate(3).view()["ok"].truthy());
  CHECK(cluster.reads_of("collections") == 4);
}

TEST_CASE("a shard that knows a newer table has it read again, from the newest version known") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  cluster.forget_sent();
  cluster.chunks_["app.c"] = {FakeCluster::chunk("app.c", "{'$minKey': 1}", "10", "sh1", 4, 1),
                              FakeCluster::chunk("app.c", "10", "{'$maxKey': 1}", "sh1", 4, 0)};
  cluster.shard_answer_ = [&](std::uint16_t shard, DocView) -> std::optional<BsonDoc> {
    if (shard == 2) return stale_config("app.c");
    return std::nullopt;
  };
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(2, "find").size() == 1);
  CHECK(version_of(cluster.sent_to(1, "find").at(0)) == std::pair(4U, 1U));
  CHECK(cluster.reads_of("chunks") == 1);
  bool in_part = false;
  for (const BsonDoc& find : cluster.sent_to(0, "find")) {
    if (find.view().first().as_string() != "chunks") continue;
    in_part = find.view()["filter"].as_document()["lastmod"].exists();
  }
  CHECK(in_part);
}

TEST_CASE("a shard that refuses every table is asked ten times, and the client hears why") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [&](std::uint16_t, DocView) { return std::optional(stale_config("app.c")); };
  test::FakeRequest request("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  std::optional<BsonDoc> reply;
  exec::Client client;
  auto& worker = cluster.worker();
  const auto keep = [](exec::Context* context, exec::Client* of, exec::Request* asked,
                       std::optional<BsonDoc>* into) -> Task<void> {
    auto running = exec::run_command(*context, *of, *asked);
    const auto response = co_await running;
    *into = test::reply_of(response);
  };
  worker.loop.spawn(keep(&worker.context, &client, &request.request, &reply));
  for (int i = 0; i < 100 && !reply; ++i) {
    worker.loop.poll_until_idle();
    if (const auto next = worker.loop.next_timer()) test::set_time(*next);
  }
  REQUIRE(reply);
  CHECK(reply->view()["code"].to_int64() == 13388);
  CHECK(cluster.sent_to(2, "find").size() == 10);
}

TEST_CASE("a getMore that a shard refuses for its table says so: its cursor cannot begin again") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [&](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name == "getMore") return stale_config("app.c");
    return doc("{'cursor': {'firstBatch': [], 'id': {'$numberLong': '7'}, 'ns': 'app.c'}, 'ok': 1}");
  };
  const BsonDoc opened = cluster.run("{'find': 'c', 'sort': {'k': 1}, 'batchSize': 0, '$db': 'app'}");
  const std::int64_t id = opened.view().find_path("cursor.id").as_int64();
  const BsonDoc reply = cluster.run(fmt::format(
      "{{'getMore': {{'$numberLong': '{}'}}, 'collection': 'c', '$db': 'app'}}", id));
  CHECK(reply.view()["code"].to_int64() == 13388);
}

TEST_CASE("of a bulkWrite that a shard refuses in part for its table, that part alone is sent again") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  std::vector<std::pair<std::uint16_t, std::string>> written;
  bool refused = false;
  cluster.shard_answer_ = [&](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name == "update" && !std::exchange(refused, true)) return stale_config("app.c");
    written.emplace_back(shard, command.first().name);
    return doc("{'n': 1, 'nModified': 1, 'ok': 1}");
  };
  const BsonDoc reply = cluster.run(
      "{'bulkWrite': 1, 'errorsOnly': true, 'ops': [{'insert': 0, 'document': {'_id': 1, 'k': 2}}, {'update': 0, "
      "'filter': {'k': 12}, 'updateMods': {'$set': {'x': 1}}}, {'delete': 1, 'filter': {'x': 1}, 'multi': true}], "
      "'nsInfo': [{'ns': 'app.c'}, {'ns': 'none.c'}], '$db': 'admin'}");
  INFO(to_json(reply.view()));
  CHECK(reply.view()["nErrors"].to_int64() == 0);
  CHECK(reply.view()["nModified"].to_int64() == 1);
  REQUIRE(written.size() == 3);
  CHECK(written[0] == std::pair(std::uint16_t{1}, std::string("insert")));
  CHECK(written[1] == std::pair(std::uint16_t{2}, std::string("update")));
  CHECK(written[2].second == "delete");
  CHECK(refused);
}

TEST_CASE("a find of several shards shows where they keep the documents, unless they are merged") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  const bool sorts = GENERATE(false, true);
  cluster.run(fmt::format("{{'find': 'c', 'showRecordId': true, {} '$db': 'app'}}", sorts ? "'sort': {'x': 1}," : ""));
  for (const auto shard : {std::uint16_t{1}, std::uint16_t{2}}) {
    const auto sent = cluster.sent_to(shard, "find");
    REQUIRE(sent.size() == 1);
    CHECK(sent.front().view()["showRecordId"].truthy() == !sorts);
  }
}

TEST_CASE("a database that does not exist is empty to readers, and made for writers") {
  FakeCluster cluster;
  const BsonDoc found = cluster.run("{'find': 'c', '$db': 'none'}");
  CHECK(found.view()["ok"].truthy());
  CHECK(found.view()["cursor"].as_document()["firstBatch"].as_document().empty());
  const BsonDoc explained = cluster.run("{'explain': {'aggregate': 'c', 'pipeline': [], 'cursor': {}}, '$db': 'none'}");
  CHECK(explained.view().find_path("cursor.ns").as_string() == "none.c");
  CHECK(cluster.run("{'explain': {'find': 'c'}, '$db': 'none'}").view()["code"].to_int64() == 26);
  CHECK(cluster.run("{'explain': {'find': 'c', '$db': 'other'}, '$db': 'none'}").view()["code"].to_int64() == 73);
  CHECK(cluster.run("{'count': 'c', '$db': 'none'}").view()["n"].to_int64() == 0);
  CHECK(cluster.run("{'listIndexes': 'c', '$db': 'none'}").view()["code"].to_int64() == 26);
  const BsonDoc listed =
      cluster.run("{'aggregate': 1, 'pipeline': [{'$listLocalSessions': {}}], 'cursor': {}, '$db': 'none'}");
  CHECK(listed.view().find_path("cursor.ns").as_string() == "none.$cmd.aggregate");
  cluster.forget_sent();
  CHECK(cluster.run("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'none'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(0, "_configsvrCreateDatabase").size() == 1);
  CHECK(cluster.sent_to(2, "insert").size() == 1);
  cluster.forget_sent();
  cluster.run("{'explain': {'delete': 'c', 'deletes': [{'q': {'a': 1}, 'limit': 0}]}, '$db': 'explained'}");
  CHECK(cluster.sent_to(0, "_configsvrCreateDatabase").size() == 1);
}

TEST_CASE("what ends sessions is for shards, and not for config servers, whose changes it would interrupt") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  const char* const command = GENERATE("killAllSessions", "killAllSessionsByPattern", "killSessions", "endSessions");
  CAPTURE(command);
  CHECK(cluster.run(fmt::format("{{'{}': [], '$db': 'admin'}}", command)).view()["ok"].truthy());
  for (std::uint16_t shard = 1; shard <= 2; ++shard) CHECK(cluster.sent_to(shard, command).size() == 1);
  CHECK(cluster.sent_to(0, command).empty());
}

TEST_CASE("sessions are killed on every host, and the answer names those that were not told") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  auto& hosts = cluster.worker().gateway.states()[1].hosts;
  hosts.push_back(hosts.front());
  hosts.back().address.port = 40001;
  std::swap(hosts.back().primary, hosts.back().secondary);
  cluster.forget_sent();
  CHECK(cluster.run("{'killAllSessions': [], '$db': 'admin'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(1, "killAllSessions").size() == 2);
  CHECK(cluster.worker().gateway.sent_to_host.back() != cluster.worker().gateway.sent_to_host.front());
  hosts.back().known = false;
  const BsonDoc failed = cluster.run("{'killAllSessionsByPattern': [], '$db': 'admin'}");
  CHECK(failed.view()["code"].to_int64() == 6);
  CHECK(to_json(failed.view()["failedHosts"]) == to_json(doc("{'x': ['127.0.0.1:40001']}").view()["x"]));
  CHECK(cluster.sent_to(1, "killAllSessionsByPattern").size() == 1);
}

TEST_CASE("killSessions without ids kills the user's sessions that other routers began, too") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  CHECK(cluster.run("{'killSessions': [], '$db': 'admin'}").view()["ok"].truthy());
  for (std::uint16_t shard = 1; shard <= 2; ++shard) {
    const auto sent = cluster.sent_to(shard, "killAllSessionsByPattern");
    REQUIRE(sent.size() == 1);
    const DocView pattern = sent.front().view().first().as_document().first().as_document();
    CHECK(auth::text_of(pattern["uid"].as_binary().data) == auth::text_of(auth::session_uid("app", "ann").view()));
  }
}

TEST_CASE("killAllSessions of users kills on shards by their digest, for shards do not know the users") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  CHECK(cluster.run("{'killAllSessions': [{'user': 'ann', 'db': 'app'}, {'user': 'bob', 'db': 'app'}], "
                    "'$db': 'admin'}").view()["ok"].truthy());
  for (std::uint16_t shard = 1; shard <= 2; ++shard) {
    CHECK(cluster.sent_to(shard, "killAllSessions").empty());
    const auto sent = cluster.sent_to(shard, "killAllSessionsByPattern");
    REQUIRE(sent.size() == 1);
    const DocView patterns = sent.front().view().first().as_document();
    REQUIRE(patterns.count() == 2);
    const DocView first = patterns.first().as_document();
    CHECK(auth::text_of(first["uid"].as_binary().data) == auth::text_of(auth::session_uid("app", "ann").view()));
  }
}

TEST_CASE("while the config servers are away, what is known serves and the rest fails") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  cluster.away_ = true;
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 1}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.run("{'find': 'other', '$db': 'app'}").view()["code"].to_int64() == 133);
  cluster.away_ = false;
  CHECK(cluster.run("{'find': 'other', '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("tables that no command uses make room for one that has no memory") {
  FakeCluster cluster;
  MemoryBudget& budget = cluster.worker().shared.memory.routing;
  for (const char* const ns : {"app.a", "app.b"}) cluster.shard_collection(ns, 10, "sh1", "sh2", 3);
  const auto find = [&](std::string_view collection) {
    return cluster.run(fmt::format("{{'find': '{}', 'filter': {{'k': 12}}, '$db': 'app'}}", collection))
        .view()["ok"]
        .truthy();
  };
  REQUIRE(find("a"));
  const std::uint64_t one = budget.usage().used_bytes;
  REQUIRE(one > 0);
  budget.set_limit(one + one / 2);
  CHECK(find("b"));
  test::advance_time(std::chrono::seconds(11));  // tables make room every ten seconds at most
  CHECK(budget.usage().used_bytes <= one + one / 2);
  cluster.forget_sent();
  CHECK(find("a"));
  CHECK(cluster.reads_of("chunks") == 2);  // without the memory, and with it
  CHECK(cluster.sent_to(2, "find").size() == 1);
}

TEST_CASE("a shard of config.shards that cannot be used leaves the others usable") {
  FakeCluster cluster;
  cluster.shards_ = {"sh1", "two/names", "sh2", "sh3"};
  CHECK(cluster.worker().run(cluster.table().read_shards()).has_error());
  cluster.worker().loop.poll_until_idle();
  CHECK(cluster.table().index_of("sh3").has_value());
  const std::size_t states = cluster.worker().gateway.states().size();
  CHECK(cluster.worker().run(cluster.table().read_shards()).has_error());
  CHECK(cluster.worker().gateway.states().size() == states);
}

TEST_CASE("a shard that is asked alone for statistics says which one it is") {
  FakeCluster cluster;
  for (const char* stage : {"$collStats", "$indexStats", "$planCacheStats", "$match"}) {
    cluster.forget_sent();
    cluster.run(fmt::format("{{'aggregate': 'u', 'pipeline': [{{'{}': {{}}}}], 'fromMongos': false, 'cursor': {{}}, "
                            "'$db': 'app'}}",
                            stage));
    const auto sent = cluster.sent_to(1, "aggregate");
    REQUIRE(sent.size() == 1);
    CHECK(sent.front().view()["fromMongos"].truthy() == (std::string_view(stage) != "$match"));
    CHECK(sent.front().view()["cursor"].is_document());
  }
}

TEST_CASE("of a database that does not exist there are no statistics, from 6.0 on") {
  const std::string pipeline = "'c', 'pipeline': [{'$collStats': {'count': {}}}], 'cursor': {}";
  const std::string command = GENERATE_COPY("{'aggregate': " + pipeline + ", '$db': 'none'}",
                                            "{'explain': {'aggregate': " + pipeline + "}, '$db': 'none'}");
  FakeCluster newer(17), older(13);
  const BsonDoc refused = newer.run(command);
  CHECK(refused.view()["code"].to_int64() == 26);
  CHECK_THAT(std::string(refused.view()["errmsg"].as_string()),
             Catch::StartsWith("Unable to retrieve information for $collStats stage :: caused by :: "));
  CHECK(older.run(command).view()["cursor"].is_document());
  CHECK(newer.run("{'aggregate': 'c', 'pipeline': [{'$indexStats': {}}], 'cursor': {}, '$db': 'none'}")
            .view()["cursor"]
            .is_document());
}

TEST_CASE("the distribution of sharded collections is told by all shards") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_collection("app.nowhere", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name != "aggregate") return std::nullopt;
    return doc(fmt::format("{{'cursor': {{'firstBatch': [{{'ns': 'app.u', 'storageStats': {{'count': 1}}}}, {{'ns': "
                           "'app.c', 'storageStats': {}}}], 'id': {{'$numberLong': '0'}}, 'ns': "
                           "'admin.$cmd.aggregate'}}, 'ok': 1}}",
                           shard == 1 ? "{'count': 10, 'numOrphanDocs': 4, 'avgObjSize': 5}" : "{'numOrphanDocs': 2}"));
  };
  const auto run = [&](std::string_view pipeline, std::string_view db = "admin") {
    cluster.forget_sent();
    return cluster.run(fmt::format("{{'aggregate': 1, 'pipeline': [{}], 'cursor': {{}}, '$db': '{}'}}", pipeline, db));
  };
  const BsonDoc reply = run("{'$shardedDataDistribution': {}}");
  CHECK(to_json(reply.view().find_path("cursor.firstBatch")) ==
        to_json(doc("{'b': [{'ns': 'app.c', 'shards': [{'shardName': 'sh1', 'numOrphanedDocs': 4, 'numOwnedDocuments': "
                    "6, 'ownedSizeBytes': 30, 'orphanedSizeBytes': 20}, {'shardName': 'sh2', 'numOrphanedDocs': 2, "
                    "'numOwnedDocuments': null, 'ownedSizeBytes': null, 'orphanedSizeBytes': null}]}]}")
                    .view()["b"]));
  CHECK(cluster.sent_to(2, "aggregate").at(0).view()["fromMongos"].truthy());
  const BsonDoc rest = run("{'$shardedDataDistribution': {}}, {'$project': {'n': {'$size': '$shards'}}}");
  CHECK(rest.view().find_path("cursor.firstBatch").as_document().first().as_document()["n"].to_int64() == 2);
  CHECK(run("{'$shardedDataDistribution': {'a': 1}}").view()["code"].to_int64() == 6789100);
  CHECK(run("{'$shardedDataDistribution': {}}", "app").view()["code"].to_int64() == 6789102);
  CHECK(cluster.sent_to(1, "aggregate").empty());
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name != "aggregate") return std::nullopt;
    return MergingCluster::cursor(7, "{'ns': 'app.c'}");
  };
  CHECK(run("{'$shardedDataDistribution': {}}").view()["code"].to_int64() == 10334);
  cluster.worker().loop.poll_until_idle();
  CHECK(cluster.sent_to(1, "killCursors").size() == 1);
}

TEST_CASE("documents of the pipeline itself need no database") {
  FakeCluster cluster;
  const std::string documents = "'aggregate': 1, 'pipeline': [{'$documents': [{'x': 1}]}";
  cluster.run("{" + documents + "], 'cursor': {}, '$db': 'none'}");
  REQUIRE(cluster.sent_to(1, "aggregate").size() == 1);
  CHECK_FALSE(cluster.sent_to(1, "aggregate").front().view()["databaseVersion"].exists());
  cluster.run("{'explain': {" + documents + "]}, '$db': 'none'}");
  CHECK(cluster.sent_to(1, "explain").size() == 1);
  cluster.forget_sent();
  for (const char* stage : {"{'$out': 'c'}", "{'$unionWith': 'c'}", "{'$lookup': {'from': 'c', 'as': 'x'}}"}) {
    const BsonDoc refused = cluster.run("{" + documents + ", " + stage + "], 'cursor': {}, '$db': 'none'}");
    CHECK(refused.view()["code"].to_int64() == 26);
  }
  CHECK(cluster.sent_to(1, "aggregate").empty());
}

TEST_CASE("documents of the pipeline itself are the primary shard's, with the database's version") {
  FakeCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t, DocView) { return doc("{'cursor': {'firstBatch': [{'x': 1}], 'id': "
                                                                  "{'$numberLong': '0'}, 'ns': 'app.$cmd.aggregate'}, "
                                                                  "'ok': 1}"); };
  const BsonDoc reply = cluster.run("{'aggregate': 1, 'pipeline': [{'$documents': [{'x': 1}]}, {'$lookup': {'from': "
                                    "'c', 'pipeline': [], 'as': 'y'}}], 'cursor': {}, '$db': 'app'}");
  CHECK(reply.view()["ok"].truthy());
  REQUIRE(cluster.sent_to(1, "aggregate").size() == 1);
  CHECK(cluster.sent_to(2, "aggregate").empty());
  CHECK(cluster.sent_to(1, "aggregate").front().view()["databaseVersion"].exists());
}

TEST_CASE("the copy of a long command for its shard is paid for") {
  FakeCluster cluster;
  const std::string long_query = fmt::format("{{'x': '{}'}}", std::string(100'000, 'x'));
  const auto run = [&](std::string_view command) {
    return cluster.run(fmt::format("{{{}, 'apiVersion': '1', '$db': 'app'}}", command)).view()["code"].to_int64();
  };
  const std::string find = fmt::format("'find': 'c', 'filter': {}", long_query);
  const std::string remove = fmt::format("'delete': 'c', 'deletes': [{{'q': {}, 'limit': 0}}]", long_query);
  CHECK_FALSE(run(find));
  CHECK_FALSE(run(remove));
  MemoryBudget& writes = cluster.worker().shared.memory.writes;
  CHECK(writes.usage().used_bytes == 0);
  writes.set_limit(50'000);
  cluster.forget_sent();
  CHECK(run(find) == 146);
  CHECK(run(remove) == 146);
  CHECK(cluster.worker().gateway.sent.empty());
}

TEST_CASE("a reply that no client takes is an error") {
  FakeCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t, DocView) -> std::optional<BsonDoc> {
    BsonWriter out;
    out.begin_array("values");
    const std::string text(12'000'000, 'x');
    for (int i = 0; i < 4; ++i) out.append_item(text);
    out.end().append("ok", 1.0);
    return std::move(out).finish();
  };
  const BsonDoc reply =
      cluster.run("{'distinct': 'c', 'key': 'x', 'collation': {'locale': 'en'}, '$db': 'app'}");
  CHECK(reply.view()["code"].to_int64() == 10334);
}

TEST_CASE("the distinct values of one shard are sorted, as by a mongos") {
  FakeCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t, DocView) -> std::optional<BsonDoc> {
    return doc("{'values': [3, 1, 'b', 2, 'a'], 'ok': 1}");
  };
  const auto values = [&](std::string_view more) {
    return to_json(cluster.run(fmt::format("{{'distinct': 'u', 'key': 'x'{}, '$db': 'app'}}", more)).view()["values"]);
  };
  CHECK(values("") == to_json(doc("{'v': [1, 2, 3, 'a', 'b']}").view()["v"]));
  // The shard has compared with the collation.
  CHECK(values(", 'collation': {'locale': 'en'}") == to_json(doc("{'v': [3, 1, 'b', 2, 'a']}").view()["v"]));
}

TEST_CASE("a find that may be partial does without a shard that still fails after it was tried again") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  std::int32_t code = 262;
  cluster.shard_answer_ = [&](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name != "find" || shard != 2) return std::nullopt;
    return doc(fmt::format("{{'ok': 0, 'code': {}, 'errmsg': 'no'}}", code));
  };
  const auto find = [&] {
    return cluster.run("{'find': 'c', 'filter': {'x': 1}, 'allowPartialResults': true, '$db': 'app'}");
  };
  CHECK(find().view()["ok"].truthy());
  // The only one that is asked, too.
  const char* const one = "{'find': 'c', 'filter': {'k': 12}, 'allowPartialResults': true, '$db': 'app'}";
  CHECK(cluster.run(one).view()["partialResultsReturned"].truthy() ==
        cluster.run("{'find': 'c', 'filter': {'x': 1}, 'allowPartialResults': true, '$db': 'app'}")
            .view()["partialResultsReturned"]
            .truthy());
  CHECK(cluster.run(one).view()["ok"].truthy());
  code = 2;
  CHECK(find().view()["code"].to_int64() == 2);
  CHECK(cluster.run(one).view()["code"].to_int64() == 2);
}

TEST_CASE("a table with a hole is refused, and read again when it is asked for again") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.chunks_["app.c"].pop_back();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["code"].to_int64() == 117);
  CHECK(cluster.sent_to(1, "find").empty());
  CHECK(cluster.sent_to(2, "find").empty());
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 5);
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("a chunk on a shard that is new has the list of shards read again") {
  FakeCluster cluster;
  cluster.shards_.push_back("sh3");
  cluster.shard_collection("app.c", 10, "sh1", "sh3", 3);
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(3, "find").size() == 1);
}

TEST_CASE("a chunk on an unknown shard is an error that names it") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "gone", 3);
  const BsonDoc reply = cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  CHECK(reply.view()["code"].to_int64() == 70);
  CHECK(reply.view()["errmsg"].as_string().find("gone") != std::string_view::npos);
  CHECK(cluster.reads_of("chunks") == 2);  // again after a look for new shards
  // Requests for it do not read the whole table each.
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["code"].to_int64() == 70);
  CHECK(cluster.reads_of("chunks") == 2);
  cluster.chunks_["app.c"].pop_back();
  cluster.chunks_["app.c"].push_back(FakeCluster::chunk("app.c", "10", "{'$maxKey': 1}", "sh2", 4, 0));
  test::advance_time(std::chrono::seconds(1));
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("what a shard that has left the cluster was to get goes where the table says now") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  REQUIRE(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  const bool writes = GENERATE(false, true);
  cluster.chunks_["app.c"].pop_back();
  cluster.chunks_["app.c"].push_back(FakeCluster::chunk("app.c", "10", "{'$maxKey': 1}", "sh1", 4, 0));
  cluster.retired_ = 2;
  cluster.forget_sent();
  const BsonDoc reply = cluster.run(writes ? "{'insert': 'c', 'documents': [{'_id': 1, 'k': 12}], '$db': 'app'}"
                                           : "{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}");
  CHECK(reply.view()["ok"].truthy());
  CHECK(cluster.sent_to(1, writes ? "insert" : "find").size() == 1);
}

TEST_CASE("an update's document is looked up on the shard of its very key, whatever the collection's collation") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  BsonWriter entry;
  entry.append_elements(cluster.collections_["app.c"]);
  entry.begin_document("defaultCollation").append("locale", "en").append("strength", 2).end();
  cluster.collections_["app.c"] = std::move(entry).finish();
  const BsonDoc event = doc(
      "{'_id': {'_data': '826B00FD56000000572B022C0100296E5A100429C14089B7F248C9A2374F179D4A5956461E6B002C01B8645F"
      "696400646B00FD5632688F82'}, 'operationType': 'update', 'ns': {'db': 'app', 'coll': 'c'}, "
      "'documentKey': {'k': 'X', '_id': 1}}");
  exec::Request request;
  const auto found = cluster.worker().run(exec::look_up_changed(cluster.worker().context, request, event.view(), {}));
  REQUIRE_FALSE(found.has_error());
  CHECK(cluster.sent_to(1, "find").empty());
  const auto sent = cluster.sent_to(2, "find");
  REQUIRE(sent.size() == 1);
  CHECK_FALSE(sent[0].view()["collation"].exists());  // _id's index has the collection's
}

TEST_CASE("a refusal of a command that was sent with an older table says nothing of a newer one") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  const exec::RouteNames names{{"app", "c"}};
  const auto learn = [&] {
    REQUIRE_FALSE(cluster.worker().run(cluster.router().learn(names, {})).has_error());
    return cluster.router().resolve(names);
  };
  const auto refuse = [&](const exec::Routes& routes) {
    exec::note_refusal(cluster.worker().context, exec::RoutedBy::sharded(*routes.collection("app.c")),
                       stale_config("app.c"));
  };
  const auto before = learn();
  REQUIRE(before);
  refuse(*before);
  CHECK_FALSE(cluster.router().resolve(names));
  cluster.chunks_["app.c"].push_back(FakeCluster::chunk("app.c", "10", "{'$maxKey': 1}", "sh1", 4, 0));
  cluster.chunks_["app.c"].erase(cluster.chunks_["app.c"].begin() + 1);
  const auto after = learn();
  REQUIRE(after);
  refuse(*before);
  CHECK(cluster.router().resolve(names));
  refuse(*after);
  CHECK_FALSE(cluster.router().resolve(names));
}

TEST_CASE("a table that is in use is not forgotten for names that are asked for once") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  REQUIRE(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  for (std::size_t i = 0; i <= cluster::CatalogCache::names_max; ++i) {
    REQUIRE_FALSE(cluster.worker().run(cluster.table().collection("app.x" + std::to_string(i), 0)).has_error());
  }
  cluster.forget_sent();
  cluster.router().note_stale({"app", "c"});
  REQUIRE(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  const auto reads = cluster.sent_to(0, "find");
  const auto is_partial = [](const BsonDoc& find) {
    const ValueView since = find.view()["filter"].as_document()["lastmod"];
    return find.view().first().as_string() == "chunks" && since.is_document() &&
           *catalog::read_timestamp(since.as_document()["$gte"]) > 0;
  };
  CHECK(std::any_of(reads.begin(), reads.end(), is_partial));
}

namespace {

// sh2 belongs to another cluster.
std::optional<BsonDoc> identity_of(std::uint16_t shard, DocView command) {
  if (command.first().as_string() != "system.version") return std::nullopt;
  return doc(fmt::format("{{'cursor': {{'firstBatch': [{{'_id': 'shardIdentity', 'clusterId': {{'$oid': '{}'}}}}], "
                         "'id': {{'$numberLong': '0'}}, 'ns': 'admin.system.version'}}, 'ok': 1}}",
                         shard == 2 ? "bbbbbbbbbbbbbbbbbbbbbbbb" : "aaaaaaaaaaaaaaaaaaaaaaaa"));
}

}  // namespace

TEST_CASE("a shard that belongs to another cluster is left out, and stays so") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = identity_of;
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  cluster.check_identities();
  CHECK(cluster.sent_to(1, "find").size() == 1);
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["code"].to_int64() == 70);
  cluster.read_shards();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["code"].to_int64() == 70);
  cluster.forget_sent();
  cluster.check_identities();
  CHECK(cluster.sent_to(1, "find").empty());  // it is known
}

TEST_CASE("a local client may make a cluster's first user, and no other one") {
  FakeCluster cluster(17);
  cluster.worker().shared.authorization = true;
  cluster.worker().shared.users_from = 0;
  cluster.worker().shared.users_of_cluster = true;
  const auto code = [&](const char* name, const char* db) {
    cluster.forget_sent();
    const BsonDoc reply = cluster.run(fmt::format("{{'{}': 'x', 'pwd': 'y', 'roles': [], '$db': '{}'}}", name, db));
    return reply.view()["code"].to_int64().value_or(0);
  };
  CHECK(code("createUser", "admin") == 13);
  cluster.client().login.from_loopback = true;
  CHECK(code("createUser", "app") == 13);
  CHECK(code("createRole", "admin") == 13);
  CHECK(code("updateUser", "admin") == 13);
  cluster.worker().shared.parameters.localhost_exception = false;
  CHECK(code("createUser", "admin") == 13);
  cluster.worker().shared.parameters.localhost_exception = true;
  CHECK(cluster.sent_to(0, "updateUser").empty());
  CHECK(code("createUser", "admin") == 0);
  CHECK(cluster.sent_to(0, "createUser").size() == 1);
  // There are users that are left out here, or made through another router a moment ago; a role; no answer.
  const char* const restricted = "[{'user': 'ann', 'db': 'admin', 'authenticationRestrictions': [{}]}]";
  for (const char* const users : {restricted, "[{}]", "1"}) {
    cluster.users_ = users;
    CHECK(code("createUser", "admin") == 13);
    CHECK(cluster.sent_to(0, "createUser").empty());
  }
  cluster.users_ = "[]";
  cluster.roles_ = "[{'role': 'r', 'db': 'admin'}]";
  CHECK(code("createUser", "admin") == 13);
  cluster.roles_ = "[]";
  const BsonDoc reply = cluster.run("{'createUser': 'x', 'pwd': 'y', 'roles': [{'role': 'read', 'db': 'app'}], '$db': "
                                    "'admin'}");
  CHECK(reply.view()["code"].to_int64() == 13);
}

TEST_CASE("an older answer about the default concerns does not replace a newer one") {
  FakeCluster cluster(17);
  cluster.set_concerns("{'level': 'local'}", "{'w': 1, 'wtimeout': 0}");
  cluster.before_settings_ = [&] {
    cluster.settings_ = doc("{'_id': 'ReadWriteConcernDefaults', 'defaultWriteConcern': {'w': 2, 'wtimeout': 0}}");
    constexpr auto read = [](exec::ClusterTable* table) -> Task<void> {
      auto reading = table->read_concern_defaults();
      static_cast<void>(co_await reading);
    };
    cluster.worker().context.background.start(read(&cluster.table()));
  };
  cluster.set_concerns("{'level': 'local'}", "{'w': 3, 'wtimeout': 0}");
  REQUIRE(cluster.router().concern_defaults() != nullptr);
  CHECK(cluster.router().concern_defaults()->write.view()["w"].to_int64() == 2);
}

TEST_CASE("an interrupt that comes before a command's handler begins is not forgotten") {
  FakeCluster cluster;
  bool interrupted = false;
  cluster.shard_answer_ = [&](std::uint16_t, DocView) -> std::optional<BsonDoc> {
    interrupted = cluster.client().interrupt.requested() != nullptr;
    return std::nullopt;
  };
  cluster.client().interrupt.request(Error(ErrorCode::interrupted_at_shutdown, "the router shuts down"));
  cluster.run("{'find': 'c', '$db': 'app'}");
  CHECK(interrupted);
  cluster.run("{'find': 'c', '$db': 'app'}");
  CHECK_FALSE(interrupted);
}

TEST_CASE("other servers under a shard's name are another shard, other members of its set are not") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  const auto finds_on = [&](std::uint16_t shard) {
    cluster.forget_sent();
    REQUIRE(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
    return cluster.sent_to(shard, "find").size();
  };
  REQUIRE(finds_on(2) == 1);
  const shard::HostAddress member = cluster.worker().gateway.states()[2].hosts.front().address;
  cluster.hosts_["sh2"] = "sh2/127.0.0.1:1," + member.text();
  cluster.read_shards();
  CHECK(finds_on(2) == 1);
  cluster.hosts_["sh2"] = "sh2/127.0.0.1:1,127.0.0.1:2";
  cluster.read_shards();
  CHECK(finds_on(2) == 1);  // perhaps it has renamed all of its members
  test::advance_time(std::chrono::seconds(15));
  cluster.read_shards();
  CHECK(finds_on(3) == 1);
  cluster.read_shards();
  CHECK(finds_on(3) == 1);
  cluster.worker().gateway.states()[3].set_name = "sh2";
  cluster.hosts_["sh2"] = "again/127.0.0.1:1,127.0.0.1:3";
  cluster.read_shards();
  CHECK(finds_on(4) == 1);
}

TEST_CASE("a shard that is called as the config servers are has figures of its own") {
  FakeCluster cluster(8, FakeCluster::Start::later);
  cluster.shards_ = {"config", "sh2"};
  REQUIRE_FALSE(cluster.try_start().has_error());
  cluster.worker().gateway.states()[1].hosts.front().known = false;
  const exec::StatusFacts facts =
      exec::make_status_facts(cluster.worker().shared, {exec::look_at_worker(cluster.worker().context)});
  REQUIRE(facts.shards.size() == 3);
  CHECK(facts.shards[0].name == "config servers");
  CHECK(facts.shards[0].reachable);
  CHECK(facts.shards[1].name == "config");
  CHECK_FALSE(facts.shards[1].reachable);
  const BsonDoc status = cluster.run("{'serverStatus': 1, '$db': 'admin'}");
  std::set<std::string> names;
  for (const Element& shard : status.view().find_path("sharding.shards").as_document()) {
    CHECK(names.emplace(shard.name).second);
  }
  CHECK(names == std::set<std::string>{"config servers", "config", "sh2"});
  std::vector<exec::LiveFacts> workers{exec::look_at_live(cluster.worker().context, true)};
  const BsonDoc live = exec::live_status(cluster.worker().shared, std::move(workers), true);
  for (const Element& shard : live.view()["shards"].as_document()) {
    const DocView hosts = shard.as_document()["hosts"].as_document();
    REQUIRE(hosts.count() == 1);
    const bool known = shard.as_document()["name"].as_string() != "config";
    CHECK(hosts.first().as_document()["is"].as_string() == (known ? "primary" : "unknown"));
  }
}

TEST_CASE("reads of the table stay counted while the first worker does not answer") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.run("{'find': 'c', 'filter': {'k': 2}, '$db': 'app'}");
  CHECK(exec::make_status_facts(cluster.worker().shared, {}).table_reads.reads > 0);
}

TEST_CASE("a shard of another cluster may be added again, with servers of this one") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = identity_of;
  cluster.check_identities();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["code"].to_int64() == 70);
  cluster.hosts_["sh2"] = "sh2/127.0.0.1:1";
  cluster.read_shards();
  cluster.check_identities();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(3, "find").size() == 2);
}

TEST_CASE("shards are not compared with the cluster's id before the config servers have told it") {
  FakeCluster cluster(8, FakeCluster::Start::later);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().as_string() != "system.version") return std::nullopt;
    return doc("{'cursor': {'firstBatch': [{'_id': 'shardIdentity', 'clusterId': {'$oid': "
               "'aaaaaaaaaaaaaaaaaaaaaaaa'}}], 'id': {'$numberLong': '0'}, 'ns': 'admin.system.version'}, 'ok': 1}");
  };
  cluster.names_cluster_ = false;
  CHECK(cluster.try_start().has_error());
  cluster.tick();  // as while start() waits for its answer, or for its next attempt
  cluster.read_shards();
  cluster.check_identities();
  cluster.names_cluster_ = true;
  REQUIRE_FALSE(cluster.try_start().has_error());
  test::advance_time(std::chrono::seconds(31));
  cluster.tick();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 2}, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("shards that do not say which cluster they belong to are used") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.check_identities();
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.run("{'find': 'c', 'filter': {'k': 2}, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("a read that a secondary may answer asks for versions to be looked at") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.run("{'find': 'c', 'filter': {'k': 12}, '$readPreference': {'mode': 'nearest'}, '$db': 'app'}");
  CHECK(cluster.sent_to(2, "find").at(0).view()["readConcern"].as_document()["level"].as_string() == "local");
  cluster.forget_sent();
  cluster.run("{'find': 'c', 'filter': {'k': 12}, '$readPreference': {'mode': 'nearest'}, "
              "'readConcern': {'level': 'majority'}, '$db': 'app'}");
  CHECK(cluster.sent_to(2, "find").at(0).view()["readConcern"].as_document()["level"].as_string() == "majority");
}

TEST_CASE("the cluster's default concerns are those of commands that name none") {
  struct Case {
    const char* command;
    const char* read;   // what is sent; empty: none
    const char* write;
  };
  const auto each = GENERATE(values<Case>({
      {"{'find': 'c', 'filter': {'k': 1}, '$db': 'app'}", "majority", ""},
      {"{'count': 'c', 'query': {'k': 1}, '$db': 'app'}", "majority", ""},
      {"{'find': 'c', 'filter': {'k': 1}, 'readConcern': {'level': 'local'}, '$db': 'app'}", "local", ""},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'k': 1}}], 'cursor': {}, '$db': 'app'}", "majority", ""},
      {"{'insert': 'c', 'documents': [{'k': 1}], '$db': 'app'}", "", "2"},
      {"{'insert': 'c', 'documents': [{'k': 1}], 'writeConcern': {'w': 1}, '$db': 'app'}", "", "1"},
      {"{'findAndModify': 'c', 'query': {'k': 1}, 'update': {'$set': {'x': 1}}, '$db': 'app'}", "", "2"},
  }));
  INFO(each.command);
  for (const std::int32_t wire_version : {8, 9, 13}) {
    CAPTURE(wire_version);
    FakeCluster cluster(wire_version);
    cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
    cluster.set_concerns("{'level': 'majority'}", "{'w': 2, 'wtimeout': 5}");
    cluster.forget_sent();
    const BsonDoc reply = cluster.run(each.command);
    INFO(to_json(reply.view()));
    std::vector<BsonDoc> sent = cluster.sent_to(1, doc(each.command).view().first().name);
    if (std::string_view(each.command).find("count") != std::string_view::npos && sent.empty())
      sent = cluster.sent_to(1, "aggregate");
    REQUIRE(sent.size() == 1);
    const std::string given = to_json(doc(each.command).view());
    const bool names_one = given.find("Concern") != std::string::npos;
    const bool applied = wire_version >= 9 || names_one;
    const ValueView level = sent[0].view().find_path("readConcern.level");
    CHECK((level.exists() ? std::string(level.as_string()) : "") == (applied ? each.read : ""));
    const ValueView w = sent[0].view().find_path("writeConcern.w");
    CHECK((w.exists() ? to_json(w) : "") == (applied ? each.write : ""));
    const std::string concern = *each.read != '\0' ? "readConcern" : "writeConcern";
    const ValueView from = sent[0].view().find_path(concern + ".provenance");
    CHECK((from.exists() ? from.as_string() : "") == (applied && !names_one ? "customDefault" : ""));
  }
}

TEST_CASE("a write on the config servers names the write concern that shards would get") {
  const auto [wire_version, w] = GENERATE(table<std::int32_t, const char*>({{8, ""}, {9, ""}, {13, "majority"}}));
  CAPTURE(wire_version);
  FakeCluster cluster(wire_version);
  cluster.run("{'update': 'settings', 'updates': [{'q': {'_id': 'balancer'}, 'u': {'$set': {'stopped': true}}}], "
              "'$db': 'config'}");
  const std::vector<BsonDoc> sent = cluster.sent_to(0, "update");
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].view().find_path("writeConcern.w").to_text() == w);
}

TEST_CASE("a writeConcern without w gets the default's, and an empty one is none") {
  struct Case {
    const char* given;
    const char* set;
    const char* sent;
  };
  const auto each = GENERATE(values<Case>({
      {"{'j': true}", "", R"({ "j" : true, "w" : "majority" })"},
      {"{'wtimeout': 5}", "{'w': 2, 'wtimeout': 9, 'j': true}", R"({ "wtimeout" : 5, "w" : 2, "j" : true })"},
      {"{'j': false}", "{'w': 2, 'wtimeout': 9, 'j': true}", R"({ "j" : false, "w" : 2 })"},
      {"{}", "{'w': 2, 'wtimeout': 9, 'j': true}", R"({ "w" : 2, "wtimeout" : 9, "j" : true })"},
      {"{'w': 1}", "{'w': 2, 'wtimeout': 9, 'j': true}", R"({ "w" : 1 })"},
  }));
  CAPTURE(each.given, each.set);
  FakeCluster cluster(13);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  if (*each.set != '\0') cluster.set_concerns("{'level': 'majority'}", each.set);
  for (const char* const command : {"'insert': 'c', 'documents': [{'k': 1}]", "'createIndexes': 'c', 'indexes': []"}) {
    cluster.forget_sent();
    cluster.run(fmt::format("{{{}, 'writeConcern': {}, '$db': 'app'}}", command, each.given));
    const std::vector<BsonDoc> sent = cluster.sent_to(1, command[1] == 'i' ? "insert" : "createIndexes");
    REQUIRE(sent.size() == 1);
    CHECK(to_json(sent[0].view()["writeConcern"]) == each.sent);
  }
  cluster.forget_sent();
  cluster.run("{'find': 'c', 'filter': {'k': 1}, 'readConcern': {}, '$db': 'app'}");
  const BsonDoc read = cluster.sent_to(1, "find").at(0);
  CHECK(read.view().find_path("readConcern.level").exists() == (*each.set != '\0'));
}

TEST_CASE("a shard that may have to ask others is asked as by one of its cluster") {
  struct Case {
    const char* command;
    bool as_router;
    const char* concerns;  // that it names because it must
  };
  const auto each = GENERATE(values<Case>({
      {"{'find': 'other', 'filter': {'x': 1}, '$db': 'app'}", true, "readConcern"},  // it may be a view
      {"{'count': 'other', '$db': 'app'}", true, "readConcern"},
      {"{'aggregate': 'other', 'pipeline': [], 'cursor': {}, '$db': 'app'}", true, "readConcern writeConcern"},
      {"{'insert': 'other', 'documents': [{'x': 1}], '$db': 'app'}", false, ""},
      {"{'find': 'c', 'filter': {'k': 1}, '$db': 'app'}", false, ""},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'k': 1}}], 'cursor': {}, '$db': 'app'}", false, ""},
      {"{'explain': {'find': 'other', 'filter': {'x': 1}}, '$db': 'app'}", true, "readConcern"},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'k': 1}}, {'$lookup': {'from': 'c', 'localField': 'k', "
       "'foreignField': 'k', 'as': 'j'}}], 'cursor': {}, '$db': 'app'}", true, "readConcern writeConcern"},
  }));
  CAPTURE(each.command);
  for (const std::int32_t wire_version : {9, 17}) {
    CAPTURE(wire_version);
    FakeCluster cluster(wire_version);
    cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
    cluster.forget_sent();
    cluster.worker().gateway.sent_as_router.clear();
    cluster.run(each.command);
    const auto& gateway = cluster.worker().gateway;
    bool found = false;
    for (std::size_t i = 0; i < gateway.sent.size(); ++i) {
      const DocView sent = gateway.sent[i].second;
      if (gateway.sent[i].first == 0 || sent.first().name != doc(each.command).view().first().name) continue;
      found = true;
      CHECK(gateway.sent_as_router[i] == (each.as_router && wire_version == 17));
      for (const char* const concern : {"readConcern", "writeConcern"}) {
        const bool named = each.as_router && wire_version == 17 && std::strstr(each.concerns, concern) != nullptr;
        if (named) CHECK(sent[concern].is_document());
        if (!named && sent.first().name != "insert") CHECK_FALSE(sent[concern].exists());
      }
    }
    CHECK((found || wire_version == 9));
  }
}

TEST_CASE("a statement of a transaction gets no writeConcern for an empty one") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  for (auto& state : cluster.worker().gateway.states()) state.replica_set = true;
  cluster.forget_sent();
  cluster.run(fmt::format("{{'insert': 'c', 'documents': [{{'k': 1}}], 'writeConcern': {{}}, 'lsid': {{'id': {}}}, "
                          "'txnNumber': {{'$numberLong': '1'}}, 'autocommit': false, 'startTransaction': true, "
                          "'$db': 'app'}}",
                          "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}"));
  const std::vector<BsonDoc> sent = cluster.sent_to(1, "insert");
  REQUIRE_FALSE(sent.empty());
  CHECK_FALSE(sent[0].view().find_path("writeConcern.w").exists());
}

TEST_CASE("to 8.0 a transaction begins with a time, which the shard needs for the shards that it asks itself") {
  for (const std::int32_t wire : {21, 25}) {
    CAPTURE(wire);
    FakeCluster cluster(wire);
    cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
    for (auto& state : cluster.worker().gateway.states()) state.replica_set = true;
    REQUIRE(cluster.worker().shared.clock.hear({.time = std::uint64_t{100} << 32}, 100));
    cluster.forget_sent();
    cluster.run(fmt::format("{{'find': 'c', 'filter': {{'k': 1}}, 'lsid': {{'id': {}}}, 'txnNumber': {{'$numberLong': "
                            "'1'}}, 'autocommit': false, 'startTransaction': true, '$db': 'app'}}",
                            "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}"));
    const std::vector<BsonDoc> sent = cluster.sent_to(1, "find");
    REQUIRE_FALSE(sent.empty());
    CHECK(sent[0].view().find_path("readConcern.afterClusterTime").exists() == (wire >= 25));
  }
}

TEST_CASE("statistics and hints of a sharded time series are those of its buckets") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.system.buckets.ts", 10, "sh1", "sh2", 3);
  const auto view = [](const char* more) {
    return doc(fmt::format("{{'ns': 'app.system.buckets.ts', 'pipeline': [{{'$_internalUnpackBucket': "
                           "{{'timeField': 't', 'metaField': 'm'}}}}{}]}}", more));
  };
  const auto aggregate = [](const char* stage) {
    return fmt::format("{{'aggregate': 'ts', 'pipeline': [{}], 'cursor': {{}}, '$db': 'app'}}", stage);
  };
  const auto rewritten = [&](const std::string& command, const char* more = "") {
    const auto made = exec::aggregation_over_view(doc(command), view(more), true);
    REQUIRE(made.has_value());
    return to_json(*made);
  };
  const std::string stats = rewritten(aggregate("{'$collStats': {'count': {}}}"));
  CHECK(stats.find(R"({ "$collStats" : { "count" : {  }, "$_requestOnTimeseriesView" : true } })") !=
        std::string::npos);
  CHECK(stats.find("$_internalUnpackBucket") == std::string::npos);
  CHECK(rewritten(aggregate("{'$indexStats': {}}")).find(
            R"({ "$_internalConvertBucketIndexStats" : { "timeField" : "t", "metaField" : "m" } })") !=
        std::string::npos);
  CHECK(rewritten(aggregate("{'$collStats': {}}"), ", {'$match': {'x': 1}}").find("$_internalUnpackBucket") !=
        std::string::npos);
  CHECK(rewritten("{'find': 'ts', 'hint': {'m.a': 1, 't': -1}, '$db': 'app'}").find(
            R"("hint" : { "meta.a" : 1, "control.max.t" : -1, "control.min.t" : -1 })") != std::string::npos);
  CHECK(rewritten("{'find': 'ts', 'hint': {'x': -1, 'p': '2dsphere'}, '$db': 'app'}", ", {'$match': {'x': 1}}")
            .find(R"("hint" : { "control.max.x" : -1, "control.min.x" : -1, "data.p" : "2dsphere_bucket" })") !=
        std::string::npos);
  CHECK(rewritten("{'find': 'ts', 'hint': {'$natural': 1}, '$db': 'app'}").find(R"("hint" : { "$natural" : 1 })") !=
        std::string::npos);
  const BsonDoc mixed = doc("{'ns': 'app.system.buckets.ts', 'pipeline': [{'$_internalUnpackBucket': {'timeField': "
                            "'t'}}], 'timeseriesMayContainMixedData': false, 'timeseriesUsesExtendedRange': true}");
  for (const bool flags : {false, true}) {
    const std::string read = to_json(exec::aggregation_over_view(doc("{'find': 'ts'}"), mixed, flags).value());
    CHECK((read.find(R"("assumeNoMixedSchemaData" : true, "usesExtendedRange" : true)") != std::string::npos) == flags);
  }
  // collStats and listIndexes keep the series' name.
  cluster.forget_sent();
  const BsonDoc of_series = cluster.run("{'collStats': 'ts', '$db': 'app'}");
  REQUIRE(cluster.sent_to(1, "collStats").size() == 1);
  CHECK(cluster.sent_to(1, "collStats")[0].view().first().as_string() == "system.buckets.ts");
  CHECK(of_series.view()["ns"].as_string() == "app.ts");
  cluster.run("{'createIndexes': 'ts', 'indexes': [], '$db': 'app'}");
  CHECK(cluster.sent_to(2, "createIndexes").at(0).view()["isTimeseriesNamespace"].truthy());
  cluster.run("{'listIndexes': 'ts', '$db': 'app'}");
  CHECK(cluster.sent_to(1, "listIndexes").at(0).view().first().as_string() == "system.buckets.ts");
}

TEST_CASE("buckets are as long as the table says that the shards know, not as a view's answer said") {
  const BsonDoc aggregation = doc("{'aggregate': 'b', 'pipeline': [{'$_internalUnpackBucket': {'timeField': 't', "
                                  "'bucketMaxSpanSeconds': 3600, 'x': 1}}, {'$match': {'a': 1}}], 'cursor': {}}");
  CHECK(exec::with_bucket_span(aggregation, 3600).view().empty());
  CHECK(exec::with_bucket_span(doc("{'aggregate': 'b', 'pipeline': [{'$match': {}}]}"), 1).view().empty());
  CHECK(to_json(exec::with_bucket_span(aggregation, 86'400)) ==
        to_json(doc("{'aggregate': 'b', 'pipeline': [{'$_internalUnpackBucket': {'timeField': 't', "
                    "'bucketMaxSpanSeconds': 86400, 'x': 1}}, {'$match': {'a': 1}}], 'cursor': {}}")));
}

TEST_CASE("a getMore may name the time that its cursor reads at") {
  FakeCluster cluster(17);
  const BsonDoc reply = cluster.run("{'getMore': {'$numberLong': '7'}, 'collection': 'c', 'readConcern': {'level': "
                                    "'snapshot', 'atClusterTime': {'$timestamp': {'t': 5, 'i': 1}}}, '$db': 'app'}");
  CHECK(reply.view()["code"].to_int64() == 43);
}

TEST_CASE("no client says what $$NOW is") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.forget_sent();
  const std::pair<const char*, int> commands[] = {
      {"'find': 'c'", 51202},
      {"'update': 'c', 'updates': [{'q': {'k': 1}, 'u': {'$set': {'x': 1}}}]", 51195},
      {"'delete': 'c', 'deletes': [{'q': {'k': 1}, 'limit': 1}]", 51195},
      {"'findAndModify': 'c', 'query': {'k': 1}, 'remove': true", 51196},
  };
  for (const auto& [command, code] : commands) {
    const BsonDoc reply = cluster.run(fmt::format(
        "{{{}, 'runtimeConstants': {{'localNow': {{'$date': 1}}, "
        "'clusterTime': {{'$timestamp': {{'t': 1, 'i': 1}}}}}}, '$db': 'app'}}", command));
    CHECK(reply.view()["code"].to_int64() == code);
  }
  CHECK(cluster.sent_to(1, "find").empty());
}

TEST_CASE("no client gives a system variable a value") {
  FakeCluster cluster(21);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.forget_sent();
  for (const char* const command :
       {"'find': 'c'", "'find': 'u'", "'aggregate': 'c', 'pipeline': [], 'cursor': {}",
        "'update': 'c', 'updates': [{'q': {'k': 1}, 'u': {'$set': {'x': 1}}}]",
        "'findAndModify': 'c', 'query': {'k': 1}, 'remove': true"}) {
    CAPTURE(command);
    const std::string whole = fmt::format("{}, 'let': {{'a': 1, 'USER_ROLES': [{{'_id': 'admin.root'}}]}}", command);
    CHECK(cluster.run(fmt::format("{{{}, '$db': 'app'}}", whole)).view()["code"].to_int64() == 4738901);
    CHECK(cluster.run(fmt::format("{{'explain': {{{}}}, '$db': 'app'}}", whole)).view()["code"].to_int64() == 4738901);
  }
  CHECK(cluster.sent_to(1, "find").empty());
  CHECK(cluster.run("{'find': 'c', 'let': {'now': 1}, '$db': 'app'}").view()["ok"].truthy());
}

TEST_CASE("Queryable Encryption of a sharded collection is refused") {
  FakeCluster cluster(17);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  for (const char* const command : {"'find': 'c'", "'insert': 'c', 'documents': [{'k': 1}]", "'count': 'c'"}) {
    const BsonDoc reply =
        cluster.run(fmt::format("{{{}, 'encryptionInformation': {{'type': 1}}, '$db': 'app'}}", command));
    CHECK(reply.view()["code"].to_int64() == 115);
  }
  cluster.run("{'find': 'other', 'encryptionInformation': {'type': 1}, '$db': 'app'}");
  CHECK(cluster.sent_to(1, "find").size() == 1);
}

TEST_CASE("a user who may not list all collections sees those that its privileges name") {
  const bool limited = GENERATE(true, false);
  FakeCluster cluster;
  auth::UserSpec ann{"ann", "app", {{"read", "app"}}, {}, {}};
  if (limited)
    ann.resolved = auth::ResolvedRoles{
        .roles = {}, .privileges = {{.db = "app", .collection = "orders", .actions = {auth::Action::find}}}};
  cluster.log_in(ann);
  const BsonDoc reply = cluster.run(
      "{'listCollections': 1, 'nameOnly': true, 'authorizedCollections': true, "
      "'filter': {'type': 'collection'}, '$db': 'app'}");
  CAPTURE(to_json(reply));
  const auto sent = cluster.sent_to(1, "listCollections");
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].view()["authorizedCollections"].exists() != limited);
  CHECK(sent[0].view()["nameOnly"].truthy());
  const std::string names = to_json(doc("{'name': {'$in': ['orders']}}").view());
  CHECK((to_json(sent[0].view()["filter"]).find(names) != std::string::npos) == limited);
}

TEST_CASE("the find that chooses a write's document sees the latest, whatever reads see by default") {
  for (const std::int32_t wire_version : {8, 9, 17}) {
    CAPTURE(wire_version);
    FakeCluster cluster(wire_version);
    cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
    cluster.set_concerns("{'level': 'majority'}", "{'w': 2, 'wtimeout': 5}");
    cluster.forget_sent();
    for (const char* command :
         {"{'update': 'c', 'updates': [{'q': {'v': 7}, 'u': {'$set': {'x': 1}}}], '$db': 'app'}",
          "{'findAndModify': 'c', 'query': {'v': 7}, 'update': {'$set': {'x': 1}}, '$db': 'app'}"}) {
      cluster.run(command);
      for (std::uint16_t shard = 1; shard <= 2; ++shard) {
        const auto finds = cluster.sent_to(shard, "find");
        REQUIRE(finds.size() == 1);
        CHECK(to_json(finds[0].view()["readConcern"]) == to_json(doc("{'level': 'local'}").view()));
      }
      cluster.forget_sent();
    }
  }
}

TEST_CASE("default concerns that are taken back, or of wrong types, are not applied") {
  FakeCluster cluster(9);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.set_concerns("{'level': 'majority'}", "{'w': 2}");
  cluster.set_concerns("{'level': 7}", "'x'");
  cluster.run("{'find': 'c', 'filter': {'k': 1}, '$db': 'app'}");
  cluster.run("{'insert': 'c', 'documents': [{'k': 1}], '$db': 'app'}");
  CHECK_FALSE(cluster.sent_to(1, "find").at(0).view()["readConcern"].exists());
  CHECK_FALSE(cluster.sent_to(1, "insert").at(0).view()["writeConcern"].exists());
}

TEST_CASE("a view over a sharded collection is run as an aggregation of that collection") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().as_string() != "v") return std::nullopt;
    return doc("{'ok': 0, 'code': 169, 'errmsg': 'a view', 'resolvedView': {'ns': 'app.c', 'pipeline': "
               "[{'$match': {'k': {'$gte': 11}}}]}}");
  };
  const BsonDoc found = cluster.run("{'find': 'v', 'filter': {'x': 1}, 'limit': 2, '$db': 'app'}");
  CHECK(found.view()["ok"].truthy());
  const auto sent = cluster.sent_to(2, "aggregate");
  REQUIRE(sent.size() == 1);
  CHECK(sent.front().view()["aggregate"].as_string() == "c");
  CHECK(version_of(sent.front()) == std::pair(3U, 1U));
  CHECK(cluster.sent_to(1, "aggregate").empty());  // the view's own filter narrows the shards
  const auto pipeline = sent.front().view()["pipeline"].as_document();
  CHECK(pipeline.count() == 3);
  CHECK(cluster.run("{'count': 'v', '$db': 'app'}").view()["n"].to_int64() == 0);
  for (const char* const more : {"'showRecordId': true", "'noCursorTimeout': true"}) {
    CAPTURE(more);
    CHECK(cluster.run(fmt::format("{{'find': 'v', {}, '$db': 'app'}}", more)).view()["code"].to_int64() == 168);
  }
  cluster.forget_sent();
  cluster.run("{'find': 'v', 'filter': {'x': 1}, 'limit': 500, 'singleBatch': true, '$db': 'app'}");
  CHECK(cluster.sent_to(2, "aggregate").at(0).view().find_path("cursor.batchSize").to_int64() == 501);
  for (const auto& [more, size] : {std::pair("", 101), std::pair(", 'batchSize': 500", 500)}) {
    cluster.forget_sent();
    cluster.run(fmt::format("{{'find': 'v', 'filter': {{'x': 1}}, 'singleBatch': true{}, '$db': 'app'}}", more));
    const BsonDoc one = cluster.sent_to(2, "aggregate").at(0);
    CHECK(one.view().find_path("cursor.batchSize").to_int64() == size + 1);
    CHECK(to_json(one).find(fmt::format("{{ \"$limit\" : {} }}", size)) != std::string::npos);
  }
  cluster.forget_sent();
  cluster.run("{'find': 'v', 'filter': {'x': 1}, 'sort': {'$natural': -1}, '$db': 'app'}");
  CHECK(cluster.sent_to(2, "aggregate").at(0).view().find_path("hint.$natural").to_int64() == -1);
}

TEST_CASE("a sharded time series is read from the buckets of all shards, which unpack them") {
  FakeCluster cluster;
  cluster.shard_collection("app.system.buckets.ts", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().as_string() != "ts") return std::nullopt;
    return doc("{'ok': 0, 'code': 169, 'errmsg': 'a view', 'resolvedView': {'ns': 'app.system.buckets.ts', 'pipeline': "
               "[{'$_internalUnpackBucket': {'timeField': 't', 'bucketMaxSpanSeconds': 3600}}]}}");
  };
  const BsonDoc found = cluster.run("{'find': 'ts', 'filter': {'x': 1}, 'sort': {'t': 1}, '$db': 'app'}");
  CHECK(found.view()["ok"].truthy());
  for (const std::uint16_t shard : {std::uint16_t{1}, std::uint16_t{2}}) {
    const auto sent = cluster.sent_to(shard, "aggregate");
    REQUIRE(sent.size() == 1);
    const auto stages = sent.front().view()["pipeline"].as_document();
    CHECK(stages.first().as_document().first().name == "$_internalUnpackBucket");
    CHECK(to_json(stages).find("$sort") != std::string::npos);
  }
}

TEST_CASE("clients and shards of a cluster are told its time") {
  FakeCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t, DocView) {
    return std::optional(doc("{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'app.u'}, 'ok': 1, "
                             "'operationTime': {'$timestamp': {'t': 7, 'i': 2}}, '$clusterTime': {'clusterTime': "
                             "{'$timestamp': {'t': 7, 'i': 3}}, 'signature': {'hash': {'$binary': {'base64': "
                             "'AAAAAAAAAAAAAAAAAAAAAAAAAAA=', 'subType': '00'}}, 'keyId': {'$numberLong': '0'}}}}"));
  };
  const BsonDoc reply = cluster.run("{'find': 'u', '$db': 'app'}");
  const std::uint64_t told = *catalog::read_timestamp(reply.view()["$clusterTime"].as_document()["clusterTime"]);
  CHECK(told == ((std::uint64_t{7} << 32) | 3));
  cluster.forget_sent();
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK(cluster.sent_to(1, "find").at(0).view()["$clusterTime"].exists());
}

TEST_CASE("servers of a cluster are told the client's user, with all its roles") {
  const std::int32_t wire = GENERATE(8, 17, 21);
  FakeCluster cluster(wire);
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK_FALSE(cluster.sent_to(1, "find").at(0).view()["$audit"].exists());
  auth::UserSpec ann{"ann", "app", {{"worker", "app"}}, {}, {}};
  ann.resolved = auth::ResolvedRoles{{{"worker", "app"}, {"read", "app"}}, {}};
  const BsonDoc all = doc("{'resource': {'db': 'app', 'collection': ''}, 'actions': ['find', 'insert']}");
  ann.resolved->privileges.push_back(*auth::read_privilege(all.view()));
  cluster.log_in(ann);
  const std::string user = wire >= 21 ? "'$impersonatedUser': {'user': 'ann', 'db': 'app'}"
                                      : "'$impersonatedUsers': [{'user': 'ann', 'db': 'app'}]";
  const BsonDoc audit = doc("{" + user + ", '$impersonatedRoles': [{'role': 'worker', 'db': 'app'}, {'role': 'read', "
                            "'db': 'app'}]}");
  const auto said = [&](std::uint16_t shard, std::string_view name, const char* command) {
    cluster.forget_sent();
    cluster.run(command);
    INFO(command);
    REQUIRE(cluster.sent_to(shard, name).size() == 1);
    return to_json(cluster.sent_to(shard, name).front().view()["$audit"]);
  };
  const std::string expected = to_json(audit.view());
  CHECK(said(1, "find", "{'find': 'u', '$db': 'app'}") == expected);
  CHECK(said(1, "insert", "{'insert': 'u', 'documents': [{'_id': 1}], '$db': 'app'}") == expected);
  CHECK(said(1, "count", "{'count': 'u', '$db': 'app'}") == expected);
  // What a client says of others is not passed on.
  CHECK(said(1, "find", "{'find': 'u', '$db': 'app', '$audit': {'$impersonatedUsers': [{'user': 'root', 'db': "
                        "'admin'}], '$impersonatedRoles': []}}") == expected);
}

namespace {

BsonDoc key(int id, const char* expires) {
  return doc(fmt::format("{{'_id': {{'$numberLong': '{}'}}, 'purpose': 'HMAC', 'key': {{'$binary': {{'base64': "
                         "'AAAAAAAAAAAAAAAAAAAAAAAAAAA=', 'subType': '00'}}}}, 'expiresAt': {{'$timestamp': {{'t': {}, "
                         "'i': 0}}}}}}", id, expires));
}

// A find with this time, signed with that key.
std::string find_at(std::uint32_t seconds, int id) {
  auth::ClusterKeys keys;
  REQUIRE_FALSE(keys.add(key(id, "2000000000").view()).has_error());
  const auto time = keys.sign(std::uint64_t{seconds} << 32);
  REQUIRE(time.has_value());
  BsonWriter out;
  out.append("find", "u");
  auth::append_cluster_time(out, *time);
  out.append("$db", "app");
  std::string json = to_json(std::move(out).finish().view());
  std::replace(json.begin(), json.end(), '"', '\'');
  return json;
}

}  // namespace

TEST_CASE("a time signed with a key that was made meanwhile has the keys read again, once a second at most") {
  FakeCluster cluster;
  cluster.keys_ = {key(1, "2000000000")};
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  test::advance_time(std::chrono::seconds(2));
  CHECK(cluster.run(find_at(10, 1)).view()["ok"].truthy());  // the start found no keys
  CHECK(cluster.reads_of("system.keys") == 0);
  CHECK(cluster.run(find_at(20, 2)).view()["ok"].truthy());
  cluster.forget_sent();
  test::advance_time(std::chrono::seconds(40));
  cluster.look_for_keys();
  CHECK(cluster.reads_of("system.keys") == 1);
  cluster.keys_.push_back(key(2, "2000000000"));
  CHECK(cluster.run(find_at(30, 2)).view()["code"].to_int64() == 211);  // they were read a moment ago
  CHECK(cluster.reads_of("system.keys") == 1);
  test::advance_time(std::chrono::seconds(1));
  CHECK(cluster.run(find_at(30, 2)).view()["ok"].truthy());
  CHECK(cluster.reads_of("system.keys") == 2);
  test::advance_time(std::chrono::seconds(1));
  CHECK(cluster.run(find_at(40, 3)).view()["code"].to_int64() == 211);
  CHECK(cluster.reads_of("system.keys") == 3);
  CHECK(cluster.run(find_at(50, 1)).view()["ok"].truthy());
}

TEST_CASE("a shard that does not know a key has the keys read again, and is asked once more") {
  FakeCluster cluster;
  int refusals = 1;
  cluster.shard_answer_ = [&](std::uint16_t, DocView) -> std::optional<BsonDoc> {
    if (refusals == 0) return std::nullopt;
    --refusals;
    return doc("{'ok': 0, 'code': 211, 'codeName': 'KeyNotFound', 'errmsg': 'no key'}");
  };
  test::advance_time(std::chrono::seconds(2));
  CHECK(cluster.run("{'find': 'u', '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.reads_of("system.keys") == 1);
  refusals = 2;
  CHECK(cluster.run("{'insert': 'u', 'documents': [{'_id': 1}], '$db': 'app'}").view()["code"].to_int64() == 211);
  CHECK(cluster.sent_to(1, "insert").size() == 2);
}

TEST_CASE("keys that expire soon have their successors looked for") {
  FakeCluster cluster;
  cluster.keys_ = {key(1, "100")};
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  test::advance_time(std::chrono::seconds(40));
  cluster.tick();  // looks at everything
  CHECK(cluster.reads_of("system.keys") == 1);
  cluster.forget_sent();
  CHECK(cluster.run(find_at(30, 1)).view()["ok"].truthy());
  test::advance_time(std::chrono::seconds(1));
  cluster.tick();
  CHECK(cluster.reads_of("system.keys") == 0);
  CHECK(cluster.run(find_at(41, 1)).view()["ok"].truthy());
  cluster.tick();
  CHECK(cluster.reads_of("system.keys") == 1);
  cluster.tick();  // not at once again
  CHECK(cluster.reads_of("system.keys") == 1);
}

namespace {

// Strings of k below "m" on sh1, as numbers are, the others on sh2; the collection's default is not to tell "a" from
// "A".
void shard_by_strings(FakeCluster& cluster) {
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.chunks_["app.c"] = {FakeCluster::chunk("app.c", "{'$minKey': 1}", "'m'", "sh1", 3, 0),
                              FakeCluster::chunk("app.c", "'m'", "{'$maxKey': 1}", "sh2", 3, 1)};
  BsonWriter with_default;
  with_default.append_elements(cluster.collections_["app.c"].view());
  with_default.begin_document("defaultCollation").append("locale", "en").append("strength", 2).end();
  cluster.collections_["app.c"] = std::move(with_default).finish();
}

}  // namespace

TEST_CASE("under a collection's default collation an equality of strings may match on every shard") {
  struct Case {
    const char* command;
    std::size_t shards;
  };
  const auto each = GENERATE(values<Case>({
      {"{'find': 'c', 'filter': {'k': 'a'}, '$db': 'app'}", 2},
      {"{'find': 'c', 'filter': {'k': {'$gt': 'x'}}, '$db': 'app'}", 2},
      {"{'find': 'c', 'filter': {'k': {'x': 'a'}}, '$db': 'app'}", 2},
      {"{'find': 'c', 'filter': {'k': 'a'}, 'collation': {}, '$db': 'app'}", 2},
      {"{'find': 'c', 'filter': {'k': 'a'}, 'collation': {'locale': 'simple'}, '$db': 'app'}", 1},
      {"{'find': 'c', 'filter': {'k': 5}, '$db': 'app'}", 1},
      {"{'find': 'c', 'filter': {'k': {'$in': [5, 6]}}, '$db': 'app'}", 1},
      {"{'count': 'c', 'query': {'k': 'a'}, '$db': 'app'}", 2},
      {"{'count': 'c', 'query': {'k': 5}, '$db': 'app'}", 1},
      {"{'distinct': 'c', 'key': 'x', 'query': {'k': 'a'}, '$db': 'app'}", 2},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'k': 'a'}}], 'cursor': {}, '$db': 'app'}", 2},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'k': 'a'}}], 'cursor': {}, 'collation': {'locale': 'simple'}, "
       "'$db': 'app'}", 1},
      {"{'update': 'c', 'updates': [{'q': {'k': 'a'}, 'u': {'$set': {'x': 1}}, 'multi': true}], '$db': 'app'}", 2},
      {"{'update': 'c', 'updates': [{'q': {'k': 5}, 'u': {'$set': {'x': 1}}, 'upsert': true}], '$db': 'app'}", 1},
      {"{'delete': 'c', 'deletes': [{'q': {'k': 'a'}, 'limit': 0}], '$db': 'app'}", 2},
      {"{'delete': 'c', 'deletes': [{'q': {'k': 'a'}, 'limit': 0, 'collation': {'locale': 'simple'}}], "
       "'$db': 'app'}", 1},
      {"{'explain': {'find': 'c', 'filter': {'k': 'a'}}, '$db': 'app'}", 2},
      {"{'explain': {'delete': 'c', 'deletes': [{'q': {'k': 'a'}, 'limit': 0, 'collation': {'locale': 'simple'}}]}, "
       "'$db': 'app'}", 1},
  }));
  INFO(each.command);
  FakeCluster cluster;
  shard_by_strings(cluster);
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name == "distinct") return doc("{'values': [1, 2], 'ok': 1}");
    return std::nullopt;
  };
  const BsonDoc reply = cluster.run(each.command);
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  const std::string name(doc(each.command).view().first().name);
  CHECK(cluster.sent_to(1, name).size() == 1);
  CHECK(cluster.sent_to(2, name).size() == each.shards - 1);
}

TEST_CASE("under a default collation a write of one document finds it on whatever shard it is") {
  const std::string_view command = GENERATE(
      "{'update': 'c', 'updates': [{'q': {'k': 'a'}, 'u': {'$set': {'x': 1}}}], '$db': 'app'}",
      "{'delete': 'c', 'deletes': [{'q': {'k': 'a'}, 'limit': 1}], '$db': 'app'}",
      "{'findAndModify': 'c', 'query': {'k': 'a'}, 'update': {'$set': {'x': 1}}, '$db': 'app'}");
  FakeCluster cluster;
  shard_by_strings(cluster);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView asked) -> std::optional<BsonDoc> {
    if (asked.first().name == "find") {
      return doc(fmt::format("{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '0'}}, 'ns': 'app.c'}}, "
                             "'ok': 1}}", shard == 2 ? "{'_id': 7, 'k': 'A'}" : ""));
    }
    return doc("{'ok': 1, 'n': 1, 'nModified': 1, 'lastErrorObject': {'n': 1, 'updatedExisting': true}}");
  };
  const BsonDoc reply = cluster.run(command);
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  const std::string name(doc(command).view().first().name);
  CHECK(cluster.sent_to(1, "find").size() == 1);
  CHECK(cluster.sent_to(1, name).empty());
  CHECK(cluster.sent_to(2, name).size() == 1);
}

TEST_CASE("under a default collation only merges that compare no strings are done in the router") {
  enum class Merge { here, by_a_shard };
  struct Case {
    const char* command;
    Merge merge;
  };
  const auto each = GENERATE(values<Case>({
      {"{'aggregate': 'c', 'pipeline': [{'$group': {'_id': '$x'}}], 'cursor': {}, '$db': 'app'}", Merge::by_a_shard},
      {"{'aggregate': 'c', 'pipeline': [{'$group': {'_id': 1, 'n': {'$max': '$x'}}}], 'cursor': {}, '$db': 'app'}",
       Merge::by_a_shard},
      {"{'aggregate': 'c', 'pipeline': [{'$limit': 3}, {'$match': {'x': 'a'}}], 'cursor': {}, '$db': 'app'}",
       Merge::by_a_shard},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'x': 'a'}}, {'$group': {'_id': 1, 'n': {'$sum': 1}}}], "
       "'cursor': {}, '$db': 'app'}",
       Merge::here},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'x': 'a'}}, {'$skip': 1}, {'$limit': 3}, {'$group': {'_id': null, "
       "'n': {'$sum': 1}}}], 'cursor': {}, '$db': 'app'}",
       Merge::here},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'x': 'a'}}, {'$limit': 3}], 'cursor': {}, '$db': 'app'}",
       Merge::here},
      {"{'aggregate': 'c', 'pipeline': [{'$match': {'x': 'a'}}, {'$count': 'n'}], 'cursor': {}, '$db': 'app'}",
       Merge::here},
      {"{'aggregate': 'c', 'pipeline': [{'$sort': {'x': 1}}, {'$limit': 3}], 'cursor': {}, '$db': 'app'}", Merge::here},
      {"{'aggregate': 'c', 'pipeline': [{'$sort': {'x': 1}}, {'$group': {'_id': '$x'}}], 'cursor': {}, '$db': 'app'}",
       Merge::by_a_shard},
      {"{'distinct': 'c', 'key': 'numbers', '$db': 'app'}", Merge::here},
      {"{'distinct': 'c', 'key': 'strings', '$db': 'app'}", Merge::by_a_shard},
  }));
  INFO(each.command);
  FakeCluster cluster;
  shard_by_strings(cluster);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name != "distinct") return std::nullopt;
    const bool strings = command["key"].as_string() == "strings";
    if (strings && shard == 2) return doc("{'values': ['a'], 'ok': 1}");
    return doc("{'values': [1, 2], 'ok': 1}");
  };
  const bool trusted = GENERATE(true, false);  // by shards that merge
  cluster.worker().shared.shards_trust_us = trusted;
  const BsonDoc reply = cluster.run(each.command);
  INFO(to_json(reply.view()));
  const bool refused = each.merge == Merge::by_a_shard && !trusted;
  CHECK(reply.view()["code"].to_int64().value_or(0) == (refused ? 115 : 0));
  std::size_t mergers = 0;
  for (const std::uint16_t shard : {std::uint16_t{1}, std::uint16_t{2}}) {
    for (const BsonDoc& sent : cluster.sent_to(shard, "aggregate")) {
      const DocView first = sent.view()["pipeline"].as_document().first().as_document();
      if (first.first().name == "$mergeCursors") ++mergers;
    }
  }
  CHECK(mergers == (each.merge == Merge::by_a_shard && trusted ? 1 : 0));
}

namespace {

// v is {k: {$gte: 11}} of app.c, which lies on sh2. What an aggregation of app.c is answered.
void add_view(FakeCluster& cluster, std::string answer) {
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [answer = std::move(answer)](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    const DocView named = command.first().is_document() ? command.first().as_document() : command;
    if (named.first().is_string() && named.first().as_string() == "c") return doc(answer);
    if (!named.first().is_string() || named.first().as_string() != "v") return std::nullopt;
    return doc("{'ok': 0, 'code': 169, 'errmsg': 'a view', 'resolvedView': {'ns': 'app.c', 'pipeline': "
               "[{'$match': {'k': {'$gte': 11}}}], 'collation': {'locale': 'simple'}}}");
  };
}

}  // namespace

TEST_CASE("a view over a sharded collection is read with the numbers that a collection would take") {
  const std::string find = GENERATE("'find': 'v', 'skip': 2.5, 'limit': {'$numberDecimal': '5'}",
                                    "'count': 'v', 'skip': 2.5, 'limit': 5.9");
  FakeCluster cluster;
  add_view(cluster, "{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'app.c'}, 'ok': 1}");
  cluster.run("{" + find + ", '$db': 'app'}");
  const auto sent = cluster.sent_to(2, "aggregate");
  REQUIRE(sent.size() == 1);
  const std::string pipeline = to_json(sent.front().view()["pipeline"]);
  INFO(pipeline);
  CHECK(pipeline.find(R"("$skip" : 2)") != std::string::npos);
  CHECK(pipeline.find(R"("$limit" : 5)") != std::string::npos);
}

TEST_CASE("of one shard a mongos tells what it tells of several") {
  FakeCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name == "count") return doc("{'n': 3, 'ok': 1}");
    if (command.first().name == "validate") return doc("{'valid': true, 'ok': 1}");
    return doc("{'count': 3, 'size': 30, 'avgObjSize': 10, 'capped': false, 'nindexes': 1, 'ok': 1}");
  };
  const auto answer = [&](const char* command) { return to_json(cluster.run(command).view()); };
  CHECK_THAT(answer("{'count': 'c', '$db': 'app'}"), Catch::StartsWith(R"({ "shards" : { "sh1" : )"));
  CHECK_THAT(answer("{'count': 'c', '$db': 'none'}"), Catch::StartsWith(R"({ "shards" : {  }, "n" : 0)"));
  const std::string stats = answer("{'collStats': 'c', '$db': 'app'}");
  CHECK_THAT(stats, Catch::StartsWith(R"({ "sharded" : false, "primary" : "sh1", "capped" : false, "ns" : "app.c")"));
  CHECK_THAT(stats, Catch::Contains(R"("nchunks" : 1, "shards" : { "sh1" : { "count" : 3)"));
  CHECK(stats.find("totalSize") == std::string::npos);
  CHECK_THAT(answer("{'validate': 'c', '$db': 'app'}"), Catch::Contains(R"("raw" : { "sh1" : )"));
}

TEST_CASE("bytes of several shards are added up before they are scaled, from 4.4 on") {
  FakeCluster cluster(GENERATE(8, 9));
  const bool scales = cluster.worker().gateway.states().front().max_wire_version >= 9;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t, DocView) -> std::optional<BsonDoc> {
    return doc("{'count': 3, 'size': 1500, 'avgObjSize': 500, 'storageSize': 4096, 'maxSize': 2048, 'indexSizes': "
               "{'_id_': 700}, 'scaleFactor': 1, 'ok': 1}");
  };
  const auto stats = [&](std::string_view scale) {
    cluster.forget_sent();
    return cluster.run(fmt::format("{{'collStats': 'c', 'scale': {}, '$db': 'app'}}", scale));
  };
  const BsonDoc scaled = stats("1024.7");
  CHECK(cluster.sent_to(1, "collStats").at(0).view()["scale"].exists() != scales);
  if (!scales) return;
  CHECK(scaled.view()["size"].to_int64() == 2);
  CHECK(scaled.view()["scaleFactor"].to_int64() == 1024);
  CHECK(scaled.view()["avgObjSize"].to_double() == 500.0);
  CHECK(stats("null").view()["size"].to_int64() == 3000);
  CHECK(stats("null").view()["scaleFactor"].to_int64() == 1);
  CHECK(stats("0.9").view()["code"].to_int64() == 4390200);
  CHECK(stats("-3").view()["code"].to_int64() == 4390200);
  CHECK(stats("'a'").view()["code"].to_int64() == 4390201);
}

TEST_CASE("of 4.4, indexes are dropped once by each owner, while others move its chunks") {
  FakeCluster cluster(9);
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  enum class Then { has_index, lacks_index, owns_nothing };
  const Then then = GENERATE(Then::has_index, Then::lacks_index, Then::owns_nothing);
  bool moved = false;
  cluster.shard_answer_ = [&](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (command.first().name != "dropIndexes" || shard == 1) return std::nullopt;
    if (!std::exchange(moved, true)) {
      cluster.shard_collection("app.c", 20, "sh1", then == Then::owns_nothing ? "sh1" : "sh2", 4);
      return stale_config("app.c");
    }
    if (then == Then::has_index) return std::nullopt;
    return doc("{'ok': 0, 'code': 27, 'codeName': 'IndexNotFound', 'errmsg': 'index not found with name [v_1]'}");
  };
  const BsonDoc reply = cluster.run("{'dropIndexes': 'c', 'index': 'v_1', '$db': 'app'}");
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  CHECK(cluster.sent_to(1, "dropIndexes").size() == 1);
  const auto sent = cluster.sent_to(2, "dropIndexes");
  REQUIRE(sent.size() == (then == Then::owns_nothing ? 1 : 2));
  if (sent.size() == 2) CHECK(version_of(sent[1]).first == 4);
  CHECK(reply.view()["raw"].as_document().count() >= 1);
}

TEST_CASE("stages whose privileges are not known are refused by name") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  auto run = [&](std::string_view command) {
    const BsonDoc reply = cluster.run(fmt::format("{{{}, '$db': 'app'}}", command));
    const ValueView message = reply.view()["errmsg"];
    return std::pair(reply.view()["code"].to_int64().value_or(0),
                     std::string(message.is_string() ? message.as_string() : ""));
  };
  const bool users = GENERATE(false, true);
  if (users) cluster.log_in({"ann", "app", {{"read", "app"}}, {}, {}});
  for (const std::string stage : {"$listSearchIndexes", "$rankFusion", "$scoreFusion", "$listClusterCatalog"}) {
    const std::string pipeline = "'pipeline': [{'" + stage + "': {}}]";
    for (const std::string& command : {"'aggregate': 'c', " + pipeline + ", 'cursor': {}",
                                       "'explain': {'aggregate': 'c', " + pipeline + "}"}) {
      const auto [code, message] = run(command);
      CHECK(code == 115);
      CHECK_THAT(message, Catch::Contains(stage));
    }
    if (!users) continue;
    CHECK(run("'aggregate': 'c', 'pipeline': [{'$match': {}}, {'" + stage + "': {}}], 'cursor': {}").first == 13);
    CHECK(run("'aggregate': 'c', 'pipeline': [{'$unionWith': {'coll': 'd', " + pipeline + "}}], 'cursor': {}").first ==
          13);
    CHECK(run("'aggregate': 'u', " + pipeline + ", 'pipeline': [{'$out': 'x'}], 'cursor': {}").first == 115);
  }
  CHECK(cluster.sent_to(1, "aggregate").empty());
  CHECK(run("'aggregate': 1, 'pipeline': [{'$listClusterCatalog': {}}], 'cursor': {}").first == 115);
}

TEST_CASE("the privileges of a user are told") {
  FakeCluster cluster;
  const bool resolved = GENERATE(false, true);
  auth::UserSpec ann{"ann", "app", {{"read", "app"}}, {}, {}};
  if (resolved) {
    auth::Privilege find;
    find.db = "app";
    find.actions = auth::Action::find;
    ann.resolved = auth::ResolvedRoles{{{"read", "app"}, {"more", "app"}}, {find}};
  }
  cluster.log_in(std::move(ann));
  const std::string told = to_json(cluster.run("{'connectionStatus': 1, 'showPrivileges': true, '$db': 'app'}").view());
  CHECK_THAT(told, Catch::Contains(R"("authenticatedUserPrivileges" : [ { "resource" : { "db" : "app", "coll)"));
  CHECK_THAT(told, Catch::Contains(R"("find")"));
  CHECK((told.find("more") != std::string::npos) == resolved);
}

TEST_CASE("distinct of a view over a sharded collection unwinds the arrays on the way to its key") {
  FakeCluster cluster;
  const bool any = GENERATE(true, false);
  add_view(cluster, fmt::format("{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '0'}}, 'ns': 'app.c'}}, "
                                "'ok': 1}}", any ? "{'_id': null, 'distinct': [3, 'a']}" : ""));
  const BsonDoc reply = cluster.run("{'distinct': 'v', 'key': 'x.y', 'query': {'z': 1}, '$db': 'app'}");
  CHECK(to_json(reply.view()["values"]) == to_json(doc(any ? "{'v': [3, 'a']}" : "{'v': []}").view()["v"]));
  const auto sent = cluster.sent_to(2, "aggregate");
  REQUIRE(sent.size() == 1);
  CHECK(to_json(sent.front().view()["pipeline"]) ==
        to_json(doc("{'p': [{'$match': {'k': {'$gte': 11}}}, {'$match': {'z': 1}}, {'$unwind': {'path': '$x', "
                    "'preserveNullAndEmptyArrays': true}}, {'$match': {'$expr': {'$ne': [{'$type': '$x'}, 'array']}}}, "
                    "{'$unwind': {'path': '$x.y', 'preserveNullAndEmptyArrays': true}}, {'$match': {'$expr': {'$ne': "
                    "[{'$type': '$x.y'}, 'missing']}}}, {'$group': {'_id': {'v': '$x.y'}}}, {'$sort': {'_id': 1}}, "
                    "{'$group': {'_id': null, 'distinct': {'$push': '$_id.v'}}}]}").view()["p"]));
}

TEST_CASE("what is explained of a view is explained of the collection below it") {
  const std::string_view command = GENERATE(
      "{'explain': {'find': 'v', 'filter': {'z': 1}}, 'verbosity': 'queryPlanner', '$db': 'app'}",
      "{'explain': {'count': 'v', 'query': {'z': 1}}, 'verbosity': 'queryPlanner', '$db': 'app'}",
      "{'explain': {'distinct': 'v', 'key': 'z'}, 'verbosity': 'queryPlanner', '$db': 'app'}",
      "{'explain': {'aggregate': 'v', 'pipeline': []}, 'verbosity': 'queryPlanner', '$db': 'app'}",
      "{'aggregate': 'v', 'pipeline': [], 'explain': true, '$db': 'app'}");
  INFO(command);
  FakeCluster cluster;
  add_view(cluster, "{'ok': 1, 'stages': []}");
  const BsonDoc reply = cluster.run(command);
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  CHECK(reply.view()["shards"].as_document()["sh2"].exists());
  const auto sent = cluster.sent_to(2, "explain");
  REQUIRE(sent.size() == 1);
  CHECK(sent.front().view().first().as_document()["aggregate"].as_string() == "c");
  CHECK(sent.front().view()["verbosity"].as_string() == "queryPlanner");
}

namespace {

// A shard's answer to an explain. `more`: bytes of its plan beside what is usual.
BsonDoc explained_by(std::uint16_t shard, std::size_t more = 0) {
  BsonWriter out;
  out.begin_document("queryPlanner").append("namespace", "app.c");
  out.append("parsedQuery", std::string(more, 'x')).begin_document("winningPlan").append("stage", "IXSCAN").end().end();
  out.begin_document("executionStats").append("executionSuccess", true).append("nReturned", std::int32_t{shard});
  out.append("executionTimeMillis", std::int32_t{3}).append("totalKeysExamined", std::int32_t{10});
  out.append("totalDocsExamined", std::int32_t{20}).begin_document("executionStages").append("stage", "IXSCAN").end();
  out.begin_array("allPlansExecution").begin_document_item().append("nReturned", std::int32_t{7}).end().end().end();
  out.begin_document("serverInfo").append("host", "shard").end();
  out.begin_document("serverParameters").append("limit", 7).end();
  out.append("ok", 1.0).append_timestamp("operationTime", 5);
  return std::move(out).finish();
}

BsonDoc explain_reply(FakeCluster& cluster, std::string_view command, std::size_t more = 0) {
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [more](std::uint16_t shard, DocView) { return explained_by(shard, more); };
  return cluster.run(fmt::format("{{'explain': {}, '$db': 'app'}}", command));
}

}  // namespace

TEST_CASE("an explain names the router's stage") {
  const auto [command, stage] = GENERATE(values<std::pair<const char*, const char*>>(
      {{"{'find': 'c', 'filter': {'k': 1}}", "SINGLE_SHARD"},
       {"{'find': 'c'}", "SHARD_MERGE"},
       {"{'find': 'c', 'sort': {'x': 1}}", "SHARD_MERGE_SORT"},
       {"{'count': 'u'}", "SINGLE_SHARD"},
       {"{'distinct': 'c', 'key': 'x'}", "SHARD_MERGE"},
       {"{'update': 'c', 'updates': [{'q': {'k': 1}, 'u': {'$set': {'x': 1}}, 'hint': 'i'}]}", "SHARD_WRITE"},
       {"{'delete': 'u', 'deletes': [{'q': {}, 'limit': 0, 'hint': {'x': 1}}]}", "SHARD_WRITE"},
       {"{'findAndModify': 'c', 'query': {'k': 1}, 'remove': true, 'hint': 'i'}", "SINGLE_SHARD"},
       {"{'findAndModify': 'c', 'query': {'x': 1}, 'remove': true}", "SHARD_WRITE"}}));
  INFO(command);
  FakeCluster cluster;
  const BsonDoc reply = explain_reply(cluster, command);
  CHECK(reply.view().find_path("queryPlanner.winningPlan.stage").as_string() == stage);
  CHECK(reply.view().find_path("executionStats.executionStages.stage").as_string() == stage);
  CHECK(reply.view().find_path("serverParameters.limit").to_int64() == 7);
  // With all of its fields, hints, too.
  const auto sent = cluster.sent_to(1, "explain");
  REQUIRE(sent.size() == 1);
  CHECK(to_json(sent.front().view().first().as_document()) == to_json(doc(command)));
}

TEST_CASE("an explain adds the shards' statistics up") {
  FakeCluster cluster;
  const BsonDoc reply = explain_reply(cluster, "{'find': 'c'}");
  const ValueView shards = reply.view().find_path("queryPlanner.winningPlan.shards");
  REQUIRE(shards.is_array());
  CHECK(to_json(shards.as_document().first().as_document()) ==
        to_json(doc("{'shardName': 'sh1', 'connectionString': '127.0.0.1:27019', 'serverInfo': {'host': 'shard'}, "
                    "'namespace': 'app.c', 'parsedQuery': '', 'winningPlan': {'stage': 'IXSCAN'}}")));
  const char* const totals =
      "'nReturned': 3, 'executionTimeMillis': 0, 'totalKeysExamined': 20, 'totalDocsExamined': 40";
  const auto shard = [](int n) {
    return fmt::format("{{'shardName': 'sh{0}', 'executionSuccess': true, 'nReturned': {0}, 'executionTimeMillis': 3, "
                       "'totalKeysExamined': 10, 'totalDocsExamined': 20, 'executionStages': {{'stage': 'IXSCAN'}}}}",
                       n);
  };
  CHECK(to_json(reply.view()["executionStats"]) ==
        to_json(doc(fmt::format("{{'e': {{{0}, 'executionStages': {{'stage': 'SHARD_MERGE', {0}, 'totalChildMillis': "
                                "{{'$numberLong': '6'}}, 'shards': [{1}, {2}]}}, 'allPlansExecution': [{{'shardName': "
                                "'sh1', 'allPlans': [{{'nReturned': 7}}]}}, {{'shardName': 'sh2', 'allPlans': "
                                "[{{'nReturned': 7}}]}}]}}}}",
                                totals, shard(1), shard(2))).view()["e"]));
}

TEST_CASE("an explain of what is not sharded is the primary shard's, if it is an aggregation") {
  FakeCluster cluster;
  const BsonDoc reply = explain_reply(cluster, "{'aggregate': 'u', 'pipeline': [{'$match': {'x': 1}}], 'cursor': {}}");
  const BsonDoc own = explained_by(1);
  BsonWriter expected;
  for (const Element& field : own.view()) {
    if (field.name != "operationTime") expected.append_element(field);
  }
  BsonWriter shown;
  for (const Element& field : reply.view()) {
    if (field.name != "operationTime" && field.name != "$clusterTime") shown.append_element(field);
  }
  CHECK(to_json(std::move(shown).finish().view()) == to_json(std::move(expected).finish().view()));
}

TEST_CASE("an explain that does not fit into a document is cut, with a note") {
  const std::string_view command = GENERATE("{'find': 'c'}", "{'aggregate': 'c', 'pipeline': [], 'cursor': {}}");
  INFO(command);
  FakeCluster cluster;
  const BsonDoc reply = explain_reply(cluster, command, 9'000'000);
  CHECK(reply.view()["ok"].truthy());
  CHECK(reply.view().size() > 9'000'000);
  CHECK(reply.view().size() <= limits::document_bytes_max);
  const bool aggregates = reply.view()["shards"].exists();
  const ValueView all = aggregates ? reply.view()["shards"] : reply.view().find_path("queryPlanner.winningPlan.shards");
  std::vector<bool> cut;
  for (const Element& shard : all.as_document()) cut.push_back(shard.as_document()["warning"].exists());
  CHECK(cut == std::vector<bool>{false, true});
  CHECK(reply.view()["command"].exists());
}

TEST_CASE("a filter behind sorts and other filters says which shards an aggregation asks") {
  MergingCluster cluster;
  const auto [pipeline, first, second] = GENERATE(values<std::tuple<const char*, bool, bool>>(
      {{"[{'$sort': {'x': 1}}, {'$match': {'k': 3}}]", true, false},
       {"[{'$match': {'x': 1}}, {'$match': {'k': 12}}]", false, true},
       {"[{'$match': {'k': 3}}, {'$sort': {'x': 1}}, {'$match': {'x': 2}}]", true, false},
       {"[{'$match': {'k': {'$lt': 20}}}, {'$sort': {'x': 1}}, {'$match': {'k': {'$gte': 10}}}]", false, true},
       {"[{'$sort': {'x': 1}}, {'$limit': 5}, {'$match': {'k': 3}}]", true, true},
       {"[{'$unwind': '$k'}, {'$match': {'k': 3}}]", true, true}}));
  INFO(pipeline);
  cluster.run(fmt::format("{{'aggregate': 'c', 'pipeline': {}, 'cursor': {{}}, '$db': 'app'}}", pipeline));
  CHECK(cluster.sent_to(1, "aggregate").empty() != first);
  CHECK(cluster.sent_to(2, "aggregate").empty() != second);
}

TEST_CASE("mapReduce does not write what other shards or the config servers have a part in") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh1", 3);
  const auto [out, code] = GENERATE(values<std::pair<const char*, int>>({{"'v'", 0},
                                                                         {"'c'", 15920},
                                                                         {"{'merge': 'c'}", 15920},
                                                                         {"{'merge': 'v', 'db': 'config'}", 115},
                                                                         {"{'merge': 'v', 'db': 'admin'}", 115},
                                                                         {"{'foo': 1}", 73},
                                                                         {"5", 73}}));
  INFO(out);
  const BsonDoc reply = cluster.run(fmt::format("{{'mapReduce': 'u', 'map': 'm', 'reduce': 'r', 'out': {}, '$db': "
                                                "'app'}}", out));
  CHECK(reply.view()["code"].to_int64().value_or(0) == code);
  CHECK(cluster.sent_to(1, "mapReduce").size() == (code == 0 ? 1 : 0));
  CHECK(cluster.run("{'mapReduce': 'c', 'map': 'm', 'reduce': 'r', 'out': {'inline': 1}, '$db': 'app'}")
            .view()["code"].to_int64() == 115);
}

TEST_CASE("a divided mapReduce refuses a query of another type: it would take all documents") {
  MergingCluster cluster(9);
  const char* const wrong = GENERATE("'query': []", "'query': '{}'", "'sort': 1", "'limit': '10'", "'scope': 's'");
  INFO(wrong);
  const BsonDoc reply =
      cluster.run(fmt::format("{{'mapReduce': 'c', 'map': 'm', 'reduce': 'r', {}, 'out': 'o', '$db': 'app'}}", wrong));
  CHECK(reply.view()["code"].to_int64() == 14);
  for (std::uint16_t shard = 1; shard <= 2; ++shard) CHECK(cluster.parts(shard, false).empty());
}

TEST_CASE("from 4.4 on, mapReduce of a sharded collection is an aggregation that a shard merges") {
  MergingCluster cluster(9);
  cluster.merger_answer = MergingCluster::cursor(0, "{'_id': null, 'results': [{'_id': 1, 'value': 3}]}");
  const auto [out, last, answer] = GENERATE(values<std::tuple<const char*, const char*, const char*>>(
      {{"{'inline': 1}", "$group", "{'results': [{'_id': 1, 'value': 3}], 'ok': 1.0}"},
       {"'o'", "$out", "{'result': 'o', 'ok': 1.0}"},
       {"{'merge': 'c'}", "$merge", "{'result': 'c', 'ok': 1.0}"},  // sharded
       {"{'reduce': 'o', 'db': 'app'}", "$merge", "{'result': {'db': 'app', 'collection': 'o'}, 'ok': 1.0}"}}));
  INFO(out);
  const BsonDoc reply = cluster.run(
      fmt::format("{{'mapReduce': 'c', 'map': 'm', 'reduce': 'r', 'finalize': 'f', 'query': {{'x': 1}}, 'scope': "
                  "{{'s': 1}}, 'out': {}, '$db': 'app', 'help': false}}",  // as $clusterTime: for routers alone
                  out));
  CHECK(to_json(reply.view()) == to_json(doc(answer).view()));
  for (std::uint16_t shard = 1; shard <= 2; ++shard) {
    const auto part = cluster.parts(shard, false).at(0);
    CHECK(to_json(part.view()["pipeline"]) ==
          to_json(doc("{'p': [{'$match': {'x': 1}}, {'$project': {'emits': {'$_internalJsEmit': {'this': '$$ROOT', "
                      "'eval': 'm'}}, '_id': false}}, {'$unwind': '$emits'}, {'$group': {'_id': '$emits.k', 'value': "
                      "{'$_internalJsReduce': {'data': '$emits', 'eval': 'r'}}}}]}").view()["p"]));
    CHECK(part.view().find_path("runtimeConstants.jsScope.s").to_int64() == 1);
  }
  const BsonDoc merging = cluster.merger_command();
  CHECK(merging.view().find_path("runtimeConstants.isMapReduce").truthy());
  std::vector<std::string> stages;
  for (const Element& stage : merging.view()["pipeline"].as_document()) stages.push_back(to_json(ValueView(stage)));
  REQUIRE(stages.size() == 4);
  CHECK(stages[1] == to_json(doc("{'$group': {'_id': '$$ROOT._id', 'value': {'$_internalJsReduce': {'data': "
                                 "'$$ROOT.value', 'eval': 'r'}}, '$doingMerge': true}}").view()));
  CHECK(stages[2] == to_json(doc("{'$project': {'value': {'$function': {'body': 'f', 'args': ['$_id', '$value'], "
                                 "'lang': 'js'}}}}").view()));
  CHECK(stages[3].find(last) != std::string::npos);
}

TEST_CASE("the explain of a mapReduce is that of its aggregation, or its only shard's") {
  MergingCluster cluster(9);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView) { return explained_by(shard); };
  const auto explain = [&cluster](const char* collection) {
    return cluster.run(fmt::format("{{'explain': {{'mapReduce': '{}', 'map': 'm', 'reduce': 'r', 'out': {{'inline': 1"
                                   "}}}}, 'verbosity': 'queryPlanner', '$db': 'app'}}", collection));
  };
  CHECK(explain("u").view()["ok"].truthy());
  REQUIRE(cluster.sent_to(1, "explain").size() == 1);
  CHECK(cluster.sent_to(1, "explain")[0].view().first().as_document().first().name == "mapReduce");
  const BsonDoc of_many = explain("c");
  INFO(to_json(of_many.view()));
  REQUIRE(of_many.view()["ok"].truthy());
  CHECK(of_many.view()["mergeType"].as_string() == "anyShard");
  CHECK(of_many.view()["shards"].as_document().count() == 2);
  const BsonDoc part = cluster.sent_to(2, "explain").at(0);
  CHECK(part.view().first().as_document().first().name == "aggregate");
  CHECK(to_json(part.view()).find("$_internalJsEmit") != std::string::npos);
}

TEST_CASE("a malformed mapReduce of a sharded collection goes to no shard, nor does its explain") {
  MergingCluster cluster(9);
  const auto [fields, code] = GENERATE(values<std::pair<const char*, int>>(
      {{"'map': 'm', 'reduce': 'r'", 73},
       {"'map': 'm', 'out': 'o'", 40414},
       {"'map': 5, 'reduce': 'r', 'out': 'o'", 14},
       {"'map': 'm', 'reduce': 'r', 'out': {'foo': 1}", 73},
       {"'map': 'm', 'reduce': 'r', 'out': {'replace': 'o', 'merge': 'o'}", 72},
       {"'map': 'm', 'reduce': 'r', 'out': 'c'", 28769},  // it would replace what is sharded
       {"'map': 'm', 'reduce': 'r', 'out': 'o', 'more': 1", 40415}}));
  INFO(fields);
  const BsonDoc reply = cluster.run(fmt::format("{{'mapReduce': 'c', {}, '$db': 'app'}}", fields));
  CHECK(reply.view()["code"].to_int64() == code);
  CHECK(cluster.sent_to(1, "aggregate").empty());
  const BsonDoc explained = cluster.run(fmt::format("{{'explain': {{'mapReduce': 'c', {}}}, '$db': 'app'}}", fields));
  CHECK(explained.view()["code"].to_int64() == code);
  CHECK(cluster.sent_to(1, "explain").empty());
}

TEST_CASE("a stage that only a merging shard would read is malformed in an explain, too") {
  MergingCluster cluster;
  cluster.shard_answer_ = [](std::uint16_t shard, DocView command) -> std::optional<BsonDoc> {
    if (to_json(command).find("\"buckets\" : 0") == std::string::npos) return explained_by(shard);
    return doc("{'ok': 0, 'code': 40243, 'errmsg': 'buckets'}");
  };
  const auto [buckets, code] = GENERATE(values<std::pair<int, int>>({{0, 40243}, {3, 0}}));
  const BsonDoc reply = cluster.run(fmt::format("{{'explain': {{'aggregate': 'c', 'pipeline': [{{'$limit': 3}}, "
                                                "{{'$bucketAuto': {{'groupBy': '$x', 'buckets': {}}}}}], 'cursor': "
                                                "{{}}}}, 'verbosity': 'executionStats', '$db': 'app'}}", buckets));
  INFO(to_json(reply.view()));
  CHECK(reply.view()["code"].to_int64().value_or(0) == code);
  const auto sent = cluster.sent_to(1, "explain");
  // The whole is only planned: a $bucketAuto of one shard's documents would be work for nothing.
  REQUIRE(sent.size() == (code == 0 ? 2 : 1));
  CHECK(sent[0].view()["verbosity"].as_string() == "queryPlanner");
  CHECK(sent[0].view().first().as_document()["pipeline"].as_document().count() == 2);
  CHECK(cluster.sent_to(2, "explain").size() == (code == 0 ? 1 : 0));
  if (code != 0) return;
  CHECK(sent[1].view()["verbosity"].as_string() == "executionStats");
  CHECK(sent[1].view().first().as_document()["pipeline"].as_document().count() == 1);
}

TEST_CASE("a shard's own explain that is larger than a document is cut, too") {
  FakeCluster cluster;
  const std::string_view command = "{'aggregate': 'u', 'pipeline': [], 'cursor': {}}";
  const bool too_large = GENERATE(false, true);
  const BsonDoc reply = explain_reply(cluster, command, too_large ? 17'000'000 : 16'000'000);
  CHECK(reply.view().size() <= limits::document_bytes_max);
  CHECK(reply.view()["queryPlanner"].exists() == !too_large);
  CHECK(reply.view()["warning"].exists() == too_large);
  CHECK(reply.view()["executionStats"].exists());
  CHECK(reply.view()["ok"].truthy());
}

TEST_CASE("what cannot be explained") {
  FakeCluster cluster;
  CHECK(explain_reply(cluster, "{'insert': 'c', 'documents': [{}]}").view()["code"].to_int64() == 20);
  CHECK(explain_reply(cluster, "{'explain': 'c'}").view()["code"].to_int64() == 20);
  CHECK(explain_reply(cluster, "{'explain': {'find': 'c'}}").view()["code"].to_int64() == 20);
  CHECK(explain_reply(cluster, "{'listCollections': 1}").view()["code"].to_int64() == 20);
  CHECK(explain_reply(cluster, "{}").view()["code"].to_int64() == 59);
  CHECK(explain_reply(cluster, "{'nosuch': 'c'}").view()["code"].to_int64() == 59);
}

TEST_CASE("a view's filter and the client's narrow the shards together") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.shard_answer_ = [](std::uint16_t, DocView command) -> std::optional<BsonDoc> {
    if (command.first().as_string() != "v") return std::nullopt;
    return doc("{'ok': 0, 'code': 169, 'errmsg': 'a view', 'resolvedView': {'ns': 'app.c', 'pipeline': "
               "[{'$match': {'x': 1}}]}}");
  };
  CHECK(cluster.run("{'find': 'v', 'filter': {'k': 12}, '$db': 'app'}").view()["ok"].truthy());
  CHECK(cluster.sent_to(1, "aggregate").empty());
  CHECK(cluster.sent_to(2, "aggregate").size() == 1);
}

TEST_CASE("a view's cursor has the view's name for the client and its collection's for shards") {
  FakeCluster cluster;
  add_view(cluster, "{'cursor': {'firstBatch': [{'_id': 1}], 'id': {'$numberLong': '77'}, 'ns': 'app.c'}, 'ok': 1}");
  const BsonDoc found = cluster.run("{'find': 'v', 'batchSize': 1, '$db': 'app'}");
  const DocView cursor = found.view()["cursor"].as_document();
  CHECK(cursor["ns"].as_string() == "app.v");
  CHECK(cursor["firstBatch"].as_document().count() == 1);
  const auto get_more = fmt::format("{{'getMore': {{'$numberLong': '{}'}}, 'collection': 'v', '$db': 'app'}}",
                                    cursor["id"].as_int64());
  cluster.shard_answer_ = [](std::uint16_t, DocView) {
    return std::optional(doc("{'cursor': {'nextBatch': [{'_id': 2}], 'id': {'$numberLong': '0'}, 'ns': 'app.c'}, "
                             "'ok': 1}"));
  };
  const BsonDoc more = cluster.run(get_more);
  INFO(to_json(more.view()));
  CHECK(more.view()["cursor"].as_document()["ns"].as_string() == "app.v");
  CHECK(more.view()["cursor"].as_document()["nextBatch"].as_document().count() == 1);
  REQUIRE(cluster.sent_to(2, "getMore").size() == 1);
  CHECK(cluster.sent_to(2, "getMore").front().view()["collection"].as_string() == "c");
}

TEST_CASE("a database that others have made again elsewhere is noticed when the config servers are visited") {
  FakeCluster cluster;
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK(cluster.sent_to(1, "find").size() == 1);
  cluster.databases_["app"] = doc("{'_id': 'app', 'primary': 'sh2', 'partitioned': true, 'version': {'uuid': "
                                  "{'$binary': {'base64': 'AQAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}, "
                                  "'lastMod': 1}}");
  cluster.forget_sent();
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK(cluster.sent_to(1, "find").size() == 1);  // no server has told of it
  test::advance_time(std::chrono::seconds(40));
  cluster.tick();
  cluster.forget_sent();
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK(cluster.sent_to(1, "find").empty());
  CHECK(cluster.sent_to(2, "find").size() == 1);
  test::advance_time(std::chrono::seconds(40));
  cluster.forget_sent();
  cluster.tick();
  cluster.run("{'find': 'u', '$db': 'app'}");
  CHECK(cluster.reads_of("databases") == 1);  // the comparison found nothing new
}

TEST_CASE("an aggregation that sorts under a collation is merged by what the shards say they compared") {
  FakeCluster cluster;
  shard_by_strings(cluster);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView) -> std::optional<BsonDoc> {
    const char* const documents = shard == 1 ? "{'x': 'b', '$sortKey': {'': 'B1'}}, {'x': 'd', '$sortKey': {'': 'D1'}}"
                                             : "{'x': 'A', '$sortKey': {'': 'A1'}}, {'x': 'C', '$sortKey': {'': 'C1'}}";
    return doc(fmt::format("{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '0'}}, 'ns': 'app.c'}}, 'ok': 1}}",
                           documents));
  };
  const BsonDoc reply =
      cluster.run("{'aggregate': 'c', 'pipeline': [{'$sort': {'x': 1}}], 'cursor': {}, '$db': 'app'}");
  CHECK(to_json(reply.view()["cursor"].as_document()["firstBatch"]) ==
        to_json(doc("{'d': [{'x': 'A'}, {'x': 'b'}, {'x': 'C'}, {'x': 'd'}]}").view()["d"]));
  CHECK(cluster.sent_to(1, "aggregate").at(0).view()["needsMerge"].truthy());
}

TEST_CASE("the score of a text search that shards send with their keys is not the client's") {
  FakeCluster cluster;
  shard_by_strings(cluster);
  cluster.shard_answer_ = [](std::uint16_t shard, DocView) -> std::optional<BsonDoc> {
    const char* const document = shard == 1 ? "{'x': 'b', '$textScore': 0.75, '$sortKey': {'': 'B1'}}" : "";
    return doc(fmt::format("{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '0'}}, 'ns': 'app.c'}}, 'ok': 1}}",
                           document));
  };
  const BsonDoc reply = cluster.run("{'aggregate': 'c', 'pipeline': [{'$match': {'$text': {'$search': 'y'}}}, "
                                    "{'$sort': {'x': 1}}], 'cursor': {}, '$db': 'app'}");
  CHECK(to_json(reply.view()["cursor"].as_document()["firstBatch"]) == to_json(doc("{'d': [{'x': 'b'}]}").view()["d"]));
}

TEST_CASE("a findAndModify in two steps names the session's owner in both") {
  FakeCluster cluster;
  cluster.shard_collection("app.c", 10, "sh1", "sh2", 3);
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  cluster.shard_answer_ = [](std::uint16_t shard, DocView asked) -> std::optional<BsonDoc> {
    if (asked.first().name != "find") return doc("{'ok': 1, 'lastErrorObject': {'n': 1, 'updatedExisting': true}}");
    return doc(fmt::format("{{'cursor': {{'firstBatch': [{}], 'id': {{'$numberLong': '0'}}, 'ns': 'app.c'}}, 'ok': 1}}",
                           shard == 2 ? "{'_id': 7, 'k': 12}" : ""));
  };
  const BsonDoc reply = cluster.run("{'findAndModify': 'c', 'query': {'x': 1}, 'update': {'$set': {'y': 1}}, 'lsid': "
                                    "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}, "
                                    "'$db': 'app'}");
  INFO(to_json(reply.view()));
  CHECK(reply.view()["ok"].truthy());
  REQUIRE(cluster.sent_to(2, "find").size() == 1);
  REQUIRE(cluster.sent_to(2, "findAndModify").size() == 1);
  CHECK(cluster.sent_to(2, "find").front().view().find_path("lsid.uid").exists());
  CHECK(cluster.sent_to(2, "findAndModify").front().view().find_path("lsid.uid").exists());
}

// A connection behind a load balancer looks the transaction up by it afterwards.
TEST_CASE("a session's id with its owner outlives the command's run") {
  FakeCluster cluster;
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  test::FakeRequest request("{'find': 'c', 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', "
                            "'subType': '04'}}}, '$db': 'app'}");
  cluster.run(request);
  CHECK(request.request.lsid_document()["uid"].as_binary().data.size() == 32);
  CHECK(request.request.lsid_document()["id"].as_binary().data.size() == 16);
}

namespace {

std::string session_with(std::string_view uid_base64) {
  return fmt::format("{{'id': {{'$binary': {{'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}}, "
                     "'uid': {{'$binary': {{'base64': '{}', 'subType': '00'}}}}}}", uid_base64);
}

std::string session_of(std::string_view db, std::string_view name) {
  return session_with(auth::to_base64(auth::session_uid(db, name).view()));
}

}  // namespace

TEST_CASE("who may kill any session kills another user's by its uid") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  cluster.log_in({"root", "admin", {{"root", "admin"}}, {}, {}});
  const std::string session = session_of("app", "ann");
  CHECK(cluster.run(fmt::format("{{'killSessions': [{}], '$db': 'admin'}}", session)).view()["ok"].truthy());
  for (std::uint16_t shard = 1; shard <= 2; ++shard) {
    const auto sent = cluster.sent_to(shard, "killSessions");
    REQUIRE(sent.size() == 1);
    CHECK(to_json(sent.front().view()["killSessions"]) == to_json(doc("{'x': [" + session + "]}").view()["x"]));
  }
  // The right is killSessions' alone.
  for (const char* const other : {"endSessions", "refreshSessions"}) {
    CHECK(cluster.run(fmt::format("{{'{}': [{}], '$db': 'admin'}}", other, session)).view()["code"].to_int64() == 13);
  }
}

TEST_CASE("other users name their own uid at most in a session that they end") {
  FakeCluster cluster;
  cluster.set_replica_sets();
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  for (const char* const command : {"killSessions", "endSessions", "refreshSessions"}) {
    CAPTURE(command);
    const auto run = [&](const std::string& session) {
      return cluster.run(fmt::format("{{'{}': [{}], '$db': 'admin'}}", command, session));
    };
    cluster.forget_sent();
    const BsonDoc refused = run(session_of("app", "bob"));
    CHECK(refused.view()["code"].to_int64() == 13);
    CHECK(refused.view()["errmsg"].as_string() == "Unauthorized to set user digest in LogicalSessionId");
    CHECK(run(session_with("AAAA")).view()["code"].to_int64() == 12);
    CHECK(run("{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}, 'uid': 1}")
              .view()["code"].to_int64() == 14);
    CHECK(cluster.sent_to(1, command).empty());
    CHECK(run(session_of("app", "ann")).view()["ok"].truthy());
  }
}

TEST_CASE("a connection that logs in as another user keeps its session's id") {
  FakeCluster cluster;
  const auto find = [&](const char* name) {
    cluster.log_in({name, "app", {{"readWrite", "app"}}, {}, {}});
    return cluster.run("{'find': 'u', 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': "
                       "'04'}}}, '$db': 'app'}");
  };
  CHECK(find("ann").view()["ok"].truthy());
  CHECK(find("bob").view()["ok"].truthy());
  const auto sent = cluster.sent_to(1, "find");
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].view().find_path("lsid.uid") != sent[1].view().find_path("lsid.uid"));
}

TEST_CASE("servers from 6.0 on are told whether the client's user may write while users' writes are blocked") {
  const std::int32_t wire = GENERATE(8, 16, 17, 21);
  CAPTURE(wire);
  FakeCluster cluster(wire);
  const auto told = [&](std::string_view name, const char* command) {
    cluster.forget_sent();
    cluster.run(command);
    REQUIRE(cluster.sent_to(1, name).size() == 1);
    return to_json(cluster.sent_to(1, name).front().view()["mayBypassWriteBlocking"]);
  };
  const char* const insert = "{'insert': 'u', 'documents': [{'_id': 1}], '$db': 'app'}";
  const std::string none = to_json(ValueView());
  // With authorization off servers ask nobody for rights, and answer the question themselves.
  CHECK(told("insert", insert) == none);
  cluster.log_in({"ann", "app", {{"readWrite", "app"}}, {}, {}});
  CHECK(told("insert", insert) == (wire >= 17 ? "false" : none));
  CHECK(told("find", "{'find': 'u', '$db': 'app'}") == (wire >= 17 ? "false" : none));
  // A client does not say so itself.
  const char* const own = "{'insert': 'u', 'documents': [{'_id': 1}], 'mayBypassWriteBlocking': true, '$db': 'app'}";
  CHECK(told("insert", own) == (wire >= 17 ? "false" : none));
  cluster.log_in({"root", "admin", {{"root", "admin"}}, {}, {}});
  CHECK(told("insert", insert) == (wire >= 17 ? "true" : none));
  auth::UserSpec sync{"sync", "admin", {}, {}, {}};
  sync.resolved.emplace();
  for (const char* const privilege :
       {"{'resource': {'db': 'app', 'collection': ''}, 'actions': ['insert']}",
        "{'resource': {'cluster': true}, 'actions': ['bypassWriteBlockingMode']}"}) {
    sync.resolved->privileges.push_back(*auth::read_privilege(doc(privilege).view()));
  }
  cluster.log_in(sync);
  CHECK(told("insert", insert) == (wire >= 17 ? "true" : none));
}
