// Accumulators of $group: the client's, and those that combine the shards' partial results.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "proxy/pipeline/values/meter.h"
#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

enum class AccumulatorKind {
  sum,
  count,
  average,
  min,
  max,
  first,
  last,
  push,
  add_to_set,
  merge_objects,
  // Of partial results.
  concat,         // arrays one after another, for $push
  set_union,      // arrays as sets, for $addToSet
  merge_average,  // a sum and a count, for $avg
};

// The client's accumulator of this name ("$sum"), if it is evaluated here.
std::optional<AccumulatorKind> find_accumulator(std::string_view name) noexcept;

// The state of one accumulator in one group. Owns its values, charged to the stage's meter.
class Accumulator {
 public:
  virtual ~Accumulator() = default;
  // `second` is used only by merge_average: the count.
  virtual Result<void> add(const Value& input, const Value& second, Meter& meter) = 0;
  virtual Result<Value> result(Meter& meter) = 0;
};

std::unique_ptr<Accumulator> make_accumulator(AccumulatorKind kind);
// The memory of a new one, which its maker charges.
std::uint64_t accumulator_bytes(AccumulatorKind kind) noexcept;

}  // namespace spillway::pipeline
