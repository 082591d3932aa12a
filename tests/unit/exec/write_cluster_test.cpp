// Writes while chunks and databases move: which operations are sent again, where to, and what the client gets.
#include "proxy/cluster/config_client.h"
#include "tests/support/read_version.h"
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::split_at;

constexpr catalog::ShardIndex first_shard = cluster::config_shard + 1;
using Lines = std::vector<std::string>;

// What config servers say, one state after the other: each reading gives the next, the last one stays.
class ScriptedTable final : public exec::Router {
 public:
  struct State {
    std::optional<catalog::CollectionRouting> sharded;
    catalog::ShardIndex primary = 0;  // s0
    std::optional<catalog::TimeSeries> time_series{};  // its buckets are what is sharded
  };
  explicit ScriptedTable(std::vector<State> states) {
    for (State& state : states) {
      const auto number = static_cast<std::uint8_t>(databases_.size() + 1);
      auto database = std::make_shared<catalog::Database>();
      database->name = "db";
      database->primary = static_cast<catalog::ShardIndex>(state.primary + first_shard);
      database->version = catalog::DatabaseVersion{{}, std::nullopt, number};
      databases_.push_back(std::move(database));
      auto collection = std::make_shared<catalog::CachedCollection>();
      collection->ns = state.time_series ? "db.system.buckets.c" : "db.c";
      if (state.sharded) {
        state.sharded->cluster.emplace();
        state.sharded->cluster->version.epoch = {number};
        state.sharded->cluster->time_series = std::move(state.time_series);
        collection->routing = std::make_shared<const catalog::CollectionRouting>(*std::move(state.sharded));
      }
      collections_.push_back(std::move(collection));
    }
  }

  Routes::Table shards;
  std::vector<std::string> noted;  // each once
  std::size_t readings = 0;
  std::optional<Error> fails;

  std::optional<Routes> resolve(const RouteNames&) override {
    if (stale_) return std::nullopt;
    Routes routes = Routes::of_cluster(shards);
    routes.add(databases_[now_]);
    routes.add(collections_[now_]);
    return routes;
  }
  Task<Result<void>> learn(RouteNames, RouteWait) override {
    if (fails) co_return *fails;
    ++readings;
    stale_ = false;
    if (now_ + 1 < databases_.size()) ++now_;
    co_return Result<void>();
  }
  void note_stale(RouteName name) override {
    stale_ = true;
    std::string text = std::string(name.db) + (name.collection.empty() ? "" : ".") + std::string(name.collection);
    if (std::find(noted.begin(), noted.end(), text) == noted.end()) noted.push_back(std::move(text));
  }
  std::size_t databases() const override { return 1; }
  std::size_t collections() const override { return 1; }

 private:
  std::vector<Routes::DatabasePtr> databases_;
  std::vector<Routes::CollectionPtr> collections_;
  std::size_t now_ = 0;
  bool stale_ = false;
};

using State = ScriptedTable::State;

// One worker of a cluster with three shards, s0 to s2; the config servers come before them. `answers`: one after the
// other.
struct Cluster {
  test::Router router{split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}", "{'a': 30}"}, "db.other")};
  ScriptedTable table;
  std::vector<std::string> answers;

  Cluster(std::vector<State> states, std::vector<std::string> says)
      : table(std::move(states)), answers(std::move(says)) {
    catalog::RoutingParts parts;
    parts.shards = router.shared().routing->shards();
    parts.shards.front().holds_data = false;  // the config servers
    table.shards = std::make_shared<const catalog::RoutingSnapshot>(std::move(parts));
    router.context().router = &table;
    router.shards.answer = [this, next = std::size_t{0}](const test::Sent&) mutable -> std::optional<std::string> {
      if (next >= answers.size()) FAIL("more commands than answers");
      return answers[next++];
    };
  }
  // "s0 update 1,2 table 1": the shard, the command, its operations by their _id, the number of the table that it was
  // sent with.
  Lines sent() const {
    Lines lines;
    for (const test::Sent& one : router.shards.sent) {
      const DocView command = one.command.view();
      std::string line = "s" + std::to_string(one.shard - first_shard) + " " + one.name();
      for (const char* list : {"documents", "updates", "deletes"}) {
        if (!command[list].is_array()) continue;
        char before = ' ';
        for (const Element& op : command[list].as_document()) {
          const ValueView query = op.as_document()["q"];
          const ValueView id = op.as_document()[query.exists() ? "sampleId" : "_id"];
          line += before + std::to_string(id.to_int64().value_or(-1));
          before = ',';
        }
      }
      if (command["stmtIds"].exists()) {
        line += " stmtIds";
        for (const Element& id : command["stmtIds"].as_document()) line += " " + std::to_string(id.as_int32());
      }
      const ValueView version = command["shardVersion"];
      const ValueView database = command["databaseVersion"];
      if (database.exists()) {
        line += " db " + std::to_string(database.as_document()["lastMod"].to_int64().value_or(-1));
      } else if (const auto read = catalog::read_chunk_version(version); read == catalog::ChunkVersion::ignored()) {
        line += " ignored";
      } else if (read.has_value()) {
        line += " table " + std::to_string(read->epoch[0]);
      }
      lines.push_back(line);
    }
    return lines;
  }
};

// An update of one document; `sampleId` names it for sent().
std::string update(int name, const std::string& query, bool multi = false, const std::string& more = "") {
  return "{'q': " + query + ", 'u': {'$inc': {'x': 1}}, 'multi': " + (multi ? "true" : "false") +
         ", 'sampleId': " + std::to_string(name) + more + "}";
}

std::string stale_entry(int index, int code = 63) {
  const char* const what = code == 249 ? "'db': 'db'" : "'ns': 'db.c'";
  const std::string details = code == 63 ? std::string("'errInfo': {") + what + "}" : what;
  return "{'index': " + std::to_string(index) + ", 'code': " + std::to_string(code) + ", " + details +
         ", 'errmsg': 'stale'}";
}

const std::string stale_reply = "{'ok': 0.0, 'code': 13388, 'ns': 'db.c', 'errmsg': 'stale'}";

// Chunks between these bounds, on s0, s1 and so on.
catalog::CollectionRouting spread(const char* key, const std::vector<std::string>& bounds) {
  auto pattern = catalog::ShardKeyPattern::parse(test::doc(key));
  REQUIRE(pattern.has_value());
  std::vector<catalog::ChunkSpec> chunks;
  BsonDoc low = pattern->min_bound();
  for (std::size_t i = 0; i <= bounds.size(); ++i) {
    BsonDoc high = i < bounds.size() ? test::doc(bounds[i]) : pattern->max_bound();
    chunks.push_back({std::move(low), high, static_cast<catalog::ShardIndex>(first_shard + i)});
    low = std::move(high);
  }
  auto map = catalog::ChunkMap::build(*pattern, std::move(chunks));
  REQUIRE(map.has_value());
  return {"db.c", *std::move(pattern), false, *std::move(map), 0};
}
catalog::CollectionRouting two_shards() { return spread("{'a': 1}", {"{'a': 10}"}); }
catalog::CollectionRouting three_shards() { return spread("{'a': 1}", {"{'a': 10}", "{'a': 20}"}); }
catalog::CollectionRouting all_on_first() { return spread("{'a': 1}", {}); }

// JSON as replies are shown.
std::string as_told(std::string_view json) { return test::text_of(test::doc(json)); }
std::string field(const std::string& reply, const char* name) {
  const BsonDoc document = test::doc(reply);
  return test::text_of(document.view()[name].as_document());
}
std::int64_t number(const std::string& reply, std::string_view path) {
  const BsonDoc document = test::doc(reply);
  DocView at = document;
  for (std::size_t dot; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1)) {
    const ValueView next = at[path.substr(0, dot)];
    if (!next.is_document() && !next.is_array()) return -1;
    at = next.as_document();
  }
  return at[path].to_int64().value_or(-1);
}

TEST_CASE("an ordered batch goes on with the operation that its shard refused for the table", "[write][cluster]") {
  Cluster cluster({{two_shards()}, {three_shards()}},
                  {"{'n': 1, 'ok': 1.0, 'writeErrors': [" + stale_entry(1) + "]}", "{'n': 1, 'ok': 1.0}",
                   "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  const std::string reply =
      cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}, {'_id': 2, 'a': 25}, "
                         "{'_id': 3, 'a': 16}, {'_id': 4, 'a': 1}]}");
  CHECK(reply == as_told("{'n': 4, 'ok': 1.0}"));
  CHECK(cluster.sent() == Lines{"s1 insert 1,2,3 table 1", "s2 insert 2 table 2", "s1 insert 3 table 2",
                                "s0 insert 4 table 2"});
  CHECK(cluster.table.noted == Lines{"db.c"});
  CHECK(cluster.table.readings == 1);
}

TEST_CASE("an unordered batch repeats what was not executed, and keeps the other errors", "[write][cluster]") {
  Cluster cluster({{two_shards()}, {three_shards()}},
                  {"{'n': 1, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'duplicate'}, " +
                       stale_entry(2) + ", " + stale_entry(3) + "]}",
                   "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}",
                   "{'n': 0, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 121, 'errmsg': 'invalid'}]}"});
  const std::string reply =
      cluster.router.run("{'insert': 'c', 'ordered': false, 'documents': [{'_id': 1, 'a': 15}, {'_id': 2, 'a': 1}, "
                         "{'_id': 3, 'a': 16}, {'_id': 4, 'a': 17}, {'_id': 5, 'a': 25}]}");
  CHECK(cluster.sent() == Lines{"s1 insert 1,3,4,5 table 1", "s0 insert 2 table 1", "s1 insert 4 table 2",
                                "s2 insert 5 table 2"});
  CHECK(number(reply, "n") == 3);
  CHECK(field(reply, "writeErrors") == as_told("{'0': {'index': 0, 'code': 11000, 'errmsg': 'duplicate'}, "
                                               "'1': {'index': 4, 'code': 121, 'errmsg': 'invalid'}}"));
}

TEST_CASE("a batch for one shard goes on from where its shard stopped, with the same statement ids",
          "[write][cluster]") {
  Cluster cluster({{two_shards()}, {three_shards()}},
                  {"{'n': 1, 'ok': 1.0, 'writeErrors': [" + stale_entry(1) + "]}", "{'n': 1, 'ok': 1.0}",
                   "{'n': 1, 'ok': 1.0}"});
  const std::string reply = cluster.router.run(
      std::string("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}, {'_id': 2, 'a': 25}, {'_id': 3, 'a': 16}], ") +
      test::session_fields + ", 'txnNumber': {'$numberLong': '1'}}");
  CHECK(reply == as_told("{'n': 3, 'ok': 1.0}"));
  CHECK(cluster.sent() == Lines{"s1 insert 1,2,3 table 1", "s2 insert 2 stmtIds 1 table 2",
                                "s1 insert 3 stmtIds 2 table 2"});
}

TEST_CASE("a shard that refuses a whole batch for the table gets it again", "[write][cluster]") {
  const bool unsharded = GENERATE(true, false);
  std::vector<State> states;
  states.push_back({unsharded ? std::nullopt : std::optional(all_on_first())});
  states.push_back({unsharded ? std::nullopt : std::optional(all_on_first())});
  Cluster cluster(std::move(states), {stale_reply, "{'n': 1, 'ok': 1.0}"});
  CHECK(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}]}") == as_told("{'n': 1, 'ok': 1.0}"));
  CHECK(cluster.sent() == (unsharded ? Lines{"s0 insert 1 db 1", "s0 insert 1 db 2"}
                                     : Lines{"s0 insert 1 table 1", "s0 insert 1 table 2"}));
}

TEST_CASE("the only shard of a collection gets no document that it would hide from later reads", "[write][cluster]") {
  const bool old = GENERATE(false, true);
  const bool ordered = GENERATE(false, true);
  CAPTURE(old, ordered);
  Cluster cluster({{all_on_first()}}, {"{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  if (old) cluster.router.shards.set_wire_version(8);  // 4.2
  // The key of a document that lacks a field is null since 4.4.
  const std::string bad = old ? "{'_id': 2}" : "{'_id': 2, 'a': [1, 2]}";
  const std::string reply = cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}, " + bad +
                                               ", {'_id': 3, 'a': 1}], 'ordered': " + (ordered ? "true}" : "false}"));
  CHECK(cluster.sent() == (ordered ? Lines{"s0 insert 1 table 1"} : Lines{"s0 insert 1,3 table 1"}));
  CHECK(number(reply, "writeErrors.0.index") == 1);
  CHECK(number(reply, "writeErrors.0.code") == 61);
}

TEST_CASE("shards of 4.2 get no document without its whole shard key, later ones do", "[write][cluster]") {
  const bool old = GENERATE(false, true);
  Cluster cluster({{two_shards()}}, {"{'n': 1, 'ok': 1.0}"});
  if (old) cluster.router.shards.set_wire_version(8);
  const std::string reply = cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'b': 15}]}");
  CHECK(cluster.sent() == (old ? Lines{} : Lines{"s0 insert 1 table 1"}));
  CHECK(number(reply, "writeErrors.0.code") == (old ? 61 : -1));
}

TEST_CASE("an unacknowledged write goes again to the shard that refused it for the table", "[write][cluster]") {
  const bool first_knows = GENERATE(true, false);
  const std::string refused = "{'n': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0, 249) + "]}";
  std::vector<std::string> answers{"{'n': 1, 'ok': 1.0}"};
  const std::string stale_find = "{'ok': 0.0, 'code': 249, 'db': 'db', 'errmsg': 'stale'}";
  if (!first_knows) answers.insert(answers.begin(), {refused, stale_find});
  Cluster cluster({{std::nullopt, 0}, {std::nullopt, 2}}, std::move(answers));
  CHECK(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1}], 'writeConcern': {'w': 0, 'j': true}}") ==
        as_told("{'ok': 1.0}"));
  const Lines again{"s0 insert 1 db 1", "s0 find db 1", "s2 insert 1 db 2"};
  CHECK(cluster.sent() == (first_knows ? Lines{"s0 insert 1 db 1"} : again));
  // Without an acknowledgement a shard would not tell that it has refused.
  for (const test::Sent& sent : cluster.router.shards.sent) {
    if (sent.name() == "find") continue;
    CHECK(sent.command.view()["writeConcern"].as_document()["w"].to_int64() == 1);
    CHECK(sent.command.view()["writeConcern"].as_document()["j"].as_bool());
  }
}

TEST_CASE("a batch as long as a message may be becomes two, with what shards are told besides", "[write][cluster]") {
  const bool sharded = GENERATE(true, false);
  Cluster cluster({{sharded ? std::optional(two_shards()) : std::nullopt}},
                  {"{'n': 3, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  std::vector<BsonDoc> owned;
  std::size_t left = limits::message_bytes_max - 100;
  for (int id = 1; id <= 4; ++id) {
    BsonWriter document;
    document.append("_id", id).append("a", 1);
    document.append("t", std::string(id < 4 ? limits::message_bytes_max / 3 - 10'000 : left - 4 * 40, 'x'));
    owned.push_back(std::move(document).finish());
    left -= std::min(left, owned.back().size());
  }
  CHECK(cluster.router.run("{'insert': 'c'}", "documents", {owned.begin(), owned.end()}) ==
        as_told("{'n': 4, 'ok': 1.0}"));
  const std::string by = sharded ? " table 1" : " db 1";
  CHECK(cluster.sent() == Lines{"s0 insert 1,2,3" + by, "s0 insert 4" + by});
}

TEST_CASE("a batch follows a database that moves in its middle", "[write][cluster]") {
  Cluster cluster({{std::nullopt, 0}, {std::nullopt, 2}},
                  {"{'n': 1, 'ok': 1.0, 'writeErrors': [" + stale_entry(1, 249) + ", " + stale_entry(2, 249) + "]}",
                   "{'ok': 0.0, 'code': 249, 'db': 'db', 'errmsg': 'stale'}", "{'n': 2, 'ok': 1.0}"});
  CHECK(cluster.router.run("{'insert': 'c', 'ordered': false, 'documents': [{'_id': 1}, {'_id': 2}, {'_id': 3}]}") ==
        as_told("{'n': 3, 'ok': 1.0}"));
  CHECK(cluster.sent() == Lines{"s0 insert 1,2,3 db 1", "s0 find db 1", "s2 insert 2,3 db 2"});
  CHECK(cluster.table.noted == Lines{"db"});
}

TEST_CASE("a batch goes on when its collection becomes sharded, or is no more", "[write][cluster]") {
  const bool becomes = GENERATE(true, false);
  std::vector<State> states;
  states.push_back({becomes ? std::nullopt : std::optional(two_shards())});
  states.push_back({becomes ? std::optional(two_shards()) : std::nullopt, 2});
  Cluster cluster(std::move(states), {"{'n': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0) + "]}",
                                      "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  const std::string reply =
      cluster.router.run("{'delete': 'c', 'deletes': [{'q': {'a': 1}, 'limit': 1, 'sampleId': 1}, "
                         "{'q': {'a': 15}, 'limit': 1, 'sampleId': 2}]}");
  if (becomes) {
    CHECK(reply == as_told("{'n': 2, 'ok': 1.0}"));
    CHECK(cluster.sent() == Lines{"s0 delete 1,2 db 1", "s0 delete 1 table 2", "s1 delete 2 table 2"});
  } else {
    CHECK(reply == as_told("{'n': 1, 'ok': 1.0}"));
    CHECK(cluster.sent() == Lines{"s0 delete 1 table 1", "s2 delete 1,2 db 2"});
  }
}

TEST_CASE("a shard that has executed a multi update does not get it again", "[write][cluster]") {
  const bool ordered = GENERATE(true, false);
  const std::int32_t wire = GENERATE(8, 9, 13, 17, 25);
  Cluster cluster({{two_shards()}, {three_shards()}},
                  {"{'n': 2, 'nModified': 2, 'ok': 1.0}",
                   "{'n': 0, 'nModified': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0) + "]}",
                   "{'n': 4, 'nModified': 4, 'ok': 1.0}", "{'n': 3, 'nModified': 3, 'ok': 1.0}"});
  cluster.router.shards.set_wire_version(wire);
  const std::string reply = cluster.router.run(std::string("{'update': 'c', 'ordered': ") +
                                               (ordered ? "true" : "false") + ", 'updates': [" +
                                               update(1, "{}", true) + "]}");
  CHECK(reply == as_told("{'n': 9, 'nModified': 9, 'ok': 1.0}"));
  CHECK(cluster.sent() == Lines{"s0 update 1 ignored", "s1 update 1 ignored", "s2 update 1 ignored",
                                "s1 update 1 ignored"});
  // Shards of 4.4 to 5.3 may be asked to refuse it while a chunk's critical section lasts.
  const ValueView version = cluster.router.shards.sent.front().command.view()["shardVersion"];
  CHECK(version.is_array() == (wire < 17));
  if (version.is_array()) CHECK(version.as_document().count() == (wire >= 9 ? 3u : 2u));
}

TEST_CASE("what goes to all shards travels apart from what goes to one", "[write][cluster]") {
  const bool ordered = GENERATE(true, false);
  Cluster cluster({{two_shards()}}, std::vector<std::string>(ordered ? 6 : 5, "{'n': 1, 'nModified': 1, 'ok': 1.0}"));
  cluster.router.run(std::string("{'update': 'c', 'ordered': ") + (ordered ? "true" : "false") + ", 'updates': [" +
                     update(1, "{'a': 1}") + ", " + update(2, "{}", true) + ", " + update(3, "{'a': 2}", true) + ", " +
                     update(4, "{'a': 15}") + "]}");
  const Lines everywhere{"s0 update 2 ignored", "s1 update 2 ignored", "s2 update 2 ignored"};
  Lines expected;
  if (ordered) expected.push_back("s0 update 1 table 1");
  if (!ordered) expected = {"s0 update 1,3 table 1", "s1 update 4 table 1"};
  expected.insert(expected.end(), everywhere.begin(), everywhere.end());
  if (ordered) expected.insert(expected.end(), {"s0 update 3 table 1", "s1 update 4 table 1"});
  CHECK(cluster.sent() == expected);
}

TEST_CASE("in a transaction a multi-write goes to its shards, with versions", "[write][cluster][transactions]") {
  Cluster cluster({{two_shards()}}, std::vector<std::string>(2, "{'n': 1, 'nModified': 1, 'ok': 1.0}"));
  cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{}", true) + "], 'lsid': {'id': "
                     "{'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "
                     "'txnNumber': {'$numberLong': '1'}, 'startTransaction': true, 'autocommit': false}");
  CHECK(cluster.sent() == Lines{"s0 update 1 table 1", "s1 update 1 table 1"});
}

TEST_CASE("a multi upsert inserts nothing when a shard has matched before another was stale", "[write][cluster]") {
  Cluster cluster({{two_shards()}, {two_shards()}},
                  {"{'n': 2, 'nModified': 2, 'ok': 1.0}", stale_reply, "{'n': 0, 'nModified': 0, 'ok': 1.0}",
                   "{'n': 0, 'nModified': 0, 'ok': 1.0}", "{'n': 0, 'nModified': 0, 'ok': 1.0}"});
  cluster.router.shards.set_wire_version(21);
  const std::string reply =
      cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{'b': 1}", true, ", 'upsert': true") + "]}");
  CHECK(reply == as_told("{'n': 2, 'nModified': 2, 'ok': 1.0}"));
  CHECK(cluster.sent() == Lines{"s0 update 1 ignored", "s1 update 1 ignored", "s2 update 1 ignored",
                                "s1 update 1 ignored", "s2 update 1 ignored"});
}

TEST_CASE("a multi upsert asks a shard again where nothing had matched, and inserts nothing", "[write][cluster]") {
  Cluster cluster({{two_shards()}, {two_shards()}},
                  {"{'n': 0, 'nModified': 0, 'ok': 1.0}", stale_reply, "{'n': 0, 'nModified': 0, 'ok': 1.0}",
                   "{'n': 1, 'nModified': 1, 'ok': 1.0}", "{'n': 0, 'nModified': 0, 'ok': 1.0}",
                   "{'n': 0, 'nModified': 0, 'ok': 1.0}"});
  cluster.router.shards.set_wire_version(21);
  const std::string reply =
      cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{'b': 1}", true, ", 'upsert': true") + "]}");
  CHECK(reply == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
  const Lines round{"s0 update 1 ignored", "s1 update 1 ignored", "s2 update 1 ignored"};
  Lines twice = round;
  twice.insert(twice.end(), round.begin(), round.end());
  CHECK(cluster.sent() == twice);
}

TEST_CASE("a write of several steps begins again when one of them is stale", "[write][cluster]") {
  const std::string none = "{'n': 0, 'nModified': 0, 'ok': 1.0}", one = "{'n': 1, 'nModified': 1, 'ok': 1.0}";
  const std::string stale_write = "{'n': 0, 'nModified': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0) + "]}";
  SECTION("by _id, on one shard after the other") {
    Cluster cluster({{two_shards()}, {three_shards()}}, {none, stale_write, none, none, one});
    cluster.router.shards.set_wire_version(21);
    CHECK(cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{'_id': 7}") + "]}") ==
          as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    CHECK(cluster.sent() == Lines{"s0 update 1 table 1", "s1 update 1 table 1", "s0 update 1 table 2",
                                  "s1 update 1 table 2", "s2 update 1 table 2"});
  }
  SECTION("of a chosen document") {
    const std::string nothing = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    const std::string met = "{'cursor': {'firstBatch': [{'_id': 7}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    Cluster cluster({{two_shards()}, {two_shards()}, {two_shards()}},
                    {met, stale_reply, nothing, met, stale_write, nothing, met, one});
    CHECK(cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{'b': 7}") + "]}") ==
          as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    CHECK(cluster.sent() == Lines{"s0 find table 1", "s1 find table 1", "s0 find table 2", "s1 find table 2",
                                  "s1 update 1 table 2", "s0 find table 3", "s1 find table 3", "s1 update 1 table 3"});
  }
  SECTION("of a chosen document, by findAndModify") {
    const std::string nothing = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    const std::string met = "{'cursor': {'firstBatch': [{'_id': 7}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    Cluster cluster({{two_shards()}, {two_shards()}},
                    {met, nothing, stale_reply, nothing, met,
                     "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 7}, 'ok': 1.0}"});
    const std::string reply =
        cluster.router.run("{'findAndModify': 'c', 'query': {'b': 7}, 'update': {'$inc': {'x': 1}}}");
    CHECK(number(reply, "value._id") == 7);
    CHECK(cluster.sent() == Lines{"s0 find table 1", "s1 find table 1", "s0 findAndModify table 1", "s0 find table 2",
                                  "s1 find table 2", "s1 findAndModify table 2"});
  }
  SECTION("of an upsert that found nothing") {
    const auto by_id = [] { return spread("{'_id': 1}", {"{'_id': 10}"}); };
    const std::string nothing = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    Cluster cluster({{by_id()}, {by_id()}},
                    {nothing, nothing, none, stale_write, nothing, nothing, none,
                     "{'n': 1, 'nModified': 0, 'upserted': [{'index': 0, '_id': 9}], 'ok': 1.0}"});
    const std::string reply =
        cluster.router.run("{'update': 'c', 'updates': [" + update(1, "{'b': 1}", false, ", 'upsert': true") + "]}");
    CHECK(number(reply, "n") == 1);
    CHECK(field(reply, "upserted") == as_told("{'0': {'index': 0, '_id': 9}}"));
    CHECK(cluster.sent().back() == "s1 update 1 table 2");
  }
}

TEST_CASE("a collection that its shard had made first gets the write again", "[write][cluster]") {
  Cluster cluster({{std::nullopt}, {std::nullopt}},
                  {"{'n': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0, 227) + "]}", "{'n': 1, 'ok': 1.0}"});
  CHECK(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1}]}") == as_told("{'n': 1, 'ok': 1.0}"));
  CHECK(cluster.table.noted == Lines{"db.c", "db"});
}

TEST_CASE("a shard that refuses a write for its database's version reads that for a find first", "[write][cluster]") {
  const bool batch = GENERATE(false, true);
  const std::string refused = "{'n': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0, 249) + "]}";
  const std::string unknown = "{'ok': 0.0, 'code': 249, 'db': 'db', 'errmsg': 'stale'}";
  Cluster cluster({{batch ? std::optional(two_shards()) : std::nullopt}, {std::nullopt}},
                  {batch ? stale_reply : refused, batch ? refused : unknown, batch ? unknown : "{'n': 1, 'ok': 1.0}",
                   "{'n': 1, 'ok': 1.0}"});
  CHECK(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]}") == as_told("{'n': 1, 'ok': 1.0}"));
  CHECK(cluster.sent() == (batch ? Lines{"s0 insert 1 table 1", "s0 insert 1 db 2", "s0 find db 2", "s0 insert 1 db 2"}
                                 : Lines{"s0 insert 1 db 1", "s0 find db 1", "s0 insert 1 db 2"}));
}

TEST_CASE("a shard that refuses a write again and again ends it with its own error", "[write][cluster]") {
  const bool ordered = GENERATE(true, false);
  Cluster cluster({{two_shards()}}, {});
  cluster.router.shards.answer = [](const test::Sent& sent) -> std::optional<std::string> {
    if (sent.shard == first_shard) return "{'n': 1, 'ok': 1.0}";
    return "{'n': 0, 'ok': 1.0, 'writeErrors': [" + stale_entry(0) + "]}";
  };
  const std::string reply = cluster.router.run(std::string("{'insert': 'c', 'ordered': ") +
                                               (ordered ? "true" : "false") +
                                               ", 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 15}]}");
  CHECK(number(reply, "n") == 1);
  CHECK(number(reply, "ok") == 1);
  CHECK(number(reply, "writeErrors.0.index") == 1);
  CHECK(number(reply, "writeErrors.0.code") == 82);
  CHECK(reply.find("no progress was made executing batch write op in db.c after 5 rounds (1 ops completed in ") !=
        std::string::npos);
  CHECK(cluster.sent().size() <= 10);
}

TEST_CASE("when the table cannot be read again, what was executed is told", "[write][cluster]") {
  const bool some = GENERATE(true, false);
  Cluster cluster({{two_shards()}}, {std::string("{'n': ") + (some ? "1" : "0") + ", 'ok': 1.0, 'writeErrors': [" +
                                     stale_entry(some ? 1 : 0) + "]}"});
  cluster.table.fails = Error(ErrorCode::failed_to_satisfy_read_preference, "no config servers");
  const std::string reply =
      cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}, {'_id': 2, 'a': 16}]}");
  if (some) {
    CHECK(number(reply, "n") == 1);
    CHECK(number(reply, "writeErrors.0.index") == 1);
    CHECK(number(reply, "writeErrors.0.code") == 133);
  } else {
    CHECK(number(reply, "ok") == 0);
    CHECK(number(reply, "code") == 133);
  }
}

std::string in_transaction(std::string_view more) {
  return std::string(", ") + test::session_fields + ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false" +
         std::string(more) + "}";
}

TEST_CASE("a transaction's first statement is begun again with a newer table", "[write][cluster][transactions]") {
  const bool whole = GENERATE(true, false);
  const std::string stale =
      GENERATE(std::string("{'n': 0, 'ok': 1.0, 'writeErrors': [") + stale_entry(0) + "]}", stale_reply);
  Cluster cluster({whole ? State{std::nullopt} : State{two_shards()}, {two_shards()}},
                  {stale, "{'ok': 1.0}", "{'n': 1, 'readOnly': false, 'ok': 1.0}"});
  const std::string reply = cluster.router.run(std::string("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]") +
                                               in_transaction(", 'startTransaction': true"));
  CHECK(number(reply, "n") == 1);
  const auto& sent = cluster.router.shards.sent;
  REQUIRE(sent.size() == 3);
  CHECK(sent[1].name() == "abortTransaction");
  for (const std::size_t i : {0, 2}) {
    CHECK(sent[i].command.view()["startTransaction"].truthy());
    CHECK(sent[i].command.view()["coordinator"].truthy());
  }
  CHECK(cluster.table.noted == Lines{"db.c"});
}

TEST_CASE("the commands of a transaction have one set of API parameters", "[write][cluster][transactions]") {
  Cluster cluster({{two_shards()}}, {"{'n': 1, 'readOnly': false, 'ok': 1.0}", "{'ok': 1.0}", "{'ok': 1.0}"});
  const char* const api = ", 'apiVersion': '1', 'apiStrict': true";
  const auto insert = [&](const std::string& more) {
    return cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]" + more);
  };
  CHECK(number(insert(api + in_transaction(", 'startTransaction': true")), "ok") == 1);
  CHECK(number(insert(in_transaction("")), "code") == 347);
  CHECK(number(insert(", 'apiVersion': '1'" + in_transaction("")), "code") == 347);
}

TEST_CASE("in a transaction a later statement's stale table is the driver's to repeat",
          "[write][cluster][transactions]") {
  const std::string stale =
      GENERATE(std::string("{'n': 0, 'ok': 1.0, 'writeErrors': [") + stale_entry(0) + "]}", stale_reply);
  Cluster cluster({{two_shards()}}, {"{'n': 1, 'readOnly': false, 'ok': 1.0}", stale, "{'ok': 1.0}"});
  cluster.router.run(std::string("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]") +
                     in_transaction(", 'startTransaction': true"));
  const std::string reply =
      cluster.router.run(std::string("{'insert': 'c', 'documents': [{'_id': 2, 'a': 2}]") + in_transaction(""));
  CHECK(number(reply, "ok") == 0);
  CHECK(reply.find("TransientTransactionError") != std::string::npos);
  REQUIRE(cluster.router.shards.sent.size() == 3);
  CHECK_FALSE(cluster.router.shards.sent[1].command.view()["startTransaction"].exists());
  CHECK(cluster.router.shards.sent.back().name() == "abortTransaction");
  CHECK(cluster.table.noted == Lines{"db.c"});
}

TEST_CASE("a reply in a transaction that has only read tells so, for a commit through another router",
          "[write][cluster][transactions]") {
  const std::string nothing = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  const bool one = GENERATE(false, true);
  Cluster cluster({{two_shards()}}, {nothing, nothing, "{'n': 1, 'readOnly': false, 'ok': 1.0}", nothing});
  const auto find = [&](const char* begins) {
    return cluster.router.run(std::string("{'find': 'c', 'filter': ") + (one ? "{'a': 1}" : "{}") +
                              in_transaction(begins));
  };
  CHECK(field(find(", 'startTransaction': true"), "recoveryToken") == as_told("{}"));
  if (one) return;
  cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}]" + in_transaction(""));
  CHECK(cluster.router.run("{'find': 'c', 'filter': {'a': 1}" + in_transaction("")).find("recoveryShardId") !=
        std::string::npos);
}

TEST_CASE("a statement's shards begin each with its first command, and two writers commit in two phases",
          "[write][cluster][transactions]") {
  Cluster cluster({{two_shards()}}, {"{'n': 1, 'readOnly': false, 'ok': 1.0}", "{'n': 1, 'readOnly': false, 'ok': 1.0}",
                                     "{'n': 1, 'readOnly': false, 'ok': 1.0}", "{'ok': 1.0}"});
  cluster.router.run(std::string("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}], 'readConcern': "
                                 "{'level': 'snapshot', 'afterClusterTime': {'$timestamp': {'t': 5, 'i': 1}}}") +
                     in_transaction(", 'startTransaction': true"));
  const std::string both =
      cluster.router.run(std::string("{'insert': 'c', 'documents': [{'_id': 2, 'a': 2}, {'_id': 3, 'a': 15}]") +
                         in_transaction(""));
  CHECK(number(both, "n") == 2);
  CHECK(both.find("recoveryShardId") != std::string::npos);
  const std::string committed = cluster.router.run("{'commitTransaction': 1, '$db': 'admin'" + in_transaction(""));
  CHECK(number(committed, "ok") == 1);
  CHECK(committed.find("recoveryShardId") != std::string::npos);
  const auto& sent = cluster.router.shards.sent;
  REQUIRE(sent.size() == 4);
  const auto shown = [](const test::Sent& one) {
    const DocView command = one.command.view();
    std::string text = "s" + std::to_string(one.shard - first_shard) + " " + one.name();
    for (const char* field : {"startTransaction", "coordinator"}) {
      if (command[field].truthy()) text += std::string(" ") + field;
    }
    if (const ValueView at = command.find_path("readConcern.atClusterTime"); at.exists()) text += " at";
    if (command["participants"].is_array()) {
      for (const Element& each : command["participants"].as_document()) {
        text += " " + std::string(each.as_document()["shardId"].as_string());
      }
    }
    return text;
  };
  CHECK(shown(sent[0]) == "s0 insert startTransaction coordinator at");
  CHECK(shown(sent[1]) == "s0 insert coordinator");
  CHECK(shown(sent[2]) == "s1 insert startTransaction at");
  CHECK(shown(sent[3]) == "s0 coordinateCommitTransaction coordinator s1 s2");
}

// A shard's answer to an update whose document would be another shard's.
std::string would_move(const char* before, const char* after, bool inserts = false) {
  return std::string("{'ok': 0.0, 'code': 283, 'codeName': 'WouldChangeOwningShard', 'errmsg': 'moves', 'preImage': ") +
         before + ", 'postImage': " + after + ", 'shouldUpsert': " + (inserts ? "true" : "false") + "}";
}
const std::string wrote_one = "{'n': 1, 'readOnly': false, 'ok': 1.0}";

// Commands for shards: "s0 delete {…}" without spaces in it, with what makes a shard take part.
Lines steps(const Cluster& cluster) {
  Lines lines;
  for (const test::Sent& one : cluster.router.shards.sent) {
    const DocView command = one.command.view();
    std::string line = "s" + std::to_string(one.shard - first_shard) + " " + one.name();
    for (const char* list : {"documents", "updates", "deletes"}) {
      if (!command[list].is_array()) continue;
      const DocView op = command[list].as_document().first().as_document();
      std::string text = test::text_of(op["q"].exists() ? op["q"].as_document() : op);
      std::erase(text, ' ');
      line += " " + text;
    }
    if (command["startTransaction"].exists()) line += " begins";
    if (!command["autocommit"].exists()) line += " retryable";
    lines.push_back(line);
  }
  return lines;
}

TEST_CASE("in a transaction a document whose key becomes another shard's is moved there",
          "[write][cluster][transactions]") {
  const std::string txn = std::string(test::session_fields) +
                          ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false, 'startTransaction': true";
  const std::string moves = would_move("{'_id': 7, 'a': 1, 'x': 2}", "{'_id': 7, 'a': 15, 'x': 2}");
  SECTION("by an update") {
    Cluster cluster({{two_shards()}}, {moves, wrote_one, wrote_one});
    CHECK(cluster.router.run("{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 15}}}], " + txn + "}") ==
          as_told("{'n': 1, 'nModified': 1, 'ok': 1.0, 'recoveryToken': {'recoveryShardId': 's1'}}"));
    CHECK(steps(cluster) == Lines{"s0 update {'a':1} begins", "s0 delete {'_id':{'$eq':7},'a':{'$eq':1}}",
                                  "s1 insert {'_id':7,'a':15,'x':2} begins"});
  }
  SECTION("by one of several updates") {
    Cluster cluster({{two_shards()}}, {"{'n': 1, 'nModified': 1, 'readOnly': false, 'ok': 1.0}", moves, wrote_one,
                                       wrote_one});
    const std::string reply = cluster.router.run(
        "{'update': 'c', 'updates': [{'q': {'a': 2}, 'u': {'$set': {'x': 15}}}, {'q': {'a': 1}, 'u': {'a': 15, 'x': "
        "2}}], " + txn + "}");
    CHECK(number(reply, "n") == 2);
    CHECK(number(reply, "nModified") == 2);
  }
  SECTION("by findAndModify") {
    const bool wants_new = GENERATE(false, true);
    Cluster cluster({{two_shards()}}, {moves, wrote_one, wrote_one});
    CHECK(cluster.router.run(std::string("{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'$set': {'a': 15}}, "
                                         "'new': ") + (wants_new ? "true, " : "false, ") + txn + "}") ==
          as_told(std::string("{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 7, 'a': ") +
                  (wants_new ? "15" : "1") + ", 'x': 2}, 'ok': 1.0, 'recoveryToken': {'recoveryShardId': 's1'}}"));
    CHECK(steps(cluster).size() == 3);
  }
  SECTION("an upsert's is inserted") {
    Cluster cluster({{two_shards()}}, {would_move("{'a': 1}", "{'_id': 7, 'a': 15}", true), wrote_one});
    CHECK(cluster.router.run("{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'_id': 7, 'a': 15}, 'upsert': "
                             "true}], " + txn + "}") ==
          as_told("{'n': 1, 'nModified': 0, 'upserted': [{'index': 0, '_id': 7}], 'ok': 1.0, 'recoveryToken': "
                  "{'recoveryShardId': 's2'}}"));
    CHECK(steps(cluster) == Lines{"s0 update {'a':1} begins", "s1 insert {'_id':7,'a':15} begins"});
  }
  SECTION("not if it is gone") {
    Cluster cluster({{two_shards()}}, {moves, "{'n': 0, 'readOnly': true, 'ok': 1.0}"});
    const std::string reply =
        cluster.router.run("{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 15}}}], " + txn + "}");
    CHECK(number(reply, "n") == 0);
    CHECK(number(reply, "nModified") == 0);
  }
  SECTION("or if its _id is taken there: the transaction ends") {
    Cluster cluster({{two_shards()}},
                    {moves, wrote_one,
                     "{'n': 0, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 11000, 'keyPattern': {'_id': 1}, "
                     "'errmsg': 'duplicate'}]}",
                     "{'ok': 1.0}", "{'ok': 1.0}"});
    const std::string reply =
        cluster.router.run("{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 15}}}], " + txn + "}");
    CHECK(reply.find("11000") != reply.npos);
    CHECK(reply.find("There is either an orphan for this document") != reply.npos);
    const Lines sent = steps(cluster);
    REQUIRE(sent.size() == 5);
    CHECK(sent[3] == "s0 abortTransaction");
    CHECK(sent[4] == "s1 abortTransaction");
  }
}

TEST_CASE("one of several operations of a bulkWrite moves no document, since they have one number",
          "[write][cluster][transactions]") {
  const bool alone = GENERATE(false, true);
  const std::string moves = would_move("{'_id': 7, 'a': 1}", "{'_id': 7, 'a': 15}");
  Cluster cluster({{two_shards()}}, alone ? std::vector<std::string>{moves, moves, wrote_one, wrote_one, "{'ok': 1.0}"}
                                          : std::vector<std::string>{moves, wrote_one});
  cluster.router.shards.set_wire_version(25);
  const std::string reply = cluster.router.run(
      std::string("{'bulkWrite': 1, 'ordered': false, 'ops': "
                  "[{'update': 0, 'filter': {'a': 1}, 'updateMods': {'$set': {'a': 15}}}") +
      (alone ? "" : ", {'update': 0, 'filter': {'a': 2}, 'updateMods': {'$set': {'x': 1}}}") +
      "], 'nsInfo': [{'ns': 'db.c'}], '$db': 'admin', " + test::session_fields +
      ", 'txnNumber': {'$numberLong': '1'}}");
  CAPTURE(reply);
  CHECK(number(reply, "nErrors") == (alone ? 0 : 1));
  CHECK((reply.find("'code' : 72") != std::string::npos) == !alone);
  bool begins = false;
  for (const test::Sent& one : cluster.router.shards.sent) {
    begins = begins || one.command.view()["startTransaction"].exists();
  }
  CHECK(begins == alone);
}

TEST_CASE("while its collection gets another key, a document may have to move by that one", "[write][cluster]") {
  const bool modifies = GENERATE(false, true);
  const std::string numbered = std::string(test::session_fields) + ", 'txnNumber': {'$numberLong': '1'}}";
  const std::string moves = would_move("{'_id': 7, 'a': 1}", "{'_id': 7, 'a': 1, 'x': 9}");
  Cluster cluster({{two_shards()}}, {moves, moves, moves, wrote_one, wrote_one, "{'ok': 1.0}"});
  const std::string reply = cluster.router.run(
      (modifies ? "{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'$set': {'x': 9}}, "
                : "{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'x': 9}}}], ") + numbered);
  CHECK(number(reply, "ok") == 1);
  const Lines sent = steps(cluster);
  CAPTURE(sent);
  REQUIRE(sent.size() == 6);
  CHECK(sent[0].ends_with("retryable"));
  CHECK(sent[1].ends_with("retryable"));
  CHECK(sent[2].ends_with("begins"));
  CHECK(sent[3] == "s0 delete {'_id':{'$eq':7},'a':{'$eq':1}}");
  CHECK(sent[4] == "s0 insert {'_id':7,'a':1,'x':9}");
  CHECK(sent[5].starts_with("s0 commit"));
}

TEST_CASE("and so may one whose key changes, though all chunks are on one shard", "[write][cluster]") {
  const std::string moves = would_move("{'_id': 7, 'a': 1}", "{'_id': 7, 'a': 2}");
  Cluster cluster({{all_on_first()}}, {moves, moves, moves, wrote_one, wrote_one, "{'ok': 1.0}"});
  const bool modifies = GENERATE(false, true);
  const std::string reply = cluster.router.run(
      (modifies ? "{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'$set': {'a': 2}}, "
                : "{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 2}}}], ") +
      std::string(test::session_fields) + ", 'txnNumber': {'$numberLong': '1'}}");
  CHECK(number(reply, modifies ? "lastErrorObject.n" : "nModified") == 1);
  const Lines sent = steps(cluster);
  CAPTURE(sent);
  REQUIRE(sent.size() == 6);
  CHECK(sent[4] == "s0 insert {'_id':7,'a':2}");
}

TEST_CASE("a retryable write that moves a document becomes a transaction of its own",
          "[write][cluster][transactions]") {
  const std::string numbered = std::string(test::session_fields) + ", 'txnNumber': {'$numberLong': '1'}";
  const std::string update =
      "{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 15}}}], 'writeConcern': {'w': 'majority'}, " +
      numbered + "}";
  const std::string moves = would_move("{'_id': 7, 'a': 1}", "{'_id': 7, 'a': 15}");
  const Lines once = {"s0 update {'a':1} retryable", "s0 update {'a':1} begins",
                      "s0 delete {'_id':{'$eq':7},'a':{'$eq':1}}", "s1 insert {'_id':7,'a':15} begins",
                      "s0 coordinateCommitTransaction"};
  SECTION("as an update") {
    Cluster cluster({{two_shards()}}, {moves, moves, wrote_one, wrote_one, "{'ok': 1.0}"});
    CHECK(cluster.router.run(update) == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    CHECK(steps(cluster) == once);
    const auto& sent = cluster.router.shards.sent;
    for (std::size_t i = 1; i < 4; ++i) CHECK_FALSE(sent[i].command.view()["writeConcern"].exists());
    CHECK(sent[4].command.view().find_path("writeConcern.w").as_string() == "majority");
    for (const test::Sent& one : sent) CHECK(one.command.view()["txnNumber"].to_int64() == 1);
  }
  SECTION("as a findAndModify") {
    Cluster cluster({{two_shards()}}, {moves, moves, wrote_one, wrote_one, "{'ok': 1.0}"});
    CHECK(cluster.router.run("{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'a': 15}, 'new': true, " + numbered +
                             "}") == as_told("{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': "
                                             "7, 'a': 15}, 'ok': 1.0}"));
    CHECK(steps(cluster).size() == 5);
  }
  SECTION("as a findAndModify, however large the document is, unless the shard's answer is malformed") {
    const bool malformed = GENERATE(false, true);
    const std::string document = "{'_id': 7, 'a': 15, 'b': true, 'x': '" + std::string(100'000, 'x') + "'}";
    const std::string large = would_move("{'_id': 7, 'a': 1}", document.c_str());
    Cluster cluster({{two_shards()}}, {large, large, wrote_one, wrote_one, "{'ok': 1.0}"});
    cluster.router.shards.spoils = [malformed](std::vector<std::uint8_t>& message) {
      constexpr std::uint8_t boolean[] = {8, 'b', 0, 1};
      const auto at = std::search(message.begin(), message.end(), std::begin(boolean), std::end(boolean));
      if (malformed && at != message.end()) at[3] = 2;
    };
    const std::string reply = cluster.router.run(
        "{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'$set': {'a': 15}}, 'new': true, " + numbered + "}");
    CHECK(steps(cluster).size() == (malformed ? 1 : 5));
    const bool moved = reply == as_told("{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': " + document +
                                        ", 'ok': 1.0}");
    CHECK(moved == !malformed);
    CHECK((reply.find("malformed") != reply.npos) == malformed);
  }
  SECTION("that finds the document changed, and updates it where it is") {
    Cluster cluster({{two_shards()}}, {moves, "{'n': 1, 'nModified': 1, 'readOnly': false, 'ok': 1.0}", "{'ok': 1.0}"});
    CHECK(cluster.router.run(update) == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    CHECK(steps(cluster) == Lines{once[0], once[1], "s0 commitTransaction"});
  }
  SECTION("that is begun again with a newer table") {
    const std::string newer = would_move("{'_id': 7, 'a': 1}", "{'_id': 7, 'a': 25}");
    Cluster cluster({{two_shards()}, {three_shards()}},
                    {newer, newer, wrote_one, stale_reply, "{'ok': 1.0}", "{'ok': 1.0}", newer, wrote_one, wrote_one,
                     "{'ok': 1.0}"});
    CHECK(cluster.router.run(update) == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    CHECK(steps(cluster) ==
          Lines{once[0], once[1], once[2], "s1 insert {'_id':7,'a':25} begins", "s0 abortTransaction",
                "s1 abortTransaction", once[1], once[2], "s2 insert {'_id':7,'a':25} begins", once[4]});
  }
  SECTION("sent again after it was committed has a write error") {
    Cluster cluster({{two_shards()}}, {"{'ok': 0.0, 'code': 217, 'codeName': 'IncompleteTransactionHistory', "
                                       "'errmsg': 'it was a transaction'}"});
    CHECK(cluster.router.run(update) ==
          as_told("{'n': 0, 'nModified': 0, 'writeErrors': [{'index': 0, 'code': 217, 'errmsg': "
                  "'it was a transaction'}], 'ok': 1.0}"));
  }
  SECTION("that meets another writer is tried again") {
    Cluster cluster({{two_shards()}},
                    {moves,
                     "{'ok': 0.0, 'code': 112, 'errmsg': 'conflict', 'errorLabels': ['TransientTransactionError']}",
                     "{'ok': 1.0}", moves, wrote_one, wrote_one, "{'ok': 1.0}"});
    CHECK(cluster.router.run(update) == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
  }
  SECTION("whose shard has a new primary in its middle is tried again") {
    // Which steps the old one has done: none of these is the commit.
    const std::size_t at = GENERATE(1, 2, 3);
    std::vector<std::string> answers{moves, moves, wrote_one, wrote_one};
    const bool resets = GENERATE(false, true);
    answers.resize(at);
    if (!resets) answers.emplace_back("{'ok': 0.0, 'code': 251, 'errmsg': 'no such transaction'}");
    const std::size_t aborts = at == 3 ? 2 : 1;
    for (std::size_t i = 0; i < aborts; ++i) answers.emplace_back("{'ok': 1.0}");
    const std::vector<std::string> again{moves, wrote_one, wrote_one, "{'ok': 1.0}"};
    answers.insert(answers.end(), again.begin(), again.end());
    Cluster cluster({{two_shards()}}, answers);
    auto& answer = cluster.router.shards.answer;
    if (resets) {
      answer = [&, usual = answer](const test::Sent& sent) -> std::optional<std::string> {
        if (cluster.router.shards.sent.size() == at + 1) return std::nullopt;
        return usual(sent);
      };
    }
    CHECK(cluster.router.run(update) == as_told("{'n': 1, 'nModified': 1, 'ok': 1.0}"));
    const Lines sent = steps(cluster);
    REQUIRE(sent.size() == at + 1 + aborts + 4);
    CHECK(Lines(sent.begin() + 1, sent.begin() + static_cast<std::ptrdiff_t>(at) + 1) ==
          Lines(once.begin() + 1, once.begin() + static_cast<std::ptrdiff_t>(at) + 1));
    CHECK(Lines(sent.end() - 4, sent.end()) == Lines(once.begin() + 1, once.end()));
  }
  SECTION("that is killed in its middle is not committed, and leaves no transaction behind") {
    const std::size_t at = GENERATE(2, 3, 4);
    Cluster cluster({{two_shards()}}, {moves, moves, wrote_one, wrote_one, "{'ok': 1.0}", "{'ok': 1.0}"});
    cluster.router.shards.spoils = [&](std::vector<std::uint8_t>&) {
      if (cluster.router.shards.sent.size() == at) {
        cluster.router.interrupt.request(Error(ErrorCode::interrupted, "operation was interrupted"));
      }
    };
    const std::string reply = cluster.router.run(update);
    CHECK(number(reply, "code") == 11601);  // the command's, not that of its operation
    const Lines sent = steps(cluster);
    REQUIRE(sent.size() == 6);
    CHECK(sent[4] == "s0 abortTransaction");
    CHECK(sent[5] == "s1 abortTransaction");
  }
  SECTION("whose new document is refused leaves all as it was") {
    Cluster cluster({{two_shards()}},
                    {moves, moves, wrote_one,
                     "{'n': 0, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'duplicate'}]}",
                     "{'ok': 1.0}", "{'ok': 1.0}"});
    const std::string reply = cluster.router.run(update);
    CHECK(number(reply, "n") == 0);
    CHECK(number(reply, "writeErrors.0.code") == 11000);
    const Lines sent = steps(cluster);
    REQUIRE(sent.size() == 6);
    CHECK(sent[4] == "s0 abortTransaction");
    CHECK(sent[5] == "s1 abortTransaction");
  }
  SECTION("but not as one of several") {
    Cluster cluster({{two_shards()}}, {"{'n': 1, 'nModified': 1, 'ok': 1.0}", moves});
    const std::string reply = cluster.router.run(
        "{'update': 'c', 'updates': [{'q': {'a': 2}, 'u': {'$set': {'x': 15}}}, {'q': {'a': 1}, 'u': {'a': 15}}], " +
        numbered + "}");
    CHECK(number(reply, "n") == 1);
    CHECK(number(reply, "writeErrors.0.index") == 1);
    CHECK(number(reply, "writeErrors.0.code") == 72);
  }
}

TEST_CASE("without a transaction number the shard's refusal to change a key is the client's", "[write][cluster]") {
  Cluster cluster({{two_shards()}},
                  {"{'n': 0, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 20, 'errmsg': 'must be retryable'}]}"});
  const std::string reply =
      cluster.router.run("{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'a': 15}}}]}");
  CHECK(number(reply, "writeErrors.0.code") == 20);
}

TEST_CASE("a write makes no collection on a shard to 4.4, and is for the majority from 5.0 on", "[write][cluster]") {
  struct Case {
    std::int32_t version;
    std::string more, sent;
  };
  const std::string txn = std::string(test::session_fields) + ", 'txnNumber': {'$numberLong': '1'}";
  const Case cases[] = {{9, "", ""},
                        {13, "", "majority"},
                        {21, ", " + txn, "majority"},
                        {21, ", 'writeConcern': {'w': '1'}", "1"},
                        {21, ", 'autocommit': false, 'startTransaction': true, " + txn, ""}};
  for (const Case& each : cases) {
    INFO(each.version << each.more);
    Cluster cluster({{two_shards()}}, {"{'n': 1, 'ok': 1.0}"});
    cluster.router.shards.set_wire_version(each.version);
    const std::string reply =
        cluster.router.run("{'delete': 'c', 'deletes': [{'q': {'a': 1}, 'limit': 1}]" + each.more + "}");
    CHECK(number(reply, "n") == 1);
    const BsonDoc& sent = cluster.router.shards.sent.front().command;
    const ValueView w = sent.view().find_path("writeConcern.w");
    CHECK((w.exists() ? std::string(w.as_string()) : "") == each.sent);
    const ValueView makes = sent.view()["allowImplicitCollectionCreation"];
    CHECK(makes.exists() == (each.version <= 9));
    CHECK(!makes.truthy());
  }
}

TEST_CASE("a write concern without w is completed in each form of a command", "[write][cluster]") {
  Cluster cluster({{two_shards()}}, {});
  cluster.router.shards.set_wire_version(21);
  cluster.router.shards.answer = [](const test::Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "aggregate" || sent.name() == "find") {
      return "{'cursor': {'firstBatch': [{'_id': 1, 'a': 1, 'x': 1}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    }
    return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 1}, 'ok': 1.0}";
  };
  cluster.router.run("{'findAndModify': 'c', 'query': {'x': 1}, 'update': {'$inc': {'x': 1}}, "
                     "'writeConcern': {'j': true}}");
  const BsonDoc& sent = cluster.router.shards.sent.back().command;
  REQUIRE(sent.view().first().name == "findAndModify");
  CHECK(sent.view().find_path("writeConcern.w").as_string() == "majority");
  CHECK(sent.view().find_path("writeConcern.j").truthy());
}

constexpr const char* refusal_of_killed_operation =
    "{'ok': 0.0, 'code': 11601, 'codeName': 'Interrupted', 'errmsg': 'operation was interrupted'}";
constexpr const char* nothing_found = "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";

// Writes of one document by a filter without the key.
std::string chosen_write(std::string_view name, const std::string& more) {
  if (name == "update") return "{'update': 'c', 'updates': [{'q': {'x': 1}, 'u': {'$inc': {'x': 1}}}]" + more;
  if (name == "delete") return "{'delete': 'c', 'deletes': [{'q': {'x': 1}, 'limit': 1}]" + more;
  return "{'findAndModify': 'c', 'query': {'x': 1}, 'update': {'$inc': {'x': 1}}" + more;
}

TEST_CASE("in a transaction the error of the find that chooses a document is the client's",
          "[write][cluster][transactions]") {
  const std::string name = GENERATE("update", "delete", "findAndModify");
  const std::string first = GENERATE("", ", 'startTransaction': true");
  CAPTURE(name, first);
  Cluster cluster({{two_shards()}}, {});
  cluster.router.shards.answer = [](const test::Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "insert") return wrote_one;
    if (sent.name() == "abortTransaction") return "{'ok': 1.0}";
    if (sent.name() == "find") {
      return sent.shard == first_shard ? nothing_found
                                       : "{'ok': 0.0, 'code': 2, 'codeName': 'BadValue', 'errmsg': 'unknown operator'}";
    }
    return "{'ok': 0.0, 'code': 251, 'errmsg': 'it was aborted', 'errorLabels': ['TransientTransactionError']}";
  };
  if (first.empty()) {
    cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]" +
                       in_transaction(", 'startTransaction': true"));
  }
  const std::string reply = cluster.router.run(chosen_write(name, in_transaction(first)));
  CHECK(number(reply, "code") == 2);
  CHECK(reply.find("TransientTransactionError") == reply.npos);
  Lines sent = steps(cluster);
  REQUIRE(sent.size() >= 2);
  CHECK(sent[sent.size() - 2] == "s0 abortTransaction");
  CHECK(sent.back() == "s1 abortTransaction");
  CHECK(number(cluster.router.run("{'commitTransaction': 1, '$db': 'admin'" + in_transaction("")), "code") == 251);
}

TEST_CASE("a chosen write is not sent again before all shards have said that they do not remember it",
          "[write][cluster]") {
  const std::string name = GENERATE("update", "delete", "findAndModify");
  CAPTURE(name);
  const std::string numbered = ", " + std::string(test::session_fields) + ", 'txnNumber': {'$numberLong': '1'}}";
  const bool modifies = name == "findAndModify";
  std::string told;
  const std::string written = modifies ? "{'lastErrorObject': {'n': 1}, 'value': {'_id': 7}, 'ok': 1.0}"
                                       : "{'n': 1, 'nModified': 1, 'ok': 1.0}";
  bool remembered = false;
  Cluster cluster({{two_shards()}}, {});
  cluster.router.shards.answer = [&](const test::Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find") {
      return sent.shard == first_shard ? nothing_found
                                       : "{'cursor': {'firstBatch': [{'_id': 8}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    }
    if (test::text_of(sent.command.view()).find("'$in'") == std::string::npos) return written;
    if (sent.shard == first_shard) return told;
    if (remembered) return written;
    return modifies ? "{'lastErrorObject': {'n': 0}, 'value': null, 'ok': 1.0}" : "{'n': 0, 'nModified': 0, 'ok': 1.0}";
  };
  SECTION("but one refuses to say") {
    told = refusal_of_killed_operation;
    CHECK(number(cluster.router.run(chosen_write(name, numbered)), "code") == 11601);
    CHECK(cluster.router.shards.sent.size() == 2);
  }
  SECTION("and one remembers a transaction") {
    told = "{'ok': 0.0, 'code': 217, 'codeName': 'IncompleteTransactionHistory', 'errmsg': 'it was a transaction'}";
    CHECK(number(cluster.router.run(chosen_write(name, numbered)), modifies ? "code" : "writeErrors.0.code") == 217);
    CHECK(cluster.router.shards.sent.size() == 2);
  }
  SECTION("and one cannot take its locks") {
    if (modifies) return;
    told = "{'n': 0, 'ok': 1.0, 'writeErrors': [{'index': 0, 'code': 24, 'errmsg': 'LockTimeout'}]}";
    CHECK(number(cluster.router.run(chosen_write(name, numbered)), "writeErrors.0.code") == 24);
    CHECK(cluster.router.shards.sent.size() == 2);
  }
  SECTION("and one does remember it") {
    remembered = true;
    told = refusal_of_killed_operation;
    const std::string reply = cluster.router.run(chosen_write(name, numbered));
    CHECK(number(reply, modifies ? "lastErrorObject.n" : "n") == 1);
    CHECK(cluster.router.shards.sent.size() == 2);
  }
}

// A transaction to 4.4: s0 has written, s1 has read. Its commits are answered by what each shard says, in turn.
struct OneWriter {
  Cluster cluster{{{two_shards()}}, {}};
  std::vector<std::optional<std::string>> of_reader, of_writer;

  OneWriter() {
    cluster.router.shards.set_wire_version(9);
    cluster.router.shards.answer = [this](const test::Sent& sent) -> std::optional<std::string> {
      if (sent.name() == "insert") return wrote_one;
      if (sent.name() == "find") {
        return "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'readOnly': true, 'ok': 1.0}";
      }
      if (sent.name() == "abortTransaction") return "{'ok': 1.0}";
      auto& says = sent.shard == first_shard ? of_writer : of_reader;
      if (says.empty()) FAIL("more commits than answers");
      const auto said = says.front();
      says.erase(says.begin());
      return said;
    };
    cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]" +
                       in_transaction(", 'startTransaction': true"));
    cluster.router.run("{'find': 'c', 'filter': {'a': 15}" + in_transaction(""));
    cluster.router.shards.sent.clear();
  }
  std::string commit() { return cluster.router.run("{'commitTransaction': 1, '$db': 'admin'" + in_transaction("")); }
};
constexpr const char* not_there =
    "{'ok': 0.0, 'code': 251, 'errmsg': 'no such transaction', 'errorLabels': ['TransientTransactionError']}";

TEST_CASE("a commit that is sent again asks only its writer, once the readers have committed",
          "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.of_reader = {"{'ok': 1.0}", not_there};  // a reader's next primary knows nothing of it
  transaction.of_writer = {std::nullopt, "{'ok': 1.0}", "{'ok': 1.0}"};
  CHECK(number(transaction.commit(), "code") == 6);
  CHECK(number(transaction.commit(), "ok") == 1);
  CHECK(steps(transaction.cluster) ==
        Lines{"s1 commitTransaction", "s0 commitTransaction", "s0 commitTransaction"});
  CHECK(number(transaction.commit(), "ok") == 1);
  const Metrics& metrics = transaction.cluster.router.shared().metrics;
  const Metrics::Commit& commits = metrics.commits[static_cast<std::size_t>(CommitPlan::Type::single_write_shard)];
  CHECK(commits.initiated.value() == 1);
  CHECK(commits.successful.value() == 1);
  CHECK(metrics.participants_at_commit.value() == 2);
}

TEST_CASE("a commit that is sent again goes the same way, though its shards were upgraded meanwhile",
          "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.of_reader = {"{'ok': 1.0}"};
  transaction.of_writer = {std::nullopt, "{'ok': 1.0}"};
  CHECK(number(transaction.commit(), "code") == 6);
  transaction.cluster.router.shards.set_wire_version(13);
  CHECK(number(transaction.commit(), "ok") == 1);
  CHECK(steps(transaction.cluster) ==
        Lines{"s1 commitTransaction", "s0 commitTransaction", "s0 commitTransaction"});
}

TEST_CASE("a commit whose write concern no shard can satisfy is an error, since its writer has not committed",
          "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.of_reader = {"{'writeConcernError': {'code': 100, 'errmsg': 'not enough members'}, 'ok': 1.0}"};
  const std::string reply = transaction.commit();
  CHECK(number(reply, "code") == 100);
  CHECK(number(reply, "ok") == 0);
}

TEST_CASE("a commit that finds no primary has an unknown result", "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.cluster.router.shards.fails_unsent = Error(ErrorCode::failed_to_satisfy_read_preference, "no primary");
  const std::string reply = transaction.commit();  // an earlier attempt may have committed
  CHECK(number(reply, "code") == 6);
  CHECK(reply.find("'RetryableWriteError'") != reply.npos);
}

TEST_CASE("a writer is not committed while what was read may be undone", "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.of_reader = {"{'writeConcernError': {'code': 64, 'errmsg': 'timed out'}, 'ok': 1.0}", "{'ok': 1.0}"};
  transaction.of_writer = {"{'ok': 1.0}"};
  const std::string reply = transaction.commit();
  CHECK(number(reply, "writeConcernError.code") == 64);
  CHECK(steps(transaction.cluster) == Lines{"s1 commitTransaction"});
  CHECK(number(transaction.commit(), "ok") == 1);
  CHECK(steps(transaction.cluster) ==
        Lines{"s1 commitTransaction", "s1 commitTransaction", "s0 commitTransaction"});
}

TEST_CASE("a transaction that a reader has lost is not left open on its writer", "[write][cluster][transactions]") {
  OneWriter transaction;
  transaction.of_reader = {not_there};
  CHECK(number(transaction.commit(), "code") == 251);
  CHECK(steps(transaction.cluster) == Lines{"s1 commitTransaction", "s0 abortTransaction", "s1 abortTransaction"});
  // No client waits for a majority of the shard to know of it.
  CHECK(transaction.cluster.router.shards.sent.back().command.view().find_path("writeConcern.w").to_int64() == 1);
  CHECK(number(transaction.commit(), "code") == 251);
}

TEST_CASE("in a transaction a write that one shard has executed is not to be sent again for want of memory",
          "[write][cluster][transactions]") {
  const bool in_bulk = GENERATE(false, true);
  CAPTURE(in_bulk);
  Cluster cluster({{two_shards()}}, {});
  const std::string insert = "{'insert': 'c', 'documents': [{'_id': 1, 'a': 15}]";
  cluster.router.shards.answer = [](const test::Sent&) { return wrote_one; };
  cluster.router.run(insert + in_transaction(", 'startTransaction': true"));
  Error no_memory(ErrorCode::ingress_request_rate_limit_exceeded, "no memory");
  no_memory.labels = {"SystemOverloadedError", "RetryableError"};
  std::string write = "{'update': 'c', 'updates': [{'q': {}, 'u': {'$inc': {'x': 1}}, 'multi': true}]";
  if (in_bulk) {
    write = "{'bulkWrite': 1, '$db': 'admin', 'ops': [{'update': 0, 'filter': {'a': 15}, 'updateMods': {'$inc': {'x': "
            "1}}}, {'update': 0, 'filter': {'a': 1}, 'updateMods': {'$inc': {'x': 1}}}], 'nsInfo': [{'ns': 'db.c'}]";
    cluster.router.shards.answer = [&](const test::Sent& sent) {
      if (sent.name() == "update") cluster.router.shards.fails_unsent = no_memory;  // what comes next
      return wrote_one;
    };
  } else {
    cluster.router.shards.fails_unsent = no_memory;  // for s0
  }
  const std::string reply = cluster.router.run(write + in_transaction(""));
  CHECK(number(reply, "code") == 462);
  CHECK(reply.find("'RetryableError'") == reply.npos);
  CHECK(reply.find("'TransientTransactionError'") != reply.npos);
  CHECK(steps(cluster) == Lines{"s1 insert {'_id':1,'a':15} begins", in_bulk ? "s1 update {'a':15}" : "s1 update {}",
                                "s0 abortTransaction", "s1 abortTransaction"});
  CHECK(number(cluster.router.run("{'commitTransaction': 1, '$db': 'admin'" + in_transaction("")), "code") == 251);
}

TEST_CASE("a transaction whose statement could not be routed cannot be committed", "[write][cluster][transactions]") {
  Cluster cluster({{two_shards()}}, {wrote_one, "{'ok': 1.0}", "{'ok': 1.0}"});
  const std::string insert = "{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}]";
  cluster.router.run(insert + in_transaction(", 'startTransaction': true"));
  cluster.table.note_stale({"db", "c"});
  cluster.table.fails = Error(ErrorCode::conflicting_operation_in_progress, "the table changes faster than it is read");
  CHECK(number(cluster.router.run(insert + in_transaction("")), "code") == 117);
  cluster.table.fails.reset();
  CHECK(number(cluster.router.run("{'commitTransaction': 1, '$db': 'admin'" + in_transaction("")), "code") == 251);
  CHECK(steps(cluster).back() == "s0 abortTransaction");
}

TEST_CASE("an operation that cannot be targeted is refused by a table that was read for it", "[write][cluster]") {
  Cluster cluster({{two_shards()}, {spread("{'b': 1}", {"{'b': 10}"})}}, {"{'n': 1, 'ok': 1.0}"});
  CHECK(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': [1], 'b': 1}]}") ==
        as_told("{'n': 1, 'ok': 1.0}"));
  CHECK(number(cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'b': [1]}]}"), "writeErrors.0.code") == 61);
}

catalog::CollectionRouting buckets_by(const char* key, const std::vector<std::string>& bounds) {
  catalog::CollectionRouting routing = spread(key, bounds);
  routing.ns = "db.system.buckets.c";
  return routing;
}

// Of the command that a shard was sent.
std::string collection_of(const test::Sent& sent) { return std::string(sent.command.view().first().as_string()); }

TEST_CASE("measurements of a sharded time series go to the shards of their buckets", "[write][cluster][timeseries]") {
  const catalog::TimeSeries series{"t", "m", 3600};
  std::vector<State> states;
  states.push_back({buckets_by("{'meta': 1, 'control.min.t': 1}",
                               {"{'meta': 'b', 'control.min.t': {'$date': '2024-01-01T11:00:00Z'}}",
                                "{'meta': 'c', 'control.min.t': {'$minKey': 1}}"}),
                    0, series});
  const auto id = [](int number) { return "'_id': " + std::to_string(number); };
  SECTION("an insert") {
    Cluster cluster(std::move(states), {"{'n': 2, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
    const std::string reply = cluster.router.run(
        "{'insert': 'c', 'ordered': false, 'documents': ["
        "{" + id(1) + ", 't': {'$date': '2024-01-01T09:59:59Z'}, 'm': 'a'}, "
        "{" + id(2) + ", 't': {'$date': '2024-01-01T11:59:59Z'}, 'm': 'b'}, "
        "{" + id(3) + ", 't': {'$date': '2024-01-01T10:59:59Z'}, 'm': 'b'}, "
        "{" + id(4) + ", 't': {'$date': '1969-12-31T23:59:59Z'}, 'm': 'z'}, "
        "{" + id(5) + ", 't': 'noon', 'm': 'a'}]}");
    CHECK(number(reply, "n") == 4);
    CHECK(number(reply, "writeErrors.0.index") == 4);
    CHECK(number(reply, "writeErrors.0.code") == 5743702);
    CHECK(cluster.sent() == Lines{"s0 insert 1,3 table 1", "s1 insert 2 table 1", "s2 insert 4 table 1"});
    for (const test::Sent& sent : cluster.router.shards.sent) {
      CHECK(collection_of(sent) == "system.buckets.c");
      CHECK(sent.command.view()["isTimeseriesNamespace"].truthy());
    }
  }
  SECTION("an update and a delete of all that match") {
    const bool removes = GENERATE(true, false);
    Cluster cluster(std::move(states), {"{'n': 1, 'ok': 1.0}", "{'n': 0, 'ok': 1.0}", "{'n': 2, 'ok': 1.0}"});
    const std::string reply = cluster.router.run(
        removes ? "{'delete': 'c', 'deletes': [{'q': {'m': 'a'}, 'limit': 0}]}"
                : "{'update': 'c', 'updates': [{'q': {'m': 'a'}, 'u': {'$set': {'m': 'b'}}, 'multi': true}]}");
    CHECK(number(reply, "n") == 3);
    CHECK(cluster.router.shards.sent.size() == 3);
    CHECK(collection_of(cluster.router.shards.sent.back()) == "system.buckets.c");
    // A shard that has nothing of the series would refuse it.
    for (const test::Sent& sent : cluster.router.shards.sent) {
      const auto version = catalog::read_chunk_version(sent.command.view()["shardVersion"]);
      REQUIRE(version.has_value());
      CHECK_FALSE(*version == catalog::ChunkVersion::ignored());
    }
  }
  SECTION("what would need one measurement of many shards is refused") {
    Cluster cluster(std::move(states), {});
    for (const char* command : {"{'delete': 'c', 'deletes': [{'q': {'m': 'a'}, 'limit': 1}]}",
                                "{'update': 'c', 'updates': [{'q': {'m': 'a'}, 'u': {'$set': {'m': 'b'}}}]}",
                                "{'update': 'c', 'updates': [{'q': {'m': 'a'}, 'u': {'$set': {'m': 'b'}}, "
                                "'multi': true, 'upsert': true}]}"}) {
      CHECK(number(cluster.router.run(command), "writeErrors.0.code") == 72);
    }
    CHECK(number(cluster.router.run("{'findAndModify': 'c', 'query': {'m': 'a'}, 'remove': true}"), "code") == 72);
    CHECK(cluster.router.shards.sent.empty());
  }
}

TEST_CASE("what is written to the buckets themselves are no measurements", "[write][cluster][timeseries]") {
  std::vector<State> states;
  states.push_back({buckets_by("{'meta': 1}", {"{'meta': 'b'}"}), 0, catalog::TimeSeries{"t", "m", 60}});
  Cluster cluster(std::move(states), {"{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  cluster.router.run("{'insert': 'system.buckets.c', 'documents': [{'_id': 1, 'control': {'version': 1}, 'meta': 'a'}, "
                     "{'_id': 2, 'control': {'version': 1}, 'meta': 'z'}]}");
  CHECK(cluster.sent() == Lines{"s0 insert 1 table 1", "s1 insert 2 table 1"});
  cluster.router.run("{'delete': 'system.buckets.c', 'deletes': [{'q': {'meta': 'z'}, 'limit': 1}]}");
  CHECK(cluster.sent().back() == "s1 delete -1 table 1");
  CHECK_FALSE(cluster.router.shards.sent.back().command.view()["isTimeseriesNamespace"].exists());
  const std::string refused = cluster.router.run(
      "{'insert': 'system.buckets.c', 'documents': [{'_id': 3}], 'isTimeseriesNamespace': true}");
  CHECK(refused.find("5916401") != std::string::npos);
}

TEST_CASE("writes follow a collection that becomes a sharded time series, or is none any more",
          "[write][cluster][timeseries]") {
  const bool becomes = GENERATE(true, false);
  const char* const command =
      "{'insert': 'c', 'documents': [{'_id': 1, 't': {'$date': '2024-01-01T11:00:00Z'}, 'm': 'z'}]}";
  std::vector<State> states;
  const State series{buckets_by("{'meta': 1}", {}), 0, catalog::TimeSeries{"t", "m", 60}};
  if (becomes) states = {State{}, series};
  if (!becomes) states = {series, State{}};
  // 6.0 counts an insert into a series that it has refused.
  const std::string stale = "{'ok': 1.0, 'n': 1, 'writeErrors': [{'index': 0, 'code': 13388, 'errmsg': 'stale', 'ns': "
                            "'db.system.buckets.c', 'vReceived': {}, 'shardId': 's0'}]}";
  Cluster cluster(std::move(states), {stale, "{'n': 1, 'ok': 1.0}", "{'n': 1, 'ok': 1.0}"});
  const std::string reply = cluster.router.run(command);
  INFO(reply);
  CHECK(number(reply, "n") == 1);
  const auto& sent = cluster.router.shards.sent;
  REQUIRE(sent.size() == 2);
  CHECK(collection_of(sent[0]) == (becomes ? "c" : "system.buckets.c"));
  CHECK(collection_of(sent[1]) == (becomes ? "system.buckets.c" : "c"));
  CHECK(sent[1].command.view()["isTimeseriesNamespace"].truthy() == becomes);
}

TEST_CASE("to 5.0 no buckets are looked for", "[write][cluster][timeseries]") {
  std::vector<State> states;
  states.push_back({buckets_by("{'meta': 1}", {"{'meta': 'b'}"}), 0, catalog::TimeSeries{"t", "m", 60}});
  Cluster cluster(std::move(states), {"{'n': 1, 'ok': 1.0}"});
  cluster.router.shards.set_wire_version(13);
  cluster.router.run("{'insert': 'c', 'documents': [{'_id': 1, 'm': 'z'}]}");
  CHECK(cluster.sent() == Lines{"s0 insert 1 db 1"});
  CHECK(collection_of(cluster.router.shards.sent.front()) == "c");
}

}  // namespace
}  // namespace spillway::exec
