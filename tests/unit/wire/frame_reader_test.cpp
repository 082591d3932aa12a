#include "proxy/wire/frame_reader.h"

#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {

TEST_CASE("a_header_is_written_and_parsed_back") {
  std::uint8_t bytes[16];
  write_header(bytes, {16, -2, 5, 2013});
  const Result<MessageHeader> header = parse_header(bytes);
  REQUIRE(header);
  CHECK(header->message_length == 16);
  CHECK(header->request_id == -2);
  CHECK(header->response_to == 5);
  CHECK(header->is(OpCode::msg));
  CHECK_FALSE(header->is(OpCode::query));
}

TEST_CASE("lengths_outside_the_limits_are_refused") {
  std::uint8_t bytes[16] = {};
  const auto parsed = [&](std::int32_t length) {
    write_header(bytes, {length, 1, 0, 2013});
    return parse_header(bytes).has_value();
  };
  CHECK(parsed(16));
  CHECK(parsed(48'000'000));
  CHECK_FALSE(parsed(48'000'001));
  CHECK_FALSE(parsed(15));
  CHECK_FALSE(parsed(0));
  CHECK_FALSE(parsed(-1));
  CHECK_FALSE(parsed(INT32_MIN));
  CHECK_FALSE(parsed(INT32_MAX));
}

TEST_CASE("peek_says_what_is_needed_at_every_cut") {
  const ByteVector bytes = message(R"({"ping": 1, "$db": "admin"})");
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const ByteVector have = exact(Bytes(bytes).first(cut));
    const FrameReader::Need need = FrameReader::peek(have);
    if (cut < 16) {
      REQUIRE(need.kind == FrameReader::Kind::more);
      REQUIRE(need.bytes == 16 - cut);
    } else {
      REQUIRE(need.kind == FrameReader::Kind::message);
      REQUIRE(need.bytes == bytes.size());
      REQUIRE(need.header.request_id == 7);
    }
  }
}

TEST_CASE("pipelined_messages_are_framed_one_after_the_other") {
  ByteVector stream = message(R"({"ping": 1})");
  const ByteVector second = message(R"({"hello": 1, "longer": true})");
  stream.insert(stream.end(), second.begin(), second.end());
  const std::size_t first_size = FrameReader::peek(stream).bytes;
  const FrameReader::Need need = FrameReader::peek(Bytes(stream).subspan(first_size));
  CHECK(need.kind == FrameReader::Kind::message);
  CHECK(need.bytes == second.size());
}

TEST_CASE("a_bad_length_is_known_with_the_header_alone") {
  std::uint8_t bytes[16];
  write_header(bytes, {48'000'001, 1, 0, 2013});
  const FrameReader::Need need = FrameReader::peek(bytes);
  CHECK(need.kind == FrameReader::Kind::bad);
  CHECK(FrameReader::why_bad(bytes).is(ErrorCode::protocol_error));
  CHECK(FrameReader::why_bad(bytes).message.find("48000001") != std::string::npos);
}

}  // namespace spillway::wire
