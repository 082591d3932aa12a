#include "proxy/shard/reply_verdict.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "cursor/bson_writer.h"
#include "proxy/wire/cursor_reply.h"

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
