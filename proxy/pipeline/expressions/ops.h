// Operators whose operands are all evaluated before them: tables of functions, one per family.
#pragma once

#include <span>
#include <string_view>

#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

using Operands = std::span<const Value>;

struct OperatorSpec {
  std::string_view name;
  int operands_min;
  int operands_max;  // -1: any number
  Result<Value> (*evaluate)(Operands operands, EvalContext& context);
  unsigned traits = 0;
};
// Traits. null, if any operand is null, undefined or missing: the function does not see those.
inline constexpr unsigned null_of_null = 1;
// Some values give CommandNotSupported (115): most functions of a decimal, dates of strings.
inline constexpr unsigned partly = 2;
// Takes few steps whatever its operands' size, or counts them itself. Others are taken to read all of them once.
inline constexpr unsigned own_steps = 4;
// Operands behind the first null, undefined or missing one are not evaluated, and not passed: they may be errors.
inline constexpr unsigned stops_at_null = 8;

std::span<const OperatorSpec> arithmetic_operators() noexcept;
std::span<const OperatorSpec> comparison_operators() noexcept;  // and $not, set operators
std::span<const OperatorSpec> string_operators() noexcept;
std::span<const OperatorSpec> array_operators() noexcept;
std::span<const OperatorSpec> object_operators() noexcept;
std::span<const OperatorSpec> type_operators() noexcept;
std::span<const OperatorSpec> date_operators() noexcept;

const OperatorSpec* find_operator(std::string_view name) noexcept;

// Operators that parse their argument themselves ($cond, $map…). nullptr: not one of them.
using SpecialParser = Result<ExpressionPtr>(ValueView argument, const ParseScope& scope);
SpecialParser* find_special(std::string_view name) noexcept;
// The elements of an array, or the argument itself.
Result<std::vector<ExpressionPtr>> parse_operands(ValueView argument, const ParseScope& scope);
SpecialParser parse_let, parse_map, parse_filter, parse_reduce;

}  // namespace spillway::pipeline
