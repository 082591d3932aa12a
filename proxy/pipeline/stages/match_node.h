// The parsed form of a filter. Private to match*.cpp.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/functional/function_ref.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/expressions/regex.h"
#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

struct MatchNode;
using MatchNodePtr = std::unique_ptr<MatchNode>;
// The parts of a path, shared by all operators on it; nullptr inside an $elemMatch of values.
using MatchPath = std::shared_ptr<const std::vector<std::string>>;

struct MatchNode {
  enum class Kind {
    all_of,      // children: $and, and the fields of a document
    any_of,      // children: $or
    none_of,     // children: $nor
    negated,     // one child: $not, $ne, $nin, $exists: false
    expression,  // $expr
    never,       // matches nothing
    equal,       // the kinds from here on look at the values of a path
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    exists,
    type,
    mod,
    regex,
    size,  // these two look at arrays as a whole
    elem_match_object,
    elem_match_value,
  };

  explicit MatchNode(Kind k) : kind(k) {}
  bool looks_at_arrays() const noexcept { return kind >= Kind::size; }

  Kind kind;
  MatchPath path;
  std::vector<MatchNodePtr> children;
  Value operand;
  absl::flat_hash_set<std::string> keys;  // $in: order keys
  std::vector<Regex> regexes;             // $in, $regex
  std::vector<BsonType> types;
  bool number_type = false;  // $type: "number"
  std::int64_t divisor = 1;
  std::int64_t remainder = 0;
  ExpressionPtr expr;
};

using ValueVisitor = absl::FunctionRef<bool(ValueView)>;

// Calls `visit` with every value that a filter on this path looks at, a missing one included, until
// it answers true. With `expand`, an array at the end of the path gives its elements, then itself. `passed` counts the
// elements that it passes over.
bool visit_path(DocView doc, const std::string* at, const std::string* end, bool expand,
                ValueVisitor visit, std::uint64_t& passed);

// Does this one value satisfy the leaf? REQUIRES a leaf kind that is not one of the array kinds.
Result<bool> leaf_matches(const MatchNode& node, ValueView value, Meter& meter);

// Shared by the parts of one filter while it is parsed.
struct FilterParse {
  const ParseScope& scope;        // of $expr
  std::uint64_t regex_bytes = 0;  // compiled so far
  bool in_element = false;        // within an $elemMatch

  // Charges `nodes` of them, and `bytes` that they hold.
  Result<void> charge(std::uint64_t nodes, std::uint64_t bytes = 0) const {
    return scope.charge(nodes * (sizeof(MatchNode) + 4 * sizeof(void*)) + bytes);
  }
};

Result<MatchNodePtr> parse_filter_document(DocView filter, FilterParse& parse);

// One operator on a path each; the server's errors for its argument.
Error bad_value(std::string text);
Result<MatchNodePtr> make_leaf(MatchNode::Kind kind, const MatchPath& path, ValueView operand,
                               const FilterParse& parse);
Result<MatchNodePtr> parse_equality(const MatchPath& path, ValueView value, FilterParse& parse);
// $regex and $options under a path: at least one of them.
struct RegexOperators {
  ValueView pattern;
  ValueView options;
};
Result<MatchNodePtr> parse_regex(const MatchPath& path, const RegexOperators& operators,
                                 FilterParse& parse);
Result<MatchNodePtr> parse_in(const MatchPath& path, ValueView value, std::string_view op,
                              FilterParse& parse);
Result<MatchNodePtr> parse_type(const MatchPath& path, ValueView value);
Result<MatchNodePtr> parse_mod(const MatchPath& path, ValueView value);
Result<MatchNodePtr> parse_size(const MatchPath& path, ValueView value);

}  // namespace spillway::pipeline
