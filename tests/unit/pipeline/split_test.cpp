#include <iterator>
#include <set>

#include "pipeline_support.h"
#include "proxy/pipeline/split/shape.h"
#include "proxy/pipeline/split/split.h"

namespace spillway::pipeline::test {
namespace {

// An array's stages as text, to compare.
std::string array_text(DocView array) {
  std::vector<BsonDoc> list;
  for (const Element& element : array) {
    list.emplace_back(element.as_document());
  }
  return text(list);
}

SplitPipeline split_of(const char* pipeline) {
  INFO(pipeline);
  const BsonDoc spec = stages(pipeline);
  auto result = split(spec);
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.has_value());
  return std::move(*result);
}

Error refusal_of(const char* pipeline) {
  INFO(pipeline);
  const BsonDoc spec = stages(pipeline);
  auto result = split(spec);
  REQUIRE_FALSE(result.has_value());
  return result.error();
}

void check_parts(const char* pipeline, const char* shard_part, const char* merge_part,
                 const char* merge_sort = nullptr) {
  INFO(pipeline);
  const SplitPipeline parts = split_of(pipeline);
  CHECK(array_text(parts.shard_part.view()) == text(docs(shard_part)));
  CHECK(array_text(parts.merge_part.view()) == text(docs(merge_part)));
  CHECK(parts.merge_sort.has_value() == (merge_sort != nullptr));
  if (parts.merge_sort && merge_sort != nullptr) {
    CHECK(to_json(parts.merge_sort->view()) == to_json(json(merge_sort)));
  }
}

TEST_CASE("stages that see one document at a time stay on the shards") {
  const char* all = R"([{"$match": {"a": 1}}, {"$project": {"a": {"$zip": {"inputs": ["$b"]}}}},
                        {"$unwind": "$b"}, {"$set": {"c": 1}}, {"$unset": "d"},
                        {"$replaceRoot": {"newRoot": "$x"}}])";
  check_parts(all, all, "[]");
  CHECK(split_of(all).merge.empty());
  CHECK(split_of("[]").merge.empty());
}

TEST_CASE("a sort is done by the shards and merged") {
  check_parts(R"([{"$sort": {"a": 1}}])", R"([{"$sort": {"a": 1}}])", "[]", R"({"a": 1})");
  CHECK(split_of(R"([{"$sort": {"a": 1}}])").merge.empty());
}

TEST_CASE("what leaves the sort key alone follows the sort to the shards") {
  for (const char* stage :
       {R"({"$match": {"a": 1}})", R"({"$project": {"a": 1}})", R"({"$project": {"b": 0}})",
        R"({"$project": {"_id": 0}})", R"({"$set": {"b": "$a"}})", R"({"$unset": ["b", "c.a"]})"}) {
    INFO(stage);
    const std::string pipeline = R"([{"$sort": {"a.x": 1}}, )" + std::string(stage) + "]";
    CHECK(split_of(pipeline.c_str()).merge.empty());
  }
  for (const char* stage :
       {R"({"$project": {"b": 1}})", R"({"$project": {"a": 0}})", R"({"$project": {"a.x": 1}})",
        R"({"$project": {"a": "$b"}})", R"({"$set": {"a.y": 1}})", R"({"$unset": "a.y"})",
        R"({"$unwind": "$a"})", R"({"$replaceWith": "$b"})", R"({"$unwind": "$b"})"}) {
    INFO(stage);
    const std::string pipeline = R"([{"$sort": {"a.x": 1}}, )" + std::string(stage) + "]";
    CHECK_FALSE(split_of(pipeline.c_str()).merge.empty());
  }
}

TEST_CASE("limits go to the shards, with the skips before them") {
  check_parts(R"([{"$limit": 5}])", R"([{"$limit": 5}])", R"([{"$limit": 5}])");
  check_parts(R"([{"$sort": {"a": 1}}, {"$skip": 3}, {"$limit": 5}])",
              R"([{"$sort": {"a": 1}}, {"$limit": 8}])", R"([{"$skip": 3}, {"$limit": 5}])",
              R"({"a": 1})");
  check_parts(R"([{"$skip": 3}])", "[]", R"([{"$skip": 3}])");
  check_parts(R"([{"$limit": 5}, {"$project": {"a": 1}}])",
              R"([{"$limit": 5}, {"$project": {"a": 1}}])", R"([{"$limit": 5}])");
  check_parts(R"([{"$limit": 5}, {"$match": {"a": 1}}])", R"([{"$limit": 5}])",
              R"([{"$limit": 5}, {"$match": {"a": 1}}])");
  const SplitPipeline window = split_of(R"([{"$limit": 10}, {"$skip": 3}, {"$limit": 20}])");
  CHECK(window.window_only);
  CHECK(window.skip == 3);
  CHECK(window.limit == 7);
  CHECK_FALSE(split_of(R"([{"$limit": 10}, {"$match": {}}])").window_only);
  const SplitPipeline none = split_of(R"([{"$limit": 2}, {"$skip": 3}])");
  CHECK(none.window_only);
  CHECK(none.limit == 0);
  check_parts(R"([{"$skip": 3}, {"$limit": {"$numberLong": "9223372036854775807"}}])", "[]",
              R"([{"$skip": 3}, {"$limit": {"$numberLong": "9223372036854775807"}}])");
}

TEST_CASE("a computed projection behind a limit is evaluated for the window alone") {
  check_parts(R"([{"$limit": 5}, {"$project": {"a": {"$divide": [1, "$b"]}}}])",
              R"([{"$limit": 5}])",
              R"([{"$limit": 5}, {"$project": {"a": {"$divide": [1, "$b"]}}}])");
  // Paths and literals cannot fail.
  CHECK(split_of(R"([{"$limit": 5}, {"$set": {"a": "$b", "c": {"d": ["$e", 1]}}}])").window_only);
  // Not evaluated here: the shards do it.
  CHECK(split_of(R"([{"$limit": 5}, {"$project": {"a": {"$zip": {"inputs": ["$b"]}}}}])")
            .window_only);
}

TEST_CASE("what only servers evaluate behind a limit is left to a merging shard") {
  const BsonDoc spec = stages(R"([{"$limit": 5}, {"$set": {"a": {"$sqrt": "$b"}}}])");
  const auto refused = split(spec, {.refuse_partial = true});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().is(ErrorCode::command_not_supported));
  CHECK_FALSE(split_of(R"([{"$limit": 5}, {"$set": {"a": {"$sqrt": "$b"}}}])").window_only);
}

TEST_CASE("a field that is removed and added behind the shards' part is left to a merging shard") {
  const auto supported = [](const char* text) {
    const auto parts = split(stages(text), {.refuse_partial = true});
    if (!parts) CHECK(parts.error().is(ErrorCode::command_not_supported));
    return parts.has_value();
  };
  CHECK_FALSE(supported(R"([{"$group": {"_id": "$a", "t": {"$sum": 1}}}, {"$unset": "t"}, {"$set": {"t": 1}}])"));
  CHECK_FALSE(
      supported(R"([{"$limit": 5}, {"$project": {"t": 0}}, {"$limit": 4}, {"$set": {"t": {"$add": [1, "$a"]}}}])"));
  CHECK_FALSE(supported(R"([{"$limit": 5}, {"$unset": ["b", "t.x"]}, {"$set": {"t.y": {"$add": [1, "$a"]}}}])"));
  // The shards do both, another field is added, or the documents are new ones.
  CHECK(supported(R"([{"$limit": 5}, {"$unset": "t"}, {"$set": {"t": 1}}])"));
  CHECK(supported(R"([{"$unset": "t"}, {"$limit": 5}, {"$set": {"t": {"$add": [1, "$a"]}}}])"));
  CHECK(supported(R"([{"$limit": 5}, {"$unset": "t"}, {"$set": {"u": {"$add": [1, "$a"]}}}])"));
  CHECK(supported(R"([{"$limit": 5}, {"$unset": "t"}, {"$project": {"a": 1}}, {"$set": {"t": {"$add": [1, "$a"]}}}])"));
  CHECK(supported(
      R"([{"$limit": 5}, {"$unset": "t"}, {"$group": {"_id": "$a"}}, {"$set": {"t": {"$add": [1, "$a"]}}}])"));
}

TEST_CASE("a group becomes partial groups of ordinary accumulators") {
  check_parts(R"([{"$group": {"_id": "$k", "s": {"$sum": "$v"}, "c": {"$count": {}},
                              "lo": {"$min": "$v"}, "p": {"$push": "$v"}}}])",
              R"([{"$group": {"_id": "$k", "s": {"$sum": "$v"}, "c": {"$count": {}},
                              "lo": {"$min": "$v"}, "p": {"$push": "$v"}}}])",
              R"([{"$group": {"_id": "$_id", "s": {"$sum": "$s"}, "c": {"$sum": "$c"},
                              "lo": {"$min": "$lo"}, "p": {"$concatArrays": "$p"}}}])");
}

TEST_CASE("a group cannot be merged by the field without a name") {
  const auto refused = split(stages(R"([{"$group": {"_id": "$k", "": {"$sum": 1}}}])"));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == 40353);
}

TEST_CASE("an average becomes a sum and a count, beside itself") {
  const SplitPipeline parts = split_of(
      R"([{"$group": {"_id": null, "a": {"$avg": "$v"}, "_spillway_sum_0": {"$sum": 1}}}])");
  const DocView group = parts.shard_part.view()["0"].as_document()["$group"].as_document();
  CHECK(to_json(group["a"]) == to_json(json(R"({"$avg": "$v"})").view()));
  CHECK(to_json(group["_spillway_sum_0_"]) == to_json(json(R"({"$sum": "$v"})").view()));
  CHECK(group["_spillway_count_0"].is_document());
}

TEST_CASE("the hidden fields of many averages clash with none of the client's") {
  constexpr int averages = 2'000;
  std::string fields;
  for (int i = 0; i < averages; ++i) {
    const std::string number = std::to_string(i);
    fields += ", \"a" + number + "\": {\"$avg\": \"$v\"}";
    fields += ", \"_spillway_" + std::string(i % 2 == 0 ? "sum" : "count") + "_" + number +
              "\": {\"$max\": \"$v\"}";
  }
  const SplitPipeline parts = split_of(("[{\"$group\": {\"_id\": null" + fields + "}}]").c_str());
  const DocView group = parts.shard_part.view()["0"].as_document()["$group"].as_document();
  std::set<std::string_view> names;
  for (const Element& field : group) {
    names.insert(field.name);
  }
  CHECK(names.size() == 1 + 4 * averages);
}

TEST_CASE("a sorted group that needs the order is done here on the merged documents") {
  check_parts(R"([{"$sort": {"a": 1}}, {"$group": {"_id": "$k", "f": {"$first": "$v"}}}])",
              R"([{"$sort": {"a": 1}}])", R"([{"$group": {"_id": "$k", "f": {"$first": "$v"}}}])",
              R"({"a": 1})");
  // One that does not need it is still divided.
  check_parts(R"([{"$sort": {"a": 1}}, {"$group": {"_id": "$k", "n": {"$sum": 1}}}])",
              R"([{"$sort": {"a": 1}}, {"$group": {"_id": "$k", "n": {"$sum": 1}}}])",
              R"([{"$group": {"_id": "$_id", "n": {"$sum": "$n"}}}])");
}

TEST_CASE("what follows a group is done here") {
  check_parts(R"([{"$match": {"a": 1}}, {"$group": {"_id": "$k", "n": {"$sum": 1}}},
                  {"$match": {"n": {"$gt": 2}}}, {"$sort": {"n": -1}}, {"$limit": 3}])",
              R"([{"$match": {"a": 1}}, {"$group": {"_id": "$k", "n": {"$sum": 1}}}])",
              R"([{"$group": {"_id": "$_id", "n": {"$sum": "$n"}}}, {"$match": {"n": {"$gt": 2}}},
                  {"$sort": {"n": -1}}, {"$limit": 3}])");
}

TEST_CASE("counts are added up") {
  check_parts(R"([{"$match": {"a": 1}}, {"$count": "n"}])",
              R"([{"$match": {"a": 1}}, {"$count": "n"}])", R"([{"$count": "n"}])");
  check_parts(R"([{"$sortByCount": "$k"}])", R"([{"$sortByCount": "$k"}])",
              R"([{"$group": {"_id": "$_id", "count": {"$sum": "$count"}}},
                  {"$sort": {"count": -1}}])");
  check_parts(R"([{"$limit": 3}, {"$count": "n"}])", R"([{"$limit": 3}])",
              R"([{"$limit": 3}, {"$count": "n"}])");
}

TEST_CASE("what cannot be divided is refused by name") {
  for (const char* stage : {"$lookup", "$facet", "$unionWith", "$out", "$merge", "$sample",
                            "$bucket", "$graphLookup", "$geoNear", "$setWindowFields"}) {
    const std::string pipeline = R"([{"$match": {}}, {")" + std::string(stage) + R"(": {}}])";
    const Error error = refusal_of(pipeline.c_str());
    CHECK(error.code == 115);
    CHECK(error.message.find(stage) != std::string::npos);
  }
  const Error accumulator = refusal_of(R"([{"$group": {"_id": 1, "x": {"$stdDevPop": "$a"}}}])");
  CHECK(accumulator.code == 115);
  CHECK(accumulator.message.find("$stdDevPop") != std::string::npos);
  const Error expression = refusal_of(
      R"([{"$group": {"_id": "$a"}}, {"$project": {"x": {"$regexMatch": {"input": "$_id"}}}}])");
  CHECK(expression.code == 115);
  CHECK(expression.message.find("$regexMatch") != std::string::npos);
  CHECK(refusal_of(R"([{"$sort": {"a": {"$meta": "textScore"}}}])").code == 115);
  CHECK(refusal_of(R"([{"$nosuch": 1}])").code == 40324);
  CHECK(refusal_of(R"([{"$limit": 1, "$skip": 1}])").code == 40323);
  CHECK(refusal_of(R"([{"$limit": -1}])").code == 15958);
}

TEST_CASE("variables of the command are constants in the merge part") {
  const BsonDoc let = json(R"({"low": 2})");
  const BsonDoc spec = stages(
      R"([{"$group": {"_id": "$k", "n": {"$sum": 1}}},
          {"$match": {"$expr": {"$gte": ["$n", "$$low"]}}}])");
  SplitOptions options;
  options.let = let;
  auto parts = split(spec, options);
  REQUIRE(parts.has_value());
  Budget budget;
  MergePipeline merge(std::move(parts->merge), budget.budget);
  REQUIRE(merge.push(json(R"({"_id": 1, "n": 1})")).has_value());
  REQUIRE(merge.push(json(R"({"_id": 1, "n": 1})")).has_value());
  REQUIRE(merge.push(json(R"({"_id": 2, "n": 1})")).has_value());
  REQUIRE(merge.finish().has_value());
  auto doc = merge.next();
  REQUIRE(doc.has_value());
  REQUIRE(doc->has_value());
  CHECK(to_json((*doc)->view()) == to_json(json(R"({"_id": 1, "n": 2})")));
  CHECK_FALSE(merge.next()->has_value());
}

// The stages that only run in the proxy, as text; "" without any.
std::string unseen(const char* pipeline) {
  const SplitPipeline parts = split_of(pipeline);
  return parts.unseen ? array_text(parts.unseen->view()) : std::string();
}

std::string repeated(std::string_view item, int count) {
  std::string list(item);
  while (--count > 0) {
    list.append(", ").append(item);
  }
  return list;
}

TEST_CASE("what is parsed of the merge part is charged, and as long as it is kept") {
  constexpr int count = 20'000;
  struct Form {
    std::string stage;
    std::uint64_t least_each;
    std::uint64_t most_each;
  };
  std::string fields = R"("f": 1)";
  for (int i = 0; i < count; ++i) {
    fields += ", \"f" + std::to_string(i) + "\": 1";
  }
  const auto in = [](const std::string& list) {
    return R"({"$addFields": {"y": {"$in": ["$x", [)" + list + "]]}}}";
  };
  const Form forms[] = {
      {R"({"$addFields": {"y": {"$and": [)" + repeated("null", count) + "]}}}", 80, 256},
      {R"({"$addFields": {"y": {"$and": [)" + repeated(R"("$a.b")", count) + "]}}}", 150, 400},
      {R"({"$match": {"$or": [)" + repeated("{}", count) + "]}}", sizeof(void*) * 16, 700},
      {R"({"$match": {"x": {"$in": [)" + repeated("7", count) + "]}}}", 32, 128},
      {"{\"$project\": {" + fields + "}}", 100, 700},
      {R"({"$group": {"_id": {"k": [)" + repeated(R"("$x")", count) + "]}}}", 100, 400},
      {in(repeated("7", count)), 4, 32}};
  for (const Form& form : forms) {
    INFO(form.stage.substr(0, 60));
    Budget budget;
    const BsonDoc spec = stages(R"([{"$sortByCount": "$k"}, )" + form.stage + "]");
    auto parts = split(spec, {DocView(), &budget.budget});
    REQUIRE(parts.has_value());
    const std::uint64_t held = budget.budget.usage().used_bytes;
    CHECK(held >= form.least_each * count);
    CHECK(held <= form.most_each * count + 8192);
    {
      MergePipeline merge(std::move(parts->merge), budget.budget, stage_bytes_max,
                          std::move(parts->parsed));
      CHECK(budget.budget.usage().used_bytes >= held);
    }
    CHECK(budget.budget.usage().used_bytes == 0);
  }
}

TEST_CASE("the stages that run here are bounded in number") {
  const auto skips = [](int count) { return "[" + repeated(R"({"$skip": 0})", count) + "]"; };
  CHECK(split_of(skips(1000).c_str()).merge.size() == 1000);
  CHECK(refusal_of(skips(1001).c_str()).code == 7749501);
  CHECK(run_error(docs("[{}]"), skips(1000)) == 0);
  CHECK(run_error(docs("[{}]"), skips(1001)) == 7749501);
  // Those that the shards run are theirs to count.
  CHECK(split_of(("[" + repeated(R"({"$unset": "a"})", 1001) + "]").c_str()).merge.empty());
}

TEST_CASE("a pipeline that the budget has no room for is refused before it is parsed whole") {
  for (const std::uint64_t limit : {std::uint64_t{64} << 10, std::uint64_t{1} << 20}) {
    Budget budget(limit);
    const BsonDoc spec = stages(R"([{"$limit": 5}, {"$addFields": {"y": {"$and": [)" +
                                repeated("null", 20'000) + "]}}}]");
    const auto parts = split(spec, {DocView(), &budget.budget});
    REQUIRE_FALSE(parts.has_value());
    CHECK((parts.error().code == 146 || parts.error().code == 462));
    CHECK(budget.budget.usage().used_bytes == 0);
    CHECK(budget.budget.usage().peak_bytes <= limit);
  }
  Budget budget(64 << 10);
  const BsonDoc filter = json("{\"$or\": [" + repeated("{}", 20'000) + "]}");
  const std::vector<BsonDoc> none;
  const auto found = run_find(none, {filter, {}, {}}, budget.budget);
  REQUIRE_FALSE(found.has_value());
  CHECK((found.error().code == 146 || found.error().code == 462));
  // More parts than a path may have are not what memory is refused for.
  const BsonDoc too_long = json("{\"" + std::string(4'000, '.') + "\": 1}");
  CHECK(run_find(none, {too_long, {}, {}}, budget.budget).error().code == 15);
}

TEST_CASE("what no shard sees stands behind a match of nothing") {
  const auto same = [](const char* pipeline, const char* rest) {
    const std::string all = std::string(R"([{"$match": {"_id": {"$in": []}}}, )") + rest + "]";
    CHECK(unseen(pipeline) == text(docs(all.c_str())));
  };
  same(R"([{"$group": {"_id": "$a"}}, {"$replaceWith": "$_id"}, {"$sort": {"b": 1}}])",
       R"({"$replaceWith": "$_id"}, {"$sort": {"b": 1}})");
  same(R"([{"$count": "n"}, {"$match": {"n": 3}}])", R"({"$match": {"n": 3}})");
  same(R"([{"$limit": 3}, {"$unwind": "$a"}])", R"({"$unwind": "$a"})");
  same(R"([{"$limit": 3}, {"$set": {"a": {"$add": [1, "$b"]}}}])",
       R"({"$set": {"a": {"$add": [1, "$b"]}}})");
  same(R"([{"$sort": {"a": 1}}, {"$group": {"_id": null, "x": {"$first": "$a"}}}])",
       R"({"$group": {"_id": null, "x": {"$first": "$a"}}})");
  same(R"([{"$sort": {"a": 1}}, {"$unset": "a"}])", R"({"$unset": "a"})");
}

TEST_CASE("a pipeline that the shards see whole asks nothing more") {
  for (const char* pipeline :
       {R"([])", R"([{"$match": {"a": 1}}, {"$sort": {"a": 1}}, {"$skip": 2}, {"$limit": 3}])",
        R"([{"$group": {"_id": "$a", "x": {"$avg": "$b"}}}])", R"([{"$count": "n"}])",
        R"([{"$sortByCount": "$a"}])", R"([{"$limit": 5}, {"$project": {"a": 1}}])"}) {
    INFO(pipeline);
    CHECK(unseen(pipeline).empty());
  }
}

TEST_CASE("what no shard sees finds nothing") {
  const SplitPipeline parts = split_of(R"([{"$count": "n"}, {"$group": {"_id": null}}])");
  Budget budget;
  const std::vector<BsonDoc> one{json(R"({"_id": 1})")};
  auto out = run_pipeline(one, *parts.unseen, budget.budget);
  REQUIRE(out.has_value());
  CHECK(out->empty());
}

TEST_CASE("pipelines of one shape differ in values only") {
  const auto shape = [](const char* text) { return shape_of(stages(text)); };
  CHECK(shape(R"([{"$match": {"a": 3, "b": "x"}}])") ==
        shape(R"([{"$match": {"a": 9, "b": ""}}])"));
  const char* different[] = {
      R"([])",
      R"([{"$match": {"a": 3}}])",
      R"([{"$match": {"b": 3}}])",
      R"([{"$match": {"a": "3"}}])",
      R"([{"$match": {"a": {"$gt": 3}}}])",
      R"([{"$match": {"a": {"$lt": 3}}}])",
      R"([{"$match": {"a": 3}}, {"$match": {"a": 3}}])",
      R"([{"$project": {"a": 1}}])",
      R"([{"$project": {"a": 0}}])",
      R"([{"$project": {"a": true}}])",
      R"([{"$project": {"a": false}}])",
      R"([{"$project": {"a": "$b"}}])",
      R"([{"$project": {"a": "$c"}}])",
      R"([{"$sort": {"a": 1}}])",
      R"([{"$sort": {"a": -1}}])",
      R"([{"$sort": {"a": 1, "b": 1}}])",
      R"([{"$sort": {"b": 1, "a": 1}}])",
  };
  std::set<std::uint64_t> shapes;
  for (const char* text : different) shapes.insert(shape(text));
  CHECK(shapes.size() == std::size(different));
}

}  // namespace
}  // namespace spillway::pipeline::test
