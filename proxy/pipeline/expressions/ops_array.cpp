// Arrays.

#include <algorithm>
#include <optional>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

std::vector<Element> elements_of(const Value& array) {
  std::vector<Element> elements;
  for (const Element& element : array.as_document()) elements.push_back(element);
  return elements;
}

Result<void> charge_elements(const Value& array, Meter& meter) {
  return meter.charge(array.as_document().count() * sizeof(Element));
}

std::optional<std::int64_t> whole_int32(const Value& value) {
  const auto whole = value.is_number() ? whole_int64(value.view()) : std::nullopt;
  return whole && *whole >= INT32_MIN && *whole <= INT32_MAX ? whole : std::nullopt;
}

Result<std::int64_t> count_of(const Value& array, EvalContext& context) {
  const std::size_t count = array.as_document().count();
  if (!context.meter.spend(steps_of_elements(count))) return too_many_steps_error();
  return static_cast<std::int64_t>(count);
}

Result<Value> size(Operands operands, EvalContext& context) {
  if (!operands[0].is_array()) {
    return Error(17124, join("The argument to $size must be an array, but was of type: ",
                             type_name(operands[0])));
  }
  auto count = count_of(operands[0], context);
  return count ? Result<Value>(Value::of(static_cast<std::int32_t>(*count))) : count.error();
}

// The element at `index`; negative indexes count from the end. Missing when out of bounds.
Result<Value> element_at(const Value& array, std::int64_t index, EvalContext& context) {
  if (index < 0) {
    SPILLWAY_TRY(count, count_of(array, context));
    index += *count;
  }
  std::int64_t passed = 0;
  Value found;
  if (index >= 0) {
    for (const Element& element : array.as_document()) {
      if (passed++ == index) {
        found = array.part(element);
        break;
      }
    }
  }
  if (!context.meter.spend(steps_of_elements(static_cast<std::uint64_t>(passed)))) return too_many_steps_error();
  return found;
}

Result<Value> array_element_at(Operands operands, EvalContext& context) {
  if (!operands[0].is_array()) {
    return Error(28689, join("$arrayElemAt's first argument must be an array, but is ",
                             type_name(operands[0])));
  }
  if (!operands[1].is_number()) {
    return Error(28690, join("$arrayElemAt's second argument must be a numeric value, but "
                             "is ",
                             type_name(operands[1])));
  }
  const auto index = whole_int32(operands[1]);
  if (!index) return Error(28691, "$arrayElemAt's second argument must be representable as a 32-bit integer");
  return element_at(operands[0], *index, context);
}

Result<Value> end_of(std::string_view op, std::int64_t index, const Value& array, EvalContext& context) {
  if (!array.is_array()) return Error(28689, join(op, "'s argument must be an array, but is ", type_name(array)));
  return element_at(array, index, context);
}
Result<Value> first(Operands o, EvalContext& context) { return end_of("$first", 0, o[0], context); }
Result<Value> last(Operands o, EvalContext& context) { return end_of("$last", -1, o[0], context); }

// The index of the first element within bounds that equals `wanted`; -1: none.
Result<std::int32_t> find_equal(DocView array, ValueView wanted, std::int64_t from, std::int64_t to,
                                EvalContext& context) {
  std::int32_t index = 0;
  std::int32_t found = -1;
  std::uint64_t compared_bytes = 0;
  for (const Element& element : array) {
    if (index >= to) break;
    if (index >= from) {
      compared_bytes += std::min(element.bytes.size(), wanted.bytes.size());
      if (compare(element, wanted) == 0) {
        found = index;
        break;
      }
    }
    ++index;
  }
  // A comparison is more than a step over an element, but less than an operator.
  if (!context.meter.spend(static_cast<std::uint64_t>(index) / 2 + steps_of_bytes(compared_bytes))) {
    return too_many_steps_error();
  }
  return found;
}

Result<Value> concat_arrays(Operands operands, EvalContext& context) {
  ArrayBuilder out;
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (!operand.is_array()) return Error(28664, join("$concatArrays only supports arrays, not ", type_name(operand)));
    for (const Element& element : operand.as_document()) out.add(element);
  }
  return std::move(out).finish(context.meter);
}

Result<Value> contains(Operands operands, EvalContext& context) {
  if (!operands[1].is_array()) {
    return Error(
        40081, join("$in requires an array as a second argument, found: ", type_name(operands[1])));
  }
  auto index = find_equal(operands[1].as_document(), operands[0].view(), 0, INT32_MAX, context);
  return index ? Result<Value>(Value::of(*index >= 0)) : index.error();
}

Result<Value> is_array(Operands operands, EvalContext&) {
  return Value::of(operands[0].is_array());
}

Result<Value> index_of(Operands operands, EvalContext& context) {
  if (operands[0].nullish()) return Value::null();
  if (!operands[0].is_array()) {
    return Error(40090, join("$indexOfArray requires an array as a first argument, found: ",
                             type_name(operands[0])));
  }
  std::int64_t bounds[2] = {0, INT32_MAX};
  for (std::size_t i = 2; i < operands.size(); ++i) {
    const auto bound = whole_int32(operands[i]);
    if (!bound) {
      return Error(40096,
                   join("$indexOfArray requires an integral ", i == 2 ? "starting" : "ending",
                        " index, found a value of "
                        "type: ",
                        type_name(operands[i])));
    }
    if (*bound < 0) {
      return Error(40097, join("$indexOfArray requires a nonnegative ",
                               i == 2 ? "starting" : "ending", " index, found: ", *bound));
    }
    bounds[i - 2] = *bound;
  }
  auto index = find_equal(operands[0].as_document(), operands[1].view(), bounds[0], bounds[1], context);
  return index ? Result<Value>(Value::of(*index)) : index.error();
}

Error slice_argument_error(int code, std::string_view which, const Value& value) {
  return {code, join(which, " argument to $slice must be a ", code == 28729 ? "positive" : "32-bit",
                     " integer, but is of type: ", type_name(value))};
}

Result<Value> slice(Operands operands, EvalContext& context) {
  if (!operands[0].is_array()) {
    return Error(28724, join("First argument to $slice must be an array, but is of type: ",
                             type_name(operands[0])));
  }
  if (!operands[1].is_number()) return slice_argument_error(28725, "Second", operands[1]);
  const auto second = whole_int32(operands[1]);
  if (!second) return slice_argument_error(28726, "Second", operands[1]);
  SPILLWAY_TRY(count, count_of(operands[0], context));
  const std::int64_t length = *count;
  std::int64_t from = 0;
  std::int64_t to = length;
  if (operands.size() == 2) {
    (*second >= 0 ? to : from) =
        *second >= 0 ? std::min(*second, length) : std::max<std::int64_t>(length + *second, 0);
  } else {
    if (!operands[2].is_number()) return slice_argument_error(28727, "Third", operands[2]);
    const auto wanted = whole_int32(operands[2]);
    if (!wanted) return slice_argument_error(28728, "Third", operands[2]);
    if (*wanted <= 0) return slice_argument_error(28729, "Third", operands[2]);
    from = *second >= 0 ? std::min(*second, length) : std::max<std::int64_t>(length + *second, 0);
    to = std::min(from + *wanted, length);
  }
  ArrayBuilder out;
  std::int64_t index = 0;
  for (const Element& element : operands[0].as_document()) {
    if (index >= from && index < to) out.add(element);
    ++index;
  }
  return std::move(out).finish(context.meter);
}

Result<Value> reverse_array(Operands operands, EvalContext& context) {
  if (!operands[0].is_array()) {
    return Error(34435, join("The argument to $reverseArray must be an array, but was of "
                             "type: ",
                             type_name(operands[0])));
  }
  if (auto charged = charge_elements(operands[0], context.meter); !charged) return charged.error();
  const std::vector<Element> elements = elements_of(operands[0]);
  ArrayBuilder out;
  for (auto at = elements.rbegin(); at != elements.rend(); ++at) out.add(*at);
  return std::move(out).finish(context.meter);
}

Result<Value> range(Operands operands, EvalContext& context) {
  constexpr std::string_view names[] = {"starting", "ending", "step"};
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int code = 34443 + 2 * static_cast<int>(i);
    if (!operands[i].is_number()) {
      return Error(code, join("$range requires a numeric ", names[i],
                              " value, found value of type: ", type_name(operands[i])));
    }
    const auto bound = whole_int32(operands[i]);
    if (!bound) {
      return Error(code + 1, join("$range requires a ", names[i],
                                  " value that can be represented as a 32-bit integer"));
    }
    bounds[i] = *bound;
  }
  const auto [start, end, step] = bounds;
  if (step == 0) return Error(34449, "$range requires a non-zero step value");
  ArrayBuilder out;
  for (std::int64_t at = start; (step > 0 ? at < end : at > end) && !out.overflowed(); at += step) {
    out.add(Value::of(static_cast<std::int32_t>(at)));
  }
  return std::move(out).finish(context.meter);
}

constexpr OperatorSpec array_table[] = {{"$size", 1, 1, size, own_steps},
                                  {"$arrayElemAt", 2, 2, array_element_at, null_of_null | own_steps},
                                  {"$first", 1, 1, first, null_of_null | own_steps},
                                  {"$last", 1, 1, last, null_of_null | own_steps},
                                  {"$concatArrays", 0, -1, concat_arrays, stops_at_null},
                                  {"$in", 2, 2, contains, own_steps},
                                  {"$isArray", 1, 1, is_array, own_steps},
                                  {"$indexOfArray", 2, 4, index_of, own_steps},
                                  {"$slice", 2, 3, slice, null_of_null | own_steps},
                                  {"$reverseArray", 1, 1, reverse_array, null_of_null},
                                  {"$range", 2, 3, range}};

}  // namespace

std::span<const OperatorSpec> array_operators() noexcept { return array_table; }

}  // namespace spillway::pipeline
