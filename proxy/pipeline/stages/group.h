// $group, parsed.
#pragma once

#include <string>
#include <vector>

#include "proxy/pipeline/expressions/accumulator.h"
#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/stages/stage.h"

namespace spillway::pipeline {

struct GroupField {
  std::string name;
  AccumulatorKind kind;
  ExpressionPtr input;
  ExpressionPtr second;  // merge_average: the count; otherwise nullptr
};

struct GroupSpec {
  ExpressionPtr id;
  std::string id_field;  // the only field of an _id that is a document of expressions; else empty
  std::vector<GroupField> fields;
};

// One `name: {$accumulator: argument}`, its form checked.
struct AccumulatorElement {
  std::string_view name;
  std::string_view accumulator;
  ValueView argument;
};

// Walks a $group's fields other than _id, with the server's errors for their form. `id` gets the
// _id expression (it exists).
Result<std::vector<AccumulatorElement>> read_group(ValueView spec, ValueView* id);

// The memory of a parsed field, its paths to partial results included, without the argument.
inline std::uint64_t group_field_bytes(const AccumulatorElement& element) noexcept {
  return 2 * sizeof(GroupField) + 256 + 2 * element.name.size();
}

StagePtr make_group_stage(GroupSpec spec);

}  // namespace spillway::pipeline
