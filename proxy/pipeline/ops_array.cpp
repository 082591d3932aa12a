// Arrays.

#include <algorithm>
#include <optional>

#include "proxy/pipeline/number.h"
#include "proxy/pipeline/ops.h"
#include "proxy/pipeline/text.h"

namespace spillway::pipeline {
namespace {

std::vector<Element> elements_of(const Value& array) {
  std::vector<Element> elements;
  for (const Element& element : array.as_document()) {
    elements.push_back(element);
  }
  return elements;
}

Result<void> charge_elements(const Value& array, Meter& meter) {
  return meter.charge(array.as_document().count() * sizeof(Element));
}

std::optional<std::int64_t> whole_int32(const Value& value) {
  const auto whole = value.is_number() ? whole_int64(value.view()) : std::nullopt;
  return whole && *whole >= INT32_MIN && *whole <= INT32_MAX ? whole : std::nullopt;
}

Result<Value> size(Operands operands, EvalContext&) {
  if (!operands[0].is_array()) {
    return Error(17124, join("The argument to $size must be an array, but was of type: ",
                             type_name(operands[0])));
  }
  return Value::of(static_cast<std::int32_t>(operands[0].as_document().count()));
}

// The element at `index`; negative indexes count from the end. Missing when out of bounds.
Value element_at(const Value& array, std::int64_t index) {
  if (index < 0) {
    index += static_cast<std::int64_t>(array.as_document().count());
  }
  if (index >= 0) {
    for (const Element& element : array.as_document()) {
      if (index-- == 0) {
        return array.part(element);
      }
    }
  }
  return {};
}

Result<Value> array_element_at(Operands operands, EvalContext&) {
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
  if (!index) {
    return Error(28691, "$arrayElemAt's second argument must be representable as a 32-bit integer");
  }
  return element_at(operands[0], *index);
}

Result<Value> end_of(std::string_view op, std::int64_t index, const Value& array) {
  if (!array.is_array()) {
    return Error(28689, join(op, "'s argument must be an array, but is ", type_name(array)));
  }
  return element_at(array, index);
}
Result<Value> first(Operands operands, EvalContext&) { return end_of("$first", 0, operands[0]); }
Result<Value> last(Operands operands, EvalContext&) { return end_of("$last", -1, operands[0]); }

Result<Value> concat_arrays(Operands operands, EvalContext& context) {
  ArrayBuilder out;
  for (const Value& operand : operands) {
    if (operand.nullish()) {
      return Value::null();
    }
    if (!operand.is_array()) {
      return Error(28664, join("$concatArrays only supports arrays, not ", type_name(operand)));
    }
    for (const Element& element : operand.as_document()) {
      out.add(element);
    }
  }
  return std::move(out).finish(context.meter);
}

Result<Value> contains(Operands operands, EvalContext&) {
  if (!operands[1].is_array()) {
    return Error(
        40081, join("$in requires an array as a second argument, found: ", type_name(operands[1])));
  }
  for (const Element& element : operands[1].as_document()) {
    if (compare(element, operands[0].view()) == 0) {
      return Value::of(true);
    }
  }
  return Value::of(false);
}

Result<Value> is_array(Operands operands, EvalContext&) {
  return Value::of(operands[0].is_array());
}

Result<Value> index_of(Operands operands, EvalContext&) {
  if (operands[0].nullish()) {
    return Value::null();
  }
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
  std::int32_t index = 0;
  for (const Element& element : operands[0].as_document()) {
    if (index >= bounds[0] && index < bounds[1] && compare(element, operands[1].view()) == 0) {
      return Value::of(index);
    }
    ++index;
  }
  return Value::of(std::int32_t{-1});
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
  if (!operands[1].is_number()) {
    return slice_argument_error(28725, "Second", operands[1]);
  }
  const auto second = whole_int32(operands[1]);
  if (!second) {
    return slice_argument_error(28726, "Second", operands[1]);
  }
  const auto length = static_cast<std::int64_t>(operands[0].as_document().count());
  std::int64_t from = 0;
  std::int64_t to = length;
  if (operands.size() == 2) {
    (*second >= 0 ? to : from) =
        *second >= 0 ? std::min(*second, length) : std::max<std::int64_t>(length + *second, 0);
  } else {
    if (!operands[2].is_number()) {
      return slice_argument_error(28727, "Third", operands[2]);
    }
    const auto count = whole_int32(operands[2]);
    if (!count) {
      return slice_argument_error(28728, "Third", operands[2]);
    }
    if (*count <= 0) {
      return slice_argument_error(28729, "Third", operands[2]);
    }
    from = *second >= 0 ? std::min(*second, length) : std::max<std::int64_t>(length + *second, 0);
    to = std::min(from + *count, length);
  }
  ArrayBuilder out;
  std::int64_t index = 0;
  for (const Element& element : operands[0].as_document()) {
    if (index >= from && index < to) {
      out.add(element);
    }
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
  if (auto charged = charge_elements(operands[0], context.meter); !charged) {
    return charged.error();
  }
  const std::vector<Element> elements = elements_of(operands[0]);
  ArrayBuilder out;
  for (auto at = elements.rbegin(); at != elements.rend(); ++at) {
    out.add(*at);
  }
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
  if (step == 0) {
    return Error(34449, "$range requires a non-zero step value");
  }
  ArrayBuilder out;
  for (std::int64_t at = start; (step > 0 ? at < end : at > end) && !out.overflowed(); at += step) {
    out.add(Value::of(static_cast<std::int32_t>(at)));
  }
  return std::move(out).finish(context.meter);
}

constexpr OperatorSpec array_table[] = {{"$size", 1, 1, size},
                                  {"$arrayElemAt", 2, 2, array_element_at, null_of_null},
                                  {"$first", 1, 1, first, null_of_null},
                                  {"$last", 1, 1, last, null_of_null},
                                  {"$concatArrays", 0, -1, concat_arrays},
                                  {"$in", 2, 2, contains},
                                  {"$isArray", 1, 1, is_array},
                                  {"$indexOfArray", 2, 4, index_of},
                                  {"$slice", 2, 3, slice, null_of_null},
                                  {"$reverseArray", 1, 1, reverse_array, null_of_null},
                                  {"$range", 2, 3, range}};

}  // namespace

std::span<const OperatorSpec> array_operators() noexcept { return array_table; }

}  // namespace spillway::pipeline
