// A static table sends nothing along: what a shard gets is what the client sent, byte for byte, or what the proxy made
// of it, and no more.
#include "proxy/exec/core/forward.h"
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;

std::optional<std::string> agree(const Sent& sent) {
  if (sent.name() == "find" || sent.name() == "aggregate" || sent.name() == "listIndexes") {
    return "{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'db.c'}, 'ok': 1.0}";
  }
  return "{'n': 1, 'nModified': 1, 'values': [], 'ok': 1.0}";
}

TEST_CASE("a command for one shard is the client's message, byte for byte") {
  const char* const command = GENERATE(
      "{'find': 'c', 'filter': {'a': 3}, 'sort': {'b': 1}, 'limit': 5}", "{'count': 'c', 'query': {'a': 3}}",
      "{'distinct': 'c', 'key': 'b', 'query': {'a': 3}}",
      "{'aggregate': 'c', 'pipeline': [{'$match': {'a': 3}}, {'$group': {'_id': '$b'}}], 'cursor': {}}",
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 3}]}", "{'delete': 'c', 'deletes': [{'q': {'a': 3}, 'limit': 1}]}",
      "{'update': 'c', 'updates': [{'q': {'a': 3}, 'u': {'$inc': {'n': 1}}}], 'writeConcern': {'w': 'majority'}}",
      "{'findAndModify': 'c', 'query': {'a': 3}, 'update': {'$inc': {'n': 1}}}",
      "{'find': 'elsewhere', 'filter': {}, 'comment': 'x'}", "{'insert': 'elsewhere', 'documents': [{'_id': 1}]}",
      "{'create': 'elsewhere'}", "{'createIndexes': 'elsewhere', 'indexes': [{'key': {'b': 1}, 'name': 'b_1'}]}",
      "{'drop': 'elsewhere'}", "{'collStats': 'elsewhere'}", "{'listIndexes': 'elsewhere'}");
  CAPTURE(command);
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = agree;
  const std::string reply = router.run(command);
  CAPTURE(reply);
  CHECK(test::doc(reply).view()["ok"].to_double() == 1.0);
  REQUIRE(router.shards.sent.size() == 1);
  CHECK(router.shards.sent.front().sections == router.client_sections);
}

TEST_CASE("a command for several shards is the same for each, and has no field that the client did not ask for") {
  struct Case {
    const char* command;
    const char* sent;
  };
  const auto [command, sent] = GENERATE(values<Case>({
      {"{'find': 'c', 'filter': {}, 'batchSize': 7}",
       "{ 'find' : 'c', 'filter' : {  }, 'batchSize' : 7 }"},
      {"{'find': 'c', 'filter': {}, 'singleBatch': true, 'allowPartialResults': 0, 'batchSize': 7}",
       "{ 'find' : 'c', 'filter' : {  }, 'batchSize' : 7 }"},
      // A shard answers to what has the wrong type.
      {"{'find': 'c', 'filter': {}, 'singleBatch': {'a': 1}, 'batchSize': 7}",
       "{ 'find' : 'c', 'filter' : {  }, 'singleBatch' : { 'a' : 1 }, 'batchSize' : 7 }"},
      {"{'count': 'c', 'query': {'b': 1}}", "{ 'count' : 'c', 'query' : { 'b' : 1 } }"},
      {"{'drop': 'c'}", "{ 'drop' : 'c' }"},
      {"{'dbStats': 1}", "{ 'dbStats' : 1 }"},
  }));
  CAPTURE(command);
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = agree;
  router.run(command);
  const std::vector<std::string> all = router.sent();
  REQUIRE(all.size() == 2);
  CHECK(all[0].substr(3) == all[1].substr(3));
  std::string shown = all[0].substr(3);
  std::replace(shown.begin(), shown.end(), '"', '\'');
  CHECK(shown == sent);
}

TEST_CASE("a command with two sequences is forwarded with both when fields of its body are left out") {
  const auto sequence = [](std::vector<std::uint8_t>& to, std::string_view name, DocView document) {
    to.push_back(1);
    const auto bytes = static_cast<std::uint32_t>(4 + name.size() + 1 + document.size());
    to.resize(to.size() + 4);
    store_le(to.data() + to.size() - 4, bytes);
    to.insert(to.end(), name.begin(), name.end());
    to.push_back(0);
    to.insert(to.end(), document.data(), document.data() + document.size());
  };
  std::vector<std::uint8_t> bytes, expected;
  const BsonDoc first = test::doc("{'_id': 1}"), second = test::doc("{'ns': 'd.c'}");
  wire::begin_op_msg(bytes, 1, 0, 0);
  wire::append_body(bytes, test::doc("{'bulkWrite': 1, '$clusterTime': {'clusterTime': 1}, '$db': 'admin'}"));
  for (auto* const to : {&bytes, &expected}) {
    if (to == &expected) wire::append_body(expected, test::doc("{'bulkWrite': 1, '$db': 'admin'}"));
    sequence(*to, "ops", first);
    sequence(*to, "nsInfo", second);
  }
  wire::finish_op_msg(bytes);
  const auto message = wire::parse_op_msg(bytes);
  REQUIRE(message.has_value());
  const auto request = parse_request(*message, Bytes(bytes).subspan(20), Clock::now());
  REQUIRE(request.has_value());
  BsonDoc scratch;
  const shard::Command command = forward_command(*request, scratch);
  std::vector<std::uint8_t> sent;
  REQUIRE(command.section_count == 4);
  for (std::size_t i = 0; i < command.section_count; ++i) {
    const auto* from = static_cast<const std::uint8_t*>(command.sections[i].iov_base);
    sent.insert(sent.end(), from, from + command.sections[i].iov_len);
  }
  CHECK(sent == expected);
}

TEST_CASE("a reload in the middle of a command changes nothing of it") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [&](const Sent&) -> std::optional<std::string> {
    catalog::RoutingParts parts;
    parts.shards.push_back({"renamed", "", 0});
    parts.shards.push_back({"renamed, too", "", 1});
    router.context().static_router.replace(std::make_shared<const catalog::RoutingSnapshot>(std::move(parts)));
    return "{'n': 1, 'ok': 1.0}";
  };
  const BsonDoc reply = test::doc(router.run("{'count': 'c', 'query': {'b': 1}}"));
  CHECK(reply.view().find_path("shards.s0").to_int64() == 1);
  CHECK(reply.view().find_path("shards.s1").to_int64() == 1);
  // The next command has the new table: in it the collection is not sharded.
  router.shards.sent.clear();
  router.run("{'count': 'c', 'query': {'b': 1}}");
  CHECK(router.shards.sent.size() == 1);
}

}  // namespace
}  // namespace spillway::exec
