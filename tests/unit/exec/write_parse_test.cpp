#include "proxy/exec/write/write_parse.h"

#include "tests/unit/exec/write_support.h"

namespace spillway::exec {
namespace {

using test::doc;

TEST_CASE("a statement's fields are checked as a server does", "[write]") {
  struct Case {
    WriteKind kind;
    const char* op;
    std::int32_t code;  // 0: fine
  };
  const Case cases[] = {
      {WriteKind::update, "{'q': {}, 'u': {'a': 1}}", 0},
      {WriteKind::update, "{'q': {}, 'u': [{'$set': {'a': 1}}]}", 0},
      {WriteKind::update, "{'u': {'a': 1}}", 40414},
      {WriteKind::update, "{'q': {}}", 40414},
      {WriteKind::update, "{'q': 'x', 'u': {}}", 14},
      {WriteKind::update, "{'q': {}, 'u': 5}", 9},
      {WriteKind::update, "{'q': {}, 'u': {}, 'multi': 'yes'}", 14},
      {WriteKind::update, "{'q': {}, 'u': {}, 'upsert': 1}", 14},
      {WriteKind::update, "{'q': {}, 'u': {}, 'upsert': null}", 0},
      {WriteKind::update, "{'q': {}, 'u': {}, 'collation': 1}", 14},
      {WriteKind::update, "{'q': {}, 'u': {}, 'limit': 1}", 40415},
      {WriteKind::update, "{'q': {}, 'u': {}, '': 1}", 40415},
      {WriteKind::remove, "{'q': {}, 'limit': 0}", 0},
      {WriteKind::remove, "{'q': {}, 'limit': 1.0}", 0},
      {WriteKind::remove, "{'q': {}}", 40414},
      {WriteKind::remove, "{'q': {}, 'limit': 2}", 9},
      {WriteKind::remove, "{'q': {}, 'limit': 'all'}", 14},
      {WriteKind::remove, "{'limit': 1}", 40414},
      {WriteKind::remove, "{'q': {}, 'limit': 1, 'multi': true}", 40415},
  };
  for (const Case& one : cases) {
    INFO(one.op);
    const BsonDoc op = doc(one.op);
    const auto parsed = parse_statement(op, one.kind);
    CHECK((parsed.has_value() ? 0 : parsed.error().code) == one.code);
  }
}

TEST_CASE("statements are read", "[write]") {
  const BsonDoc update =
      doc("{'q': {'a': 1}, 'u': {'$set': {'b': 2}}, 'multi': true, 'upsert': true}");
  const auto one = parse_statement(update, WriteKind::update);
  REQUIRE(one.has_value());
  CHECK(one->multi);
  CHECK(one->upsert);
  CHECK(one->style == UpdateStyle::operators);
  const BsonDoc deletion = doc("{'q': {'a': 1}, 'limit': 0, 'collation': {'locale': 'de'}}");
  const auto two = parse_statement(deletion, WriteKind::remove);
  REQUIRE(two.has_value());
  CHECK(two->multi);
  CHECK_FALSE(two->simple_collation);
}

}  // namespace
}  // namespace spillway::exec
