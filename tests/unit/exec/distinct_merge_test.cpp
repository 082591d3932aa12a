#include "proxy/exec/read/distinct_merge.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

namespace spillway::exec {
namespace {

BsonDoc array_of(const std::vector<double>& numbers) {
  BsonWriter out;
  out.begin_array("a");
  for (const double number : numbers) {
    // Half of them are integers, to tell which one of two equal values came out.
    number < 0 ? out.append_item(static_cast<std::int32_t>(-number)) : out.append_item(number);
  }
  out.end();
  return std::move(out).finish();
}

DocView array_in(const BsonDoc& holder) { return holder.view()["a"].as_document(); }

struct Merged {
  std::size_t steps = 0;
  std::optional<Error> error;
  BsonDoc reply;
};

Merged merge(const std::vector<BsonDoc>& shards, MemoryBudget& budget) {
  std::vector<DocView> arrays;
  for (const BsonDoc& shard : shards) arrays.push_back(array_in(shard));
  DistinctMerge merge(std::move(arrays), budget);
  Merged merged;
  for (;;) {
    ++merged.steps;
    auto more = merge.step();
    if (more.has_error()) {
      merged.error = more.error();
      return merged;
    }
    if (!*more) break;
  }
  merged.reply = std::move(merge).reply();
  return merged;
}

TEST_CASE("distinct values of several shards come out in order, each once") {
  MemoryBudget budget("test", 0);
  const Merged merged = merge({array_of({3, 1}), array_of({}), array_of({-2, -1, 3, 4})}, budget);
  CHECK(merged.steps == 1);
  REQUIRE(!merged.error);
  const DocView values = merged.reply.view()["values"].as_document();
  std::string text;
  for (const Element& value : values) {
    text += std::string(value.name) + ":" + std::string(bson_type_name(value.type)) +
            std::to_string(*value.to_int64()) + " ";
  }
  CHECK(text == "0:double1 1:int2 2:double3 3:double4 ");
  CHECK(merged.reply.view()["ok"].truthy());
  CHECK(merge({array_of({}), array_of({})}, budget).reply.view()["values"].as_document().empty());
}

TEST_CASE("many distinct values are merged in steps, and what holds them is charged") {
  constexpr int each = 10'000;
  std::vector<BsonDoc> shards;
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<double> numbers;
    for (int i = 0; i < each; ++i) numbers.push_back((i * 7919) % each + shard * each / 2);
    shards.push_back(array_of(numbers));
  }
  MemoryBudget budget("test", 0);
  const Merged merged = merge(shards, budget);
  REQUIRE(!merged.error);
  CHECK(merged.steps >= 2 * 3 * each / DistinctMerge::values_per_step);
  std::int64_t expected = 0;
  for (const Element& value : merged.reply.view()["values"].as_document()) {
    if (*value.to_int64() != expected++) FAIL("not " << expected - 1);
  }
  CHECK(expected == 2 * each);
  CHECK(budget.usage().peak_bytes >= 3 * each * sizeof(ValueView));
  CHECK(budget.usage().used_bytes == 0);

  MemoryBudget small("small", 3 * each * sizeof(ValueView) / 2);
  const Merged refused = merge(shards, small);
  REQUIRE(refused.error);
  CHECK((refused.error->code == 462 || refused.error->code == 146));
  CHECK(small.usage().used_bytes == 0);
}

}  // namespace
}  // namespace spillway::exec
