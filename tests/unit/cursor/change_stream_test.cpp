// Change streams over several shards: which event may leave, what is promised, where a stream resumes.
#include "cursor/change_stream.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <compare>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cursor/cursor.h"
#include "cursor/resume_token.h"

namespace spillway {
namespace {

using StreamKind = ChangeStream::Next::Kind;

// A token as 4.2 makes it: of an event at this second, of a document {_id: <number>}; or of a time.
std::string digits(int second, int document = -1, bool invalidates = false) {
  char text[128];
  std::snprintf(text, sizeof text, "82%08X00000001", static_cast<unsigned>(second));
  const std::string time(text);
  if (document < 0 && !invalidates) return time + "2B0229296E04";
  const std::string head = time + "2B022C010029" + (invalidates ? "6F" : "6E");
  const std::string uuid = "5A100429C14089B7F248C9A2374F179D4A5956";
  if (document < 0) return head + uuid + "04";
  std::snprintf(text, sizeof text, "461E5F696400%02X0004", static_cast<unsigned>(document));
  return head + uuid + text;
}

BsonDoc token(const std::string& text) {
  BsonWriter out;
  out.append("_data", std::string_view(text));
  return std::move(out).finish();
}

BsonDoc event(const std::string& text, std::string_view operation = "insert") {
  BsonWriter out;
  out.append("_id", token(text)).append("operationType", operation);
  return std::move(out).finish();
}

class Shards {
 public:
  explicit Shards(std::size_t count) : remotes(count) {
    for (RemoteCursor& remote : remotes) remote.id = 1;
    stream.shards_known_at = ~std::uint64_t{0};
  }
  // A reply: these events, and what the shard promises after them.
  void reply(std::size_t shard, const std::vector<BsonDoc>& events, const std::string& promised) {
    BsonWriter out;
    out.begin_array("batch");
    for (const BsonDoc& each : events) out.append_item(each.view());
    out.end();
    const BsonDoc whole = std::move(out).finish();
    const DocView array = whole.view()["batch"].as_document();
    auto buffer = Buffer::allocate(budget, array.size());
    REQUIRE(buffer);
    buffer->append(array.data(), array.size());
    const DocView inside = DocView::trusted(buffer->data());
    if (!inside.empty()) remotes[shard].batches.emplace_back(*std::move(buffer), inside);
    BsonWriter promise;
    promise.append("t", token(promised));
    const BsonDoc kept = std::move(promise).finish();
    REQUIRE_FALSE(stream.promise(shard, kept.view()["t"]).has_error());
  }
  // The digits of what may leave now, and then what the stream says.
  std::vector<std::string> leave() {
    std::vector<std::string> left;
    for (;;) {
      auto next = stream.next(remotes);
      if (next.has_error()) {
        last_error = next.error().code;
        return left;
      }
      last = next->kind;
      if (last == StreamKind::skipped || last == StreamKind::passed) continue;
      if (last != StreamKind::event) return left;
      left.emplace_back(token_digits(next->event["_id"]));
      stream.take(remotes, *next);
    }
  }
  std::string high_water() const {
    const ValueView data = stream.high_water()["_data"];
    return data.is_string() ? std::string(data.as_string()) : std::string();
  }

  MemoryBudget budget{"test", 0};
  std::vector<RemoteCursor> remotes;
  ChangeStream stream;
  StreamKind last = StreamKind::end;
  std::int32_t last_error = 0;
};

using Left = std::vector<std::string>;

}  // namespace

TEST_CASE("tokens of recorded shards are read") {
  const auto time = ResumeToken::parse("826B00FD56000000562B0229296E04");
  REQUIRE(time);
  CHECK(time->cluster_time == (std::uint64_t{0x6B00FD56} << 32 | 0x56));
  CHECK(time->high_water_mark);
  CHECK(time->document_key_at == 0);
  const std::string_view recorded =
      "826B00FD56000000572B022C0100296E5A100429C14089B7F248C9A2374F179D4A5956461E6B002C01B8645F696400646B00FD5632688F82"
      "4B8A2C860004";
  const auto of_event = ResumeToken::parse(recorded);
  REQUIRE(of_event);
  CHECK_FALSE(of_event->high_water_mark);
  CHECK_FALSE(of_event->from_invalidate);
  CHECK(recorded.substr(of_event->document_key_at, 4) == "461E");
  CHECK(ResumeToken::parse(digits(5, -1, true))->from_invalidate);
  for (const char* text : {"", "82", "zz", "826B00FD56000000562B02", "826B00FD56000000562B0229296E5A10"}) {
    CHECK_FALSE(ResumeToken::parse(text));
  }
}

TEST_CASE("the event of a token is known again, whatever the shard key is now") {
  const std::string head = "826B00FD56000000572B022C0100296E5A100429C14089B7F248C9A2374F179D4A595646";
  const std::string id = "645F696400646B00FD5632688F824B8A2C860004", key = "1E6B002C01B8";
  CHECK(std::is_eq(event_order(head + id, head + id)));
  CHECK(std::is_eq(event_order(head + key + id, head + id)));
  CHECK(std::is_eq(event_order(head + id, head + key + id)));
  CHECK(std::is_eq(event_order(head + key + "1E7900" "2B04" + id, head + key + id)));
  // Names and values that end like the name _id.
  const std::string user = "3C" "757365725F696400" "615F696400";  // user_id: "a_id"
  CHECK(std::is_eq(event_order(head + user + id, head + id)));
  CHECK(std::is_eq(event_order(head + id, head + user + id)));
  CHECK(std::is_eq(event_order(head + user + "1E7900" "2B04" + id, head + user + id)));
  CHECK_FALSE(std::is_eq(event_order(head + user + "645F696400646B00FD5632688F824B8A2C870004", head + user + id)));
  CHECK_FALSE(std::is_eq(event_order(head + "3C5F69640062625F69640004", head + "3C5F69640061625F69640004")));
  // A document that was moved to another shard: a delete and an insert of one time may have one _id.
  CHECK_FALSE(std::is_eq(event_order(head + "1E6B002C01B9" + id, head + key + id)));
  CHECK_FALSE(std::is_eq(event_order(head + "3C6B00616200" + id, head + "3C6B006100" + id)));
  CHECK_FALSE(std::is_eq(event_order(head + "3C6B006100FF6200" + id, head + "3C6B006100" + id)));
  CHECK(std::is_lt(event_order(head + key + "645F696400646B00FD5632688F824B8A2C870004", head + id)));
  CHECK(std::is_gt(event_order("9" + head.substr(1) + key + id, head + id)));
}

TEST_CASE("an event waits for every shard's promise, whatever order the replies come in") {
  Shards shards(3);
  for (std::size_t i = 0; i < 3; ++i) shards.reply(i, {}, digits(1));
  CHECK(shards.leave().empty());
  CHECK(shards.last == StreamKind::wait);
  shards.reply(1, {event(digits(5, 1)), event(digits(9, 2))}, digits(9, 2));
  CHECK(shards.leave().empty());
  shards.reply(0, {event(digits(7, 3))}, digits(7, 3));
  CHECK(shards.leave().empty());
  shards.reply(2, {}, digits(4));  // may still send one of 5
  CHECK(shards.leave().empty());
  shards.reply(2, {}, digits(8));
  CHECK(shards.leave() == Left{digits(5, 1), digits(7, 3)});
  shards.reply(0, {}, digits(10));
  CHECK(shards.leave().empty());
  shards.reply(2, {event(digits(9, 1))}, digits(12));
  CHECK(shards.leave() == Left{digits(9, 1), digits(9, 2)});
}

TEST_CASE("an event at a promised time leaves only if the promise is not before it") {
  Shards shards(2);
  shards.reply(0, {event(digits(5, 1))}, digits(5, 1));
  shards.reply(1, {}, digits(5));  // a time's token comes before the events of that time
  CHECK(shards.leave().empty());
  shards.reply(1, {event(digits(5, 1))}, digits(5, 1));
  CHECK(shards.leave() == Left{digits(5, 1), digits(5, 1)});
}

TEST_CASE("the high-water mark is the last event, then what all have promised, and never goes back") {
  Shards shards(2);
  shards.reply(0, {}, digits(3));
  shards.reply(1, {event(digits(4, 1)), event(digits(8, 1))}, digits(8, 1));
  CHECK_FALSE(shards.stream.is_promised(3));
  CHECK(shards.stream.is_promised(2));
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(3));
  shards.reply(0, {}, digits(6));
  CHECK(shards.leave() == Left{digits(4, 1)});
  CHECK(shards.high_water() == digits(4, 1));
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(6));
  shards.reply(0, {}, digits(5));  // what no shard sends
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(6));
}

TEST_CASE("an invalidating event is the stream's last one, in its order") {
  Shards shards(2);
  shards.reply(0, {event(digits(5, 1), "drop"), event(digits(5, -1, true), "invalidate"), event(digits(6, 1))},
               digits(6, 1));
  shards.reply(1, {event(digits(4, 1)), event(digits(6, 2))}, digits(9));
  CHECK(shards.leave() == Left{digits(4, 1), digits(5, 1), digits(5, -1, true)});
  CHECK(shards.last == StreamKind::end);
  CHECK(shards.stream.ended());
  CHECK(shards.high_water() == digits(5, -1, true));
}

TEST_CASE("a shard whose cursor has ended does not delay the others") {
  Shards shards(2);
  shards.reply(0, {event(digits(5, 1))}, digits(5, 1));
  shards.reply(1, {}, digits(2));
  CHECK(shards.leave().empty());
  shards.remotes[1].id = 0;
  CHECK(shards.leave() == Left{digits(5, 1)});
  shards.remotes[0].id = 0;
  shards.leave();
  CHECK(shards.last == StreamKind::end);
}

TEST_CASE("a resumed stream begins after its event, wherever that is") {
  Shards shards(2);
  shards.stream.resume_after(token(digits(5, 2)), 280);
  shards.reply(0, {event(digits(5, 1)), event(digits(5, 3))}, digits(7));
  shards.reply(1, {}, digits(5));
  CHECK(shards.leave().empty());
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(5, 2));
  shards.reply(1, {event(digits(5, 2)), event(digits(6, 1))}, digits(7));
  CHECK(shards.leave() == Left{digits(5, 3), digits(6, 1)});
}

TEST_CASE("a stream whose event is gone cannot be resumed") {
  Shards shards(2);
  shards.stream.resume_after(token(digits(5, 2)), 280);
  shards.reply(0, {event(digits(5, 3))}, digits(7));
  shards.reply(1, {}, digits(7));
  CHECK(shards.leave().empty());
  CHECK(shards.last_error == 280);
}

TEST_CASE("a stream that starts after an invalidation passes over every shard's") {
  Shards shards(2);
  const std::string invalidation = digits(5, -1, true);
  shards.stream.resume_after(token(invalidation), 280);
  shards.reply(0, {event(invalidation, "invalidate"), event(digits(6, 1))}, digits(6, 1));
  shards.reply(1, {event(invalidation, "invalidate")}, digits(7));
  CHECK(shards.leave() == Left{digits(6, 1)});
  CHECK_FALSE(shards.stream.ended());
}

TEST_CASE("the next drop of a database that was made again ends a stream that started after the one before") {
  const auto invalidation = [](int second) {
    std::string text = digits(second, -1, true);
    return text.replace(text.find("5A10"), 36 + 2, "");  // of a database: without a uuid
  };
  Shards shards(2);
  shards.stream.resume_after(token(invalidation(5)), 280);
  shards.reply(0, {event(invalidation(5), "invalidate")}, digits(10));
  shards.reply(1, {event(digits(6, 1)), event(invalidation(8), "invalidate")}, digits(10));
  CHECK(shards.leave() == Left{digits(6, 1), invalidation(8)});
  CHECK(shards.stream.ended());
}

TEST_CASE("a resumed stream passes over its event on every shard, and its high-water mark goes on") {
  const bool invalidates = GENERATE(false, true);
  const std::string resumed = invalidates ? digits(5, -1, true) : digits(5, 1);
  const std::string_view operation = invalidates ? "invalidate" : "drop";
  Shards shards(2);
  shards.stream.resume_after(token(resumed), 280);
  shards.reply(0, {event(resumed, operation)}, digits(6));
  shards.reply(1, {event(resumed, operation)}, digits(7));
  CHECK(shards.leave().empty());
  CHECK(shards.last == StreamKind::wait);
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(6));
  shards.reply(0, {event(digits(8, 1))}, digits(8, 1));
  shards.reply(1, {}, digits(9));
  CHECK(shards.leave() == Left{digits(8, 1)});
}

TEST_CASE("an event of version 2 is known again by its token of version 1, and the other way round") {
  // Of shards of 6.0 and 7.0, as resume_token.cpp makes them.
  const std::string time = "826464D7E100000002", uuid = "5A1004D802A00AB9E24901A92C71E85CC9ED82";
  const std::string head_1 = time + "2B022C010029", head_2 = time + "2B042C010029";
  const std::string type = "463C6F7065726174696F6E54797065003C", insert = "696E7365727400", drop = "64726F7000";
  const std::string remove = "64656C65746500", create = "63726561746500";
  const std::string key_name = "46646F63756D656E744B657900";
  const std::string five = "461E5F6964002B0A00", six = "461E5F6964002B0C00";
  const std::string of_shard_key = "461E6B002B021E5F6964002B0A00";
  const auto v1 = [&](const std::string& key) { return head_1 + "6E" + uuid + key + "04"; };
  const auto v2 = [&](const std::string& operation, const std::string& key) {
    return head_2 + "6E" + uuid + type + operation + (key.empty() ? "" : key_name + key) + "0004";
  };
  CHECK(std::is_eq(event_order(v2(insert, five), v1(five))));
  CHECK(std::is_eq(event_order(v1(five), v2(insert, five))));
  CHECK(std::is_eq(event_order(v2(insert, of_shard_key), v1(five))));
  CHECK(std::is_eq(event_order(v2(insert, of_shard_key), v2(insert, five))));
  CHECK_FALSE(std::is_eq(event_order(v2(insert, of_shard_key), v2(remove, five))));  // of a document that was moved
  CHECK(std::is_lt(event_order(v2(insert, five), v1(six))));
  CHECK(std::is_gt(event_order(v2(remove, six), v1(five))));
  CHECK(std::is_eq(event_order(v2(drop, ""), v1(""))));
  CHECK(std::is_eq(event_order(v1(""), v2(drop, ""))));
  const std::string invalidate = "6F" + uuid;
  CHECK(std::is_eq(event_order(head_2 + invalidate + type + drop + "0004", head_1 + invalidate + "04")));
  CHECK(std::is_gt(event_order(head_2 + invalidate + type + drop + "0004", v1(""))));
  CHECK(std::is_eq(event_order(head_2 + "6E14" + type + "64726F704461746162617365000004", head_1 + "6E04")));
  // What 6.0 shows only if it is told to has the operation in either version.
  const std::string created = type + create + "0004";
  CHECK(std::is_eq(event_order(head_2 + "6E" + uuid + created, head_1 + "6E" + uuid + created)));
  // In version 2 the operation comes first: a key does not say what came before.
  CHECK(std::is_gt(event_order(v1(five), v2(insert, six))));
  CHECK(std::is_gt(event_order(v1(six), v2(insert, five))));
  // Damaged ones.
  for (const std::string& each : {head_2, head_2 + "6E" + uuid + type, head_2 + "6E" + uuid + type + insert,
                                  head_2 + "6E" + uuid + type + insert + key_name, time, head_1 + "6E" + uuid + "461",
                                  head_1 + "6E" + uuid + "46", head_2 + "6E" + uuid + "461", v1(five) + "0",
                                  head_2 + "6E" + uuid + type + "696E73657274" + "0", v1(five) + "XY"}) {
    CHECK(std::is_neq(event_order(each, v1(five))));
    CHECK(std::is_neq(event_order(v1(five), each)));
  }
}

TEST_CASE("an event that tells of a new shard is nobody's") {
  Shards shards(1);
  shards.reply(0, {event(digits(5, 1), "kNewShardDetected"), event(digits(6, 1), "migrateChunkToNewShard"),
                   event(digits(7, 1))}, digits(7, 1));
  CHECK(shards.leave() == Left{digits(7, 1)});
}

TEST_CASE("nothing later than the shards are known leaves, or is promised") {
  Shards shards(1);
  shards.stream.shards_known_at = ResumeToken::parse(digits(5, 1))->cluster_time;
  shards.reply(0, {event(digits(5, 1)), event(digits(6, 1))}, digits(8));
  CHECK(shards.leave() == Left{digits(5, 1)});
  CHECK(shards.last == StreamKind::unknown);
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(5, 1));
  shards.remotes.emplace_back().id = 1;
  shards.reply(1, {event(digits(5, 9))}, digits(7));
  shards.stream.shards_known_at = ResumeToken::parse(digits(9, 1))->cluster_time;
  CHECK(shards.leave() == Left{digits(5, 9), digits(6, 1)});
  shards.stream.settle(shards.remotes);
  CHECK(shards.high_water() == digits(7));
}

TEST_CASE("damaged batches and events without a token are errors") {
  Shards shards(1);
  BsonWriter no_token;
  no_token.append("_id", 1);
  shards.reply(0, {std::move(no_token).finish()}, digits(6, 1));
  CHECK(shards.leave().empty());
  CHECK(shards.last_error == 1);
  BsonWriter not_a_token;
  not_a_token.append("t", 1);
  const BsonDoc wrong = std::move(not_a_token).finish();
  CHECK(shards.stream.promise(0, wrong.view()["t"]).has_error());
}

TEST_CASE("what a stream keeps is paid for") {
  MemoryBudget little("little", 600);
  Shards shards(2);
  shards.reply(0, {}, digits(1));
  shards.reply(1, {}, digits(1));
  CHECK(shards.stream.pay(little));
  CHECK(little.usage().used_bytes > 0);
  BsonWriter long_token;
  long_token.begin_document("t").append("_data", std::string_view(digits(2) + std::string(2000, 'A'))).end();
  const BsonDoc kept = std::move(long_token).finish();
  REQUIRE_FALSE(shards.stream.promise(0, kept.view()["t"]).has_error());
  CHECK_FALSE(shards.stream.pay(little));
}

}  // namespace spillway
