#include "proxy/wire/op_query.h"

#include "tests/support/op_query_client.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

ByteVector query(std::string_view json, std::string_view collection = "admin.$cmd") {
  ByteVector out;
  encode_op_query(out, 11, collection, doc(json));
  return out;
}

}  // namespace

TEST_CASE("a_legacy_hello_is_parsed") {
  const ByteVector bytes = query(R"({"isMaster": 1, "helloOk": true})");
  const Result<OpQuery> parsed = parse_op_query(bytes);
  REQUIRE(parsed);
  CHECK(parsed->collection == "admin.$cmd");
  CHECK(parsed->database() == "admin");
  CHECK(parsed->is_command());
  CHECK(parsed->skip == 0);
  CHECK(parsed->to_return == -1);
  CHECK(parsed->query["helloOk"].as_bool());
  CHECK(parse_header(bytes)->is(OpCode::query));
}

TEST_CASE("every_truncation_of_a_query_is_an_error") {
  const ByteVector bytes = query(R"({"isMaster": 1, "helloOk": true})");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteVector cut = exact(Bytes(bytes).first(size));
    REQUIRE_FALSE(parse_op_query(cut).has_value());
    if (size >= 4) {
      store_le(cut.data(), static_cast<std::int32_t>(size));
      REQUIRE_FALSE(parse_op_query(cut).has_value());
    }
  }
}

TEST_CASE("a_projection_may_follow_and_nothing_else") {
  ByteVector bytes = query(R"({"isMaster": 1})");
  const BsonDoc fields = doc(R"({"a": 1})");
  bytes.insert(bytes.end(), fields.view().data(), fields.view().data() + fields.size());
  store_le(bytes.data(), static_cast<std::int32_t>(bytes.size()));
  CHECK(parse_op_query(bytes).has_value());
  bytes.push_back(0);
  store_le(bytes.data(), static_cast<std::int32_t>(bytes.size()));
  CHECK_FALSE(parse_op_query(bytes).has_value());
}

TEST_CASE("the_query_wrapper_is_taken_off") {
  const BsonDoc wrapped =
      doc(R"({"$query": {"hello": 1}, "$readPreference": {"mode": "nearest"}})");
  CHECK(unwrap_query(wrapped).first().name == "hello");
  const BsonDoc bare = doc(R"({"hello": 1})");
  CHECK(unwrap_query(bare).data() == bare.view().data());
  const BsonDoc no_document = doc(R"({"$query": 1})");
  CHECK(unwrap_query(no_document).first().name == "$query");
}

TEST_CASE("only_hello_may_come_as_a_query") {
  for (const char* name : {"hello", "isMaster", "ismaster", "IsMaster", "ISMASTER"}) {
    CHECK(is_hello_command(doc("{\"" + std::string(name) + "\": 1}")));
  }
  for (const char* name : {"Hello", "ping", "isMasters", "ismaste", ""}) {
    CHECK_FALSE(is_hello_command(doc("{\"" + std::string(name) + "\": 1}")));
  }
  CHECK_FALSE(is_hello_command(doc("{}")));
  CHECK_FALSE(parse_op_query(query(R"({"a": 1})", "db.coll"))->is_command());
}

TEST_CASE("a_reply_has_one_document_and_await_capable") {
  ByteVector out(500, 0xee);
  encode_op_reply(out, 21, 11, doc(R"({"ok": 1})"));
  const Result<MessageHeader> header = parse_header(out);
  REQUIRE(header);
  CHECK(header->is(OpCode::reply));
  CHECK(static_cast<std::size_t>(header->message_length) == out.size());
  CHECK(header->request_id == 21);
  CHECK(header->response_to == 11);
  CHECK(load_le<std::int32_t>(out.data() + 16) == 8);
  CHECK(load_le<std::int64_t>(out.data() + 20) == 0);
  CHECK(load_le<std::int32_t>(out.data() + 28) == 0);
  CHECK(load_le<std::int32_t>(out.data() + 32) == 1);
  const Result<DocView> document = parse_op_reply(out);
  REQUIRE(document);
  CHECK(document->first().name == "ok");
  for (std::size_t size = 0; size < out.size(); ++size) {
    ByteVector cut = exact(Bytes(out).first(size));
    if (size >= 4) {
      store_le(cut.data(), static_cast<std::int32_t>(size));
    }
    REQUIRE_FALSE(parse_op_reply(cut).has_value());
  }
}

TEST_CASE("the_failure_of_a_legacy_find_is_flagged_as_one") {
  ByteVector out(500, 0xee);
  encode_query_failure(out, 21, 11, Error(ErrorCode::unsupported_op_query_command, "no finds"));
  const Result<MessageHeader> header = parse_header(out);
  REQUIRE(header);
  CHECK(header->is(OpCode::reply));
  CHECK(static_cast<std::size_t>(header->message_length) == out.size());
  CHECK(header->request_id == 21);
  CHECK(header->response_to == 11);
  CHECK(load_le<std::int32_t>(out.data() + 16) == (2 | 8));
  CHECK(load_le<std::int64_t>(out.data() + 20) == 0);
  CHECK(load_le<std::int32_t>(out.data() + 32) == 1);
  const Result<DocView> document = parse_op_reply(out);
  REQUIRE(document);
  CHECK((*document)["$err"].as_string() == "no finds");
  CHECK((*document)["code"].to_int64() == 352);
  CHECK_FALSE((*document)["ok"].exists());
}

TEST_CASE("the_cursors_of_an_op_kill_cursors_are_told") {
  ByteVector bytes(24 + 16);
  write_header(bytes.data(), {40, 1, 0, static_cast<std::int32_t>(OpCode::kill_cursors)});
  store_le(bytes.data() + 20, std::int32_t{2});
  store_le(bytes.data() + 24, std::int64_t{7});
  store_le(bytes.data() + 32, std::int64_t{-1});
  const Result<Bytes> ids = parse_op_kill_cursors(bytes);
  REQUIRE(ids.has_value());
  REQUIRE(ids->size() == 16);
  CHECK(load_le<std::int64_t>(ids->data()) == 7);
  for (const std::int32_t count : {-1, 0, 1, 3, 30'000}) {
    store_le(bytes.data() + 20, count);
    CHECK_FALSE(parse_op_kill_cursors(bytes).has_value());
  }
  for (std::size_t size = 0; size < 40; ++size) {
    ByteVector cut = exact(Bytes(bytes).first(size));
    if (size >= 4) store_le(cut.data(), static_cast<std::int32_t>(size));
    CHECK_FALSE(parse_op_kill_cursors(cut).has_value());
  }
}

}  // namespace spillway::wire
