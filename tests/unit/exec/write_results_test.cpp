#include "proxy/exec/write/write_results.h"

#include <malloc.h>

#include "tests/unit/exec/write_support.h"

namespace spillway::exec {
namespace {

using test::doc;

std::string compact(DocView document) {
  std::string text = test::text_of(document);
  std::erase(text, ' ');
  return text;
}
std::string expected(std::string_view json) { return compact(doc(json)); }

using Ops = std::vector<std::uint32_t>;

TEST_CASE("counts are added up and indexes are the client's", "[write]") {
  WriteResults results(WriteKind::update, false, 20);
  const Ops first{0, 3}, second{1, 2};
  CHECK(results.add_reply(
            first, doc("{'n': 2, 'nModified': 1, 'upserted': [{'index': 1, '_id': 7}], 'ok': 1.0}"),
            "s0") == 2);
  results.add_reply(
      second,
      doc("{'n': 1, 'nModified': 1, 'writeErrors': [{'index': 1, 'code': 11000, 'errmsg': 'dup', "
          "'keyPattern': {'a': 1}}], 'ok': 1.0}"),
      "s1");
  CHECK(compact(results.finish()) ==
        expected("{'n': 3, 'nModified': 2, 'upserted': [{'index': 3, '_id': 7}], 'writeErrors': "
                 "[{'index': 2, "
                 "'code': 11000, 'errmsg': 'dup', 'keyPattern': {'a': 1}}], 'ok': 1.0}"));
}

TEST_CASE("a reply is taken in, and one made, step by step", "[write]") {
  const auto make = [](bool in_steps) {
    WriteResults results(WriteKind::update, false, 20);
    const Ops ops{0, 3, 5, 6};
    const BsonDoc reply = doc(
        "{'n': 2, 'nModified': 1, 'upserted': [{'index': 1, '_id': 7}, {'index': 3, '_id': 8}], 'writeErrors': "
        "[{'index': 0, 'code': 2, 'errmsg': 'a'}, {'index': 2, 'code': 3, 'errmsg': 'b'}], 'ok': 1.0}");
    std::size_t steps = 1;
    if (in_steps) {
      WriteResults::Reading reading(results, ops, reply, "s0");
      for (; !reading.step(1); ++steps) {
      }
      CHECK(steps == 4);
      WriteResults::Finishing finishing(results);
      for (steps = 1; !finishing.step(1); ++steps) {
      }
      CHECK(steps == 4);
      return compact(std::move(finishing).take());
    }
    results.add_reply(ops, reply, "s0");
    return compact(results.finish());
  };
  CHECK(make(true) == make(false));
}

TEST_CASE("errors stand in the client's order", "[write]") {
  WriteResults results(WriteKind::insert, false, 20);
  results.add_error(5, Error(ErrorCode::shard_key_not_found, "five"));
  results.add_error(1, Error(ErrorCode::shard_key_not_found, "one"));
  CHECK(compact(results.finish()) == expected("{'n': 0, 'writeErrors': [{'index': 1, 'code': 61, "
                                              "'errmsg': 'one'}, {'index': 5, 'code': 61, "
                                              "'errmsg': 'five'}], 'ok': 1.0}"));
}

TEST_CASE("one operation's errors from several shards become one", "[write]") {
  const Ops op{4};
  const auto failing = [](const char* code, const char* text) {
    return doc("{'n': 0, 'writeErrors': [{'index': 0, 'code': " + std::string(code) +
               ", 'errmsg': '" + text + "'}], 'ok': 1.0}");
  };
  WriteResults same(WriteKind::remove, false, 20);
  same.add_reply(op, failing("2", "a"), "s0");
  same.add_reply(op, failing("2", "b"), "s1");
  CHECK(compact(same.finish()) ==
        expected("{'n': 0, 'writeErrors': [{'index': 4, 'code': 2, 'errmsg': 'a'}], "
                 "'ok': 1.0}"));
  WriteResults different(WriteKind::remove, false, 20);
  different.add_reply(op, failing("2", "a"), "s0");
  different.add_reply(op, failing("9", "b"), "s1");
  const BsonDoc reply = different.finish();
  const DocView error = reply.view()["writeErrors"].as_document().first().as_document();
  CHECK(error["code"].as_int32() == 65);
  CHECK(error["errmsg"].as_string() == "multiple errors for op : a :: and :: b");
  CHECK(error["errInfo"].as_document()["causedBy"].as_document().count() == 2);
}

TEST_CASE("a lost shard is an error of each of its operations", "[write]") {
  WriteResults results(WriteKind::insert, false, 20);
  results.add_lost(Ops{1, 2}, Error(ErrorCode::host_unreachable, "reset"), "s1");
  CHECK(compact(results.finish()) == expected("{'n': 0, 'writeErrors': [{'index': 1, 'code': 6, "
                                              "'errmsg': 'Write results unavailable from s1 :: "
                                              "caused by :: reset'}, {'index': 2, 'code': 6, "
                                              "'errmsg': 'Write results unavailable from s1 :: "
                                              "caused by :: reset'}], 'ok': 1.0}"));
}

TEST_CASE("write concern errors are merged", "[write]") {
  const auto with_concern = [](const char* text) {
    return doc("{'n': 1, 'writeConcernError': {'code': 100, 'codeName': 'X', 'errmsg': '" +
               std::string(text) + "'}, 'ok': 1.0}");
  };
  WriteResults one(WriteKind::insert, true, 20);
  one.add_reply(Ops{0}, with_concern("a"), "s0");
  CHECK(compact(one.finish()) ==
        expected("{'n': 1, 'writeConcernError': {'code': 100, 'codeName': 'X', 'errmsg': "
                 "'a at s0'}, 'ok': 1.0}"));
  WriteResults two(WriteKind::insert, true, 20);
  two.add_reply(Ops{0}, with_concern("a"), "s0");
  two.add_reply(Ops{1}, with_concern("b"), "s1");
  const BsonDoc merged = two.finish();
  const DocView concern = merged.view()["writeConcernError"].as_document();
  CHECK(concern["code"].as_int32() == 64);
  CHECK(concern["errmsg"].as_string() == "multiple errors reported : a at s0 :: and :: b at s1");
  // An ordered batch that ended with an error tells of that alone.
  two.add_error(2, Error(ErrorCode::bad_value, "x"));
  CHECK_FALSE(two.finish().view()["writeConcernError"].exists());
  WriteResults unordered(WriteKind::insert, false, 20);
  unordered.add_reply(Ops{0}, with_concern("a"), "s0");
  unordered.add_error(2, Error(ErrorCode::bad_value, "x"));
  CHECK(unordered.finish().view()["writeConcernError"].exists());
  // An operation that matched nothing did not fail.
  for (const std::size_t operations : {1, 2}) {
    WriteResults failed(WriteKind::remove, false, operations);
    failed.add_error(0, Error(ErrorCode::bad_value, "x"));
    failed.add_error(0, Error(ErrorCode::bad_value, "y"));
    if (operations == 2) failed.add_reply(Ops{1}, doc("{'n': 0, 'ok': 1.0}"), "s0");
    failed.add_reply(Ops{}, doc("{'n': 0, 'writeConcernError': {'code': 64, 'errmsg': 'a'}, 'ok': 1.0}"), "s1");
    CHECK(failed.finish().view()["writeConcernError"].exists() == (operations == 2));
  }
}

TEST_CASE("a shard that names an operation it was not sent is not believed", "[write]") {
  WriteResults results(WriteKind::update, false, 20);
  results.add_reply(
      Ops{2},
      doc("{'n': 0, 'upserted': [{'index': 9, '_id': 1}], 'writeErrors': [{'index': -4, "
          "'code': 3, 'errmsg': 'e'}], 'ok': 1.0}"),
      "s0");
  CHECK(compact(results.finish()) == expected("{'n': 0, 'nModified': 0, 'writeErrors': [{'index': "
                                              "2, 'code': 3, 'errmsg': 'e'}], 'ok': 1.0}"));
}

TEST_CASE("very many errors lose their texts", "[write]") {
  WriteResults results(WriteKind::insert, false, 20);
  const std::string text(1000, 'x');
  for (std::uint32_t i = 0; i < 3000; ++i)
    results.add_error(i, Error(ErrorCode::duplicate_key, text));
  const BsonDoc reply = results.finish();
  CHECK(reply.size() < 2'000'000);
  CHECK(reply.view()["writeErrors"].as_document().count() == 3000);
}

TEST_CASE("an error of many operations is told by each, while there is room", "[write]") {
  WriteResults results(WriteKind::insert, false, 20);
  Ops ops;
  for (std::uint32_t i = 0; i < 3000; ++i) ops.push_back(i);
  results.add_lost(ops, Error(ErrorCode::host_unreachable, std::string(1000, 'x')), "s1");
  results.add_error(1, Error(ErrorCode::bad_value, "two"));
  const BsonDoc reply = results.finish();
  CHECK(reply.size() < 2'000'000);
  std::size_t texts = 0, count = 0;
  for (const Element& each : reply.view()["writeErrors"].as_document()) {
    const DocView error = each.as_document();
    CHECK(error["index"].as_int32() == static_cast<std::int32_t>(count));
    CHECK(error["code"].as_int32() == (count == 1 ? 65 : 6));
    if (!error["errmsg"].as_string().empty()) ++texts;
    ++count;
  }
  CHECK(count == 3000);
  CHECK(texts > 900);
  CHECK(texts < 1100);
}

TEST_CASE("errors beyond those that are told take next to nothing", "[write]") {
  WriteResults results(WriteKind::remove, false, 20);
  const std::string text(5000, 'x');
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  for (std::uint32_t i = 0; i < 100'000; ++i)
    results.add_error(i, Error(ErrorCode::shard_key_not_found, text));
  // A second shard's, without a text: only that they differ.
  for (std::uint32_t i = 0; i < 100'000; ++i)
    results.add_error(i, Error(i % 2 == 0 ? ErrorCode::shard_key_not_found : ErrorCode::bad_value, text));
  const std::size_t held = mallinfo2().uordblks + mallinfo2().hblkhd - before;
  CHECK(held <= WriteResults::bytes_for(100'000));
  const BsonDoc reply = results.finish();
  const ValueView errors = reply.view()["writeErrors"];
  CHECK(errors.as_document().count() == 100'000);
  auto at = errors.as_document().begin();
  for (int skipped = 0; skipped < 2000; ++skipped) ++at;
  CHECK(at->as_document()["code"].as_int32() == 61);
  ++at;
  CHECK(at->as_document()["code"].as_int32() == 65);
}

}  // namespace
}  // namespace spillway::exec
