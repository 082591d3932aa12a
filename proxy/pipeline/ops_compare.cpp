// Comparisons, $not, and sets.
#include <absl/container/flat_hash_set.h>

#include <string>

#include "cursor/bson_order.h"
#include "proxy/pipeline/ops.h"
#include "proxy/pipeline/text.h"

namespace spillway::pipeline {
namespace {

int order(Operands operands) noexcept {
  const auto result = compare(operands[0], operands[1]);
  return result < 0 ? -1 : result > 0 ? 1 : 0;
}
Result<Value> equal(Operands o, EvalContext&) { return Value::of(order(o) == 0); }
Result<Value> not_equal(Operands o, EvalContext&) { return Value::of(order(o) != 0); }
Result<Value> greater(Operands o, EvalContext&) { return Value::of(order(o) > 0); }
Result<Value> greater_equal(Operands o, EvalContext&) { return Value::of(order(o) >= 0); }
Result<Value> less(Operands o, EvalContext&) { return Value::of(order(o) < 0); }
Result<Value> less_equal(Operands o, EvalContext&) { return Value::of(order(o) <= 0); }
Result<Value> compare_of(Operands o, EvalContext&) { return Value::of(std::int32_t{order(o)}); }
Result<Value> negate(Operands o, EvalContext&) { return Value::of(!o[0].truthy()); }

using KeySet = absl::flat_hash_set<std::string>;

std::string key_of(ValueView value) {
  std::string key;
  append_order_key(key, value);
  return key;
}

// The distinct keys of an array, charged while the document is evaluated.
Result<KeySet> keys_of(const Value& array, Meter& meter) {
  if (auto charged = meter.charge(array.view().bytes.size() * 3); !charged) {
    return charged.error();
  }
  KeySet keys;
  for (const Element& element : array.as_document()) {
    keys.insert(key_of(element));
  }
  return keys;
}

Error not_array(int code, std::string_view op, const Value& operand) {
  return {code, join("All operands of ", op,
                     " must be arrays. One argument is of type: ", type_name(operand))};
}

Result<Value> set_union(Operands operands, EvalContext& context) {
  KeySet seen;
  ArrayBuilder out;
  for (const Value& operand : operands) {
    if (operand.nullish()) {
      return Value::null();
    }
    if (!operand.is_array()) {
      return not_array(17043, "$setUnion", operand);
    }
    if (auto charged = context.meter.charge(operand.view().bytes.size() * 3); !charged) {
      return charged.error();
    }
    for (const Element& element : operand.as_document()) {
      if (seen.insert(key_of(element)).second) {
        out.add(element);
      }
    }
  }
  return std::move(out).finish(context.meter);
}

// The distinct elements of the first operand that are, or are not, in the second set.
Result<Value> select(const Value& from, const KeySet& keys, bool wanted, EvalContext& context) {
  KeySet seen;
  ArrayBuilder out;
  for (const Element& element : from.as_document()) {
    std::string key = key_of(element);
    if (keys.contains(key) == wanted && seen.insert(std::move(key)).second) {
      out.add(element);
    }
  }
  return std::move(out).finish(context.meter);
}

// As on a server, what follows is not looked at once nothing is left.
Result<Value> set_intersection(Operands operands, EvalContext& context) {
  Value result = operands.empty() ? Value::array(BsonDoc()) : operands[0];
  for (const Value& operand : operands) {
    if (operand.nullish()) {
      return Value::null();
    }
    if (!operand.is_array()) {
      return not_array(17047, "$setIntersection", operand);
    }
    auto keys = keys_of(operand, context.meter);
    if (!keys) {
      return keys.error();
    }
    auto kept = select(result, *keys, true, context);
    if (!kept) {
      return kept;
    }
    result = std::move(*kept);
    if (result.view().as_document().empty()) {
      break;
    }
  }
  return result;
}

Result<Value> set_difference(Operands operands, EvalContext& context) {
  for (int i = 0; i < 2; ++i) {
    const Value& operand = operands[static_cast<std::size_t>(i)];
    if (!operand.is_array()) {
      return Error(17048 + i,
                   join("both operands of $setDifference must be arrays. ",
                        i == 0 ? "First" : "Second", " argument is of type: ", type_name(operand)));
    }
  }
  auto keys = keys_of(operands[1], context.meter);
  return keys ? select(operands[0], *keys, false, context) : keys.error();
}

Result<Value> set_equals(Operands operands, EvalContext& context) {
  bool all_equal = true;
  KeySet first;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_array()) {
      return not_array(17044, "$setEquals", operands[i]);
    }
    auto keys = keys_of(operands[i], context.meter);
    if (!keys) {
      return keys.error();
    }
    if (i == 0) {
      first = std::move(*keys);
    } else {
      all_equal = all_equal && first == *keys;
    }
  }
  return Value::of(all_equal);
}

Result<Value> set_is_subset(Operands operands, EvalContext& context) {
  if (!operands[0].is_array() || !operands[1].is_array()) {
    const bool first = !operands[0].is_array();
    return Error(first ? 17046 : 17042,
                 join("both operands of $setIsSubset must be arrays. ", first ? "First" : "Second",
                      " argument is of type: ", type_name(operands[first ? 0 : 1])));
  }
  auto keys = keys_of(operands[1], context.meter);
  if (!keys) {
    return keys.error();
  }
  for (const Element& element : operands[0].as_document()) {
    if (!keys->contains(key_of(element))) {
      return Value::of(false);
    }
  }
  return Value::of(true);
}

Result<Value> elements_true(Operands operands, bool all) {
  if (!operands[0].is_array()) {
    return Error(all ? 17040 : 17041,
                 join(all ? "$allElementsTrue" : "$anyElementTrue",
                      "'s argument must be an array, but is ", type_name(operands[0])));
  }
  for (const Element& element : operands[0].as_document()) {
    if (element.truthy() != all) {
      return Value::of(!all);
    }
  }
  return Value::of(all);
}
Result<Value> all_true(Operands operands, EvalContext&) { return elements_true(operands, true); }
Result<Value> any_true(Operands operands, EvalContext&) { return elements_true(operands, false); }

constexpr OperatorSpec compare_table[] = {{"$eq", 2, 2, equal},
                                  {"$ne", 2, 2, not_equal},
                                  {"$gt", 2, 2, greater},
                                  {"$gte", 2, 2, greater_equal},
                                  {"$lt", 2, 2, less},
                                  {"$lte", 2, 2, less_equal},
                                  {"$cmp", 2, 2, compare_of},
                                  {"$not", 1, 1, negate},
                                  {"$setUnion", 0, -1, set_union},
                                  {"$setIntersection", 0, -1, set_intersection},
                                  {"$setDifference", 2, 2, set_difference, null_of_null},
                                  {"$setEquals", 2, -1, set_equals},
                                  {"$setIsSubset", 2, 2, set_is_subset},
                                  {"$allElementsTrue", 1, 1, all_true},
                                  {"$anyElementTrue", 1, 1, any_true}};

}  // namespace

std::span<const OperatorSpec> comparison_operators() noexcept { return compare_table; }

}  // namespace spillway::pipeline
