#include <cmath>

#include "allocator/limits.h"
#include "pipeline_support.h"

namespace spillway::pipeline::test {
namespace {

void project(const char* stage, const char* input, const char* expected) {
  INFO(stage << " on " << input);
  const auto out = run({json(input)}, "[" + std::string(stage) + "]");
  REQUIRE(out.size() == 1);
  CHECK(to_json(out[0].view()) == to_json(json(expected)));
}

int error_of(const char* stage, const char* input = "{}") {
  INFO(stage);
  return run_error({json(input)}, "[" + std::string(stage) + "]");
}

TEST_CASE("an inclusion keeps what it names, in the order of the document") {
  const char* doc = R"({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "e": [{"f": 1, "g": 2}, 5]})";
  project(R"({"$project": {"b": 1, "a": 1}})", doc, R"({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}})");
  project(R"({"$project": {"_id": 0, "a": true}})", doc, R"({"a": 1})");
  project(R"({"$project": {"b.c": 1}})", doc, R"({"_id": 1, "b": {"c": 2}})");
  project(R"({"$project": {"b": {"c": 1}}})", doc, R"({"_id": 1, "b": {"c": 2}})");
  project(R"({"$project": {"e.f": 1}})", doc, R"({"_id": 1, "e": [{"f": 1}]})");
  project(R"({"$project": {"a.x": 1}})", doc, R"({"_id": 1})");
  project(R"({"$project": {"nothing": 1}})", doc, R"({"_id": 1})");
}

TEST_CASE("an exclusion drops what it names") {
  const char* doc = R"({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "e": [{"f": 1, "g": 2}, 5]})";
  project(R"({"$project": {"a": 0, "b": 0, "e": 0}})", doc, R"({"_id": 1})");
  project(R"({"$project": {"_id": 0}})", R"({"_id": 1, "a": 1})", R"({"a": 1})");
  project(R"({"$project": {"b.c": 0, "e.g": 0, "_id": 1}})", doc,
          R"({"_id": 1, "a": 1, "b": {"d": 3}, "e": [{"f": 1}, 5]})");
  project(R"({"$unset": "b.c"})", doc,
          R"({"_id": 1, "a": 1, "b": {"d": 3}, "e": [{"f": 1, "g": 2}, 5]})");
  project(R"({"$unset": ["a", "b", "e.f"]})", doc, R"({"_id": 1, "e": [{"g": 2}, 5]})");
}

TEST_CASE("computed fields follow the kept ones") {
  project(R"({"$project": {"s": {"$add": ["$a", "$b"]}, "a": 1}})", R"({"_id": 1, "b": 2, "a": 3})",
          R"({"_id": 1, "a": 3, "s": 5})");
  project(R"({"$project": {"x": "$a.b"}})", R"({"_id": 1, "a": {"b": 7}})",
          R"({"_id": 1, "x": 7})");
  project(R"({"$project": {"x": "$nothing"}})", R"({"_id": 1})", R"({"_id": 1})");
  project(R"({"$project": {"x": {"y": "$a"}}})", R"({"_id": 1, "a": 2})",
          R"({"_id": 1, "x": {"y": 2}})");
  project(R"({"$project": {"f": 1, "s": {"o": "$f"}}})", R"({"_id": 1, "s": "in its place", "f": 2})",
          R"({"_id": 1, "s": {"o": 2}, "f": 2})");
  project(R"({"$project": {"a.z": {"$literal": 9}, "a.x": 1}})",
          R"({"_id": 1, "a": [{"x": 1}, {"x": 2}]})",
          R"({"_id": 1, "a": [{"x": 1, "z": 9}, {"x": 2, "z": 9}]})");
  project(R"({"$project": {"_id": "$a", "b": 1}})", R"({"_id": 1, "a": 2, "b": 3})",
          R"({"b": 3, "_id": 2})");
}

TEST_CASE("a computed dotted field replaces the scalars of an array, beside inclusions too") {
  project(R"({"$project": {"a.b": {"$literal": "X"}}})", R"({"a": [1, {"c": 2}]})",
          R"({"a": [{"b": "X"}, {"b": "X"}]})");
  project(
      R"({"$project": {"a.i": 1, "a.b": {"$literal": "X"}}})",
      R"({"a": [1, {}, {"i": 1, "c": 2}, {"i": 1, "b": 0}, [], [1, {"i": 1}]]})",
      R"({"a": [{"b": "X"}, {"b": "X"}, {"i": 1, "b": "X"}, {"i": 1, "b": "X"}, [],
                [{"b": "X"}, {"i": 1, "b": "X"}]]})");
  project(R"({"$project": {"a.b.c": {"$literal": "X"}}})", R"({"a": [{"b": [1, null]}, 2]})",
          R"({"a": [{"b": [{"c": "X"}, {"c": "X"}]}, {"b": {"c": "X"}}]})");
  project(R"({"$project": {"a.b.c": {"$literal": "X"}, "a.i": 1}})", R"({"a": [7]})", R"({"a": [{"b": {"c": "X"}}]})");
  project(R"({"$project": {"a.i.j": 1, "a.b": {"$literal": "X"}}})", R"({"a": [{"i": [5, {"j": 1}]}]})",
          R"({"a": [{"i": [{"j": 1}], "b": "X"}]})");
}

TEST_CASE("many fields of many nested documents are an error, not a long pause") {
  const auto code_of = [](int documents, int fields) {
    std::string array = "[", spec = R"({"$project": {"a.r": {"$ifNull": ["$zz", "$$REMOVE"]})";
    for (int i = 0; i < documents; ++i) array += i == 0 ? "{}" : ",{}";
    for (int i = 0; i < fields; ++i) spec += ", \"a.f" + std::to_string(i) + "\": 1";
    return error_of((spec + "}}").c_str(), (R"({"a": )" + array + "]}").c_str());
  };
  CHECK(code_of(100'000, 15'000) == 96);
  const auto out = run({json(R"({"a": [{}, {"i": 1}]})")},
                       R"([{"$project": {"a.i": 1, "a.z": {"$literal": 1}, "b": 1, "a.y.x": {"$literal": 2}}}])");
  CHECK(to_json(out.at(0).view()) ==
        to_json(json(R"({"a": [{"z": 1, "y": {"x": 2}}, {"i": 1, "z": 1, "y": {"x": 2}}]})")));
}

TEST_CASE("added fields replace in place or are appended") {
  const char* doc = R"({"_id": 1, "a": 1, "b": {"c": 2}})";
  project(R"({"$addFields": {"a": "$b.c", "z": 5}})", doc,
          R"({"_id": 1, "a": 2, "b": {"c": 2}, "z": 5})");
  project(R"({"$set": {"b.d": "$a", "n.m": "$a"}})", doc,
          R"({"_id": 1, "a": 1, "b": {"c": 2, "d": 1}, "n": {"m": 1}})");
  project(R"({"$set": {"a.x": 5}})", doc, R"({"_id": 1, "a": {"x": 5}, "b": {"c": 2}})");
  project(R"({"$set": {"a": "$$REMOVE"}})", doc, R"({"_id": 1, "b": {"c": 2}})");
  project(R"({"$set": {"e.x": 5}})", R"({"e": [{"y": 1}, 3]})",
          R"({"e": [{"y": 1, "x": 5}, {"x": 5}]})");
  project(R"({"$set": {"a": "$b", "b": "$a"}})", R"({"a": 1, "b": 2})", R"({"a": 2, "b": 1})");
}

TEST_CASE("the root can be replaced") {
  project(R"({"$replaceRoot": {"newRoot": "$a"}})", R"({"a": {"x": 1}})", R"({"x": 1})");
  project(R"({"$replaceWith": {"y": "$a.x"}})", R"({"a": {"x": 1}})", R"({"y": 1})");
  CHECK(error_of(R"({"$replaceRoot": {"newRoot": "$a"}})", R"({"a": 1})") == 40228);
  CHECK(error_of(R"({"$replaceRoot": {}})") == 40231);
  CHECK(error_of(R"({"$replaceRoot": {"newRoot": "$a", "x": 1}})") == 40415);
}

// {"a": [[…[1]…]]}, so many levels deep; the document itself is one.
BsonDoc nested(int levels) {
  BsonWriter writer;
  writer.begin_array("a");
  for (int i = 2; i < levels; ++i) writer.begin_array_item();
  writer.append_item(1);
  for (int i = 1; i < levels; ++i) writer.end();
  return std::move(writer).finish();
}

TEST_CASE("what a stage builds is no deeper than a document of a client may be") {
  constexpr int overflow = 15;
  const auto deeper = [](double levels) {
    return R"({"$project": {"a": {"$reduce": {"input": {"$range": [0, )" + std::to_string(static_cast<int>(levels)) +
           R"(]}, "initialValue": "$a", "in": ["$$value"]}}}})";
  };
  CHECK(error_of(deeper(4900).c_str()) == overflow);
  // As deep as stages of 100 MiB each can make it.
  std::string often;
  for (int i = 0; i < 60; ++i) often += deeper(4900 * (std::sqrt(i + 1.0) - std::sqrt(i))) + ", ";
  CHECK(error_of((often + R"({"$project": {"a.b": 1}})").c_str()) == overflow);
  const auto at_limit = [](std::string_view stage) {
    INFO(stage);
    return run_error({nested(limits::bson_depth_max)}, "[" + std::string(stage) + "]");
  };
  CHECK(at_limit(R"({"$project": {"b": "$a"}})") == 0);
  CHECK(at_limit(R"({"$project": {"a.b": 1}})") == 0);
  CHECK(at_limit(R"({"$addFields": {"a.b": 1}})") == overflow);
  for (const char* stage :
       {R"({"$project": {"b": ["$a"]}})", R"({"$addFields": {"b.c": "$a"}})", R"({"$replaceWith": {"b": ["$a"]}})",
        R"({"$group": {"_id": {"x": "$a"}}}, {"$match": {}})", R"({"$group": {"_id": 1, "all": {"$push": "$a"}}})"}) {
    CHECK(at_limit(stage) == overflow);
  }
  // Within an expression it may be deeper, as on a server.
  const std::string there_and_back = R"({"$project": {"n": {"$size": {"$reduce": {
      "input": {"$range": [0, 1000]}, "initialValue": [], "in": ["$$value"]}}}}})";
  project(there_and_back.c_str(), R"({})", R"({"n": 1})");
}

TEST_CASE("specifications that contradict themselves are refused") {
  CHECK(error_of(R"({"$project": {}})") == 51272);
  CHECK(error_of(R"({"$project": 5})") == 15969);
  CHECK(error_of(R"({"$project": {"a": 1, "b": 0}})") == 31254);
  CHECK(error_of(R"({"$project": {"a": 0, "b": 1}})") == 31253);
  CHECK(error_of(R"({"$project": {"a": 1, "a.b": 1}})") == 31249);
  CHECK(error_of(R"({"$project": {"a.b": 1, "a": 1}})") == 31250);
  CHECK(error_of(R"({"$project": {"a": {}}})") == 51270);
  CHECK(error_of(R"({"$project": {"a.": 1}})") == 40353);
  CHECK(error_of(R"({"$addFields": {}})") == 40177);
  CHECK(error_of(R"({"$addFields": 1})") == 40272);
  CHECK(error_of(R"({"$addFields": {"a": 1, "a.b": 1}})") == 40176);
  CHECK(error_of(R"({"$unset": 1})") == 31002);
  CHECK(error_of(R"({"$unset": []})") == 31119);
  CHECK(error_of(R"({"$unset": [1]})") == 31120);
}

}  // namespace
}  // namespace spillway::pipeline::test
