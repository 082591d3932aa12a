// What a shard is asked for as it is where it is the only one, and what older shards are not asked.
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;

std::int64_t cursor_id(const std::string& reply) {
  return test::doc(reply).view().find_path("cursor.id").to_int64().value_or(0);
}

// Found in the text: messages have quotes.
std::int64_t code(const std::string& reply) {
  const std::size_t at = reply.find("'code' : ");
  return at == std::string::npos ? 0 : std::stoll(reply.substr(at + 9));
}

// One empty batch after the other.
std::optional<std::string> open_cursor(const Sent& sent) {
  const char* const batch = sent.name() == "getMore" ? "nextBatch" : "firstBatch";
  return std::string("{'cursor': {'") + batch + "': [], 'id': {'$numberLong': '5'}, 'ns': 'db.c'}, 'ok': 1.0}";
}

std::string get_more(const std::string& reply, const std::string& collection, const std::string& more = "") {
  return "{'getMore': {'$numberLong': '" + std::to_string(cursor_id(reply)) + "'}, 'collection': '" + collection +
         "'" + more + "}";
}

TEST_CASE("a getMore repeats the find's comment where the shard knows of it") {
  const std::int32_t version = GENERATE(8, 9, 21);
  Router router(split_at("{'a': 1}", {}));
  router.shards.set_wire_version(version);
  router.shards.answer = open_cursor;
  const std::string reply = router.run("{'find': 'c', 'filter': {}, 'comment': 'mine'}");
  REQUIRE(cursor_id(reply) != 0);
  CHECK(code(router.run(get_more(reply, "c"))) == 0);
  REQUIRE(router.shards.sent.size() == 2);
  CHECK(router.shards.sent[0].command.view()["comment"].exists());
  CHECK(router.shards.sent[1].command.view()["comment"].exists() == (version >= 9));
}

TEST_CASE("documents of a shard that was asked for none are the client's all the same") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.context().document_sizes.learn_mean("db.c", 1'000'000);  // a batch has no room: each shard's own passes
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    CHECK(sent.command.view()["batchSize"].to_int64() == 0);
    return "{'cursor': {'firstBatch': [{'_id': 1}], 'id': {'$numberLong': '0'}, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string reply = router.run("{'find': 'c', 'filter': {}}");
  const BsonDoc document = test::doc(reply);
  CHECK(document.view().find_path("cursor.firstBatch").as_document().count() == 2);
  CHECK(cursor_id(reply) == 0);
}

TEST_CASE("a listing over shards is read to its end in its session") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "getMore")
      return "{'cursor': {'firstBatch': [], 'id': {'$numberLong': '5'}, 'ns': 'db.$cmd.listCollections'}, 'ok': 1.0}";
    return "{'cursor': {'nextBatch': [{'name': 'c', 'type': 'collection'}], 'id': {'$numberLong': '0'}, "
           "'ns': 'db.$cmd.listCollections'}, 'ok': 1.0}";
  };
  const std::string reply =
      router.run(std::string("{'listCollections': 1, 'cursor': {}, ") + test::session_fields + "}");
  CHECK(reply.find("collection") != std::string::npos);
  CHECK(router.shards.sent.size() == 4);
  const ValueView first = router.shards.sent.front().command.view()["lsid"];
  REQUIRE(first.exists());
  for (const Sent& sent : router.shards.sent) CHECK(sent.command.view()["lsid"] == first);
}

TEST_CASE("statistics of several shards name the shard, and the other stages run here") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  // Two batches of each.
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    const bool more = sent.name() == "getMore";
    const std::string id = more ? "0" : "5", name = more ? "b" : "a";
    return std::string("{'cursor': {'") + (more ? "nextBatch" : "firstBatch") + "': [{'name': '" + name +
           "', 'n': 1}], 'id': {'$numberLong': '" + id + "'}, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const auto run = [&](const std::string& pipeline, const std::string& more = "") {
    router.shards.sent.clear();
    return router.run("{'aggregate': 'c', 'pipeline': [" + pipeline + "], 'cursor': {}" + more + "}");
  };
  for (const std::string stage : {"{'$collStats': {'count': {}}}", "{'$indexStats': {}}", "{'$planCacheStats': {}}"}) {
    const std::string all = run(stage);
    CHECK(test::doc(all).view().find_path("cursor.firstBatch").as_document().count() == 4);
    for (const char* row : {"{'name': 'a', 'n': 1, 'shard': 's0'}", "{'name': 'b', 'n': 1, 'shard': 's1'}"}) {
      CHECK(all.find(test::text_of(test::doc(row))) != std::string::npos);
    }
    REQUIRE(router.shards.sent.size() == 4);
    CHECK(test::text_of(router.shards.sent.front().command.view()["pipeline"].as_document()) ==
          test::text_of(test::doc("{'p': [" + stage + "]}").view()["p"].as_document()));
    CHECK_FALSE(router.shards.sent.front().command.view()["fromMongos"].exists());
  }
  const std::string groups = run("{'$indexStats': {}}, {'$group': {'_id': '$shard', 'n': {'$sum': '$n'}}}");
  for (const char* row : {"{'_id': 's0', 'n': 2}", "{'_id': 's1', 'n': 2}"}) {
    CHECK(groups.find(test::text_of(test::doc(row))) != std::string::npos);
  }
  CHECK(code(run("{'$indexStats': {}}, {'$facet': {}}")) == 115);
  CHECK(router.shards.sent.empty());
  CHECK(code(run("{'$indexStats': {}}, {'$sort': {'name': 1}}", ", 'collation': {'locale': 'fr'}")) == 115);
}

TEST_CASE("several shards' sessions are listed once") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    const std::string own = sent.shard == 0 ? "{'_id': {'id': 2}}" : "{'_id': {'id': 3}}";
    return "{'cursor': {'firstBatch': [{'_id': {'id': 1}}, " + own +
           "], 'id': {'$numberLong': '0'}, 'ns': 'config.system.sessions'}, 'ok': 1.0}";
  };
  const std::string reply = router.run(
      "{'aggregate': 'system.sessions', 'pipeline': [{'$listSessions': {}}], 'cursor': {}, '$db': 'config'}");
  CHECK(test::doc(reply).view().find_path("cursor.firstBatch").as_document().count() == 3);
  CHECK(reply.find("'shard'") == std::string::npos);
}

TEST_CASE("shardConnPoolStats is known as long as routers had it") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.set_wire_version(9);
  CHECK(test::doc(router.run("{'shardConnPoolStats': 1}")).view()["totalCreated"].exists());
  router.shards.set_wire_version(13);
  CHECK(router.run("{'shardConnPoolStats': 1}").find("CommandNotFound") != std::string::npos);
  CHECK(test::doc(router.run("{'connPoolStats': 1}")).view()["totalCreated"].exists());
}

TEST_CASE("getLastError is known as long as there were legacy writes") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const char* const command = GENERATE("{'getLastError': 1, 'w': 1}", "{'getlasterror': 1}");
  router.shards.set_wire_version(8);
  const BsonDoc reply = test::doc(router.run(command));
  CHECK(reply.view()["ok"].truthy());
  CHECK(reply.view()["err"].is_null());
  CHECK(reply.view()["n"].to_int64() == 0);
  router.shards.set_wire_version(14);
  CHECK(router.run(command).find("CommandNotFound") != std::string::npos);
}

TEST_CASE("what tells of more than a collection is asked of the only shard") {
  const bool one = GENERATE(true, false);
  Router router(one ? split_at("{'a': 1}", {}) : split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = open_cursor;
  struct Case {
    const char* target;
    const char* pipeline;
    const char* db;
  };
  const Case cases[] = {
      {"1", "[{'$changeStream': {}}, {'$match': {'x': 1}}]", "db"},
      {"1", "[{'$changeStream': {'allChangesForCluster': true}}]", "admin"},
      {"'system.sessions'", "[{'$listSessions': {}}]", "config"},
  };
  for (const Case& each : cases) {
    if (!one && each.target[0] != '1') continue;  // asked of each
    INFO(each.pipeline);
    router.shards.sent.clear();
    const std::string reply = router.run(std::string("{'aggregate': ") + each.target + ", 'pipeline': " +
                                         each.pipeline + ", 'cursor': {}, '$db': '" + each.db + "'}");
    if (!one) {
      CHECK(code(reply) != 0);
      CHECK(router.shards.sent.empty());
      continue;
    }
    REQUIRE(cursor_id(reply) != 0);
    REQUIRE(router.shards.sent.size() == 1);
    CHECK(test::text_of(router.shards.sent.front().command.view()["pipeline"].as_document()) ==
          test::text_of(test::doc(std::string("{'p': ") + each.pipeline + "}").view()["p"].as_document()));
    const std::string collection = each.target[0] == '1' ? "$cmd.aggregate" : "system.sessions";
    CHECK(code(router.run(get_more(reply, collection, std::string(", '$db': '") + each.db + "'"))) == 0);
    CHECK(router.shards.sent.back().name() == "getMore");
    CHECK(router.shards.sent.back().command.view()["collection"].as_string() == collection);
  }
}

TEST_CASE("the only shard's time is passed between it and the clients; several shards have none") {
  const bool one = GENERATE(true, false);
  Router router(one ? split_at("{'a': 1}", {}) : split_at("{'a': 1}", {"{'a': 10}"}));
  const auto timestamp = [](int t) { return "{'$timestamp': {'t': " + std::to_string(t) + ", 'i': 1}}"; };
  const auto cluster_time = [&](int t) {
    return ", '$clusterTime': {'clusterTime': " + timestamp(t) +
           ", 'signature': {'hash': {'$binary': 'AAAAAAAAAAAAAAAAAAAAAAAAAAA=', '$type': '00'}, 'keyId': 0}}";
  };
  router.shards.answer = [&](const Sent&) -> std::optional<std::string> {
    return "{'n': 1, 'ok': 1.0, 'operationTime': " + timestamp(7) + cluster_time(8) + "}";
  };
  const auto count = [&](const std::string& more) {
    router.shards.sent.clear();
    return test::doc(router.run("{'count': 'c', 'query': {'a': 3}" + more + "}"));
  };
  const auto told_to_shard = [&] { return router.shards.sent.at(0).command.view()["$clusterTime"]; };

  const BsonDoc first = count("");
  CHECK_FALSE(told_to_shard().exists());  // no shard has told one yet
  CHECK(first.view()["operationTime"].exists() == one);
  CHECK(first.view()["$clusterTime"].exists() == one);
  const std::string after = ", 'readConcern': {'afterClusterTime': " + timestamp(7) + "}";
  const BsonDoc second = count(after);
  if (!one) {
    CHECK(second.view()["code"].to_int64() == 72);
    CHECK(count(", 'readConcern': {'level': 'snapshot'}").view()["code"].to_int64() == 72);
    count("");
    CHECK_FALSE(told_to_shard().exists());
    return;
  }
  CHECK(second.view()["n"].to_int64() == 1);
  CHECK(router.shards.sent.at(0).command.view()["readConcern"].as_document()["afterClusterTime"].exists());
  REQUIRE(told_to_shard().is_document());
  CHECK(catalog::read_timestamp(told_to_shard().as_document()["clusterTime"]) == (std::uint64_t{8} << 32 | 1));
  CHECK(catalog::read_timestamp(second.view()["operationTime"]) == (std::uint64_t{7} << 32 | 1));
  // A client that heard a later one elsewhere.
  count(cluster_time(9));
  CHECK(catalog::read_timestamp(told_to_shard().as_document()["clusterTime"]) == (std::uint64_t{9} << 32 | 1));
  CHECK(count(", 'readConcern': {'level': 'snapshot', 'atClusterTime': " + timestamp(7) + "}").view()["ok"].truthy());
}

TEST_CASE("a file's checksum goes from shard to shard, as its chunks do") {
  Router router(split_at("{'files_id': 1, 'n': 1}", {"{'files_id': 5, 'n': 2}"}, "db.fs.chunks"));
  std::vector<std::string> says;
  router.shards.answer = [&](const Sent&) {
    REQUIRE_FALSE(says.empty());
    std::string said = says.front();
    says.erase(says.begin());
    return std::optional(said);
  };
  SECTION("one shard has all of them") {
    says = {"{'numChunks': 2, 'md5': 'x', 'ok': 1.0}"};
    CHECK(code(router.run("{'filemd5': 1, '$db': 'db'}")) == 0);
    CHECK(router.sent() == std::vector<std::string>{"s0 " + test::text_of(test::doc("{'filemd5': 1}"))});
  }
  SECTION("two shards have them") {
    const std::string done = "{'numChunks': 3, 'md5': 'z', 'md5state': 'b', 'ok': 1.0}";
    says = {"{'numChunks': 2, 'md5': 'x', 'md5state': 'a', 'ok': 1.0}", done, done};
    CHECK(router.run("{'filemd5': 5, '$db': 'db'}") == test::text_of(test::doc(done)));
    const auto part = [](int shard, const std::string& rest) {
      return "s" + std::to_string(shard) + " " +
             test::text_of(test::doc("{'filemd5': 5, 'partialOk': true, " + rest + "}"));
    };
    CHECK(router.sent() == std::vector<std::string>{part(0, "'startAt': 0"), part(1, "'startAt': 2, 'md5state': 'a'"),
                                                    part(1, "'startAt': 3, 'md5state': 'b'")});
  }
  SECTION("a shard goes back, or has no sum") {
    const bool back = GENERATE(true, false);
    says = {"{'numChunks': 2, 'md5state': 'a', 'ok': 1.0}"};
    if (!back) says.clear();
    says.push_back("{'numChunks': 1, 'ok': 1.0}");
    CHECK(code(router.run("{'filemd5': 5, '$db': 'db'}")) == 1);
  }
  SECTION("refused") {
    CHECK(code(router.run("{'filemd5': 5, 'root': 5, '$db': 'db'}")) == 73);
    Router other(split_at("{'a': 1}", {"{'a': 10}"}, "db.fs.chunks"));
    CHECK(code(other.run("{'filemd5': 5, '$db': 'db'}")) == 20);
    CHECK(other.shards.sent.empty());
  }
}

TEST_CASE("mapReduce runs where one shard has all that it reads and writes") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'results': [{'_id': 1, 'value': 2}], 'ok': 1.0}"; };
  struct Case {
    const char* source;
    const char* out;
    int refused;
  };
  const Case each = GENERATE(values<Case>({{"u", "{'inline': 1}", 0},
                                           {"u", "'v'", 0},
                                           {"u", "{'merge': 'c', 'db': 'other'}", 0},
                                           {"c", "{'inline': 1}", 115},
                                           {"u", "'c'", 115},
                                           {"u", "{'reduce': 'c'}", 115},
                                           {"u", "{'replace': 'v', 'sharded': true}", 115},
                                           {"u", "{'replace': 'c', 'merge': 'v'}", 72},
                                           {"u", "{'merge': 'v', 'db': 'other', 'db': 'app'}", 72},
                                           {"u", "{'inline': 1, 'sharded': true}", 72},
                                           {"u", "{'inline': 1, 'db': 'other'}", 72}}));
  const std::string command = std::string("{'mapReduce': '") + each.source + "', 'map': 'm', 'reduce': 'r', 'out': " +
                              each.out + "}";
  INFO(command);
  const std::string reply = router.run(command);
  if (each.refused != 0) {
    CHECK(code(reply) == each.refused);
    CHECK(router.shards.sent.empty());
    return;
  }
  CHECK(reply == test::text_of(test::doc("{'results': [{'_id': 1, 'value': 2}], 'ok': 1.0}")));
  CHECK(router.sent() == std::vector<std::string>{"s0 " + test::text_of(test::doc(command))});
}

TEST_CASE("a plan cache is each shard's own: all owners of chunks are asked") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  bool refuses = false;
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (refuses && sent.shard == 1) return "{'ok': 0.0, 'code': 59, 'errmsg': 'no such command'}";
    return "{'filters': [" + std::to_string(sent.shard) + "], 'ok': 1.0}";
  };
  const std::string name = GENERATE("planCacheClear", "planCacheListFilters", "planCacheSetFilter",
                                    "planCacheClearFilters", "planCacheListQueryShapes", "planCacheListPlans");
  const std::string command = "{'" + name + "': 'c', 'query': {'x': 1}}";
  CHECK(router.run(command) == test::text_of(test::doc("{'filters': [0], 's0': {'filters': [0], 'ok': 1.0}, 's1': "
                                                       "{'filters': [1], 'ok': 1.0}, 'ok': 1.0}")));
  CHECK(router.shards.sent.size() == 2);
  refuses = true;
  CHECK(code(router.run(command)) == 59);
}

TEST_CASE("shards that keep sessions are told to write them down") {
  const bool replica_sets = GENERATE(true, false);
  Router router(split_at("{'a': 1}", {"{'a': 10}"}), replica_sets);
  router.shards.answer = [](const Sent& sent) { return sent.shard == 0 ? "{'ok': 1.0}" : "{'ok': 0.0, 'code': 59}"; };
  const char* const command = "{'refreshLogicalSessionCacheNow': 1}";
  CHECK(code(router.run(command)) == 59);
  CHECK(router.shards.sent.empty());
  router.shared().parameters.test_commands = true;
  CHECK(code(router.run(command)) == (replica_sets ? 59 : 0));
  CHECK(router.shards.sent.size() == (replica_sets ? 2 : 0));
}

TEST_CASE("logComponentVerbosity is the log's level, and there are no components") {
  Router router(split_at("{'a': 1}", {}));
  const auto get = [&] { return router.run("{'getParameter': 1, 'logComponentVerbosity': 1}"); };
  const auto shown = [](int level) {
    return test::text_of(test::doc("{'logComponentVerbosity': {'verbosity': " + std::to_string(level) +
                                   "}, 'ok': 1.0}"));
  };
  CHECK(get() == shown(0));
  CHECK(router.run("{'setParameter': 1, 'logComponentVerbosity': {'verbosity': 2}}") ==
        test::text_of(test::doc("{'was': {'verbosity': 0}, 'ok': 1.0}")));
  CHECK(get() == shown(2));
  for (const auto& [value, refused] : {std::pair("1", 14), std::pair("{'query': {'verbosity': 1}}", 2),
                                       std::pair("{'verbosity': 99}", 2), std::pair("{}", 2)}) {
    INFO(value);
    CHECK(code(router.run(std::string("{'setParameter': 1, 'logComponentVerbosity': ") + value + "}")) == refused);
  }
  CHECK(get() == shown(2));
  CHECK(code(router.run("{'setParameter': 1, 'logComponentVerbosity': {'verbosity': 0}}")) == 0);
}

TEST_CASE("what replica sets tell routers of a write is not the client's") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) {
    return "{'n': 1, 'opTime': {'ts': {'$timestamp': {'t': 1, 'i': 1}}, 't': 1}, 'electionId': "
           "{'$oid': '7fffffff0000000000000001'}, 'ok': 1.0, 'operationTime': {'$timestamp': {'t': 1, 'i': 1}}}";
  };
  const char* const collection = GENERATE("c", "u");
  CHECK(router.run(std::string("{'insert': '") + collection + "', 'documents': [{'_id': 1, 'a': 1}]}") ==
        test::text_of(test::doc("{'n': 1, 'ok': 1.0}")));
}

TEST_CASE("fields of an aggregation that have the wrong type") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const auto refused = [&](const std::string& target, const std::string& cursor) {
    return code(router.run("{'aggregate': " + target + ", 'pipeline': [], 'cursor': " + cursor + "}"));
  };
  CHECK(refused("{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}", "{}") == 14);
  CHECK(refused("2", "{}") == 9);
  CHECK(refused("1.5", "{}") == 9);
  CHECK(refused("'c'", "1") == 14);
  CHECK(refused("'c'", "{'batchSize': 'x'}") == 14);
  CHECK(router.shards.sent.empty());
}

}  // namespace
}  // namespace spillway::exec
