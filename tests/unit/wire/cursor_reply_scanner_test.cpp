#include "proxy/wire/cursor_reply_scanner.h"

#include <algorithm>
#include <string>

#include "allocator/limits.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/document_counter.h"
#include "tests/support/op_msg_sequence.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

using Head = CursorReplyScanner::Head;

std::string joined(const std::vector<std::string>& fields) {
  std::string text = "{";
  for (const std::string& field : fields) {
    text += (text.size() > 1 ? ", " : "") + field;
  }
  return text + "}";
}

// Runs the scanner over a message that is first known up to `head_bytes`, then byte ranges of
// `piece_bytes`. Returns what it found, checked against the parser of whole replies.
void check_stream(const ByteVector& bytes, std::size_t head_step, std::size_t tail_step) {
  CursorReplyScanner scanner;
  std::size_t have = 0;
  Head head = Head::need_more;
  while (head == Head::need_more) {
    REQUIRE(have < bytes.size());
    have = std::min(have + head_step, bytes.size());
    const Result<Head> fed = scanner.feed_head(exact(Bytes(bytes).first(have)));
    REQUIRE(fed);
    head = *fed;
  }
  REQUIRE(head == Head::batch);
  const CursorReplyParts& parts = scanner.parts();
  const std::size_t batch_end = parts.batch_offset + parts.batch_bytes;
  REQUIRE(batch_end + parts.tail_bytes == bytes.size());
  DocumentCounter counter;
  REQUIRE(counter.feed(Bytes(bytes).subspan(parts.batch_offset, parts.batch_bytes)));
  REQUIRE(counter.done());
  for (std::size_t at = batch_end; at < bytes.size(); at += tail_step) {
    REQUIRE_FALSE(scanner.done());
    REQUIRE(scanner.tail_missing() == bytes.size() - at);
    REQUIRE(scanner.feed_tail(Bytes(bytes).subspan(at, std::min(tail_step, bytes.size() - at))));
  }
  REQUIRE(scanner.done());

  const Result<OpMsg> whole = parse_op_msg_reply(bytes);
  REQUIRE(whole);
  const Result<CursorReply> reply = parse_cursor_reply(whole->body);
  REQUIRE(reply);
  CHECK(parts.batch_name == reply->batch_name);
  CHECK(parts.batch_offset == reply->batch_offset + 21);
  CHECK(parts.batch_bytes == reply->batch.size());
  CHECK(parts.id_known);
  CHECK(parts.id == reply->id);
  CHECK(parts.ns == reply->ns);
  CHECK(parts.ok);
  CHECK(parts.partial_results_returned == reply->partial_results_returned);
  CHECK(counter.count() == reply->batch.count());
  CHECK(parts.cursor_fields.count() == reply->cursor.count() - 1);
  CHECK(parts.reply_fields.count() == whole->body.count() - 1);
  CHECK(parts.cursor_fields.validate().has_value());
  CHECK(parts.reply_fields.validate().has_value());
}

constexpr const char* id_field = R"("id": {"$numberLong": "81985529216486895"})";
constexpr const char* ns_field = R"("ns": "database.collection")";
constexpr const char* batch_field = R"("firstBatch": [{"_id": 1, "s": "one"}, {"_id": 2}])";
constexpr const char* partial_field = R"("partialResultsReturned": true)";

ByteVector reply_with(const std::vector<std::string>& cursor, const std::vector<std::string>& rest,
                      std::size_t cursor_at) {
  std::vector<std::string> fields = rest;
  fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(cursor_at),
                "\"cursor\": " + joined(cursor));
  return message(joined(fields));
}

}  // namespace

TEST_CASE("fields_of_a_streamed_reply_come_in_every_order") {
  std::vector<std::string> cursor = {id_field, ns_field, batch_field, partial_field};
  const std::vector<std::string> rest = {R"("ok": 1.0)",
                                         R"("operationTime": {"$timestamp":{"t":1,"i":1}})"};
  std::sort(cursor.begin(), cursor.end());
  do {
    for (std::size_t cursor_at = 0; cursor_at <= rest.size(); ++cursor_at) {
      const ByteVector bytes = reply_with(cursor, rest, cursor_at);
      check_stream(bytes, 1, 1);
      check_stream(bytes, bytes.size(), bytes.size());
    }
  } while (std::next_permutation(cursor.begin(), cursor.end()));
}

TEST_CASE("a_streamed_reply_is_cut_at_every_byte") {
  const ByteVector bytes =
      reply_with({id_field, batch_field, ns_field}, {R"("ok": 1)", R"("x": [1, {"y": "z"}])"}, 1);
  for (std::size_t head = 1; head <= bytes.size(); ++head) {
    check_stream(bytes, head, 1 + head % 7);
  }
}

TEST_CASE("the_batch_is_found_as_soon_as_its_length_is_there") {
  const ByteVector bytes = reply_with({batch_field, id_field, ns_field}, {R"("ok": 1)"}, 0);
  // header, flags, kind, length; type "cursor" NUL length; type "firstBatch" NUL length
  const std::size_t batch_at = 16 + 4 + 1 + 4 + 1 + 7 + 4 + 1 + 11;
  CursorReplyScanner scanner;
  REQUIRE(scanner.feed_head(Bytes(bytes).first(batch_at + 3)).value() == Head::need_more);
  REQUIRE(scanner.feed_head(Bytes(bytes).first(batch_at + 4)).value() == Head::batch);
  CHECK(scanner.parts().batch_offset == batch_at);
  CHECK_FALSE(scanner.parts().id_known);
  CHECK_FALSE(scanner.parts().ok_known);
  CHECK(scanner.parts().ns.empty());
}

TEST_CASE("bytes_of_a_following_message_do_not_matter") {
  ByteVector bytes = reply_with({batch_field, id_field}, {R"("ok": 1)"}, 0);
  const std::size_t size = bytes.size();
  bytes.resize(size + 50, 0xee);
  CursorReplyScanner scanner;
  REQUIRE(scanner.feed_head(bytes).value() == Head::batch);
  const CursorReplyParts& parts = scanner.parts();
  CHECK(parts.batch_offset + parts.batch_bytes + parts.tail_bytes == size);
}

TEST_CASE("replies_that_cannot_be_streamed_are_named") {
  const auto head_of = [](const ByteVector& bytes) {
    return CursorReplyScanner().feed_head(bytes).value();
  };
  CHECK(head_of(message(R"({"ok": 0, "code": 43, "errmsg": "x"})")) == Head::no_batch);
  CHECK(head_of(message(R"({"cursor": 1, "ok": 1})")) == Head::no_batch);
  const ByteVector no_batch = message(R"({"cursor": {"id": 0}, "ok": 1})");
  CHECK(head_of(no_batch) == Head::no_batch);
  CHECK(head_of(exact(Bytes(no_batch).first(no_batch.size() - 1))) == Head::unstreamable);
  const std::string reply = R"({"cursor": {"id": 0, "firstBatch": []}, "ok": 1})";
  CHECK(head_of(message(reply)) == Head::batch);
  CHECK(head_of(message(reply, flags::more_to_come)) == Head::unstreamable);
  CHECK(head_of(message(reply, 0, true)) == Head::unstreamable);
  ByteVector sections;
  append_sequence(sections, "x", Bytes());
  append_body(sections, doc(reply));
  CHECK(head_of(raw_message(0, sections)) == Head::unstreamable);
  ByteVector after;
  append_body(after, doc(reply));
  append_sequence(after, "x", Bytes());
  CHECK(head_of(raw_message(0, after)) == Head::unstreamable);
}

TEST_CASE("too_many_fields_beside_the_batch_are_known_before_it_passes") {
  const auto head_of = [](std::size_t before, std::size_t after) {
    const std::string first = "\"before\": \"" + std::string(before, 'b') + "\"";
    const std::string last = "\"after\": \"" + std::string(after, 'a') + "\"";
    const ByteVector bytes = reply_with({id_field, batch_field}, {first, last, R"("ok": 1)"}, 1);
    return CursorReplyScanner().feed_head(bytes).value();
  };
  CHECK(head_of(1'000, 1'000) == Head::batch);
  CHECK(head_of(1'000, 60'000) == Head::batch);
  CHECK(head_of(60'000, 1'000) == Head::batch);
  CHECK(head_of(1'000, 65'000) == Head::unstreamable);
  CHECK(head_of(65'600, 0) == Head::unstreamable);
  CHECK(head_of(40'000, 40'000) == Head::unstreamable);
}

TEST_CASE("a_field_that_hides_the_batch_is_given_up_after_256_kib") {
  const std::string large = "\"large\": \"" + std::string(300'000, 'l') + "\"";
  const ByteVector bytes = reply_with({batch_field, id_field}, {large, R"("ok": 1)"}, 1);
  CursorReplyScanner scanner;
  CHECK(scanner.feed_head(Bytes(bytes).first(limits::reply_complete_bytes_max - 1)).value() ==
        Head::need_more);
  CHECK(scanner.feed_head(Bytes(bytes).first(limits::reply_complete_bytes_max)).value() ==
        Head::unstreamable);
}

TEST_CASE("lengths_that_contradict_each_other_are_errors_in_the_head") {
  const ByteVector good = reply_with({batch_field, id_field}, {R"("ok": 1)"}, 0);
  const std::size_t body_at = 21;
  const std::size_t cursor_at = body_at + 4 + 1 + 7;
  const std::size_t batch_at = cursor_at + 4 + 1 + 11;
  const auto fails = [&](std::size_t at, std::int32_t length) {
    ByteVector bytes = good;
    store_le(bytes.data() + at, length);
    return !CursorReplyScanner().feed_head(bytes).has_value();
  };
  const auto at = [&](std::size_t offset) { return load_le<std::int32_t>(good.data() + offset); };
  CHECK_FALSE(fails(body_at, at(body_at)));
  for (std::size_t length_at : {body_at, cursor_at, batch_at}) {
    for (std::int32_t length : {0, 4, -1, INT32_MIN, INT32_MAX}) {
      CHECK(fails(length_at, length));
    }
  }
  CHECK(fails(body_at, at(body_at) + 1));
  CHECK(fails(cursor_at, at(body_at)));
  CHECK(fails(batch_at, at(cursor_at)));
  CHECK(fails(12, 2004));  // not an OP_MSG
  CHECK(fails(0, 25));     // too short for a document
  CHECK(fails(0, static_cast<std::int32_t>(limits::shard_reply_bytes_max + 1)));
}

TEST_CASE("a_message_too_short_for_a_reply_is_an_error_and_no_wait_for_more") {
  std::uint8_t bytes[40] = {};
  for (std::int32_t length = 16; length < 26; ++length) {
    write_header(bytes, {length, 1, 0, 2013});
    for (std::size_t have = 16; have <= sizeof bytes; ++have) {
      REQUIRE_FALSE(CursorReplyScanner().feed_head(Bytes(bytes).first(have)).has_value());
    }
  }
}

TEST_CASE("tails_that_are_wrong_are_errors") {
  const auto fails = [](std::vector<std::string> cursor, std::vector<std::string> rest) {
    const ByteVector bytes = reply_with(cursor, rest, 0);
    CursorReplyScanner scanner;
    const Result<Head> head = scanner.feed_head(bytes);
    if (!head) {
      return true;
    }
    REQUIRE(*head == Head::batch);
    const std::size_t end = scanner.parts().batch_offset + scanner.parts().batch_bytes;
    return !scanner.feed_tail(Bytes(bytes).subspan(end)).has_value();
  };
  CHECK_FALSE(fails({batch_field, id_field}, {R"("ok": 1)"}));
  CHECK(fails({batch_field}, {R"("ok": 1)"}));
  CHECK(fails({batch_field, id_field}, {R"("n": 1)"}));
  CHECK(fails({batch_field, id_field, R"("nextBatch": [])"}, {R"("ok": 1)"}));
  CHECK(fails({batch_field, R"("id": "x")"}, {R"("ok": 1)"}));
  CHECK(fails({batch_field, id_field, R"("ns": 1)"}, {R"("ok": 1)"}));
  CHECK(fails({R"("id": "x")", batch_field}, {R"("ok": 1)"}));
}

TEST_CASE("every_corrupted_byte_of_a_tail_is_survived_and_surplus_bytes_are_refused") {
  const ByteVector bytes = reply_with({batch_field, id_field, ns_field}, {R"("ok": 1)"}, 0);
  CursorReplyScanner probe;
  REQUIRE(probe.feed_head(bytes).value() == Head::batch);
  const std::size_t end = probe.parts().batch_offset + probe.parts().batch_bytes;
  for (std::size_t at = end; at < bytes.size(); ++at) {
    for (const int value : {0x00, 0x03, 0x7f, 0xff}) {
      ByteVector corrupt = bytes;
      corrupt[at] = static_cast<std::uint8_t>(value);
      CursorReplyScanner scanner;
      REQUIRE(scanner.feed_head(corrupt).value() == Head::batch);
      const Result<bool> fed = scanner.feed_tail(exact(Bytes(corrupt).subspan(end)));
      REQUIRE((!fed.has_value() || scanner.done()));
    }
  }
  ByteVector surplus = exact(Bytes(bytes).subspan(end));
  surplus.push_back(0);
  CHECK_FALSE(probe.feed_tail(surplus).has_value());
}

}  // namespace spillway::wire
