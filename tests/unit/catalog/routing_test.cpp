#include "proxy/catalog/routing.h"

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::doc;
using test::list;
using test::pattern;
using test::split_at;

struct TargetCase {
  std::string filter;
  bool simple;
  std::vector<int> shards;
};

TEST_CASE("targeting by a single-field key") {
  const auto routing = split_at("{'a': 1}", {"{'a': 'x'}", "{'a': 'y'}", "{'a': 'z'}"});
  const TargetCase cases[] = {
      {"{}", true, {0, 1, 2, 3}},
      {"{'b': 1}", true, {0, 1, 2, 3}},
      {"{'a': 'y'}", true, {2}},
      {"{'a': {'$in': ['u', 'y']}}", true, {0, 2}},
      {"{'$or': [{'a': 'u'}, {'a': 'y'}]}", true, {0, 2}},
      {"{'a': {'$gt': 'x'}}", true, {1, 2, 3}},
      {"{'a': {'$gte': 'x'}}", true, {1, 2, 3}},
      {"{'a': {'$lt': 'y'}}", true, {0, 1, 2}},
      {"{'a': {'$lte': 'y'}}", true, {0, 1, 2}},
      {"{'$or': [{'a': 'u'}, {'a': {'$gte': 'y'}}]}", true, {0, 2, 3}},
      {"{'$or': [{'a': 'u'}, {'a': {'$gte': 'zz'}}, {}]}", true, {0, 1, 2, 3}},
      {"{'a': {'$gt': 'x', '$lt': 'x'}}", true, {0}},
      {"{'$or': [{'a': 'x'}, {'a': {'$gt': 'u', '$lt': 'u'}}, {'a': {'$gte': 'y'}}]}",
       true,
       {1, 2, 3}},
      {"{'a': 'y'}", false, {0, 1, 2, 3}},
      {"{'a': 5}", true, {0}},
      {"{'a': 5}", false, {0}},
      {"{'a': 'y', 'loc': {'$near': [0, 0]}}", true, {2}},
      {"{'$and': [{'a': 'u'}, {'a': 'y'}]}", true, {0}},
  };
  for (const auto& c : cases) {
    INFO(c.filter << (c.simple ? "" : " with a collation"));
    const auto shards = routing.target_filter(doc(c.filter), c.simple);
    REQUIRE(shards.has_value());
    CHECK(list(*shards) == c.shards);
  }
}

TEST_CASE("combinations of a compound key") {
  const auto routing = split_at("{'a': 1, 'b': 1}", {"{'a': 5, 'b': 10}", "{'a': 5, 'b': 20}"});
  const auto shards =
      routing.target_filter(doc("{'a': {'$in': [0, 5, 10]}, 'b': {'$in': [0, 5, 25]}}"), true);
  CHECK(list(*shards) == std::vector<int>{0, 1, 2});
  CHECK(list(*routing.target_filter(doc("{'a': 5, 'b': {'$in': [0, 25]}}"), true)) ==
        std::vector<int>{0, 2});
  CHECK(list(*routing.target_filter(doc("{'a': 5}"), true)) == std::vector<int>{0, 1, 2});
  CHECK(list(*routing.target_filter(doc("{'a': 5, 'b': {'$gte': 20}}"), true)) ==
        std::vector<int>{2});
  CHECK(list(*routing.target_filter(doc("{'b': 12}"), true)) == std::vector<int>{0, 1, 2});
}

TEST_CASE("exact targets need full equality and a collation that keeps it") {
  const auto routing = split_at("{'a': 1, 'b': 1}", {"{'a': 5, 'b': {'$minKey': 1}}"});
  CHECK(routing.target_exact(doc("{'a': 5, 'b': 'x'}"), true) == ShardIndex{1});
  CHECK(routing.target_exact(doc("{'a': 5, 'b': 'x'}"), false) == std::nullopt);
  CHECK(routing.target_exact(doc("{'a': 4, 'b': 9}"), false) == ShardIndex{0});
  CHECK(routing.target_exact(doc("{'a': 4}"), true) == std::nullopt);
  CHECK(*routing.target_document(doc("{'a': 6}")) == 1);
  CHECK(routing.target_document(doc("{'a': [6]}")).error().is(ErrorCode::shard_key_not_found));
}

TEST_CASE("a hashed key targets by hash") {
  ShardKeyPattern key = pattern("{'_id': 'hashed'}");
  ChunkMap chunks = ChunkMap::even_hashed(key, 3);
  const CollectionRouting routing{"db.c", std::move(key), false, std::move(chunks), 0};
  // MongoDB's hashes; the outer thirds begin at about ±3.07e18.
  CHECK(routing.target_exact(doc("{'_id': 0}"), true) == ShardIndex{2});  // 4854801880128277513
  CHECK(routing.target_exact(doc("{'_id': 3}"), true) == ShardIndex{1});  // -1529429926180645992
  CHECK(routing.target_exact(doc("{'_id': 6}"), true) == ShardIndex{0});  // -6504342592125989714
  CHECK(*routing.target_document(doc("{'_id': 3.0}")) == 1);
  CHECK(list(*routing.target_filter(doc("{'_id': {'$in': [0, 6]}}"), true)) ==
        std::vector<int>{0, 2});
  CHECK(list(*routing.target_filter(doc("{'_id': {'$gt': 0}}"), true)) ==
        std::vector<int>{0, 1, 2});
}

RoutingSnapshot snapshot(bool with_default) {
  RoutingParts parts;
  parts.shards = {{"s0", "mongodb://a/", 0}, {"s1", "mongodb://b/", 1}, {"s2", "mongodb://c/", 2}};
  parts.default_primary = 2;
  parts.databases = {{"zoo", 1}};
  auto users = split_at("{'a': 1}", {"{'a': 5}"});
  users.ns = "app.users";
  parts.collections.push_back(std::move(users));
  if (with_default) {
    ShardKeyPattern key = pattern("{'_id': 'hashed'}");
    ChunkMap chunks = ChunkMap::even_hashed(key, 3);
    parts.default_collection = CollectionRouting{"", std::move(key), false, std::move(chunks), 0};
  }
  return RoutingSnapshot(std::move(parts));
}

TEST_CASE("a snapshot answers by name") {
  const RoutingSnapshot table = snapshot(false);
  CHECK(table.shard_by_name("s1") == ShardIndex{1});
  CHECK(table.shard_by_name("s9") == std::nullopt);
  CHECK(table.primary_shard("zoo") == 1);
  CHECK(table.primary_shard("app") == 2);
  CHECK(table.primary_shard("never_seen") == 2);
  REQUIRE(table.collection("app.users") != nullptr);
  CHECK(table.collection("app.users")->ns == "app.users");
  CHECK(table.collection("app.other") == nullptr);
  CHECK(list(table.all_shards()) == std::vector<int>{0, 1, 2});
  REQUIRE(table.databases().size() == 2);
  CHECK(table.databases()[0].name == "app");
  CHECK(table.databases()[1].name == "zoo");
}

TEST_CASE("the default shard key covers what is not declared and not the server's own") {
  const RoutingSnapshot table = snapshot(true);
  REQUIRE(table.default_collection() != nullptr);
  CHECK(table.collection("app.users")->ns == "app.users");
  CHECK(table.collection("app.other") == table.default_collection());
  CHECK(table.collection("x.a.b.c") == table.default_collection());
  for (const char* ns :
       {"app.system.views", "admin.x", "config.settings", "local.x", "app", "app."}) {
    INFO(ns);
    CHECK(table.collection(ns) == nullptr);
  }
}

TEST_CASE("a namespace splits at its first dot") {
  CHECK(split_namespace("a.b.c").db == "a");
  CHECK(split_namespace("a.b.c").collection == "b.c");
  CHECK(split_namespace("a").collection.empty());
}

}  // namespace
}  // namespace spillway::catalog
