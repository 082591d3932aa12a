// What apiStrict keeps a command from.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proxy/exec/commands/command_table.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

constexpr const char* one_shard = "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}]}";

Result<BsonDoc> answer_ok(std::uint16_t, DocView) {
  return test::doc("{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'app.c'}, 'ok': 1}");
}

// The code that the API's rules answer with; 0: none.
int strict_code(const std::string& command, const char* strict = "true") {
  const test::FakeRequest fake(command.substr(0, command.size() - 1) +
                               ", '$db': 'app', 'apiVersion': '1', 'apiStrict': " + strict + "}");
  const CommandSpec* const spec = command_named(fake.request.name);
  REQUIRE(spec != nullptr);
  const auto checked = check_api_strict(*spec, fake.request);
  return checked.has_error() ? checked.error().code : 0;
}

TEST_CASE("apiStrict keeps to the commands of version 1") {
  for (const char* command :
       {"{'ping': 1}", "{'hello': 1}", "{'find': 'c'}", "{'count': 'c'}", "{'findandmodify': 'c'}",
        "{'getMore': {'$numberLong': '1'}, 'collection': 'c'}", "{'saslStart': 1}", "{'explain': {'find': 'c'}}",
        "{'deleteIndexes': 'c'}", "{'commitTransaction': 1}"}) {
    INFO(command);
    CHECK(strict_code(command) == 0);
  }
  for (const char* command :
       {"{'isMaster': 1}", "{'ismaster': 1}", "{'buildInfo': 1}", "{'distinct': 'c', 'key': 'a'}",
        "{'serverStatus': 1}", "{'collStats': 'c'}", "{'logout': 1}", "{'renameCollection': 'a.b'}"}) {
    INFO(command);
    CHECK(strict_code(command) == 323);
    CHECK(strict_code(command, "false") == 0);
  }
}

TEST_CASE("apiStrict keeps to the stages of version 1") {
  const auto code = [](const std::string& stage) {
    const std::string aggregate = "{'aggregate': 'c', 'pipeline': [{'$match': {}}, " + stage + "], 'cursor': {}}";
    CHECK(strict_code("{'explain': " + aggregate + "}") == strict_code(aggregate));
    CHECK(strict_code(aggregate, "false") == 0);
    return strict_code(aggregate);
  };
  for (const char* stage :
       {"{'$group': {'_id': 1}}", "{'$collStats': {'count': {}}}", "{'$facet': {'a': [{'$count': 'n'}]}}",
        "{'$changeStream': {}}", "{'$lookup': {'from': 'd', 'pipeline': [{'$match': {}}]}}", "{'$unionWith': 'd'}",
        "{'$project': {'$search': 1}}"}) {
    INFO(stage);
    CHECK(code(stage) == 0);
  }
  for (const char* stage :
       {"{'$currentOp': {}}", "{'$indexStats': {}}", "{'$listLocalSessions': {}}", "{'$listSessions': {}}",
        "{'$planCacheStats': {}}", "{'$search': {}}", "{'$collStats': {'storageStats': {}}}",
        "{'$collStats': {'count': {}, 'latencyStats': {}}}", "{'$facet': {'a': [], 'b': [{'$indexStats': {}}]}}",
        "{'$lookup': {'from': 'd', 'as': 'x', 'pipeline': [{'$search': {}}]}}",
        "{'$unionWith': {'coll': 'd', 'pipeline': [{'$facet': {'a': [{'$indexStats': {}}]}}]}}"}) {
    INFO(stage);
    CHECK(code(stage) == 323);
  }
}

TEST_CASE("what the Stable API lacks is refused before it is done") {
  test::FakeWorker worker(test::routing_of(one_shard), answer_ok);
  Client client;
  const auto code = [&](std::string_view json) {
    test::FakeRequest fake(json);
    const Response response = worker.run(run_command(worker.context, client, fake.request));
    return test::reply_of(response).view()["code"].to_int64().value_or(0);
  };
  CHECK(code("{'distinct': 'c', 'key': 'a', '$db': 'app', 'apiVersion': '1', 'apiStrict': true}") == 323);
  CHECK(code("{'aggregate': 'c', 'pipeline': [{'$indexStats': {}}], 'cursor': {}, '$db': 'app', 'apiVersion': '1', "
             "'apiStrict': true}") == 323);
  CHECK(worker.gateway.sent.empty());
  CHECK(code("{'find': 'c', '$db': 'app', 'apiVersion': '1', 'apiStrict': true}") == 0);
  CHECK(worker.gateway.sent.size() == 1);
}

TEST_CASE("every command of version 1 that there is says so") {
  std::set<std::string_view> stable;
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::stable)) stable.insert(spec.name);
  }
  CHECK(stable.size() == 31);
}

}  // namespace
}  // namespace spillway::exec
