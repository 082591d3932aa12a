#include "proxy/shard/reply_verdict.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/op_msg.h"

using namespace spillway;
using namespace spillway::shard;

namespace {
struct Found {
  std::string cursor;  // "-": none
  bool says_ok, plain;
  bool operator==(const Found&) const = default;
};
Found found_in(std::string_view text) {
  std::string json(text);
  std::replace(json.begin(), json.end(), '\'', '"');
  const BsonDoc reply = BsonDoc::from_json(json).value();
  const ReplyVerdict verdict = judge_reply(reply.view());
  CHECK(verdict.says_ok == wire::reply_is_ok(reply));
  return {verdict.cursor == nullptr ? "-" : to_json(DocView::trusted(verdict.cursor)), verdict.says_ok, verdict.plain};
}
}  // namespace

TEST_CASE("a reply's cursor is found if it has one, and only one") {
  const std::string one = to_json(BsonDoc::from_json(R"({"a": 1})").value().view());
  CHECK(found_in("{'cursor': {'a': 1}, 'ok': 1}") == Found{one, true, true});
  CHECK(found_in("{'ok': 1.0, 'cursor': {'a': 1}}") == Found{one, true, true});
  CHECK(found_in("{'cursor': {'a': 1}, 'ok': 1, 'n': 1}") == Found{one, true, false});
  CHECK(found_in("{'ok': 1}") == Found{"-", true, true});
  CHECK(found_in("{'cursor': 1, 'ok': 1}") == Found{"-", true, true});
  CHECK(found_in("{'cursor': {'a': 1}, 'cursor': {'a': 1}, 'ok': 1}") == Found{"-", true, true});
  CHECK(found_in("{'cursor': 1, 'cursor': {'a': 1}, 'ok': 1}") == Found{"-", true, true});
  CHECK(found_in("{'cursor': [], 'ok': 1}") == Found{"-", true, true});
}

TEST_CASE("a reply is ok if its first ok is true, as a number or a boolean") {
  CHECK(found_in("{'ok': true}").says_ok);
  CHECK_FALSE(found_in("{'ok': 0}").says_ok);
  CHECK_FALSE(found_in("{'ok': 'yes'}").says_ok);
  CHECK_FALSE(found_in("{'n': 1}").says_ok);
  CHECK(found_in("{'ok': 1, 'ok': 0}").says_ok);
  CHECK_FALSE(found_in("{'ok': 0, 'ok': 1}").says_ok);
  CHECK_FALSE(found_in("{'ok': 1, '$clusterTime': {}}").plain);
}

TEST_CASE("a reply that is damaged behind its ok is neither ok nor plain") {
  const BsonDoc whole = BsonDoc::from_json(R"({"cursor": {"a": 1}, "ok": 1, "n": 5})").value();
  std::vector<std::uint8_t> message;
  wire::begin_op_msg(message, 1, 0, 0);
  wire::append_body(message, whole);
  wire::finish_op_msg(message);
  MemoryBudget budget{"test", 0};
  Reply reply;
  reply.bytes = *Buffer::allocate(budget, message.size());
  reply.bytes.append(message.data(), message.size());
  CHECK(judge_reply(reply).well_formed);
  CHECK(reply.says_ok);
  reply.bytes.data()[message.size() - 8] = 0x7e;  // the type of n
  CHECK_FALSE(judge_reply(reply).well_formed);
  CHECK_FALSE(reply.says_ok);
  CHECK_FALSE(reply.plain);
}
