#include "proxy/wire/cursor_reply.h"

#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {

TEST_CASE("a_cursor_reply_is_read") {
  const BsonDoc reply = doc(
      R"({"cursor": {"firstBatch": [{"_id": 1}, {"_id": 2}], "partialResultsReturned": true,
                     "id": {"$numberLong": "77"}, "ns": "d.c",
                     "postBatchResumeToken": {"_data": "x"},
                     "atClusterTime": {"$timestamp": {"t": 5, "i": 1}}},
          "ok": 1, "operationTime": {"$timestamp": {"t": 5, "i": 2}},
          "$clusterTime": {"clusterTime": {"$timestamp": {"t": 5, "i": 2}}}})");
  const Result<CursorReply> parsed = parse_cursor_reply(reply);
  REQUIRE(parsed);
  CHECK(parsed->id == 77);
  CHECK(load_le<std::int64_t>(reply.view().data() + parsed->id_offset) == 77);
  CHECK(parsed->ns == "d.c");
  CHECK(parsed->batch_name == "firstBatch");
  CHECK(parsed->batch.count() == 2);
  CHECK(reply.view().data() + parsed->batch_offset == parsed->batch.data());
  CHECK(parsed->partial_results_returned);
  CHECK(parsed->cursor.find("ns").as_string() == "d.c");
  CHECK(parsed->post_batch_resume_token.is_document());
  CHECK(parsed->at_cluster_time.type == BsonType::timestamp);
  CHECK(parsed->operation_time.type == BsonType::timestamp);
  CHECK(parsed->cluster_time.is_document());
  CHECK_FALSE(parsed->recovery_token.exists());
}

TEST_CASE("a_known_cursor_is_read_without_the_fields_beside_it") {
  const BsonDoc reply =
      doc(R"({"ok": 1, "cursor": {"id": {"$numberLong": "7"}, "ns": "d.c", "firstBatch": [{"_id": 1}]}})");
  const DocView cursor = reply.view()["cursor"].as_document();
  const Result<CursorReply> whole = parse_cursor_reply(reply);
  const Result<CursorReply> known = parse_cursor(reply, cursor);
  REQUIRE(known);
  CHECK(known->id == 7);
  CHECK(known->id_offset == whole->id_offset);
  CHECK(known->batch_offset == whole->batch_offset);
  CHECK(known->batch.data() == whole->batch.data());
  CHECK(known->cursor.data() == cursor.data());
  const BsonDoc empty = doc(R"({"ok": 1, "cursor": {"ns": "d.c"}})");
  CHECK(code_of(parse_cursor(empty, empty.view()["cursor"].as_document())) == 9);
}

TEST_CASE("fields_come_in_any_order_and_the_id_may_be_an_int32") {
  const BsonDoc reply = doc(R"({"ok": 1.0, "cursor": {"id": 0, "ns": "d.c", "nextBatch": []}})");
  const Result<CursorReply> parsed = parse_cursor_reply(reply);
  REQUIRE(parsed);
  CHECK(parsed->id == 0);
  CHECK(parsed->id_offset == 0);
  CHECK(parsed->batch_name == "nextBatch");
  CHECK(parsed->batch.empty());
  CHECK_FALSE(parsed->partial_results_returned);
}

TEST_CASE("what_is_no_cursor_reply_is_an_error") {
  const auto code = [](std::string_view json) { return code_of(parse_cursor_reply(doc(json))); };
  CHECK(code(R"({"n": 1, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": 5, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": 0, "ns": "d.c"}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"ns": "d.c", "firstBatch": []}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": "x", "firstBatch": []}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": 0, "firstBatch": {}}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": 0, "firstBatch": [], "nextBatch": []}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": 0, "firstBatch": [], "ns": 5}, "ok": 1})") == 9);
  CHECK(code(R"({"cursor": {"id": 0, "firstBatch": []}})") == 8);  // without ok it has failed
}

TEST_CASE("a_failed_reply_becomes_its_error") {
  const BsonDoc reply = doc(
      R"({"ok": 0, "errmsg": "E11000 duplicate", "code": 11000, "codeName": "DuplicateKey",
          "keyPattern": {"a": 1}, "errorLabels": ["RetryableWriteError", "Other"],
          "operationTime": {"$timestamp": {"t": 5, "i": 2}}, "$clusterTime": {}})");
  const Result<CursorReply> parsed = parse_cursor_reply(reply);
  REQUIRE_FALSE(parsed.has_value());
  const Error& error = parsed.error();
  CHECK(error.code == 11000);
  CHECK(error.message == "E11000 duplicate");
  CHECK(error.labels == std::vector<std::string>{"RetryableWriteError", "Other"});
  const DocView extra = DocView::trusted(error.extra.data());
  CHECK(extra.size() == error.extra.size());
  CHECK(extra.count() == 1);
  CHECK(extra.find("keyPattern").is_document());
}

TEST_CASE("an_error_without_code_or_with_a_silly_one_is_unknown") {
  CHECK(error_from_reply(doc(R"({"ok": 0})")).code == 8);
  CHECK(error_from_reply(doc(R"({"ok": 0, "code": "x"})")).code == 8);
  CHECK(error_from_reply(doc(R"({"ok": 0, "code": 0})")).code == 8);
  CHECK(error_from_reply(doc(R"({"ok": 0, "code": {"$numberLong": "4294967297"}})")).code == 8);
  CHECK_FALSE(error_from_reply(doc(R"({"ok": 0})")).message.empty());
  CHECK(error_from_reply(doc(R"({"ok": 0})")).extra.empty());
}

TEST_CASE("ok_is_a_number_or_a_boolean") {
  CHECK(reply_is_ok(doc(R"({"ok": 1.0})")));
  CHECK(reply_is_ok(doc(R"({"ok": 1})")));
  CHECK(reply_is_ok(doc(R"({"ok": true})")));
  CHECK_FALSE(reply_is_ok(doc(R"({"ok": 0.0})")));
  CHECK_FALSE(reply_is_ok(doc(R"({"ok": "1"})")));
  CHECK_FALSE(reply_is_ok(doc(R"({})")));
}

}  // namespace spillway::wire
