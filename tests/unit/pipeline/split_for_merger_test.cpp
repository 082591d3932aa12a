#include "pipeline_support.h"
#include "proxy/pipeline/split/split_for_merger.h"

namespace spillway::pipeline::test {
namespace {

std::string stages_text(DocView array) {
  std::vector<BsonDoc> list;
  for (const Element& element : array) list.emplace_back(element.as_document());
  return text(list);
}

SplitForMerger divided(const char* pipeline) {
  INFO(pipeline);
  const BsonDoc spec = stages(pipeline);
  auto result = split_for_merger(spec);
  REQUIRE(result.has_value());
  return std::move(*result);
}

void check_halves(const char* pipeline, const char* shard_part, const char* merge_part, bool needs_merge = false,
                  const char* merge_sort = "{}") {
  INFO(pipeline);
  const SplitForMerger parts = divided(pipeline);
  CHECK(stages_text(parts.shard_part.view()) == text(docs(shard_part)));
  CHECK(stages_text(parts.merge_part.view()) == text(docs(merge_part)));
  CHECK(to_json(parts.merge_sort.view()) == to_json(json(merge_sort)));
  CHECK(parts.needs_merge == needs_merge);
}

TEST_CASE("for a merger: stages of one document at a time are the shards', and alone need no merger") {
  const char* all = R"([{"$match": {"a": 1}}, {"$redact": "$$KEEP"}, {"$unwind": "$b"}])";
  check_halves(all, all, "[]");
  const char* measurements = R"([{"$_internalUnpackBucket": {"timeField": "t"}}, {"$match": {"a": 1}}])";
  check_halves(measurements, measurements, "[]");
  check_halves("[]", "[]", "[]");
}

TEST_CASE("for a merger: the first stage that sees several documents, and all behind it, are the merger's") {
  check_halves(R"([{"$match": {"a": 1}}, {"$lookup": {"from": "u", "as": "j"}}, {"$match": {"b": 1}}])",
               R"([{"$match": {"a": 1}}])",
               R"([{"$lookup": {"from": "u", "as": "j"}}, {"$match": {"b": 1}}])");
  for (const char* stage :
       {R"([{"$facet": {"a": []}}])", R"([{"$bucket": {"groupBy": "$a"}}])", R"([{"$bucketAuto": {"buckets": 2}}])",
        R"([{"$unionWith": "u"}])", R"([{"$out": "o"}])", R"([{"$merge": "o"}])", R"([{"$fill": {"output": {}}}])",
        R"([{"$setWindowFields": {"output": {}}}])", R"([{"$densify": {"field": "a"}}])",
        R"([{"$graphLookup": {"from": "u"}}])", R"([{"$skip": 3}])", R"([{"$unheard": 1}])"}) {
    check_halves(stage, "[]", stage);
  }
}

TEST_CASE("for a merger: a sort is the shards', and its directions are the merger's") {
  check_halves(R"([{"$sort": {"a": 1, "b": -1, "s": {"$meta": "textScore"}}}, {"$skip": 2}, {"$limit": 3}])",
               R"([{"$sort": {"a": 1, "b": -1, "s": {"$meta": "textScore"}}}, {"$limit": {"$numberLong": "5"}}])",
               R"([{"$skip": 2}, {"$limit": 3}])", true, R"({"a": 1, "b": -1, "s": -1})");
}

TEST_CASE("for a merger: shards send no more than its first limit, through stages of one document each") {
  check_halves(R"([{"$lookup": {"from": "u"}}, {"$limit": 3}])", R"([{"$limit": {"$numberLong": "3"}}])",
               R"([{"$lookup": {"from": "u"}}, {"$limit": 3}])");
  const char* unwound = R"([{"$lookup": {"from": "u"}}, {"$unwind": "$j"}, {"$limit": 3}])";
  check_halves(unwound, "[]", unwound);
  const char* negative = R"([{"$skip": -1}, {"$limit": 3}])";
  check_halves(negative, "[]", negative);
}

TEST_CASE("for a merger: the last unwind is its own, unless the shards sort behind it") {
  check_halves(R"([{"$unwind": "$a"}, {"$unwind": "$b"}, {"$limit": 3}])", "[]",
               R"([{"$unwind": "$a"}, {"$unwind": "$b"}, {"$limit": 3}])");
  check_halves(R"([{"$unwind": "$a"}, {"$sort": {"a": 1}}])", R"([{"$unwind": "$a"}, {"$sort": {"a": 1}}])", "[]",
               true, R"({"a": 1})");
}

TEST_CASE("for a merger: a group of accumulators that combine themselves is done twice") {
  const char* group = R"([{"$group": {"_id": "$k", "s": {"$stdDevPop": "$v"}, "n": {"$count": {}}}}])";
  check_halves(group, group,
               R"([{"$group": {"_id": "$$ROOT._id", "s": {"$stdDevPop": "$$ROOT.s"}, "n": {"$sum": "$$ROOT.n"},
                               "$doingMerge": true}}])",
               true);
  for (const char* whole : {R"([{"$group": {"_id": 1, "t": {"$topN": {"n": 2}}}}])", R"([{"$group": {"s": 1}}])",
                            R"([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}])", R"([{"$group": 1}])"}) {
    check_halves(whole, "[]", whole);
  }
}

TEST_CASE("for a merger: counts are groups") {
  check_halves(R"([{"$redact": "$$KEEP"}, {"$count": "n"}])",
               R"([{"$redact": "$$KEEP"}, {"$group": {"_id": null, "n": {"$sum": 1}}}])",
               R"([{"$group": {"_id": "$$ROOT._id", "n": {"$sum": "$$ROOT.n"}, "$doingMerge": true}},
                   {"$project": {"_id": 0}}])",
               true);
  check_halves(R"([{"$sortByCount": "$a"}])", R"([{"$group": {"_id": "$a", "count": {"$sum": 1}}}])",
               R"([{"$group": {"_id": "$$ROOT._id", "count": {"$sum": "$$ROOT.count"}, "$doingMerge": true}},
                   {"$sort": {"count": -1}}])",
               true);
}

TEST_CASE("for a merger: counts that are malformed stay as they are, for a shard to refuse") {
  for (const char* refused :
       {R"([{"$sortByCount": 3}])", R"([{"$sortByCount": "a"}])", R"([{"$sortByCount": {"a": 1}}])",
        R"([{"$count": "a.b"}])", R"([{"$count": "$a"}])", R"([{"$count": ""}])"}) {
    check_halves(refused, "[]", refused);
  }
}

TEST_CASE("for a merger: samples and near documents come in the order that their shards give them") {
  check_halves(R"([{"$sample": {"size": 3}}, {"$limit": 2}])", R"([{"$sample": {"size": 3}}])",
               R"([{"$limit": {"$numberLong": "3"}}, {"$limit": 2}])", true, R"({"$rand": -1})");
  check_halves(R"([{"$geoNear": {"distanceField": "d.x"}}, {"$limit": 2}])",
               R"([{"$geoNear": {"distanceField": "d.x"}}, {"$limit": {"$numberLong": "2"}}])", R"([{"$limit": 2}])",
               true, R"({"d.x": 1})");
  for (const char* const size : {"3.5", R"({"$numberDecimal": "3"})"}) {
    const std::string sample = std::string(R"([{"$sample": {"size": )") + size + "}}]";
    check_halves(sample.c_str(), sample.c_str(), R"([{"$limit": {"$numberLong": "3"}}])", true, R"({"$rand": -1})");
  }
}

TEST_CASE("for a merger: metadata that it names is sent") {
  CHECK(divided(R"([{"$match": {}}, {"$facet": {"a": [{"$project": {"s": {"$meta": "textScore"}}}]}}])").needs_merge);
}

TEST_CASE("for a merger: statistics of the collection are every shard's, if they come first") {
  const char* first = R"([{"$indexStats": {}}, {"$match": {"a": 1}}])";
  check_halves(first, first, "[]");
  const char* later = R"([{"$match": {"a": 1}}, {"$indexStats": {}}])";
  check_halves(later, R"([{"$match": {"a": 1}}])", R"([{"$indexStats": {}}])");
}

TEST_CASE("for a merger: change streams and what is no stage are refused") {
  CHECK(split_for_merger(stages(R"([{"$changeStream": {}}, {"$match": {}}])")).error().code == 115);
  for (const char* stage : {"$listClusterCatalog", "$listSearchIndexes", "$rankFusion", "$scoreFusion"}) {
    CHECK(split_for_merger(stages((std::string(R"([{")") + stage + R"(": {}}])").c_str())).error().code == 115);
  }
  CHECK(split_for_merger(stages(R"([{"$match": {}, "$sort": {}}])")).error().code == 40323);
  BsonWriter writer;
  writer.append("0", 1.0);
  CHECK(split_for_merger(std::move(writer).finish()).error().code == 14);
}

}  // namespace
}  // namespace spillway::pipeline::test
