#include "proxy/shard/server_description.h"

#include <catch2/catch.hpp>

#include "cursor/bson_writer.h"

using namespace spillway;
using namespace spillway::shard;

namespace {
Result<ServerDescription> describe(std::string_view text) {
  const BsonDoc document = BsonDoc::from_json(text).value();
  return describe_server(document, TimePoint());
}
BuildInfo build(std::string_view text) {
  const BsonDoc document = BsonDoc::from_json(text).value();
  return describe_build(document);
}
}  // namespace

TEST_CASE("the kinds of servers") {
  CHECK(describe(R"({"ok": 1, "ismaster": true, "maxWireVersion": 8})")->type ==
        ServerType::standalone);
  const auto type = [](std::string_view fields) {
    return describe(R"({"ok": 1.0, "maxWireVersion": 21, "setName": "rs", )" + std::string(fields) +
                    "}")
        ->type;
  };
  CHECK(type(R"("isWritablePrimary": true)") == ServerType::rs_primary);
  CHECK(type(R"("ismaster": true)") == ServerType::rs_primary);
  CHECK(type(R"("secondary": true)") == ServerType::rs_secondary);
  CHECK(type(R"("secondary": true, "hidden": true)") == ServerType::rs_other);
  CHECK(type(R"("arbiterOnly": true)") == ServerType::rs_arbiter);
  CHECK(type(R"("ismaster": false)") == ServerType::rs_other);
  CHECK(describe(R"({"ok": 1, "isreplicaset": true, "maxWireVersion": 8})")->type ==
        ServerType::rs_other);
}

TEST_CASE("a date that no clock shows is bounded, so that dates may be subtracted") {
  const auto date_of = [](std::string_view date) {
    return describe(fmt::format(R"({{"ok": 1, "ismaster": true, "setName": "rs", "maxWireVersion": 17,
        "lastWrite": {{"lastWriteDate": {{"$date": {{"$numberLong": "{}"}}}}}}}})", date))->last_write_ms;
  };
  CHECK(date_of("-9223372036854775808") == 0);
  CHECK(date_of("9223372036854775807") == std::int64_t{1} << 53);
}

TEST_CASE("a member tells about its set") {
  const auto server = describe(
      R"({"ok": 1, "helloOk": true, "ismaster": true, "setName": "rs", "setVersion": 3, "me": "A:1",
          "hosts": ["A:1", "b:2", "b:2", "nonsense:port"], "passives": ["c:3"], "arbiters": ["d:4"],
          "tags": {"dc": "ny"}, "minWireVersion": 0, "maxWireVersion": 17,
          "electionId": {"$oid": "0000000000000000000000aa"},
          "lastWrite": {"lastWriteDate": {"$date": {"$numberLong": "1234"}}},
          "topologyVersion": {"processId": {"$oid": "0000000000000000000000bb"}, "counter": {"$numberLong": "6"}}})");
  REQUIRE(server.has_value());
  CHECK(server->hosts == std::vector<HostAddress>{{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}});
  CHECK(*server->me == HostAddress{"a", 1});
  CHECK(server->tags == ReadPreference::TagSet{{"dc", "ny"}});
  CHECK(server->max_wire_version == 17);
  CHECK(server->last_write_ms == 1234);
  CHECK(server->election_id->back() == 0xaa);
  CHECK(*server->set_version == 3);
  CHECK(server->hello_ok);
  REQUIRE(server->topology_version);
  TopologyVersion error = *server->topology_version;
  CHECK(error.not_after(*server->topology_version));
  ++error.counter;
  CHECK_FALSE(error.not_after(*server->topology_version));
}

TEST_CASE("servers that cannot be shards") {
  const auto router =
      describe(R"({"ok": 1, "ismaster": true, "msg": "isdbgrid", "maxWireVersion": 21})");
  REQUIRE(router.has_error());
  CHECK(router.error().is(ErrorCode::illegal_operation));
  CHECK(router.error().message.find("router") != std::string::npos);
  CHECK(describe(R"({"ok": 1, "ismaster": true, "maxWireVersion": 5})")
            .error()
            .is(ErrorCode::protocol_error));
  const auto failed = describe(R"({"ok": 0, "code": 18, "errmsg": "no"})");
  CHECK(failed.error().code == 18);
}

TEST_CASE("buildInfo tells the kind of program") {
  const BuildInfo mongod =
      build(R"({"ok": 1, "version": "7.0.1", "storageEngines": ["wiredTiger"]})");
  CHECK(mongod.offers_sort_key);
  CHECK_FALSE(mongod.ferretdb);
  const BuildInfo ferret = build(
      R"({"ok": 1, "version": "7.0.42", "storageEngines": [], "ferretdbVersion": "v1.24.0"})");
  CHECK_FALSE(ferret.offers_sort_key);
  CHECK(ferret.ferretdb);
  const BuildInfo java = build(R"({"ok": 1, "version": "5.0.0", "bits": 64})");
  CHECK_FALSE(java.offers_sort_key);
  CHECK_FALSE(java.ferretdb);
  CHECK(build(R"({"ok": 0, "code": 13, "errmsg": "Command buildInfo requires authentication"})").offers_sort_key);
  CHECK_FALSE(build(R"({"ok": 0, "code": 59})").offers_sort_key);
}
