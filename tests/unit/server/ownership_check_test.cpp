#include "proxy/server/reload/ownership_check.h"

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
  databases: [{name: app, primary: s1}]
)";

// app.c, split at "m": the lower half on `low`, the upper on `high`.
std::string split_at_m(const std::string& low, const std::string& high) {
  return std::string(head) + R"(
  collections:
    - ns: app.c
      key: {k: 1}
      chunks:
        - {min: {k: {$minKey: 1}}, max: {k: "m"}, shard: )" +
         low + R"(}
        - {min: {k: "m"}, max: {k: {$maxKey: 1}}, shard: )" +
         high + "}\n";
}

Result<void> start(Shards& shards, const std::string& yaml) {
  FakeWorker worker(test::routing_of(yaml), [&shards](std::uint16_t shard, DocView command) {
    return shards.answer(shard, command);
  });
  return worker.run(check_ownership_at_start(worker.context));
}

}  // namespace

TEST_CASE("the_first_start_keeps_the_routing_and_later_ones_compare") {
  Shards shards;
  REQUIRE(start(shards, split_at_m("s0", "s1")).has_value());
  REQUIRE(shards.documents[{1, "spillway.routing"}].size() == 1);  // on the database's primary
  CHECK(shards.documents[{0, "spillway.routing"}].empty());
  CHECK(shards.documents[{1, "spillway.routing"}][0].view()["_id"].as_string() == "app.c");
  CHECK(shards.writes == 1);

  CHECK(start(shards, split_at_m("s0", "s1")).has_value());
  CHECK(shards.writes == 1);

  const auto moved = start(shards, split_at_m("s1", "s1"));
  REQUIRE(moved.has_error());
  CHECK(moved.error().is(ErrorCode::illegal_operation));
  CHECK(moved.error().message.find("app.c") != std::string::npos);
  CHECK(moved.error().message.find("$minKey") != std::string::npos);
  CHECK(shards.writes == 1);
  CHECK(start(shards, split_at_m("s0", "s1")).has_value());  // a refusal changes nothing
}

TEST_CASE("what_is_kept_can_be_stored_by_every_shard") {
  Shards shards;
  const std::string yaml = std::string(head) + R"(
  collections:
    - {ns: app.deep, key: {a.b: hashed}}
)";
  REQUIRE(start(shards, yaml).has_value());
  REQUIRE(shards.documents[{1, "spillway.routing"}].size() == 1);
  // No MinKey, no MaxKey, and no field with a dot.
  for (const Element& field : shards.documents[{1, "spillway.routing"}][0].view()) {
    INFO(field.name);
    CHECK(field.name.find('.') == std::string_view::npos);
    const bool plain = field.is_string() || field.is_array() || field.type == BsonType::int64 ||
                       field.type == BsonType::binary;
    CHECK(plain);
  }
  CHECK(start(shards, yaml).has_value());
  CHECK(shards.writes == 1);
}

TEST_CASE("a_fingerprint_that_is_old_but_agrees_is_replaced") {
  Shards shards;
  REQUIRE(start(shards, split_at_m("s0", "s1")).has_value());
  BsonDoc& kept = shards.documents[{1, "spillway.routing"}][0];
  const std::int64_t right = kept.view()["fingerprint"].as_int64();
  BsonWriter old;
  for (const Element& field : kept.view()) {
    if (field.name == "fingerprint") {
      old.append("fingerprint", right + 1);
    } else {
      old.append_element(field);
    }
  }
  kept = std::move(old).finish();
  CHECK(start(shards, split_at_m("s0", "s1")).has_value());
  CHECK(shards.documents[{1, "spillway.routing"}][0].view()["fingerprint"].as_int64() == right);
}

TEST_CASE("two_that_start_at_once_compare_with_each_other") {
  struct Case {
    const char* low;
    bool agrees;
  };
  for (const Case& c : {Case{"s0", true}, Case{"s1", false}}) {
    INFO(c.low);
    Shards shards;
    // Between our read and our write another process keeps its table.
    shards.before_write = [&shards] { REQUIRE(start(shards, split_at_m("s0", "s1")).has_value()); };
    const auto started = start(shards, split_at_m(c.low, "s1"));
    CHECK(started.has_value() == c.agrees);
    CHECK(shards.documents[{1, "spillway.routing"}].size() == 1);
  }
}

TEST_CASE("a_shard_of_a_cluster_is_refused") {
  Shards shards;
  shards.documents[{1, "admin.system.version"}].push_back(
      doc("{'_id': 'shardIdentity', 'clusterId': 'c1', 'shardName': 'x'}"));
  const auto started = start(shards, head);
  REQUIRE(started.has_error());
  CHECK(started.error().is(ErrorCode::illegal_operation));
  CHECK(started.error().message.find("'s1'") != std::string::npos);
  CHECK(started.error().message.find("shardIdentity") != std::string::npos);

  Shards harmless;
  harmless.documents[{1, "admin.system.version"}].push_back(
      doc("{'_id': 'featureCompatibilityVersion', 'version': '7.0'}"));
  CHECK(start(harmless, head).has_value());
}

TEST_CASE("a_refused_table_is_kept_nowhere_and_many_shards_are_all_asked") {
  std::string yaml = "routing:\n  defaultShardKey: {_id: hashed}\n  shards:\n";
  constexpr int count = 150;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    yaml += "    - {name: s" + n + ", uri: \"mongodb://127.0.0.1:" + std::to_string(27'018 + i) + "/\"}\n";
  }
  Shards shards;
  shards.documents[{count - 1, "admin.system.version"}].push_back(doc("{'_id': 'shardIdentity', 'clusterId': 'c1'}"));
  const auto started = start(shards, yaml);
  REQUIRE(started.has_error());
  CHECK(started.error().message.find("'s149'") != std::string::npos);
  CHECK(shards.writes == 0);
  shards.documents[{count - 1, "admin.system.version"}].clear();
  CHECK(start(shards, yaml).has_value());
  CHECK(shards.writes == 1);
}

TEST_CASE("the_default_shard_key_is_kept_under_a_name_of_its_own") {
  Shards shards;
  const std::string yaml = std::string(head) + "  defaultShardKey: {_id: hashed}\n";
  REQUIRE(start(shards, yaml).has_value());
  REQUIRE(shards.documents[{0, "spillway.routing"}].size() == 1);
  CHECK(shards.documents[{0, "spillway.routing"}][0].view()["_id"].as_string() == "*");
  CHECK(start(shards, std::string(head) + "  defaultShardKey: {a: hashed}\n").has_error());
  CHECK(start(shards, yaml).has_value());
}

TEST_CASE("shards_that_cannot_answer_are_skipped") {
  SECTION("no primary is known: nothing is sent") {
    FakeWorker worker(test::routing_of(split_at_m("s0", "s1")),
                      [](std::uint16_t shard, DocView) -> Result<BsonDoc> {
                        CHECK(shard == 0);
                        return Shards::find({}, DocView(), "admin.system.version");
                      });
    worker.gateway.states()[1].hosts.front().primary = false;
    CHECK(worker.run(check_ownership_at_start(worker.context)).has_value());
    CHECK(worker.gateway.sent.size() > 0);
  }
  SECTION("the connection breaks") {
    FakeWorker worker(test::routing_of(split_at_m("s0", "s1")),
                      [](std::uint16_t, DocView) -> Result<BsonDoc> {
                        return Error(ErrorCode::host_unreachable, "gone");
                      });
    CHECK(worker.run(check_ownership_at_start(worker.context)).has_value());
  }
  SECTION("reading is not allowed") {
    FakeWorker worker(test::routing_of(split_at_m("s0", "s1")),
                      [](std::uint16_t, DocView) -> Result<BsonDoc> {
                        return doc("{'ok': 0.0, 'code': 13, 'errmsg': 'not allowed'}");
                      });
    CHECK(worker.run(check_ownership_at_start(worker.context)).has_value());
  }
}

TEST_CASE("a_fingerprint_that_cannot_be_read_is_refused") {
  Shards shards;
  shards.documents[{1, "spillway.routing"}].push_back(doc("{'_id': 'app.c', 'key': 'none'}"));
  const auto started = start(shards, split_at_m("s0", "s1"));
  REQUIRE(started.has_error());
  CHECK(started.error().is(ErrorCode::failed_to_parse));
}

}  // namespace spillway::server
