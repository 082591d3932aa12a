// A pipeline divided over three shards and merged gives what the whole pipeline gives over all
// documents. Pipelines, documents and their places are random; SPILLWAY_SEED picks the first seed.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "cursor/bson_order.h"
#include "cursor/sort_pattern.h"
#include "pipeline_support.h"
#include "proxy/pipeline/split/split.h"

namespace spillway::pipeline::test {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int bound) { return static_cast<int>(engine_() % static_cast<unsigned>(bound)); }
  bool chance(int percent) { return below(100) < percent; }
  std::string pick(std::initializer_list<const char*> from) {
    return *(from.begin() + below(static_cast<int>(from.size())));
  }

 private:
  std::mt19937_64 engine_;
};

// Numbers are multiples of a quarter, so that sums do not depend on their order.
std::string scalar(Random& random) {
  switch (random.below(9)) {
    case 0:
      return "null";
    case 1:
      return "\"" + random.pick({"x", "y", "zz", ""}) + "\"";
    case 2:
      return std::to_string(random.below(7)) + "." + random.pick({"25", "5", "75", "0"});
    case 3:
      return R"({"$numberLong": ")" + std::to_string(random.below(5)) + "\"}";
    case 4:
      return random.pick({"true", "false"});
    case 5:
      return R"({"$numberDecimal": ")" + std::to_string(random.below(4)) + ".5\"}";
    default:
      return std::to_string(random.below(6) - 1);
  }
}

BsonDoc random_document(Random& random, int id) {
  std::string text = "{\"_id\": " + std::to_string(id);
  for (const char* field : {"k", "v", "w"}) {
    if (random.chance(85)) {
      text += ", \"" + std::string(field) + "\": " + scalar(random);
    }
  }
  if (random.chance(80)) {
    text += ", \"list\": [";
    const int count = random.below(4);
    for (int i = 0; i < count; ++i) {
      text += (i > 0 ? ", " : "") + scalar(random);
    }
    text += "]";
  }
  if (random.chance(60)) {
    text += ", \"sub\": {\"x\": " + scalar(random) + ", \"y\": " + scalar(random) + "}";
  }
  return json(text + "}");
}

// Builds a pipeline whose result does not depend on the order of equal documents: limits come after
// sorts that end with _id, and order matters to an accumulator only after a sort.
class PipelineMaker {
 public:
  explicit PipelineMaker(Random& random) : random_(random) {}

  std::string make() {
    std::string text = "[";
    const int count = random_.below(6);
    for (int i = 0; i < count; ++i) {
      text += (text.size() > 1 ? ", " : "") + stage();
    }
    return text + "]";
  }
  bool ordered() const { return sorted_; }

 private:
  std::string stage() {
    if (grouped_) {
      return grouped_stage();
    }
    switch (random_.below(12)) {
      case 0:
      case 1:
        return R"({"$match": )" + filter() + "}";
      case 2:
        return R"({"$project": )" +
               random_.pick({R"({"k": 1, "v": 1})", R"({"list": 0})", R"({"sub.x": 0, "w": 0})",
                             R"({"k": 1, "list": 1, "t": {"$ifNull": ["$v", "none"]}})"}) +
               "}";
      case 3:
        return R"({"$set": )" +
               random_.pick({R"({"t": {"$toUpper": "$q"}})", R"({"sub.z": {"$eq": ["$k", "$v"]}})",
                             R"({"w": {"$cond": [{"$isNumber": "$v"},
                                                  {"$add": ["$v", 1]}, "none"]}})",
                             R"({"w": {"$add": ["$v", "$k"]}})"}) +
               "}";
      case 4:
        return R"({"$unset": )" + random_.pick({"\"w\"", R"(["sub.x", "v"])"}) + "}";
      case 5:
        return R"({"$unwind": )" +
               random_.pick({"\"$list\"",
                             R"({"path": "$list", "preserveNullAndEmptyArrays": true})",
                             R"({"path": "$list", "includeArrayIndex": "i"})"}) +
               "}";
      case 6:
      case 7:
        sorted_ = true;
        return R"({"$sort": {")" + random_.pick({"k", "v", "list", "sub.x"}) +
               "\": " + random_.pick({"1", "-1"}) + R"(, "_id": )" + random_.pick({"1", "-1"}) +
               "}}";
      case 8:
        return window();
      case 9:
        return leave(R"({"$count": "n"})");
      case 10:
        return leave(R"({"$sortByCount": "$k"})");
      default:
        return group();
    }
  }

  std::string filter() {
    return random_.pick({R"({"v": {"$gte": 1}})", R"({"k": {"$in": [1, "x", null]}})",
                         R"({"list": {"$elemMatch": {"$gt": 0}}})",
                         R"({"sub.x": {"$exists": true}})",
                         R"({"$or": [{"v": 2}, {"w": {"$type": "string"}}]})",
                         R"({"$expr": {"$lt": ["$v", "$w"]}})", R"({"k": {"$not": {"$gt": 2}}})"});
  }

  std::string window() {
    if (!sorted_) {
      return R"({"$match": {}})";
    }
    return random_.chance(60) ? R"({"$limit": )" + std::to_string(1 + random_.below(12)) + "}"
                              : R"({"$skip": )" + std::to_string(random_.below(6)) + "}";
  }

  std::string leave(std::string text) {
    grouped_ = true;
    sorted_ = false;
    return text;
  }

  std::string group() {
    std::string text =
        R"({"$group": {"_id": )" + random_.pick({"null", "\"$k\"", R"({"a": "$k", "b": "$sub.x"})",
                                                 R"({"l": "$list"})", R"({"$isNumber": "$v"})"});
    text += R"(, "n": {"$sum": 1})";
    for (const char* field :
         {R"("s": {"$sum": "$v"})", R"("avg": {"$avg": "$v"})", R"("lo": {"$min": "$v"})",
          R"("hi": {"$max": "$w"})", R"("set": {"$addToSet": "$v"})", R"("c": {"$count": {}})",
          R"("avg2": {"$avg": {"$ifNull": ["$w", 3]}})", R"("al": {"$avg": "$list"})"}) {
      if (random_.chance(40)) {
        text += std::string(", ") + field;
      }
    }
    if (sorted_) {
      for (const char* field : {R"("f": {"$first": "$v"})", R"("l": {"$last": "$w"})",
                                R"("p": {"$push": "$v"})", R"("m": {"$mergeObjects": "$sub"})"}) {
        if (random_.chance(40)) {
          text += std::string(", ") + field;
        }
      }
    }
    return leave(text + "}}");
  }

  std::string grouped_stage() {
    switch (random_.below(6)) {
      case 0:
        return R"({"$match": {"n": {"$gt": 1}}})";
      case 1:
        return R"({"$set": {"d": {"$multiply": ["$n", 2]}, "e": {"$gt": ["$s", 1]}}})";
      case 2:
        sorted_ = true;
        return R"({"$sort": {"n": -1, "_id": 1}})";
      case 3:
        return window();
      case 4:
        return R"({"$project": {"n": 1, "set": 1, "s": 1, "avg": 1}})";
      default:
        return leave(R"({"$group": {"_id": "$n", "n": {"$sum": 1}, "s": {"$sum": "$s"}}})");
    }
  }

  Random& random_;
  bool sorted_ = false;
  bool grouped_ = false;
};

// The output of the shards' parts, merged. An error is a shard's or the merge's.
Result<std::vector<BsonDoc>> run_divided(const std::vector<std::vector<BsonDoc>>& shards,
                                         DocView pipeline, MemoryBudget& budget) {
  auto parts = split(pipeline);
  if (!parts) {
    return parts.error();
  }
  std::vector<std::pair<std::string, BsonDoc>> stream;  // key, document
  SortPattern pattern;
  if (parts->merge_sort) {
    pattern = SortPattern::parse(parts->merge_sort->view()).value();
  }
  for (const auto& shard : shards) {
    auto output = run_pipeline(shard, parts->shard_part, budget);
    if (!output) {
      return output.error();
    }
    for (BsonDoc& doc : *output) {
      std::string key;
      if (auto keyed = pattern.append_key(key, doc); !keyed) {
        return keyed.error();
      }
      stream.emplace_back(std::move(key), std::move(doc));
    }
  }
  if (parts->merge_sort) {
    std::stable_sort(stream.begin(), stream.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  MergePipeline merge(std::move(parts->merge), budget);
  std::vector<BsonDoc> output;
  const auto drain = [&]() -> Result<void> {
    for (;;) {
      auto doc = merge.next();
      if (!doc) {
        return doc.error();
      }
      if (!*doc) {
        return {};
      }
      output.push_back(std::move(**doc));
    }
  };
  for (const auto& [key, doc] : stream) {
    if (!merge.wants_more()) {
      break;
    }
    if (auto pushed = merge.push(doc); !pushed) {
      return pushed.error();
    }
    if (auto drained = drain(); !drained) {
      return drained.error();
    }
  }
  static_cast<void>(merge.finish());
  if (auto drained = drain(); !drained) {
    return drained.error();
  }
  return output;
}

// Keys that are equal for documents with equal values; the elements of "set" in any order.
std::vector<std::string> keys_of(const std::vector<BsonDoc>& list, bool ordered) {
  std::vector<std::string> keys;
  for (const BsonDoc& doc : list) {
    std::string key;
    for (const Element& element : doc.view()) {
      key += std::string(element.name) + '\0';
      if (element.name != "set" || !element.is_array()) {
        append_order_key(key, element);
        continue;
      }
      std::vector<std::string> items;
      for (const Element& item : element.as_document()) {
        append_order_key(items.emplace_back(), item);
      }
      std::sort(items.begin(), items.end());
      for (const std::string& item : items) {
        key += item;
      }
    }
    keys.push_back(std::move(key));
  }
  if (!ordered) {
    std::sort(keys.begin(), keys.end());
  }
  return keys;
}

TEST_CASE("a divided pipeline gives what the whole one gives") {
  const char* first = std::getenv("SPILLWAY_SEED");
  const std::uint64_t base = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  std::cout << "pipeline property test: seeds from " << base << "\n";
  int failed_alike = 0;
  int not_empty = 0;
  int merged_here = 0;
  constexpr int rounds = 2500;
  for (std::uint64_t seed = base; seed < base + rounds; ++seed) {
    Random random(seed);
    std::vector<BsonDoc> all;
    std::vector<std::vector<BsonDoc>> shards(3);
    const int count = random.below(30);
    for (int i = 0; i < count; ++i) {
      all.push_back(random_document(random, i));
      shards[static_cast<std::size_t>(random.below(3))].push_back(all.back());
    }
    PipelineMaker maker(random);
    const std::string pipeline_text = maker.make();
    INFO("seed " << seed << ": " << pipeline_text);
    const BsonDoc pipeline = stages(pipeline_text);
    Budget budget;
    auto whole = run_pipeline(all, pipeline, budget.budget);
    auto divided = run_divided(shards, pipeline, budget.budget);
    INFO((whole ? text(*whole) : whole.error().message));
    INFO((divided ? text(*divided) : divided.error().message));
    REQUIRE(whole.has_value() == divided.has_value());
    if (!whole) {
      CHECK(whole.error().code == divided.error().code);
      ++failed_alike;
      continue;
    }
    not_empty += whole->empty() ? 0 : 1;
    merged_here += split(pipeline)->window_only ? 0 : 1;
    REQUIRE(keys_of(*whole, maker.ordered()) == keys_of(*divided, maker.ordered()));
    CHECK(budget.budget.usage().used_bytes == 0);
  }
  // The generator must not have become toothless.
  CHECK(not_empty > rounds / 2);
  CHECK(merged_here > rounds / 4);
  CHECK(failed_alike > 0);
}

}  // namespace
}  // namespace spillway::pipeline::test
