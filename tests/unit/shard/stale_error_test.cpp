#include "proxy/shard/stale_error.h"

#include <catch2/catch.hpp>

#include "cursor/bson_writer.h"

using namespace spillway;
using namespace spillway::shard;

namespace {
BsonDoc doc(std::string_view text) { return BsonDoc::from_json(text).value(); }
std::string text_of(ValueView value) { return value.exists() ? to_json(value) : std::string("-"); }
}  // namespace

TEST_CASE("a write error of 4.2 has its versions in errInfo") {
  // Recorded.
  const BsonDoc error = doc(R"({"index": 0, "code": 63, "errInfo": {"ns": "rec.r",
      "vReceived": {"$timestamp": {"t": 2, "i": 0}}, "vReceivedEpoch": {"$oid": "6b00fd5563155124ad7bdb82"},
      "vWanted": {"$timestamp": {"t": 0, "i": 0}}, "vWantedEpoch": {"$oid": "6b00fd5563155124ad7bdb82"}},
      "errmsg": "this shard no longer contains chunks for rec.r, the collection may have been dropped"})");
  const StaleError stale = classify_error(error);
  CHECK(stale.kind == StaleKind::stale_config);
  CHECK(stale.code == 63);
  CHECK(stale.ns == "rec.r");
  REQUIRE(stale.received.version.type == BsonType::timestamp);
  CHECK(load_le<std::uint32_t>(stale.received.version.bytes.data() + 4) == 2);
  CHECK(stale.received.epoch == error.view().find_path("errInfo.vReceivedEpoch"));
  CHECK(stale.received.epoch.type == BsonType::object_id);
  CHECK(stale.wanted.exists());
  CHECK(stale.wanted.epoch == stale.received.epoch);
  CHECK_FALSE(stale.wanted.timestamp.exists());
}

TEST_CASE("a stale database of 4.2") {
  // Recorded: the shard does not know its version.
  const BsonDoc reply = doc(R"({"operationTime": {"$timestamp": {"t": 1795226966, "i": 76}}, "ok": 0.0,
      "errmsg": "don't know dbVersion", "code": 249, "codeName": "StaleDbVersion", "db": "rec",
      "vReceived": {"uuid": {"$binary": {"base64": "g4xBP0OkS3aWfIzItC4yNw==", "subType": "04"}}, "lastMod": 1}})");
  const StaleError stale = classify_error(reply);
  CHECK(stale.kind == StaleKind::stale_database);
  CHECK(stale.code == 249);
  CHECK(stale.ns == "rec");
  REQUIRE(stale.received.version.type == BsonType::document);
  CHECK(stale.received.version.as_document()["lastMod"].to_int64() == 1);
  CHECK_FALSE(stale.wanted.exists());
}

TEST_CASE("a collection that must not be created implicitly") {
  // Recorded.
  const BsonDoc error = doc(R"({"index": 0, "code": 227, "ns": "rec.u",
      "errmsg": "request doesn't allow collection to be created implicitly"})");
  const StaleError stale = classify_error(error);
  CHECK(stale.kind == StaleKind::cannot_implicitly_create);
  CHECK(stale.ns == "rec.u");
  CHECK_FALSE(stale.received.exists());
}

TEST_CASE("versions as each server version writes them") {
  struct Case {
    const char* fields;
    const char* received;
    const char* epoch;
    const char* timestamp;
    const char* wanted;
  };
  const Case each = GENERATE(values<Case>({
      // 4.2, 4.4
      {R"("vReceived": {"$timestamp": {"t": 1, "i": 2}}, "vReceivedEpoch": {"$oid": "000000000000000000000001"})",
       R"({ "$timestamp" : { "t" : 1, "i" : 2 } })", R"({ "$oid" : "000000000000000000000001" })", "-", "-"},
      // 5.0
      {R"("vReceived": {"$timestamp": {"t": 1, "i": 2}}, "vReceivedEpoch": {"$oid": "000000000000000000000001"},
          "vReceivedTimestamp": {"$timestamp": {"t": 9, "i": 0}}, "vWanted": {"$timestamp": {"t": 3, "i": 0}})",
       R"({ "$timestamp" : { "t" : 1, "i" : 2 } })", R"({ "$oid" : "000000000000000000000001" })",
       R"({ "$timestamp" : { "t" : 9, "i" : 0 } })", R"({ "$timestamp" : { "t" : 3, "i" : 0 } })"},
      // 6.0 and later
      {R"("vReceived": {"e": 1, "t": 2, "v": 3}, "vWanted": {"e": 1, "t": 2, "v": 4})",
       R"({ "e" : 1, "t" : 2, "v" : 3 })", "-", "-", R"({ "e" : 1, "t" : 2, "v" : 4 })"},
      {R"("vReceived": {"e": 1, "t": 2, "v": 3})", R"({ "e" : 1, "t" : 2, "v" : 3 })", "-", "-", "-"},
  }));
  const std::string details = std::string(R"("ns": "d.c", "shardId": "s1", )") + each.fields;
  const std::string documents[] = {
      R"({"ok": 0, "errmsg": "x", "code": 13388, "codeName": "StaleConfig", )" + details + "}",
      R"({"index": 3, "code": 13388, "errmsg": "x", )" + details + "}",
      R"({"index": 3, "code": 63, "errInfo": {)" + details + R"(}, "errmsg": "x"})",
      R"({"ok": 0, "errmsg": "x", "code": 150, "codeName": "StaleEpoch", )" + details + "}"};
  for (const std::string& text : documents) {
    CAPTURE(text);
    const BsonDoc error = doc(text);
    const StaleError stale = classify_error(error);
    CHECK(stale.kind == StaleKind::stale_config);
    CHECK(stale.ns == "d.c");
    CHECK(text_of(stale.received.version) == each.received);
    CHECK(text_of(stale.received.epoch) == each.epoch);
    CHECK(text_of(stale.received.timestamp) == each.timestamp);
    CHECK(text_of(stale.wanted.version) == each.wanted);
  }
}

TEST_CASE("stale errors that say little") {
  const BsonDoc short_error = doc(R"({"ok": 0, "code": 150, "errmsg": "epoch mismatch"})");
  StaleError stale = classify_error(short_error);
  CHECK(stale.kind == StaleKind::stale_config);
  CHECK(stale.ns.empty());
  CHECK_FALSE(stale.received.exists());
  const BsonDoc cannot_refresh = doc(R"({"ok": 0, "code": 343, "errmsg": "x", "ns": "d.c"})");
  stale = classify_error(cannot_refresh);
  CHECK(stale.kind == StaleKind::cannot_refresh);
  CHECK(stale.ns == "d.c");
  // Wrong types are as good as nothing.
  const BsonDoc wrong_types = doc(R"({"ok": 0, "code": 13388.0, "ns": 5, "errInfo": [1], "resolvedView": "v"})");
  stale = classify_error(wrong_types);
  CHECK(stale.kind == StaleKind::stale_config);
  CHECK(stale.ns.empty());
  CHECK_FALSE(stale.resolved_view.exists());
  const BsonDoc no_database = doc(R"({"ok": 0, "code": 249, "ns": "d.c"})");
  stale = classify_error(no_database);
  CHECK(stale.ns.empty());
}

TEST_CASE("a view on a shard") {
  const BsonDoc reply = doc(R"({"ok": 0, "code": 169, "errmsg": "x", "codeName":
      "CommandOnShardedViewNotSupportedOnMongod", "resolvedView": {"ns": "d.c", "pipeline": [{"$match": {"a": 1}}],
      "collation": {"locale": "fr"}}})");
  const StaleError stale = classify_error(reply);
  CHECK(stale.kind == StaleKind::view);
  REQUIRE(stale.resolved_view.type == BsonType::document);
  CHECK(stale.resolved_view.as_document()["ns"].as_string() == "d.c");
  CHECK_FALSE(classify_error(doc(R"({"ok": 0, "code": 26, "resolvedView": {"ns": "d.c"}})")).resolved_view.exists());
}

TEST_CASE("what is no stale error") {
  CHECK(classify_error(doc(R"({"ok": 0, "code": 26, "errmsg": "ns not found", "ns": "d.c"})")).kind == StaleKind::none);
  CHECK(classify_error(doc(R"({"ok": 0, "code": 26})")).code == 26);
  CHECK(classify_error(doc(R"({"ok": 0})")).kind == StaleKind::none);
  CHECK(classify_error(doc("{}")).kind == StaleKind::none);
  CHECK(classify_error(doc(R"({"ok": 0, "code": "13388"})")).kind == StaleKind::none);
  CHECK(classify_error(doc(R"({"ok": 0, "code": -63})")).kind == StaleKind::none);
  // A successful reply may hold any field.
  CHECK(classify_error(doc(R"({"ok": 1, "code": 63})")).kind == StaleKind::none);
  CHECK(classify_error(doc(R"({"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 63}]})")).code == 0);
}
