#include "proxy/server/reload/table_check.h"

#include "tests/unit/server/guarded_shards.h"

namespace spillway::server {
namespace {

using test::doc;
using test::FakeWorker;
using test::Shards;

constexpr const char* head = R"(
routing:
  shards:
    - {name: s0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: s1, uri: "mongodb://127.0.0.1:27019/"}
)";
// app.c by ranges of k: below "m" on s0, the rest on s1.
constexpr const char* ranged = R"(
    - ns: app.c
      key: {k: 1}
      chunks:
        - {min: {k: {$minKey: 1}}, max: {k: "m"}, shard: s0}
        - {min: {k: "m"}, max: {k: {$maxKey: 1}}, shard: s1}
)";
// The same owners, in more chunks.
constexpr const char* split_further = R"(
    - ns: app.c
      key: {k: 1}
      chunks:
        - {min: {k: {$minKey: 1}}, max: {k: "c"}, shard: s0}
        - {min: {k: "c"}, max: {k: "m"}, shard: s0}
        - {min: {k: "m"}, max: {k: {$maxKey: 1}}, shard: s1}
)";
constexpr const char* other_owner = R"(
    - ns: app.c
      key: {k: 1}
      chunks:
        - {min: {k: {$minKey: 1}}, max: {k: "c"}, shard: s0}
        - {min: {k: "c"}, max: {k: {$maxKey: 1}}, shard: s1}
)";
constexpr const char* hashed = "\n    - {ns: app.new, key: {_id: hashed}}\n";

std::string table(const std::string& collections, const std::string& databases = "") {
  std::string text = head;
  if (!databases.empty()) text += "  databases: [" + databases + "]\n";
  if (!collections.empty()) text += "  collections:" + collections;
  return text;
}

Result<void> reload(Shards& shards, const std::string& before, const std::string& after) {
  FakeWorker worker(test::routing_of(before), [&shards](std::uint16_t shard, DocView command) {
    return shards.answer(shard, command);
  });
  return worker.run(
      check_new_table(worker.context, test::routing_of(before), test::routing_of(after)));
}

using Names = std::vector<std::string>;

Names strays(Shards& shards, const std::string& before, const std::string& after) {
  CHECK(may_leave_strays(*test::routing_of(before), *test::routing_of(after)));
  FakeWorker worker(test::routing_of(after), [&shards](std::uint16_t shard, DocView command) {
    return shards.answer(shard, command);
  });
  return worker.run(find_strays(worker.context, test::routing_of(before), test::routing_of(after)));
}

bool says(const Result<void>& result, const char* text) {
  if (result.has_error()) INFO(result.error().message);
  return result.has_error() && result.error().message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a collection may be added while no shard holds documents of it") {
  Shards shards;
  shards.documents[{1, "app.new"}].push_back(doc("{'_id': 1}"));  // not where app lives: not asked
  CHECK(reload(shards, table(""), table(hashed)).has_value());
  REQUIRE(shards.documents[{0, "spillway.routing"}].size() == 1);
  CHECK(shards.documents[{0, "spillway.routing"}][0].view()["_id"].as_string() == "app.new");

  Shards full;
  full.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));
  const auto refused = reload(full, table(""), table(hashed));
  CHECK(says(refused, "app.new has documents on shard s0"));
  CHECK(full.writes == 0);
}

TEST_CASE("a collection may be left out when it is empty on all shards but the primary") {
  Shards shards;
  shards.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));  // the primary's stay in sight
  CHECK(reload(shards, table(hashed), table("")).has_value());
  shards.documents[{1, "app.new"}].push_back(doc("{'_id': 2}"));
  CHECK(says(reload(shards, table(hashed), table("")), "app.new has documents on shard s1"));
}

TEST_CASE("chunks may be split and joined, ranges may not change hands") {
  Shards shards;
  CHECK(reload(shards, table(ranged), table(split_further)).has_value());
  CHECK(reload(shards, table(split_further), table(ranged)).has_value());
  const std::size_t writes = shards.writes;
  const auto moved = reload(shards, table(ranged), table(other_owner));
  CHECK(says(moved, "app.c"));
  CHECK(moved.error().is(ErrorCode::illegal_operation));
  CHECK(shards.writes == writes);
}

TEST_CASE("nothing is kept of a table that is refused for its last collection") {
  Shards shards;
  shards.documents[{0, "app.other"}].push_back(doc("{'_id': 1}"));
  const std::string two = std::string(hashed) + "    - {ns: app.other, key: {_id: hashed}}\n";
  CHECK(says(reload(shards, table(""), table(two)), "app.other"));
  CHECK(shards.writes == 0);
  // … nor if what a shard keeps disagrees, from a table that this router never had.
  Shards kept;
  CHECK(reload(kept, table(hashed), table(std::string(hashed) + other_owner)).has_value());
  const std::size_t writes = kept.writes;
  const std::string both = std::string(hashed) + ranged + "    - {ns: app.a, key: {_id: hashed}}\n";
  CHECK(says(reload(kept, table(hashed), table(both)), "app.c"));
  CHECK(kept.writes == writes);
}

TEST_CASE("a database's primary may change while it has no unsharded collections there") {
  const std::string on_second = "{name: app, primary: s1}";
  Shards shards;
  shards.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));  // sharded: it does not move
  shards.documents[{0, "other.x"}].push_back(doc("{'_id': 1}"));
  shards.documents[{0, "app.empty"}] = {};
  CHECK(reload(shards, table(hashed), table(hashed, on_second)).has_value());
  shards.documents[{0, "app.plain"}].push_back(doc("{'_id': 1}"));
  CHECK(says(reload(shards, table(hashed), table(hashed, on_second)),
             "app.plain has documents on shard s0"));
}

TEST_CASE("the default primary may change while no shard holds documents of what no table names") {
  const std::string moved = table(hashed) + "  defaultPrimary: s1\n";
  Shards shards;
  shards.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));  // sharded: it does not move
  shards.documents[{0, "other.empty"}] = {};
  shards.documents[{1, "other.x"}].push_back(doc("{'_id': 1}"));
  for (const char* own : {"config.x", "local.x", "admin.system.users"}) {
    shards.documents[{0, own}].push_back(doc("{'_id': 1}"));
  }
  CHECK(reload(shards, table(hashed), moved).has_value());
  shards.documents[{0, "third.plain"}].push_back(doc("{'_id': 1}"));
  CHECK(says(reload(shards, table(hashed), moved), "third.plain has documents on shard s0"));
  CHECK(strays(shards, table(hashed), moved) == Names{"third.plain"});
  shards.unreachable.insert(1);
  CHECK(says(reload(shards, table(hashed), moved), "shard s1 cannot be asked"));
  // A database that the new table names stays.
  shards.unreachable.clear();
  const std::string named = table(hashed, "{name: third, primary: s0}") + "  defaultPrimary: s1\n";
  CHECK(reload(shards, table(hashed), named).has_value());
}

TEST_CASE("a default key may come and go while no shard holds documents out of its sight, and may not change") {
  const std::string by_id = table(hashed) + "  defaultShardKey: {_id: hashed}\n";
  Shards shards;
  shards.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));
  shards.documents[{1, "spillway.routing"}].push_back(doc("{'_id': 'x'}"));
  CHECK(reload(shards, table(hashed), by_id).has_value());
  shards.documents[{1, "app.plain"}].push_back(doc("{'_id': 1}"));
  CHECK(says(reload(shards, by_id, table(hashed)), "app.plain has documents on shard s1"));
  CHECK(strays(shards, by_id, table(hashed)) == Names{"app.plain"});
  shards.documents[{0, "other.x"}].push_back(doc("{'_id': 1}"));
  CHECK(says(reload(shards, table(hashed), by_id), "other.x has documents on shard s0"));
  CHECK(says(reload(shards, by_id, table(hashed) + "  defaultShardKey: {a: hashed}\n"), "key"));
  // With a default key, the default primary holds nothing.
  CHECK(reload(shards, by_id, by_id + "  defaultPrimary: s1\n").has_value());
}

TEST_CASE("documents that lie where the new table does not look for them are found") {
  Shards shards;
  shards.documents[{0, "app.c"}].push_back(doc("{'_id': 1, 'k': 'a'}"));
  CHECK(strays(shards, table(""), table(ranged)).empty());
  Shards late = shards;
  late.documents[{0, "app.c"}].push_back(doc("{'_id': 2, 'k': 'z'}"));
  CHECK(strays(late, table(""), table(ranged)) == Names{"app.c"});
  // A key that the new table does not allow.
  shards.documents[{0, "app.c"}].push_back(doc("{'_id': 3, 'k': ['a']}"));
  CHECK(strays(shards, table(""), table(ranged)) == Names{"app.c"});
  // A collection that is left out, and a database that moves.
  shards.documents[{0, "app.new"}].push_back(doc("{'_id': 1}"));
  CHECK(strays(shards, table(hashed), table("")).empty());
  const std::string on_second = "{name: app, primary: s1}";
  CHECK(strays(shards, table(ranged), table(ranged, on_second)) == Names{"app.new"});
  shards.documents[{1, "app.new"}].push_back(doc("{'_id': 2}"));
  CHECK(strays(shards, table(hashed), table("")) == Names{"app.new"});
  shards.unreachable = {0, 1};
  CHECK(strays(shards, table(hashed), table("")).empty());  // the log says so
  CHECK_FALSE(may_leave_strays(*test::routing_of(table(ranged)), *test::routing_of(table(split_further))));
}

TEST_CASE("a shard that cannot be asked refuses the table") {
  Shards shards;
  shards.unreachable = {0};
  CHECK(says(reload(shards, table(""), table(hashed)), "no host answers"));
  shards.unreachable = {1};  // only its guards are asked for
  CHECK(says(reload(shards, table(""), table(hashed)), "no host answers"));
  CHECK(shards.writes == 0);
}

}  // namespace spillway::server
