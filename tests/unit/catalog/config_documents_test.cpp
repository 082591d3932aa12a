#include "proxy/catalog/config_documents.h"

#include "catalog_support.h"
#include "tests/support/routing_text.h"

namespace spillway::catalog {
namespace {

using test::doc;

std::shared_ptr<const RoutingSnapshot> table() {
  auto loaded = spillway::test::load_routing(R"(routing:
  shards:
    - {name: s0, uri: "mongodb://u:p@127.0.0.1:27018,127.0.0.1/?replicaSet=rs0&tls=false"}
    - {name: s1, uri: "mongodb://[::1]"}
  databases: [{name: zoo, primary: s1}]
  collections:
    - {ns: app.users, key: {_id: hashed}}
    - ns: app.orders
      key: {n: 1}
      unique: true
      chunks:
        - {min: {n: {$minKey: 1}}, max: {n: 5}, shard: s1}
        - {min: {n: 5}, max: {n: {$maxKey: 1}}, shard: s0}
)",
                                    "f");
  REQUIRE(loaded.has_value());
  return *loaded;
}

ConfigReadParams params() {
  ConfigReadParams out;
  out.host = "host:27017";
  out.mongo_version = "5.0.0";
  out.cluster_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  out.start_time_ms = 1'000'000;
  out.now_ms = 1'065'500;
  return out;
}

std::vector<BsonDoc> read(std::string_view collection) {
  std::vector<BsonDoc> documents;
  REQUIRE(visit_config_documents(collection, *table(), params(), [&](BsonDoc document) {
    CHECK(document.view().validate().has_value());
    documents.push_back(std::move(document));
    return true;
  }));
  return documents;
}

TEST_CASE("every listed collection is made, others are not") {
  for (const std::string_view name : config_collection_names()) {
    INFO(name);
    CHECK(read(name).empty() == (name == "tags"));
  }
  CHECK_FALSE(visit_config_documents("system.sessions", *table(), params(), [](BsonDoc) { return true; }));
}

TEST_CASE("config.shards shows hosts as replica sets write them") {
  const auto shards = read("shards");
  REQUIRE(shards.size() == 2);
  CHECK(shards[0].view()["_id"].as_string() == "s0");
  CHECK(shards[0].view()["host"].as_string() == "rs0/127.0.0.1:27018,127.0.0.1:27017");
  CHECK(shards[1].view()["host"].as_string() == "[::1]:27017");
  CHECK(shards[0].view()["state"].as_int32() == 1);
}

TEST_CASE("config.databases names primaries") {
  const auto databases = read("databases");
  REQUIRE(databases.size() == 2);
  CHECK(databases[0].view()["_id"].as_string() == "app");
  CHECK(databases[0].view()["primary"].as_string() == "s0");
  CHECK(databases[1].view()["primary"].as_string() == "s1");
  CHECK(databases[1].view()["partitioned"].as_bool());
  CHECK(databases[1].view().find_path("version.lastMod").as_int32() == 1);
}

TEST_CASE("config.chunks belong to config.collections by ns and by uuid") {
  const auto collections = read("collections");
  REQUIRE(collections.size() == 2);
  CHECK(collections[0].view()["_id"].as_string() == "app.orders");
  CHECK(collections[0].view()["unique"].as_bool());
  CHECK_FALSE(collections[0].view()["dropped"].as_bool());
  CHECK(to_json(collections[1].view()["key"].as_document()) == to_json(doc("{'_id': 'hashed'}")));

  const auto chunks = read("chunks");
  REQUIRE(chunks.size() == 6);
  CHECK(chunks[0].view()["ns"].as_string() == "app.orders");
  CHECK(chunks[0].view()["uuid"] == collections[0].view()["uuid"]);
  CHECK(chunks[2].view()["uuid"] == collections[1].view()["uuid"]);
  CHECK_FALSE(chunks[0].view()["uuid"] == chunks[2].view()["uuid"]);
  CHECK(chunks[0].view()["lastmodEpoch"] == collections[0].view()["lastmodEpoch"]);
  CHECK(to_json(chunks[0].view()["min"]) ==
        to_json(doc("{'v': {'n': {'$minKey': 1}}}").view()["v"]));
  CHECK(to_json(chunks[0].view()["max"]) == to_json(doc("{'v': {'n': 5}}").view()["v"]));
  CHECK(chunks[0].view()["shard"].as_string() == "s1");
  CHECK(chunks[1].view()["shard"].as_string() == "s0");
  CHECK_FALSE(chunks[0].view()["_id"] == chunks[1].view()["_id"]);
}

TEST_CASE("the balancer is shown as off, the cluster has an id, the router its age") {
  const auto settings = read("settings");
  REQUIRE(settings.size() == 2);
  CHECK(settings[1].view()["_id"].as_string() == "balancer");
  CHECK(settings[1].view()["mode"].as_string() == "off");
  CHECK(settings[1].view()["stopped"].as_bool());
  const auto version = read("version");
  CHECK(version[0].view()["clusterId"].bytes[11] == 12);
  CHECK(version[0].view()["currentVersion"].as_int32() == 6);
  const auto mongos = read("mongos");
  CHECK(mongos[0].view()["_id"].as_string() == "host:27017");
  CHECK(mongos[0].view()["up"].as_int64() == 65);
  CHECK(mongos[0].view()["ping"].type == BsonType::date);
  CHECK(read("tags").empty());
}

TEST_CASE("a visitor stops the listing") {
  int visited = 0;
  CHECK(
      visit_config_documents("chunks", *table(), params(), [&](BsonDoc) { return ++visited < 3; }));
  CHECK(visited == 3);
}

TEST_CASE("a listing goes on where it was stopped") {
  for (const std::string_view name : config_collection_names()) {
    const auto all = read(name);
    for (std::size_t first = 0; first <= all.size() + 1; ++first) {
      INFO(name << " from " << first);
      std::size_t at = first;
      CHECK(visit_config_documents(
          name, *table(), params(),
          [&](BsonDoc document) {
            REQUIRE(at < all.size());
            CHECK(to_json(document) == to_json(all[at++]));
            return true;
          },
          first));
      CHECK(at == std::max(first, all.size()));
    }
  }
}

}  // namespace
}  // namespace spillway::catalog
