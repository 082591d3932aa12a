#include "proxy/wire/op_msg.h"

#include <string>

#include "proxy/wire/crc32c.h"
#include "proxy/wire/op_msg_parser.h"
#include "tests/support/op_msg_sequence.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

void add_body(ByteVector& sections, std::string_view json) {
  sections.push_back(0);
  const BsonDoc body = doc(json);
  sections.insert(sections.end(), body.view().data(), body.view().data() + body.size());
}

void add_sequence(ByteVector& sections, std::string_view name,
                  std::initializer_list<std::string_view> documents) {
  ByteVector bytes;
  for (std::string_view json : documents) {
    const BsonDoc each = doc(json);
    bytes.insert(bytes.end(), each.view().data(), each.view().data() + each.size());
  }
  append_sequence(sections, name, bytes);
}

std::int32_t code_of_sections(const ByteVector& sections, std::uint32_t message_flags = 0) {
  return code_of(parse_op_msg(raw_message(message_flags, sections)));
}

ByteVector insert_message(bool checksum) {
  ByteVector out;
  begin_op_msg(out, 7, 3, flags::more_to_come);
  append_body(out, doc(R"({"insert": "c", "$db": "d"})"));
  const BsonDoc one = doc(R"({"_id": 1})");
  const BsonDoc two = doc(R"({"_id": 2, "s": "text"})");
  const DocView documents[] = {one, two};
  append_sequence(out, "documents", documents);
  append_sequence(out, "more", Bytes());
  finish_op_msg(out, checksum);
  return out;
}

}  // namespace

TEST_CASE("a_message_with_body_and_sequences_is_read_back") {
  const ByteVector bytes = insert_message(true);
  const Result<MessageHeader> header = parse_header(bytes);
  REQUIRE(header);
  CHECK(static_cast<std::size_t>(header->message_length) == bytes.size());
  CHECK(header->request_id == 7);
  CHECK(header->response_to == 3);
  const Result<OpMsg> parsed = parse_op_msg(bytes);
  REQUIRE(parsed);
  CHECK(parsed->has_flag(flags::checksum_present));
  CHECK(parsed->has_flag(flags::more_to_come));
  CHECK_FALSE(parsed->has_flag(flags::exhaust_allowed));
  CHECK(parsed->body.first().name == "insert");
  REQUIRE(parsed->sequences.size() == 2);
  const DocSequence* documents = parsed->sequence("documents");
  REQUIRE(documents != nullptr);
  CHECK(documents->count == 2);
  std::vector<std::int32_t> ids;
  for (DocView each : *documents) {
    ids.push_back(each["_id"].as_int32());
  }
  CHECK(ids == std::vector<std::int32_t>{1, 2});
  REQUIRE(parsed->sequence("more") != nullptr);
  CHECK(parsed->sequence("more")->count == 0);
  CHECK(parsed->sequence("more")->begin() == parsed->sequence("more")->end());
  CHECK(parsed->sequence("other") == nullptr);
}

TEST_CASE("a_message_is_read_step_by_step") {
  const bool checksum = GENERATE(true, false);
  ByteVector message = insert_message(checksum);
  OpMsgParser parser(message);
  std::size_t steps = 1;
  for (;; ++steps) {
    const auto stepped = parser.step(10, 1);
    REQUIRE(stepped.has_value());
    if (*stepped) break;
    REQUIRE(steps < 100);
  }
  CHECK(steps >= 2 + (checksum ? message.size() / 10 : 0));
  const OpMsg read = std::move(parser).take();
  CHECK(read.sequence("documents")->count == 2);
  CHECK(read.sequence("more")->count == 0);
  if (!checksum) return;
  message[30] ^= 1;
  OpMsgParser damaged(message);
  for (;;) {
    const auto stepped = damaged.step(10, 1);
    if (stepped.has_value()) {
      REQUIRE_FALSE(*stepped);
      continue;
    }
    CHECK(stepped.error().is(ErrorCode::checksum_mismatch));
    break;
  }
}

TEST_CASE("a_sequence_may_come_before_the_body") {
  ByteVector sections;
  add_sequence(sections, "documents", {R"({"a": 1})"});
  add_body(sections, R"({"insert": "c"})");
  const ByteVector bytes = raw_message(0, sections);
  const Result<OpMsg> parsed = parse_op_msg(bytes);
  REQUIRE(parsed);
  CHECK(parsed->sequence("documents")->count == 1);
}

TEST_CASE("every_truncation_is_an_error") {
  for (bool checksum : {false, true}) {
    const ByteVector bytes = insert_message(checksum);
    REQUIRE(parse_op_msg(bytes));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      ByteVector cut = exact(Bytes(bytes).first(size));
      REQUIRE_FALSE(parse_op_msg(cut).has_value());  // the header's length says more
      if (size < 20) {
        continue;
      }
      store_le(cut.data(), static_cast<std::int32_t>(size));
      const Result<OpMsg> parsed = parse_op_msg(cut);
      // What ends after a section is a shorter message in its own right.
      REQUIRE((!parsed.has_value() || (!checksum && parsed->sequences.size() < 2)));
    }
  }
}

TEST_CASE("every_single_corrupted_byte_is_found_by_the_checksum") {
  const ByteVector bytes = insert_message(true);
  for (std::size_t at = 4; at < bytes.size(); ++at) {
    ByteVector corrupt = bytes;
    corrupt[at] ^= 0x20;
    const Result<OpMsg> parsed = parse_op_msg(corrupt);
    REQUIRE_FALSE(parsed.has_value());
    if (at < 16 || at >= 20) {
      REQUIRE(parsed.error().is(ErrorCode::checksum_mismatch));
      REQUIRE(connection_fatal(parsed.error()));
    }
  }
  ByteVector wrong = bytes;
  wrong.back() ^= 1;
  CHECK(parse_op_msg(wrong, false).has_value());
}

TEST_CASE("unknown_required_flags_are_fatal_and_optional_ones_ignored") {
  ByteVector sections;
  add_body(sections, R"({"ping": 1})");
  for (unsigned bit = 1; bit < 32; ++bit) {
    const std::int32_t code = code_of_sections(sections, 1u << bit);
    REQUIRE(code == (bit >= 2 && bit <= 15 ? 223 : 0));
  }
  const Result<OpMsg> parsed = parse_op_msg(raw_message(1u << 2, sections));
  CHECK(connection_fatal(parsed.error()));
  CHECK(peek_flags(raw_message(1u << 20, sections)) == 1u << 20);
  CHECK(peek_flags(Bytes(sections).first(10)) == 0);
}

TEST_CASE("the_number_of_bodies_is_one") {
  ByteVector sections;
  CHECK(code_of_sections(sections) == 40587);
  add_sequence(sections, "documents", {});
  CHECK(code_of_sections(sections) == 40587);
  add_body(sections, R"({"insert": "c"})");
  CHECK(code_of_sections(sections) == 0);
  add_body(sections, R"({"insert": "c"})");
  CHECK(code_of_sections(sections) == 40430);
  CHECK_FALSE(connection_fatal(Error(40430, "")));
}

TEST_CASE("an_empty_body_is_an_error") {
  ByteVector sections;
  add_body(sections, "{}");
  CHECK(code_of_sections(sections) == 9);
}

TEST_CASE("document_sequences_are_limited_and_unique") {
  ByteVector sections;
  add_body(sections, R"({"bulkWrite": 1})");
  add_sequence(sections, "ops", {R"({"a": 1})"});
  ByteVector twice = sections;
  add_sequence(twice, "ops", {});
  CHECK(code_of_sections(twice) == 40431);
  add_sequence(sections, "nsInfo", {});
  CHECK(code_of_sections(sections) == 0);
  add_sequence(sections, "third", {});
  CHECK(code_of_sections(sections) == 233);
  CHECK(connection_fatal(Error(233, "")));
}

TEST_CASE("unknown_section_kinds_are_errors") {
  for (const int kind : {2, 3, 255}) {
    ByteVector sections;
    add_body(sections, R"({"ping": 1})");
    sections.push_back(static_cast<std::uint8_t>(kind));
    CHECK(code_of_sections(sections) == 40432);
  }
}

TEST_CASE("a_sequence_collides_with_a_field_of_the_body") {
  const auto code = [](std::string_view body, std::string_view name) {
    ByteVector sections;
    add_sequence(sections, name, {});
    add_body(sections, body);
    return code_of_sections(sections);
  };
  CHECK(code(R"({"insert": "c", "documents": []})", "documents") == 40433);
  CHECK(code(R"({"insert": "c", "documents": {}})", "documents.x") == 40433);
  CHECK(code(R"({"insert": "c", "documents.x": 1})", "documents") == 40433);
  CHECK(code(R"({"insert": "c", "document": 1})", "documents") == 0);
  CHECK(code(R"({"insert": "c", "documentsx": 1})", "documents") == 0);
}

TEST_CASE("wrong_sequence_lengths_are_errors") {
  ByteVector sections;
  add_body(sections, R"({"insert": "c"})");
  const std::size_t size_at = sections.size() + 1;
  add_sequence(sections, "documents", {R"({"a": 1})"});
  const auto right = load_le<std::int32_t>(sections.data() + size_at);
  for (std::int32_t size = -2; size <= right + 2; ++size) {
    store_le(sections.data() + size_at, size);
    const std::int32_t code = code_of_sections(sections);
    REQUIRE((code != 0) == (size != right));
    if (size < 5 || size > right) {
      REQUIRE(code == 51251);
    }
  }
  store_le(sections.data() + size_at, INT32_MAX);
  CHECK(code_of_sections(sections) == 51251);
  store_le(sections.data() + size_at, INT32_MIN);
  CHECK(code_of_sections(sections) == 51251);
}

TEST_CASE("documents_of_a_sequence_are_framed") {
  ByteVector sections;
  add_body(sections, R"({"insert": "c"})");
  const ByteVector broken = {12, 0, 0, 0, 0x10, 'a', 0, 1, 0, 0, 0, 7};  // ends with 7
  append_sequence(sections, "documents", broken);
  CHECK(code_of_sections(sections) != 0);
}

TEST_CASE("a_checksum_needs_room") {
  const ByteVector none = raw_message(flags::checksum_present, {});
  CHECK(code_of(parse_op_msg(none)) == 51252);
  const ByteVector three = raw_message(flags::checksum_present, {1, 2, 3});
  CHECK(code_of(parse_op_msg(three)) == 51252);
  ByteVector only = raw_message(flags::checksum_present, {0, 0, 0, 0});
  store_le(only.data() + 20, crc32c(Bytes(only).first(20)));
  CHECK(code_of(parse_op_msg(only)) == 40587);
}

TEST_CASE("duplicate_names_at_the_top_level_are_refused_in_requests") {
  BsonWriter writer;
  writer.append("find", "c").append("$db", "d").append("$db", "e");
  const BsonDoc body = std::move(writer).finish();
  ByteVector out;
  begin_op_msg(out, 1, 0, 0);
  append_body(out, body);
  finish_op_msg(out);
  CHECK(code_of(parse_op_msg(out)) == 9);
  CHECK(parse_op_msg_reply(out).has_value());
}

TEST_CASE("duplicates_are_found_among_many_names_and_their_number_is_limited") {
  const auto parsed = [](std::size_t names, std::size_t repeated) {
    BsonWriter writer;
    for (std::size_t i = 0; i < names; ++i) {
      writer.append(std::to_string(i + 1 == names ? repeated : i), 1);
    }
    const BsonDoc body = std::move(writer).finish();
    ByteVector out;
    begin_op_msg(out, 1, 0, 0);
    append_body(out, body);
    finish_op_msg(out);
    return code_of(parse_op_msg(out));
  };
  for (std::size_t names : {2u, 23u, 24u, 25u, 26u, 60u}) {
    for (std::size_t repeated = 0; repeated + 1 < names; ++repeated) {
      REQUIRE(parsed(names, repeated) == 9);
    }
    REQUIRE(parsed(names, names - 1) == 0);
  }
  CHECK(parsed(body_fields_max, body_fields_max) == 0);
  CHECK(parsed(body_fields_max + 1, body_fields_max + 1) == 9);
}

TEST_CASE("a_malformed_element_in_the_body_is_an_error") {
  ByteVector bytes = message(R"({"find": "collection", "$db": "d"})");
  const std::size_t first_type = 16 + 4 + 1 + 4;
  bytes[first_type] = 0x55;
  CHECK(code_of(parse_op_msg(bytes)) == 22);
  bytes[first_type] = 0x02;
  bytes[first_type + 6] = 0xff;  // the string's length
  CHECK(code_of(parse_op_msg(bytes)) == 22);
}

TEST_CASE("a_body_larger_than_the_internal_limit_is_refused") {
  const auto code = [](std::size_t size) {
    ByteVector blob(size - 4 - 1 - 1 - 2 - 5);
    BsonWriter writer;
    writer.append_binary("b", 0, blob);
    const BsonDoc body = std::move(writer).finish();
    REQUIRE(body.size() == size);
    ByteVector out;
    begin_op_msg(out, 1, 0, 0);
    append_body(out, body);
    finish_op_msg(out);
    return code_of(parse_op_msg(out));
  };
  CHECK(code(limits::internal_document_bytes_max) == 0);
  CHECK(code(limits::internal_document_bytes_max + 1) == 10334);
}

TEST_CASE("the_prefix_and_a_body_elsewhere_make_the_same_message") {
  const ByteVector whole = message(R"({"ok": 1})", flags::more_to_come);
  const auto prefix = op_msg_prefix(whole.size(), 7, 3, flags::more_to_come);
  CHECK(exact(Bytes(prefix)) == exact(Bytes(whole).first(prefix.size())));
}

TEST_CASE("encoding_reuses_the_vector") {
  ByteVector out(1000, 0xee);
  begin_op_msg(out, 7, 3, 0);
  append_body(out, doc(R"({"ok": 1})"));
  finish_op_msg(out);
  CHECK(out == message(R"({"ok": 1})"));
}

}  // namespace spillway::wire
