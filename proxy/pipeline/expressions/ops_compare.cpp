// Comparisons, $not, and sets.
#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <string>

#include "cursor/bson_order.h"
#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

template <auto make>
Result<Value> compared(Operands operands, EvalContext& context) {
  const ValueView a = operands[0].view();
  const ValueView b = operands[1].view();
  const std::uint64_t bytes = std::min(a.bytes.size(), b.bytes.size());
  // Of documents and arrays each element is compared, of strings blocks of bytes.
  if (!context.meter.spend(a.is_document() || a.is_array() ? bytes / 16 : bytes / 256)) return too_many_steps_error();
  return Value::of(make(compare(a, b)));
}
std::int32_t sign_of(std::weak_ordering order) noexcept { return order < 0 ? -1 : order > 0 ? 1 : 0; }
Result<Value> negate(Operands o, EvalContext&) { return Value::of(!o[0].truthy()); }

using KeySet = absl::flat_hash_set<std::string>;

// An element of a set becomes a key, which is hashed.
constexpr std::uint64_t set_element_steps = 4;

std::string key_of(ValueView value) {
  std::string key;
  append_order_key(key, value);
  return key;
}

// The distinct keys of an array, charged while the document is evaluated.
Result<KeySet> keys_of(const Value& array, Meter& meter) {
  if (auto charged = meter.charge(array.view().bytes.size() * 3); !charged) return charged.error();
  KeySet keys;
  for (const Element& element : array.as_document()) {
    if (!meter.spend(set_element_steps)) return too_many_steps_error();
    keys.insert(key_of(element));
  }
  return keys;
}

Error not_array(int code, std::string_view op, const Value& operand) {
  return {code, join("All operands of ", op,
                     " must be arrays. One argument is of type: ", type_name(operand))};
}

// Distinct elements in BSON's order, as servers have them.
using OrderedSet = absl::btree_map<std::string, ValueView>;

Result<Value> array_of(const OrderedSet& set, Meter& meter) {
  ArrayBuilder out;
  for (const auto& [key, element] : set) out.add(element);
  return std::move(out).finish(meter);
}

Result<Value> set_union(Operands operands, EvalContext& context) {
  OrderedSet set;
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (!operand.is_array()) return not_array(17043, "$setUnion", operand);
    if (auto charged = context.meter.charge(operand.view().bytes.size() * 3); !charged) return charged.error();
    for (const Element& element : operand.as_document()) {
      if (!context.meter.spend(set_element_steps)) return too_many_steps_error();
      set.emplace(key_of(element), element);
    }
  }
  return array_of(set, context.meter);
}

// The distinct elements of the first operand that are, or are not, in the second set.
Result<Value> select(const Value& from, const KeySet& keys, bool wanted, EvalContext& context) {
  KeySet seen;
  ArrayBuilder out;
  for (const Element& element : from.as_document()) {
    if (!context.meter.spend(set_element_steps)) return too_many_steps_error();
    std::string key = key_of(element);
    if (keys.contains(key) == wanted && seen.insert(std::move(key)).second) out.add(element);
  }
  return std::move(out).finish(context.meter);
}

// As on a server, what follows is not looked at once nothing is left.
Result<Value> set_intersection(Operands operands, EvalContext& context) {
  Value result = operands.empty() ? Value::array(BsonDoc()) : operands[0];
  for (const Value& operand : operands) {
    if (operand.nullish()) return Value::null();
    if (!operand.is_array()) return not_array(17047, "$setIntersection", operand);
    SPILLWAY_TRY(keys, keys_of(operand, context.meter));
    SPILLWAY_TRY(kept, select(result, *keys, true, context));
    result = std::move(*kept);
    if (result.view().as_document().empty()) break;
  }
  if (auto charged = context.meter.charge(result.view().bytes.size() * 3); !charged) return charged.error();
  OrderedSet set;
  for (const Element& element : result.as_document()) {
    if (!context.meter.spend(set_element_steps)) return too_many_steps_error();
    set.emplace(key_of(element), element);
  }
  return array_of(set, context.meter);
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
    if (!operands[i].is_array()) return not_array(17044, "$setEquals", operands[i]);
    SPILLWAY_TRY(keys, keys_of(operands[i], context.meter));
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
  SPILLWAY_TRY(keys, keys_of(operands[1], context.meter));
  for (const Element& element : operands[0].as_document()) {
    if (!context.meter.spend(set_element_steps)) return too_many_steps_error();
    if (!keys->contains(key_of(element))) return Value::of(false);
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
    if (element.truthy() != all) return Value::of(!all);
  }
  return Value::of(all);
}
Result<Value> all_true(Operands operands, EvalContext&) { return elements_true(operands, true); }
Result<Value> any_true(Operands operands, EvalContext&) { return elements_true(operands, false); }

constexpr OperatorSpec compare_table[] = {{"$eq", 2, 2, compared<std::is_eq>, own_steps},
                                  {"$ne", 2, 2, compared<std::is_neq>, own_steps},
                                  {"$gt", 2, 2, compared<std::is_gt>, own_steps},
                                  {"$gte", 2, 2, compared<std::is_gteq>, own_steps},
                                  {"$lt", 2, 2, compared<std::is_lt>, own_steps},
                                  {"$lte", 2, 2, compared<std::is_lteq>, own_steps},
                                  {"$cmp", 2, 2, compared<sign_of>, own_steps},
                                  {"$not", 1, 1, negate, own_steps},
                                  {"$setUnion", 0, -1, set_union, stops_at_null},
                                  {"$setIntersection", 0, -1, set_intersection, stops_at_null},
                                  {"$setDifference", 2, 2, set_difference, null_of_null},
                                  {"$setEquals", 2, -1, set_equals},
                                  {"$setIsSubset", 2, 2, set_is_subset},
                                  {"$allElementsTrue", 1, 1, all_true},
                                  {"$anyElementTrue", 1, 1, any_true}};

}  // namespace

std::span<const OperatorSpec> comparison_operators() noexcept { return compare_table; }

}  // namespace spillway::pipeline
