#include "proxy/catalog/filter_bounds.h"

#include <cmath>

#include "cursor/bson_hash.h"
#include "proxy/catalog/filter_regex.h"
#include "proxy/catalog/intervals.h"

namespace spillway::catalog {
namespace {

// Interval comparisons that the conjuncts of one filter may cost; further ones count as unbounded.
constexpr std::size_t intersect_work_max = 20'000'000;

bool is_near(std::string_view op) noexcept {
  return op == "$near" || op == "$nearSphere" || op == "$geoNear";
}

std::string_view c_string(Bytes bytes, std::size_t at) noexcept {
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + at;
  return {text, ::strnlen(text, bytes.size() - at)};
}

// The bounds of one conjunction: a list per field, nullopt for [MinKey, MaxKey].
struct Conjunction {
  explicit Conjunction(std::size_t fields) : lists(fields) {}

  std::vector<MaybeIntervals> lists;
  bool empty = false;  // nothing can match
};

// Walks one filter. Positive and negated predicates are bounded separately: the complement of a superset is no
// superset, so a negated predicate is bounded only where the positive bounds are exact.
class BoundsBuilder {
 public:
  BoundsBuilder(const ShardKeyPattern& pattern, bool simple_collation)
      : fields_(pattern.fields()), simple_collation_(simple_collation) {}

  FilterBounds build(DocView filter) {
    Conjunction all = conjunction(filter, "", 0);
    FilterBounds out;
    for (MaybeIntervals& list : all.lists) {
      out.fields.push_back(list && !whole_collection_ ? std::move(*list) : full_interval());
    }
    if (all.empty && !whole_collection_) out.fields[0].clear();
    return out;
  }

 private:
  static constexpr std::size_t no_field = static_cast<std::size_t>(-1);

  Conjunction conjunction(DocView filter, const std::string& prefix, int depth) {
    Conjunction out(fields_.size());
    if (depth > filter_depth_max) return out;
    for (const Element& e : filter) {
      if (e.name == "$and") {
        and_branches(out, e, prefix, depth);
      } else if (e.name == "$or") {
        or_branches(out, e, prefix, depth);
      } else if (e.name == "$expr") {
        if (prefix.empty()) expression(out, e, depth + 1);
      } else if (e.name == "$text") {
        whole_collection_ = true;
      } else if (!e.name.starts_with('$')) {
        predicate(out, e, prefix, depth);
      }
    }
    return out;
  }

  void and_branches(Conjunction& into, const Element& e, const std::string& prefix, int depth) {
    if (!e.is_array()) return;
    for (const Element& branch : e.as_document()) {
      if (!may_look_on()) return;
      if (branch.is_document()) merge(into, conjunction(branch.as_document(), prefix, depth + 1));
    }
  }

  // Field by field the union of the branches': a superset of their union.
  void or_branches(Conjunction& into, const Element& e, const std::string& prefix, int depth) {
    if (!e.is_array() || e.as_document().empty()) return;
    std::vector<IntervalUnion> unions(fields_.size());
    std::vector<bool> full(fields_.size(), false);
    bool any = false;
    for (const Element& branch : e.as_document()) {
      if (!branch.is_document() || !may_look_on()) return;
      Conjunction one = conjunction(branch.as_document(), prefix, depth + 1);
      if (one.empty) continue;
      any = true;
      for (std::size_t i = 0; i < fields_.size(); ++i) {
        if (!one.lists[i]) {
          full[i] = true;
        } else if (!full[i]) {
          unions[i].add(*one.lists[i]);
        }
      }
    }
    into.empty = into.empty || !any;
    for (std::size_t i = 0; any && i < fields_.size(); ++i) {
      if (!full[i]) restrict_field(into, i, std::move(unions[i]).finish());
    }
  }

  void merge(Conjunction& into, Conjunction from) {
    into.empty = into.empty || from.empty;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      restrict_field(into, i, std::move(from.lists[i]));
    }
  }

  void restrict_field(Conjunction& into, std::size_t field, MaybeIntervals list) {
    if (!list) return;
    MaybeIntervals& held = into.lists[field];
    if (!held) {
      held = std::move(list);
    } else {
      work_ += held->size() + list->size();
      if (work_ > intersect_work_max) return;
      held = intersect(*held, *list);
    }
    into.empty = into.empty || held->empty();
  }

  std::size_t field_of(std::string_view prefix, std::string_view name) const noexcept {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const std::string_view path(fields_[i].path);
      if (path.size() == prefix.size() + name.size() && path.starts_with(prefix) &&
          path.ends_with(name)) {
        return i;
      }
    }
    return no_field;
  }

  // `<path>: <value or operators>`
  void predicate(Conjunction& into, const Element& e, const std::string& prefix, int depth) {
    const std::size_t field = field_of(prefix, e.name);
    if (!is_operator_document(e)) {
      if (field != no_field) restrict_field(into, field, value_match(field, e));
      return;
    }
    const DocView operators = e.as_document();
    for (const Element& op : operators) {
      if (is_near(op.name)) {
        whole_collection_ = true;
      } else if (op.name == "$elemMatch") {
        element_match(into, op, prefix, e.name, depth);
      } else if (field != no_field) {
        restrict_field(into, field, operator_bounds(field, op, operators, false, depth));
      }
    }
  }

  // {a: {$elemMatch: {b: 1}}} bounds a.b; {a: {$elemMatch: {$gt: 1}}} bounds a.
  void element_match(Conjunction& into, const Element& op, const std::string& prefix,
                     std::string_view name, int depth) {
    if (!op.is_document() || depth >= filter_depth_max) return;
    const std::string path = prefix + std::string(name);
    if (path.size() > longest_path()) return;
    if (!is_operator_document(op) || is_logical(op.as_document().first().name)) {
      merge(into, conjunction(op.as_document(), path + ".", depth + 1));
      return;
    }
    const std::size_t field = field_of(prefix, name);
    if (field == no_field) return;
    for (const Element& inner : op.as_document()) {
      restrict_field(into, field,
                     operator_bounds(field, inner, op.as_document(), false, depth + 1));
    }
  }

  static bool is_logical(std::string_view name) noexcept {
    return name == "$and" || name == "$or" || name == "$nor" || name == "$where";
  }

  std::size_t longest_path() const noexcept {
    std::size_t longest = 0;
    for (const auto& field : fields_) longest = std::max(longest, field.path.size());
    return longest;
  }

  // {$expr: {$eq: ["$path", constant]}} and $and of such.
  void expression(Conjunction& into, const Element& e, int depth) {
    if (!e.is_document() || depth > filter_depth_max) return;
    const Element op = e.as_document().first();
    if (!op.is_array()) return;
    if (op.name == "$and") {
      for (const Element& part : op.as_document()) expression(into, part, depth + 1);
    } else if (op.name == "$eq" && op.as_document().count() == 2) {
      auto it = op.as_document().begin();
      const Element left = *it;
      const Element right = *++it;
      if (!expression_equality(into, left, right)) expression_equality(into, right, left);
    }
  }

  bool expression_equality(Conjunction& into, ValueView path, ValueView constant) {
    if (!path.is_string() || !path.as_string().starts_with('$')) return false;
    const std::size_t field = field_of("", path.as_string().substr(1));
    const bool scalar = constant.is_number() || constant.type == BsonType::object_id ||
                        constant.type == BsonType::boolean || constant.type == BsonType::date ||
                        (constant.is_string() && !constant.as_string().starts_with('$'));
    if (field == no_field || !scalar) return false;
    restrict_field(into, field, equality(field, constant));
    return true;
  }

  // An implicit equality or a regular expression.
  MaybeIntervals value_match(std::size_t field, ValueView value) {
    if (value.type != BsonType::regex) return equality(field, value);
    const std::string_view pattern = c_string(value.bytes, 0);
    return regex_bounds(field, pattern, c_string(value.bytes, pattern.size() + 1));
  }

  // One operator of {a: {<op>: <value>, …}}, or its negation. `beside` holds its siblings.
  MaybeIntervals operator_bounds(std::size_t field, const Element& op, DocView beside, bool negated,
                                 int depth) {
    if (depth > filter_depth_max) return std::nullopt;
    if (op.name == "$not") return not_bounds(field, op, negated, depth);
    if (op.name == "$ne" || op.name == "$nin") negated = !negated;
    if (op.name == "$eq" || op.name == "$ne") {
      return negated ? not_in(field, {&op, 1}) : equality(field, op);
    }
    if (op.name == "$in" || op.name == "$nin") return in_bounds(field, op, negated);
    if (op.name == "$gt") return comparison(field, op, true, false, negated);
    if (op.name == "$gte") return comparison(field, op, true, true, negated);
    if (op.name == "$lt") return comparison(field, op, false, false, negated);
    if (op.name == "$lte") return comparison(field, op, false, true, negated);
    if (op.name == "$exists") {
      if (op.truthy() != negated || fields_[field].hashed) return std::nullopt;
      // A missing field's key is null.
      return IntervalList{point(bound_keys().null)};
    }
    if (negated) return std::nullopt;
    if (op.name == "$all") return all_bounds(field, op);
    if (op.name == "$regex") return regex_operator(field, op, beside);
    return std::nullopt;
  }

  // not (p and q and …) is the union of the negated parts.
  MaybeIntervals not_bounds(std::size_t field, const Element& op, bool negated, int depth) {
    if (!op.is_document() || op.as_document().empty()) return std::nullopt;
    if (negated) {  // double negation: all of the parts hold
      Conjunction inner(fields_.size());
      for (const Element& part : op.as_document()) {
        restrict_field(inner, field,
                       operator_bounds(field, part, op.as_document(), false, depth + 1));
      }
      return std::move(inner.lists[field]);
    }
    IntervalUnion out;
    for (const Element& part : op.as_document()) {
      const auto one = operator_bounds(field, part, op.as_document(), true, depth + 1);
      if (!one) return std::nullopt;
      out.add(*one);
    }
    return std::move(out).finish();
  }

  // For a list: single values of it cannot be skipped, but the whole list can.
  bool may_look_on() noexcept { return ++values_ <= filter_values_max; }

  bool incomparable(ValueView value) const noexcept {
    return !simple_collation_ && is_collatable(value);
  }

  MaybeIntervals equality(std::size_t field, ValueView value) {
    IntervalUnion out;
    if (!add_equality(field, value, out)) return std::nullopt;
    return std::move(out).finish();
  }

  // False when the value bounds nothing.
  bool add_equality(std::size_t field, ValueView value, IntervalUnion& out) {
    if (incomparable(value) || value.type == BsonType::undefined) return false;
    if (value.is_array() && !fields_[field].hashed) {
      // Matches the array itself, or an array that holds it; index keys are elements of arrays.
      const ValueView first = value.as_document().first();
      out.add(point(first.exists() ? order_key(first) : bound_keys().undefined));
    }
    if (value.is_null()) {
      const ValueView undefined{BsonType::undefined, {}};
      out.add(point(fields_[field].hashed ? hash_key(undefined) : bound_keys().undefined));
    }
    out.add(point(fields_[field].hashed ? hash_key(value) : order_key(value)));
    return true;
  }

  static std::string hash_key(ValueView value) {
    std::uint8_t hash[8];
    store_le(hash, bson_hash64(value));
    return order_key({BsonType::int64, Bytes(hash)});
  }

  // Everything except these values. Only values whose equality is exact can be excluded.
  MaybeIntervals not_in(std::size_t field, std::span<const Element> values) {
    if (fields_[field].hashed) return std::nullopt;
    IntervalUnion out;
    for (const Element& value : values) {
      if (!add_excluded(value, out)) return std::nullopt;
    }
    return complement(std::move(out).finish());
  }

  bool add_excluded(ValueView value, IntervalUnion& out) {
    if (incomparable(value) || value.type == BsonType::undefined || value.is_array() ||
        value.type == BsonType::regex) {
      return false;
    }
    out.add(point(order_key(value)));
    return true;
  }

  MaybeIntervals in_bounds(std::size_t field, const Element& op, bool negated) {
    if (!op.is_array() || (negated && fields_[field].hashed)) return std::nullopt;
    IntervalUnion out;
    std::size_t count = 0;
    for (const Element& item : op.as_document()) {
      if (++count > interval_points_max && (negated || fields_[field].hashed)) return std::nullopt;
      if (!may_look_on()) return std::nullopt;
      if (negated) {
        if (!add_excluded(item, out)) return std::nullopt;
      } else if (item.type == BsonType::regex) {
        const auto one = value_match(field, item);
        if (!one) return std::nullopt;
        out.add(*one);
      } else if (!add_equality(field, item, out)) {
        return std::nullopt;
      }
    }
    if (!negated) return std::move(out).finish();
    return complement(std::move(out).finish());
  }

  // $all of plain values: every one of them is an equality.
  MaybeIntervals all_bounds(std::size_t field, const Element& op) {
    if (!op.is_array() || op.as_document().empty()) return std::nullopt;
    Conjunction inner(fields_.size());
    for (const Element& item : op.as_document()) {
      if (is_operator_document(item) || !may_look_on()) return std::nullopt;
      restrict_field(inner, field, value_match(field, item));
    }
    return std::move(inner.lists[field]);
  }

  // $gt, $gte, $lt, $lte: within the type of the value only.
  MaybeIntervals comparison(std::size_t field, ValueView value, bool greater, bool equal,
                            bool negated) {
    if (fields_[field].hashed || incomparable(value)) return std::nullopt;
    IntervalList list;
    if (value.is_null()) {
      if (equal) list.push_back(point(bound_keys().null));
      // Undefined equals null for older servers: it is included here, and not excluded when negated.
      if (equal && !negated) list.insert(list.begin(), point(bound_keys().undefined));
    } else if (value.is_number() && std::isnan(value.to_double().value_or(0))) {
      if (equal) list.push_back(point(order_key(value)));
    } else {
      auto bracket = type_bracket(value.type);
      if (!bracket) return std::nullopt;
      (greater ? bracket->low : bracket->high) = order_key(value);
      (greater ? bracket->low_open : bracket->high_open) = !equal;
      IntervalUnion one;  // drops an interval that holds nothing, as {$lt: ""}
      one.add(std::move(*bracket));
      list = std::move(one).finish();
    }
    return negated ? complement(list) : list;
  }

  MaybeIntervals regex_operator(std::size_t field, const Element& op, DocView beside) {
    const ValueView options = beside["$options"];
    std::string_view flags = options.to_text();
    if (op.is_string()) return regex_bounds(field, op.as_string(), flags);
    if (op.type != BsonType::regex) return std::nullopt;
    const std::string_view pattern = c_string(op.bytes, 0);
    if (flags.empty()) flags = c_string(op.bytes, pattern.size() + 1);
    return regex_bounds(field, pattern, flags);
  }

  // Strings that can match, and the same regular expression stored as a value. A collation does not
  // change what a regular expression matches.
  MaybeIntervals regex_bounds(std::size_t field, std::string_view pattern, std::string_view flags) {
    if (fields_[field].hashed) return std::nullopt;
    Interval strings = *type_bracket(BsonType::string);
    const std::string prefix = regex_prefix(pattern, flags);
    if (!prefix.empty()) {
      strings.low = string_key(prefix);
      const std::string above = prefix_successor(prefix);
      if (!above.empty()) strings.high = string_key(above);
    }
    std::string regex(pattern);
    regex.push_back('\0');
    regex.append(flags);
    regex.push_back('\0');
    const Bytes bytes(reinterpret_cast<const std::uint8_t*>(regex.data()), regex.size());
    IntervalUnion out;
    out.add(std::move(strings));
    out.add(point(order_key({BsonType::regex, bytes})));
    return std::move(out).finish();
  }

  static std::string string_key(std::string_view text) {
    const BsonDoc doc = BsonWriter().append("", text).finish();
    return order_key(doc.view().first());
  }

  const std::vector<ShardKeyPattern::Field>& fields_;
  const bool simple_collation_;
  bool whole_collection_ = false;  // $text or $near: unbounded
  std::size_t work_ = 0;
  std::size_t values_ = 0;  // values looked at so far
};

bool near_in(DocView filter, int depth) {
  if (depth > filter_depth_max) return false;
  for (const Element& e : filter) {
    if (e.name == "$and" && e.is_array()) {
      for (const Element& branch : e.as_document()) {
        if (branch.is_document() && near_in(branch.as_document(), depth + 1)) return true;
      }
    } else if (!e.name.starts_with('$') && is_operator_document(e)) {
      for (const Element& op : e.as_document()) {
        if (is_near(op.name)) return true;
      }
    }
  }
  return false;
}

}  // namespace

bool orders_by_distance(DocView filter) { return near_in(filter, 0); }

FilterBounds bounds_of_filter(const ShardKeyPattern& pattern, DocView filter,
                              bool simple_collation) {
  return BoundsBuilder(pattern, simple_collation).build(filter);
}

}  // namespace spillway::catalog
