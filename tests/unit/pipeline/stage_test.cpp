#include <malloc.h>

#include <algorithm>

#include "pipeline_support.h"

// jemalloc's, if the program has it.
extern "C" int mallctl(const char*, void*, std::size_t*, void*, std::size_t) __attribute__((weak));

namespace spillway::pipeline::test {
namespace {

void check(const char* input, const char* pipeline, const char* expected) {
  INFO(pipeline << " over " << input);
  CHECK(text(run(docs(input), pipeline)) == text(docs(expected)));
}

int error_of(const char* pipeline, const char* input = "[{}]") {
  INFO(pipeline);
  return run_error(docs(input), pipeline);
}

TEST_CASE("unwind gives a document per element") {
  const char* input = R"([{"_id": 1, "a": [1, 2]}, {"_id": 2, "a": []}, {"_id": 3, "a": 5},
                          {"_id": 4}, {"_id": 5, "a": null}])";
  check(input, R"([{"$unwind": "$a"}])",
        R"([{"_id": 1, "a": 1}, {"_id": 1, "a": 2}, {"_id": 3, "a": 5}])");
  check(input, R"([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": true}}])",
        R"([{"_id": 1, "a": 1}, {"_id": 1, "a": 2}, {"_id": 2}, {"_id": 3, "a": 5}, {"_id": 4},
            {"_id": 5, "a": null}])");
  check(R"([{"a": {"b": ["x", "y"]}, "c": 1}])",
        R"([{"$unwind": {"path": "$a.b", "includeArrayIndex": "i"}}])",
        R"([{"a": {"b": "x"}, "c": 1, "i": 0}, {"a": {"b": "y"}, "c": 1, "i": 1}])");
  check(R"([{"c": 1}])",
        R"([{"$unwind": {"path": "$a.b", "includeArrayIndex": "i",
                         "preserveNullAndEmptyArrays": true}}])",
        R"([{"c": 1, "i": null}])");
  CHECK(error_of(R"([{"$unwind": 5}])") == 15981);
  CHECK(error_of(R"([{"$unwind": "a"}])") == 28818);
  CHECK(error_of(R"([{"$unwind": ""}])") == 28812);
  CHECK(error_of(R"([{"$unwind": {}}])") == 28812);
  CHECK(error_of(R"([{"$unwind": {"path": "$a", "x": 1}}])") == 28811);
  CHECK(error_of(R"([{"$unwind": {"path": "$a", "includeArrayIndex": ""}}])") == 28810);
  CHECK(error_of(R"([{"$unwind": {"path": "$a", "includeArrayIndex": "$i"}}])") == 28822);
  CHECK(error_of(R"([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": 1}}])") == 28809);
}

TEST_CASE("sort is by all types, and stable") {
  check(R"([{"_id": 1, "a": "x"}, {"_id": 2, "a": 5}, {"_id": 3}, {"_id": 4, "a": 5.0},
            {"_id": 5, "a": [9, 1]}])",
        R"([{"$sort": {"a": 1}}, {"$project": {"_id": 1}}])",
        R"([{"_id": 3}, {"_id": 5}, {"_id": 2}, {"_id": 4}, {"_id": 1}])");
  check(R"([{"_id": 1, "a": 1, "b": 1}, {"_id": 2, "a": 1, "b": 2}, {"_id": 3, "a": 0, "b": 0}])",
        R"([{"$sort": {"a": -1, "b": -1}}, {"$project": {"_id": 1}}])",
        R"([{"_id": 2}, {"_id": 1}, {"_id": 3}])");
  CHECK(error_of(R"([{"$sort": {}}])") == 15976);
  CHECK(error_of(R"([{"$sort": 1}])") == 15973);
  CHECK(error_of(R"([{"$sort": {"a": 2}}])") == 15975);
  CHECK(error_of(R"([{"$sort": {"a": "x"}}])") == 15974);
  CHECK(error_of(R"([{"$sort": {"a": {"b": 1}}}])") == 17312);
  CHECK(error_of(R"([{"$sort": {"a": {"$meta": "textScore"}}}])") == 115);
}

TEST_CASE("groups by arrays are sorted by _id as the server sorts them") {
  const char* input = R"([{"k": [2, 9]}, {"k": []}, {"k": null}, {"k": {"z": 1}}, {"k": [2]}, {"k": 5},
                          {"k": "x"}, {"k": true}, {"k": [[1]]}])";
  const auto sorted = [&](const std::string& sort) {
    return R"([{"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": )" + sort + R"(}, {"$project": {"_id": 1}}])";
  };
  // Alone: whole, after objects.
  check(input, sorted(R"({"_id": 1})").c_str(),
        R"([{"_id": null}, {"_id": 5}, {"_id": "x"}, {"_id": {"z": 1}}, {"_id": []}, {"_id": [2]}, {"_id": [2, 9]},
            {"_id": [[1]]}, {"_id": true}])");
  check(input, sorted(R"({"_id": -1})").c_str(),
        R"([{"_id": true}, {"_id": [[1]]}, {"_id": [2, 9]}, {"_id": [2]}, {"_id": []}, {"_id": {"z": 1}}, {"_id": "x"},
            {"_id": 5}, {"_id": null}])");
  // Beside other fields: by the least or greatest element, an empty array before null.
  const char* by_elements =
      R"([{"_id": []}, {"_id": null}, {"_id": [2, 9]}, {"_id": [2]}, {"_id": 5}, {"_id": "x"}, {"_id": {"z": 1}},
          {"_id": [[1]]}, {"_id": true}])";
  check(input, sorted(R"({"_id": 1, "n": 1})").c_str(), by_elements);
  check(input, sorted(R"({"n": -1, "_id": 1})").c_str(), by_elements);
}

TEST_CASE("computed arrays are sorted by their elements") {
  const char* input = R"([{"_id": 1, "v": [5, 1]}, {"_id": 2, "v": []}, {"_id": 3, "v": 3}, {"_id": 4, "v": null}])";
  check(input, R"([{"$project": {"a": "$v"}}, {"$sort": {"a": 1}}, {"$project": {"_id": 1}}])",
        R"([{"_id": 2}, {"_id": 4}, {"_id": 1}, {"_id": 3}])");
  check(input, R"([{"$project": {"a": "$v"}}, {"$sort": {"a": -1}}, {"$project": {"_id": 1}}])",
        R"([{"_id": 1}, {"_id": 3}, {"_id": 4}, {"_id": 2}])");
  check(input, R"([{"$project": {"_id": "$v"}}, {"$sort": {"_id": 1}}])",
        R"([{"_id": null}, {"_id": 3}, {"_id": []}, {"_id": [5, 1]}])");
  CHECK(run_error(docs(R"([{"a": [1], "b": [2]}])"), R"([{"$sort": {"a": 1, "b": 1}}])") == 2);
}

TEST_CASE("a sort with a limit keeps few documents") {
  Budget budget(200 * 1024);
  const BsonDoc spec = stages(R"([{"$sort": {"a": 1}}, {"$limit": 3}])");
  auto parsed = parse_stages(spec, ParseScope());
  REQUIRE(parsed.has_value());
  MergePipeline pipeline(std::move(*parsed), budget.budget);
  for (int i = 0; i < 20'000; ++i) {  // two megabytes in all
    BsonWriter writer;
    writer.append("a", (i * 7919) % 20'000).append("fill", std::string(64, 'x'));
    REQUIRE(pipeline.push(std::move(writer).finish()).has_value());
  }
  REQUIRE(pipeline.finish().has_value());
  for (int expected = 0; expected < 3; ++expected) {
    auto doc = pipeline.next();
    REQUIRE(doc.has_value());
    REQUIRE(doc->has_value());
    CHECK((*doc)->view()["a"].as_int32() == expected);
  }
  CHECK_FALSE(pipeline.next()->has_value());
  CHECK(pipeline.exhausted());
}

TEST_CASE("many documents are sorted as a few are, with and without a limit") {
  Budget budget;
  std::vector<BsonDoc> input;
  for (int i = 0; i < 5000; ++i) {
    BsonWriter writer;
    writer.append("_id", i).append("a", (i * 7919) % 1500);
    input.push_back(std::move(writer).finish());
  }
  const auto ids = [](const std::vector<BsonDoc>& list) {
    std::vector<int> out;
    for (const BsonDoc& doc : list) out.push_back(doc.view()["_id"].as_int32());
    return out;
  };
  std::vector<BsonDoc> sorted = input;
  std::stable_sort(sorted.begin(), sorted.end(), [](const BsonDoc& x, const BsonDoc& y) {
    return x.view()["a"].as_int32() < y.view()["a"].as_int32();
  });
  const std::vector<int> expected = ids(sorted);
  CHECK(ids(run(input, R"([{"$sort": {"a": 1}}])")) == expected);
  for (const int limit : {1, 2, 66, 500, 512, 700, 4999, 5000, 9000}) {
    CAPTURE(limit);
    const auto some = ids(run(input, R"([{"$sort": {"a": 1}}, {"$limit": )" + std::to_string(limit) + "}]"));
    CHECK(some == std::vector<int>(expected.begin(), expected.begin() + std::min(limit, 5000)));
  }
}

TEST_CASE("limit and skip") {
  const char* input = R"([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])";
  check(input, R"([{"$skip": 1}, {"$limit": 2}])", R"([{"a": 2}, {"a": 3}])");
  check(input, R"([{"$limit": 3}, {"$skip": 2}])", R"([{"a": 3}])");
  CHECK(error_of(R"([{"$limit": 0}])") == 15958);
  CHECK(error_of(R"([{"$limit": "x"}])") == 15957);
  CHECK(error_of(R"([{"$skip": -1}])") == 15956);
  CHECK(error_of(R"([{"$skip": "x"}])") == 15972);
}

TEST_CASE("count says nothing about nothing") {
  check(R"([{}, {}, {}])", R"([{"$count": "n"}])", R"([{"n": 3}])");
  check(R"([])", R"([{"$count": "n"}])", R"([])");
  CHECK(error_of(R"([{"$count": ""}])") == 40157);
  CHECK(error_of(R"([{"$count": 5}])") == 40156);
  CHECK(error_of(R"([{"$count": "$n"}])") == 40158);
  CHECK(error_of(R"([{"$count": "a.b"}])") == 40160);
}

TEST_CASE("group accumulates") {
  const char* input = R"([{"k": 1, "v": 2}, {"k": 1.0, "v": 4.5}, {"k": "x", "v": null},
                          {"v": "text"}, {"k": null, "v": [1]}])";
  check(input, R"([{"$group": {"_id": "$k", "s": {"$sum": "$v"}, "a": {"$avg": "$v"},
                               "n": {"$sum": 1}, "c": {"$count": {}}}}])",
        R"([{"_id": 1, "s": 6.5, "a": 3.25, "n": 2, "c": 2},
            {"_id": "x", "s": 0, "a": null, "n": 1, "c": 1},
            {"_id": null, "s": 0, "a": null, "n": 2, "c": 2}])");
  check(input, R"([{"$group": {"_id": null, "lo": {"$min": "$v"}, "hi": {"$max": "$v"},
                               "f": {"$first": "$v"}, "l": {"$last": "$v"}}}])",
        R"([{"_id": null, "lo": 2, "hi": [1], "f": 2, "l": [1]}])");
  check(R"([{"v": 1}, {"v": 2}, {}, {"v": 1.0}])",
        R"([{"$group": {"_id": null, "p": {"$push": "$v"}, "s": {"$addToSet": "$v"}}}])",
        R"([{"_id": null, "p": [1, 2, 1.0], "s": [1, 2]}])");
  check(R"([{"v": {"a": 1}}, {"v": {"b": 2}}, {"v": {"a": 3}}])",
        R"([{"$group": {"_id": null, "m": {"$mergeObjects": "$v"}}}])",
        R"([{"_id": null, "m": {"a": 3, "b": 2}}])");
  check(R"([{"a": 1, "b": 2}, {"a": 1}])", R"([{"$group": {"_id": {"x": "$a", "y": "$b"}}}])",
        R"([{"_id": {"x": 1, "y": 2}}, {"_id": {"x": 1}}])");
  check(R"([])", R"([{"$group": {"_id": null, "n": {"$sum": 1}}}])", R"([])");
}

TEST_CASE("documents are merged in order, however many there are") {
  constexpr int documents = 20'000;
  std::string input = "[", expected;
  for (int i = 0; i < documents; ++i) {
    input += (i == 0 ? "" : ", ") + std::string(R"({"v": {"k)") + std::to_string(i) + R"(": )" + std::to_string(i) +
             R"(, "last": )" + std::to_string(i) + "}}";
    expected += (i == 0 ? "" : ", ") + std::string(R"("k)") + std::to_string(i) + R"(": )" + std::to_string(i);
    if (i == 0) expected += R"(, "last": )" + std::to_string(documents - 1);
  }
  check((input + "]").c_str(), R"([{"$group": {"_id": null, "m": {"$mergeObjects": "$v"}}}])",
        (R"([{"_id": null, "m": {)" + expected + "}}]").c_str());
}

TEST_CASE("a group's _id is a document of expressions, an expression, or a constant") {
  const char* input = R"([{"a": 1}, {"b": 2}, {"a": null}])";
  check(input, R"([{"$group": {"_id": {"x": "$a"}, "n": {"$sum": 1}}}])",
        R"([{"_id": {"x": 1}, "n": 1}, {"_id": {"x": null}, "n": 2}])");
  check(input, R"([{"$group": {"_id": {"x": "$c", "y": "$c"}}}])", R"([{"_id": {}}])");
  check(input, R"([{"$group": {"_id": {"x": {"y": "$c"}}}}])", R"([{"_id": {"x": {}}}])");
  check(input, R"([{"$group": {"_id": {}}}])", R"([{"_id": {}}])");
  check(input, R"([{"$group": {"_id": ["$a"], "n": {"$sum": 1}}}])", R"([{"_id": ["$a"], "n": 3}])");
  check(input, R"([{"$group": {"_id": {"x": ["$b"]}}}])", R"([{"_id": {"x": [null]}}, {"_id": {"x": [2]}}])");
}

TEST_CASE("sums of integers stay integers while they fit") {
  const auto type = [](const char* input) {
    return run(docs(input), R"([{"$group": {"_id": null, "s": {"$sum": "$v"}}}])")[0]
        .view()["s"]
        .type;
  };
  CHECK(type(R"([{"v": 1}, {"v": 2}])") == BsonType::int32);
  CHECK(type(R"([{"v": 2147483647}, {"v": 1}])") == BsonType::int64);
  CHECK(type(R"([{"v": {"$numberLong": "1"}}])") == BsonType::int64);
  CHECK(type(R"([{"v": {"$numberLong": "9223372036854775807"}}, {"v": 1}])") == BsonType::double_);
  CHECK(type(R"([{"v": 1}, {"v": 0.5}])") == BsonType::double_);
  CHECK(type(R"([{"v": {"$numberDecimal": "1"}}, {"v": 0.5}])") == BsonType::decimal128);
}

TEST_CASE("doubles are added with compensation") {
  const auto out = run(docs(R"([{"v": 1e100}, {"v": 1.0}, {"v": -1e100}])"),
                       R"([{"$group": {"_id": null, "s": {"$sum": "$v"}}}])");
  CHECK(out[0].view()["s"].as_double() == 1.0);
}

TEST_CASE("a sum of doubles and decimals keeps more than 15 digits of the doubles") {
  const auto group = [](const char* accumulator) {
    const auto out = run(docs(R"([{"v": 10995116277764.75}, {"v": {"$numberDecimal": "0.5"}}])"),
                         std::string(R"([{"$group": {"_id": null, "s": {")") + accumulator +
                             R"(": "$v"}}}])");
    return to_json(out[0].view()["s"]);
  };
  CHECK(group("$sum") == R"({ "$numberDecimal" : "10995116277765.25" })");
  CHECK(group("$avg") == R"({ "$numberDecimal" : "5497558138882.625" })");
}

TEST_CASE("group refuses what it does not know") {
  CHECK(error_of(R"([{"$group": 1}])") == 15947);
  CHECK(error_of(R"([{"$group": {"n": {"$sum": 1}}}])") == 15955);
  CHECK(error_of(R"([{"$group": {"_id": 1, "n": 5}}])") == 40234);
  CHECK(error_of(R"([{"$group": {"_id": 1, "n": {"$sum": 1, "$avg": 1}}}])") == 40238);
  CHECK(error_of(R"([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}])") == 40235);
  CHECK(error_of(R"([{"$group": {"_id": 1, "a.b": 1}}])") == 40234);
  CHECK(error_of(R"([{"$group": {"_id": 1, "$a": "$b"}}])") == 40234);
  CHECK(error_of(R"([{"$group": {"_id": 1, "n": {"$nosuch": 1}}}])") == 15952);
  CHECK(error_of(R"([{"$group": {"_id": 1, "n": {"$sum": [1, 2]}}}])") == 40237);
  CHECK(error_of(R"([{"$group": {"_id": 1, "n": {"$stdDevPop": "$x"}}}])") == 115);
}

TEST_CASE("sortByCount groups and sorts") {
  check(R"([{"k": "a"}, {"k": "b"}, {"k": "b"}])", R"([{"$sortByCount": "$k"}])",
        R"([{"_id": "b", "count": 2}, {"_id": "a", "count": 1}])");
  CHECK(error_of(R"([{"$sortByCount": {"k": 1}}])") == 40147);
  CHECK(error_of(R"([{"$sortByCount": {}}])") == 40147);
  CHECK(error_of(R"([{"$sortByCount": "k"}])") == 40148);
  CHECK(error_of(R"([{"$sortByCount": 3}])") == 40149);
}

TEST_CASE("unknown stages are told from unsupported ones") {
  CHECK(error_of(R"([{"$nosuch": 1}])") == 40324);
  CHECK(error_of(R"([{"$lookup": {}}])") == 115);
  CHECK(error_of(R"([{"$match": {}, "$limit": 1}])") == 40323);
  CHECK(error_of(R"([{"$match": 1}])") == 15959);
  CHECK(error_of(R"([5])") == 14);
}

TEST_CASE("a satisfied limit stops the upstream and the stages before it") {
  Budget budget;
  const BsonDoc spec = stages(R"([{"$unwind": "$a"}, {"$limit": 2}])");
  auto parsed = parse_stages(spec, ParseScope());
  REQUIRE(parsed.has_value());
  MergePipeline pipeline(std::move(*parsed), budget.budget);
  CHECK(pipeline.wants_more());
  REQUIRE(pipeline.push(json(R"({"a": [1, 2, 3, 4]})")).has_value());
  CHECK(pipeline.next()->has_value());
  CHECK(pipeline.wants_more());
  CHECK(pipeline.next()->has_value());
  CHECK_FALSE(pipeline.wants_more());
  REQUIRE(pipeline.finish().has_value());
  CHECK_FALSE(pipeline.next()->has_value());
}

TEST_CASE("no step of a pipeline does more than one document's work") {
  Budget budget;
  BsonWriter many;
  many.append("_id", 1).begin_array("a");
  for (int i = 0; i < 1000; ++i) many.append_item(i % 250);
  many.end();
  const BsonDoc doc = std::move(many).finish();
  const auto start = [&](std::string_view text) {
    const BsonDoc spec = stages(text);
    auto parsed = parse_stages(spec, ParseScope());
    REQUIRE(parsed.has_value());
    return MergePipeline(std::move(*parsed), budget.budget);
  };
  // Returns how many steps it was busy for; counts what came out.
  const auto drain = [](MergePipeline& pipeline, int& documents) {
    int steps = 0;
    for (;;) {
      if (pipeline.take()) {
        ++documents;
      } else if (pipeline.busy()) {
        REQUIRE(pipeline.step().has_value());
        ++steps;
      } else {
        return steps;
      }
    }
  };
  SECTION("an unwound array that goes into groups and a sort") {
    auto pipeline =
        start(R"([{"$unwind": "$a"}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$sort": {"_id": -1}}])");
    int documents = 0;
    REQUIRE(pipeline.push(doc).has_value());
    CHECK(drain(pipeline, documents) == 1000);
    CHECK(documents == 0);
    REQUIRE(pipeline.finish().has_value());
    CHECK(drain(pipeline, documents) >= 2 * 250);
    CHECK(documents == 250);
    CHECK(pipeline.exhausted());
  }
  SECTION("groups that a match lets none of through") {
    auto pipeline = start(R"([{"$unwind": "$a"}, {"$group": {"_id": "$a"}}, {"$match": {"_id": -1}}])");
    int documents = 0;
    REQUIRE(pipeline.push(doc).has_value());
    drain(pipeline, documents);
    REQUIRE(pipeline.finish().has_value());
    CHECK(drain(pipeline, documents) >= 250);
    CHECK(documents == 0);
  }
  SECTION("arrays in arrays, in their order") {
    auto pipeline = start(R"([{"$unwind": "$a"}, {"$unwind": "$a"}, {"$project": {"_id": 0}}])");
    REQUIRE(pipeline.push(json(R"({"a": [[1, 2], [], [3], 4]})")).has_value());
    REQUIRE(pipeline.push(json(R"({"a": [[5, 6]]})")).has_value());  // before the first is taken
    REQUIRE(pipeline.finish().has_value());
    std::vector<BsonDoc> out;
    while (auto next = *pipeline.next()) out.push_back(std::move(*next));
    CHECK(text(out) == text(docs(R"([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}, {"a": 5}, {"a": 6}])")));
  }
}

TEST_CASE("what an unwound array becomes is not kept as a whole") {
  Budget budget(1024 * 1024);
  BsonWriter many;
  many.append("fill", std::string(10'000, 'x')).begin_array("a");
  for (int i = 0; i < 2000; ++i) many.append_item(i);  // 20 MB in all
  many.end();
  const BsonDoc spec = stages(R"([{"$unwind": "$a"}])");
  auto parsed = parse_stages(spec, ParseScope());
  REQUIRE(parsed.has_value());
  MergePipeline pipeline(std::move(*parsed), budget.budget);
  REQUIRE(pipeline.push(std::move(many).finish()).has_value());
  int documents = 0;
  for (;;) {
    auto next = pipeline.next();
    REQUIRE(next.has_value());
    if (!*next) break;
    ++documents;
  }
  CHECK(documents == 2000);
}

TEST_CASE("output streams before the input ends") {
  Budget budget;
  const BsonDoc spec = stages(R"([{"$match": {"a": {"$gt": 1}}}])");
  auto parsed = parse_stages(spec, ParseScope());
  REQUIRE(parsed.has_value());
  MergePipeline pipeline(std::move(*parsed), budget.budget);
  REQUIRE(pipeline.push(json(R"({"a": 1})")).has_value());
  CHECK_FALSE(pipeline.next()->has_value());
  REQUIRE(pipeline.push(json(R"({"a": 2})")).has_value());
  CHECK(pipeline.next()->has_value());
  CHECK_FALSE(pipeline.exhausted());
}

struct Pushed {
  int code = 0;
  std::uint64_t peak_bytes = 0;
};

Pushed push_many(const char* spec_text, std::uint64_t stage_limit, std::uint64_t budget_limit) {
  Budget budget(budget_limit);
  Pushed pushed;
  {
    const BsonDoc spec = stages(spec_text);
    auto parsed = parse_stages(spec, ParseScope());
    REQUIRE(parsed.has_value());
    MergePipeline pipeline(std::move(*parsed), budget.budget, stage_limit);
    for (int i = 0; i < 3000 && pushed.code == 0; ++i) {
      BsonWriter writer;
      writer.append("_id", i).append("fill", std::string(1000, 'x'));
      if (auto done = pipeline.push(std::move(writer).finish()); !done) {
        pushed.code = done.error().code;
      }
    }
  }
  pushed.peak_bytes = budget.budget.usage().peak_bytes;
  CHECK(budget.budget.usage().used_bytes == 0);
  return pushed;
}

TEST_CASE("blocking stages are bounded by their limit and by the budget") {
  for (const char* spec :
       {R"([{"$sort": {"_id": 1}}])", R"([{"$group": {"_id": null, "all": {"$push": "$fill"}}}])",
        R"([{"$group": {"_id": null, "all": {"$addToSet": "$$ROOT"}}}])",
        R"([{"$group": {"_id": "$$ROOT"}}])"}) {
    INFO(spec);
    const Pushed over_limit = push_many(spec, 1024 * 1024, 0);
    CHECK(over_limit.code == 292);
    CHECK(over_limit.peak_bytes <= 1024 * 1024 + 64 * 1024);
    const Pushed over_budget = push_many(spec, stage_bytes_max, 1024 * 1024);
    CHECK(over_budget.code == 146);
    CHECK(over_budget.peak_bytes <= 1024 * 1024);
  }
  CHECK(push_many(R"([{"$group": {"_id": null, "n": {"$sum": 1}}}])", 64 * 1024, 64 * 1024).code ==
        0);
}

TEST_CASE("the fields of documents that are merged are paid for while they are gathered") {
  constexpr int fields = 50'000;
  BsonWriter many, pairs;
  pairs.begin_array("p");
  for (int i = 0; i < fields; ++i) {
    const std::string name = "f" + std::to_string(i);
    many.append(name, i);
    pairs.begin_array_item().append_item(name).append_item(i).end();
  }
  const BsonDoc document = std::move(many).finish();
  pairs.end().append("d", document);
  const BsonDoc doc = std::move(pairs).finish();
  const auto run_within = [&](const char* spec_text, std::uint64_t stage_limit) {
    Budget budget;
    int code = 0;
    {
      const BsonDoc spec = stages(spec_text);
      auto parsed = parse_stages(spec, ParseScope());
      REQUIRE(parsed.has_value());
      MergePipeline pipeline(std::move(*parsed), budget.budget, stage_limit);
      if (auto pushed = pipeline.push(doc); !pushed) code = pushed.error().code;
      // What was gathered has gone.
      if (code == 0) CHECK(budget.budget.usage().used_bytes < 3 * doc.size());
    }
    CHECK(budget.budget.usage().used_bytes == 0);
    return code;
  };
  for (const char* spec : {R"([{"$project": {"m": {"$mergeObjects": ["$d", {"x": 1}]}}}])",
                           R"([{"$project": {"m": {"$arrayToObject": "$p"}}}])",
                           R"([{"$group": {"_id": null, "m": {"$mergeObjects": "$d"}}}])"}) {
    INFO(spec);
    // The entries of the fields take more than six megabytes, the documents three at most.
    CHECK(run_within(spec, 6 * 1024 * 1024) == 292);
    CHECK(run_within(spec, 20 * 1024 * 1024) == 0);
  }
}

// Bytes that this thread has taken of malloc and not given back; 0 with a malloc that does not tell.
std::uint64_t allocated_bytes() {
  std::uint64_t taken = 0, given_back = 0;
  std::size_t size = sizeof taken;
  if (mallctl == nullptr) return mallinfo2().uordblks + mallinfo2().hblkhd;
  mallctl("thread.allocated", &taken, &size, nullptr, 0);
  mallctl("thread.deallocated", &given_back, &size, nullptr, 0);
  return taken - given_back;
}

TEST_CASE("groups charge what their accumulators take") {
  for (const char* accumulators :
       {"", R"(, "a": {"$sum": "$v"})", R"(, "a": {"$avg": "$v"}, "b": {"$sum": 1}, "c": {"$sum": 1})",
        R"(, "a": {"$max": "$v"}, "b": {"$min": "$t"}, "c": {"$first": "$t"})", R"(, "a": {"$push": "$v"})",
        R"(, "a": {"$push": "$t"}, "b": {"$push": "$t"})", R"(, "a": {"$addToSet": "$v"})",
        R"(, "a": {"$addToSet": "$t"})", R"(, "a": {"$mergeObjects": "$$ROOT"})"}) {
    INFO(accumulators);
    for (const int documents : {1, 3, 20}) {
      CAPTURE(documents);
      Budget budget;
      const BsonDoc spec = stages(R"([{"$group": {"_id": "$g")" + std::string(accumulators) + "}}]");
      auto parsed = parse_stages(spec, ParseScope());
      REQUIRE(parsed.has_value());
      MergePipeline pipeline(std::move(*parsed), budget.budget);
      constexpr int groups = 5000;
      const std::uint64_t before = allocated_bytes();
      for (int i = 0; i < groups * documents; ++i) {
        BsonWriter writer;
        writer.append("g", i % groups).append("v", i).append("t", "a text of thirty bytes or so " + std::to_string(i));
        REQUIRE(pipeline.push(std::move(writer).finish()).has_value());
      }
      const double taken = static_cast<double>(allocated_bytes() - before) / groups;
      const double charged = static_cast<double>(pipeline.held_bytes()) / groups;
      CAPTURE(taken, charged);
      CHECK(charged > 0.85 * taken);
      CHECK((taken == 0 || charged < 1.6 * taken));
    }
  }
}

TEST_CASE("output that is not taken is bounded, too") {
  CHECK(push_many(R"([{"$match": {}}])", 1024 * 1024, 0).code == 292);
}

TEST_CASE("a malformed document is refused") {
  Budget budget;
  MergePipeline pipeline({}, budget.budget);
  // A string whose length reaches beyond the document.
  const std::uint8_t bytes[] = {15, 0, 0, 0, 0x02, 'a', 0, 99, 0, 0, 0, 'x', 0, 0, 0};
  CHECK_FALSE(pipeline.push(DocView::trusted(bytes)).has_value());
}

}  // namespace
}  // namespace spillway::pipeline::test
