#include "proxy/catalog/static_routing.h"

#include "catalog_support.h"
#include "tests/support/routing_text.h"

namespace spillway::catalog {
namespace {

using test::doc;
using test::list;

const std::string two_shards = R"(net: {port: 27017}
routing:
  shards:
    - {name: shard0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: shard1, uri: "mongodb://127.0.0.1:27019/"}
)";

std::shared_ptr<const RoutingSnapshot> load(const std::string& text) {
  INFO(text);
  auto loaded = spillway::test::load_routing(text, "spillway.yml");
  if (!loaded) FAIL(loaded.error().message);
  return *loaded;
}

std::string error_of(const std::string& text) {
  const auto loaded = spillway::test::load_routing(text, "spillway.yml");
  if (loaded) return "accepted";
  return loaded.error().message;
}

TEST_CASE("the example of the header is read") {
  const auto table = load(two_shards + R"(  defaultPrimary: shard0
  databases:
    - {name: app, primary: shard1}
  collections:
    - ns: app.users
      key: {_id: hashed}
    - ns: app.orders
      key: {region: 1, n: 1}
      unique: true
      chunks:
        - {min: {region: {$minKey: 1}, n: {$minKey: 1}}, max: {region: "m", n: {$minKey: 1}}, shard: shard0}
        - {min: {region: "m", n: {$minKey: 1}}, max: {region: {$maxKey: 1}, n: {$maxKey: 1}}, shard: shard1}
    - {ns: app.plain, key: {a: 1}}
  defaultShardKey: {_id: hashed}
memory: {limit: 512MiB}
)");
  REQUIRE(table->shards().size() == 2);
  CHECK(table->shards()[1].name == "shard1");
  CHECK(table->shards()[1].uri == "mongodb://127.0.0.1:27019/");
  CHECK(table->primary_shard("app") == 1);
  CHECK(table->primary_shard("other") == 0);

  const CollectionRouting* users = table->collection("app.users");
  REQUIRE(users != nullptr);
  CHECK(users->chunks.size() == 4);
  CHECK(list(users->all_shards()) == std::vector<int>{0, 1});
  const CollectionRouting* orders = table->collection("app.orders");
  REQUIRE(orders != nullptr);
  CHECK(orders->unique);
  CHECK(orders->chunks.size() == 2);
  CHECK(*orders->target_document(doc("{'region': 'z', 'n': 1}")) == 1);
  CHECK(*orders->target_document(doc("{'region': 'b', 'n': 1}")) == 0);
  const CollectionRouting* plain = table->collection("app.plain");
  REQUIRE(plain != nullptr);
  CHECK(plain->chunks.size() == 1);
  CHECK(plain->chunks.owner(0) == 1);
  CHECK(table->collection("x.y") == table->default_collection());
}

TEST_CASE("the first shard is the default primary and nothing is sharded by default") {
  const auto table = load(two_shards);
  CHECK(table->default_primary() == 0);
  CHECK(table->collection("app.users") == nullptr);
  CHECK(table->collections().empty());
}

// The upper bound of the first chunk, as loaded from its YAML form.
BsonDoc first_bound(const std::string& value) {
  const auto table = load(two_shards + R"(  collections:
    - ns: app.c
      key: {a: 1}
      chunks:
        - {min: {a: {$minKey: 1}}, max: )" +
                          value + R"(, shard: shard0}
        - {min: )" + value +
                          R"(, max: {a: {$maxKey: 1}}, shard: shard1}
)");
  return BsonDoc(table->collection("app.c")->chunks.max_bound(0));
}

TEST_CASE("bounds keep their BSON types") {
  const std::tuple<std::string, BsonType, std::string> cases[] = {
      {"{a: 5}", BsonType::int32, "{'a': 5}"},
      {"{a: \"5\"}", BsonType::string, "{'a': '5'}"},
      {"{a: '5'}", BsonType::string, "{'a': '5'}"},
      {"{a: 5000000000}", BsonType::int64, "{'a': {'$numberLong': '5000000000'}}"},
      {"{a: 1.5}", BsonType::double_, "{'a': 1.5}"},
      {"{a: eu}", BsonType::string, "{'a': 'eu'}"},
      {"{a: no}", BsonType::string, "{'a': 'no'}"},
      {"{a: true}", BsonType::boolean, "{'a': true}"},
      {"{a: null}", BsonType::null, "{'a': null}"},
      {"{a: {x: 1, y: z}}", BsonType::document, "{'a': {'x': 1, 'y': 'z'}}"},
      {"{a: {$numberLong: 5}}", BsonType::int64, "{'a': {'$numberLong': '5'}}"},
      {"{a: {$numberLong: \"5\"}}", BsonType::int64, "{'a': {'$numberLong': '5'}}"},
      {"{a: {$numberInt: 5}}", BsonType::int32, "{'a': 5}"},
      {"{a: {$numberDouble: 5}}", BsonType::double_, "{'a': {'$numberDouble': '5'}}"},
      {"{a: {$numberDecimal: 1.5}}", BsonType::decimal128, "{'a': {'$numberDecimal': '1.5'}}"},
      {"{a: {$oid: 000000000000000000000001}}", BsonType::object_id,
       "{'a': {'$oid': '000000000000000000000001'}}"},
      {"{a: {$date: 2024-01-02T03:04:05Z}}", BsonType::date,
       "{'a': {'$date': {'$numberLong': '1704164645000'}}}"},
      {"{a: {$date: {$numberLong: 7}}}", BsonType::date, "{'a': {'$date': {'$numberLong': '7'}}}"},
      {"{a: {$date: 7}}", BsonType::date, "{'a': {'$date': {'$numberLong': '7'}}}"},
      {"{a: {$timestamp: {t: 5, i: 6}}}", BsonType::timestamp,
       "{'a': {'$timestamp': {'t': 5, 'i': 6}}}"},
      {"{a: {$uuid: 00010203-0405-0607-0809-0a0b0c0d0e0f}}", BsonType::binary,
       "{'a': {'$binary': {'base64': 'AAECAwQFBgcICQoLDA0ODw==', 'subType': '04'}}}"},
      {"{a: {$binary: {base64: AAEC, subType: 00}}}", BsonType::binary,
       "{'a': {'$binary': {'base64': 'AAEC', 'subType': '00'}}}"},
      {R"('{"a": {"$numberLong": "5"}}')", BsonType::int64, "{'a': {'$numberLong': '5'}}"},
      {R"('{"a": "x"}')", BsonType::string, "{'a': 'x'}"},
  };
  for (const auto& [yaml, type, json] : cases) {
    INFO(yaml);
    const BsonDoc bound = first_bound(yaml);
    CHECK(bound.view()["a"].type == type);
    CHECK(bound.view()["a"] == doc(json).view()["a"]);
  }
}

struct ErrorCase {
  std::string text;  // after two_shards, whose last line is 5
  int line;
  std::string message;
};

TEST_CASE("what is wrong is named with its line") {
  const std::string orders = "  collections:\n    - ns: app.orders\n      key: {a: 1}\n";
  const std::string chunk0 = "        - {min: {a: {$minKey: 1}}, max: {a: 5}, shard: shard0}\n";
  const std::string chunks = orders + "      chunks:\n" + chunk0;
  const ErrorCase cases[] = {
      {"  colections: []\n", 6,
       "unknown key 'colections' in routing (did you mean 'collections'?)"},
      {"  shards: []\n", 6, "key 'shards' stands twice"},
      {"  defaultPrimary: shrad1\n", 6, "unknown shard 'shrad1' (did you mean 'shard1'?)"},
      {"  databases: [{name: app, primary: x}]\n", 6, "unknown shard 'x'"},
      {"  databases: [{name: app}]\n", 6, "a database needs 'primary'"},
      {"  databases: [{name: config, primary: shard0}]\n", 6, "'config' cannot be routed"},
      {"  databases: [{name: a.b, primary: shard0}]\n", 6, "'a.b' is no name"},
      {"  databases:\n    - {name: app, primary: shard0}\n    - {name: app, primary: shard1}\n", 8,
       "database 'app' stands twice"},
      {"  databases: 5\n", 6, "'databases' must be a list"},
      {"  collections:\n    - ns: app\n      key: {a: 1}\n", 7, "must be <database>.<collection>"},
      {"  collections:\n    - ns: app.system.views\n      key: {a: 1}\n", 7, "system collection"},
      {"  collections:\n    - {ns: app.c, key: {a: 1}}\n    - {ns: app.c, key: {a: 1}}\n", 8,
       "collection 'app.c' stands twice"},
      {"  collections:\n    - ns: app.c\n      key: {a: -1}\n", 8, "Every field must be 1"},
      {"  collections:\n    - ns: app.c\n", 7, "needs 'key'"},
      {"  collections:\n    - {ns: app.c, key: {a: hashed}, unique: true}\n", 7,
       "hashed shard key cannot be unique"},
      {"  collections:\n    - {ns: app.c, key: {a: 1}, unique: maybe}\n", 7,
       "'unique' of 'app.c' must be true or false"},
      {chunks, 10, "gap: no chunk covers"},
      {chunks + "        - {min: {a: 6}, max: {a: {$maxKey: 1}}, shard: shard1}\n", 11, "gap"},
      {chunks + "        - {min: {a: 4}, max: {a: {$maxKey: 1}}, shard: shard1}\n", 11, "overlap"},
      {chunks + "        - {min: {a: 5}, max: {a: {$maxKey: 1}}, shard: shard7}\n", 11,
       "unknown shard 'shard7'"},
      {chunks + "        - {min: {b: 5}, max: {a: {$maxKey: 1}}, shard: shard1}\n", 11,
       "field 'a' is due where 'b' stands"},
      {chunks + "        - {min: {a: 5}, max: {a: {$maxKee: 1}}, shard: shard1}\n", 11,
       "unknown Extended JSON type '$maxKee' (did you mean '$maxKey'?)"},
      {chunks + "        - {min: {a: 5}, max: {a: {$maxKey: 1}}, shrd: shard1}\n", 11,
       "unknown key 'shrd' in a chunk (did you mean 'shard'?)"},
      {chunks + "        - {min: 5, max: {a: {$maxKey: 1}}, shard: shard1}\n", 11,
       "min must be a mapping or a quoted JSON document"},
      {chunks + "        - {min: '{\"a\": ', max: {a: {$maxKey: 1}}, shard: shard1}\n", 11,
       "is no Extended JSON"},
      {chunks + "        - {min: {a: {$numberLong: 5x}}, max: {a: 9}, shard: shard1}\n", 11,
       "'5x' is no $numberLong"},
      {chunks + "        - {min: {a: 99999999999999999999}, max: {a: 9}, shard: shard1}\n", 11,
       "does not fit 64 bits"},
      {orders + "      chunks: []\n", 9, "'chunks' of 'app.orders' is empty"},
      {"  defaultShardKey: {a: hash}\n", 6, "Every field must be 1"},
  };
  for (const auto& c : cases) {
    const std::string message = error_of(two_shards + c.text);
    INFO(c.text << message);
    if (!c.message.empty()) {
      CHECK_THAT(message, Catch::StartsWith("spillway.yml:" + std::to_string(c.line) + ": "));
    }
    CHECK_THAT(message, Catch::StartsWith("spillway.yml:"));
    CHECK_THAT(message, Catch::Contains(c.message));
  }
}

TEST_CASE("what is wrong with the shards is named") {
  const std::pair<std::string, std::string> cases[] = {
      {"routing: 5\n", "spillway.yml:1: routing must be a mapping"},
      {"routing: {shards: []}\n", "routing.shards is empty"},
      {"routing: {defaultPrimary: x}\n", "routing.shards is empty"},
      {"routing:\n  shards:\n    - {name: a}\n", "spillway.yml:3: shard 'a' needs 'uri'"},
      {"routing:\n  shards:\n    - {name: a, uri: 'http://x'}\n", "must start with mongodb://"},
      {"routing:\n  shards:\n    - {name: a, uri: 'mongodb://'}\n", "name a host"},
      {"routing:\n  shards:\n    - {name: config, uri: 'mongodb://x'}\n", "reserved"},
      {"routing:\n  shards:\n    - {name: a, uri: 'mongodb://x'}\n    - {name: a, uri: "
       "'mongodb://y'}\n",
       "spillway.yml:4: shard 'a' stands twice"},
      {"routing:\n  shards:\n    - {name: a, uri: 'mongodb://x'}\n    - {name: b, uri: "
       "'mongodb://x'}\n",
       "spillway.yml:4: shards 'a' and 'b' have the same uri"},
      {"routing:\n  shards:\n    - {name: a, url: 'mongodb://x'}\n", "(did you mean 'uri'?)"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    CHECK_THAT(error_of(text), Catch::Contains(message));
  }
}

TEST_CASE("every fault is reported, in the order of the file") {
  const std::string text = R"(routing:
  shards:
    - {name: shard0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: shard1, uri: "http://127.0.0.1:27019/"}
    - {nmae: shard2}
  databases:
    - {name: app, primary: shard1}
    - {name: a.b, primary: shard0}
  collections:
    - {ns: app.users, key: {_id: hashed}}
    - {ns: app.orders, key: {region: -1}}
    - {ns: app.others, key: {a: 1}, shrad: shard0}
  defaultShardKey: {_id: hash}
)";
  const StaticRouting read = spillway::test::read_routing(text, "f", {});
  CHECK(read.snapshot == nullptr);
  std::vector<std::string> messages;
  for (const Error& error : read.errors) messages.push_back(error.message);
  const std::vector<std::string> expected = {
      "f:4: uri 'http://127.0.0.1:27019/' of shard 'shard1' must start with mongodb://",
      "f:5: unknown key 'nmae' in a shard (did you mean 'name'?)",
      "f:8: 'a.b' is no name of a database",
      "f:11: key of 'app.orders': ",
      "f:12: unknown key 'shrad' in a collection",
      "f:13: defaultShardKey: ",
  };
  REQUIRE(messages.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK_THAT(messages[i], Catch::StartsWith(expected[i]));
  }
}

TEST_CASE("connection strings are checked by their parser, and named with their line") {
  const UriCheck check = [](const std::string& uri) -> Result<std::vector<std::string>> {
    if (uri.ends_with("9/")) return Error(ErrorCode::failed_to_parse, "bad port");
    return std::vector<std::string>{"no effect"};
  };
  const StaticRouting read = spillway::test::read_routing(two_shards, "f", check);
  REQUIRE(read.errors.size() == 1);
  CHECK(read.errors[0].message ==
        "f:5: uri 'mongodb://127.0.0.1:27019/' of shard 'shard1': bad port");
  CHECK(read.warnings == std::vector<std::string>{
                             "f:4: uri 'mongodb://127.0.0.1:27018/' of shard 'shard0': no effect"});
}

TEST_CASE("a ranged collection without chunks is told where its documents go") {
  const auto warnings = [](const std::string& collection) {
    return spillway::test::read_routing(two_shards + "  collections:\n    - " + collection + "\n", "f", {})
        .warnings;
  };
  REQUIRE(warnings("{ns: app.c, key: {a: 1}}").size() == 1);
  CHECK(warnings("{ns: app.c, key: {a: 1}}")[0] ==
        "f:7: collection 'app.c' has no chunks: all of its documents go to shard0");
  CHECK(warnings("{ns: app.c, key: {a: hashed}}").empty());
}

TEST_CASE("splitting a chunk keeps the fingerprint, moving one changes it") {
  const auto fingerprint = [](const std::string& chunks) {
    return load(two_shards + "  collections:\n    - ns: app.c\n      key: {a: 1}\n      chunks:\n" +
                chunks)
        ->collection("app.c")
        ->fingerprint;
  };
  const std::string tail = "        - {min: {a: 5}, max: {a: {$maxKey: 1}}, shard: shard1}\n";
  const auto whole =
      fingerprint("        - {min: {a: {$minKey: 1}}, max: {a: 5}, shard: shard0}\n" + tail);
  const auto split = fingerprint(
      "        - {min: {a: {$minKey: 1}}, max: {a: 1}, shard: shard0}\n"
      "        - {min: {a: 1}, max: {a: 5}, shard: shard0}\n" +
      tail);
  const auto moved = fingerprint(
      "        - {min: {a: {$minKey: 1}}, max: {a: 1}, shard: shard1}\n"
      "        - {min: {a: 1}, max: {a: 5}, shard: shard0}\n" +
      tail);
  CHECK(whole == split);
  CHECK(whole != moved);
}

}  // namespace
}  // namespace spillway::catalog
