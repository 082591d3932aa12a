#include "pipeline_support.h"

namespace spillway::pipeline::test {
namespace {

std::string find(const char* input, const char* filter, const char* sort, const char* projection,
                 std::int64_t skip = 0, std::int64_t limit = 0) {
  Budget budget;
  const auto list = docs(input);
  const BsonDoc filter_doc = json(filter);
  const BsonDoc sort_doc = json(sort);
  const BsonDoc projection_doc = json(projection);
  FindQuery query;
  query.filter = filter_doc;
  query.sort = sort_doc;
  query.projection = projection_doc;
  query.skip = skip;
  query.limit = limit;
  auto result = run_find(list, query, budget.budget);
  return result ? text(*result) : "error " + std::to_string(result.error().code);
}

constexpr const char* shards = R"([
  {"_id": "a", "host": "h1", "state": 1}, {"_id": "b", "host": "h2", "state": 1},
  {"_id": "c", "host": "h3", "state": 0}])";

TEST_CASE("a find filters, sorts, skips, limits and projects") {
  CHECK(find(shards, "{}", "{}", "{}") == text(docs(shards)));
  CHECK(find(shards, R"({"state": 1})", R"({"_id": -1})", R"({"host": 1})") ==
        text(docs(R"([{"_id": "b", "host": "h2"}, {"_id": "a", "host": "h1"}])")));
  CHECK(find(shards, "{}", R"({"_id": 1})", R"({"_id": 1})", 1, 1) ==
        text(docs(R"([{"_id": "b"}])")));
  CHECK(find(shards, "{}", R"({"$natural": 1})", R"({"_id": 1})", 2) ==
        text(docs(R"([{"_id": "c"}])")));
  CHECK(find("[]", "{}", "{}", "{}") == "[]");
}

TEST_CASE("a find refuses what it cannot evaluate") {
  CHECK(find(shards, R"({"$where": "1"})", "{}", "{}") == "error 115");
  CHECK(find(shards, R"({"a": {"$bad": 1}})", "{}", "{}") == "error 2");
  CHECK(find(shards, "{}", "{}", R"({"a": {"$slice": 1}})") == "error 115");
  CHECK(find(shards, "{}", "{}", R"({"a.$": 1})") == "error 115");
  CHECK(find(shards, "{}", "{}", "{}", -1) == "error 2");
}

TEST_CASE("a pipeline runs over documents in memory") {
  CHECK(text(run(docs(shards), R"([{"$match": {"state": 1}}, {"$count": "n"}])")) ==
        text(docs(R"([{"n": 2}])")));
  CHECK(text(run(docs(shards), "[]")) == text(docs(shards)));
}

}  // namespace
}  // namespace spillway::pipeline::test
