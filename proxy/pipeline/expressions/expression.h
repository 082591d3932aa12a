// Aggregation expressions: parsed once, evaluated per document.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/pipeline/values/meter.h"
#include "proxy/pipeline/values/value.h"

namespace spillway::pipeline {

// The variables that an expression may name with $$: one level of a chain of scopes. Names are
// borrowed from the specification. Not copied: each level would cost all those around it.
class ParseScope {
 public:
  struct Variable {
    Value constant;  // of a command's `let`; missing for a slot
    int slot = -1;   // of $let, $map, $filter, $reduce; -1 for a constant
  };

  ParseScope() = default;
  // `meter` pays for the parsed expression, by an estimate, and must live as long; nullptr: no charge.
  explicit ParseScope(Meter* meter) noexcept : meter_(meter) {}
  ParseScope(ParseScope&&) = default;
  ParseScope& operator=(ParseScope&&) = default;

  // A scope inside this one, which must outlive it and stay where it is. Slots are numbered from
  // the outside inwards, and here from `slots` on.
  ParseScope inside(int slots) const;
  ParseScope inside() const { return inside(slots_); }

  // A later variable of the same name hides an earlier one. The number of the new slot.
  int bind(std::string_view name);
  void bind_constant(std::string_view name, Value constant);
  const Variable* find(std::string_view name) const noexcept;
  int slots() const noexcept { return slots_; }

  // Here and inside: operators that cannot evaluate all values give CommandNotSupported (115) as unknown ones do.
  void refuse_partial() noexcept { refuses_partial_ = true; }
  bool refuses_partial() const noexcept { return refuses_partial_; }

  Meter* meter() const noexcept { return meter_; }
  // 462 or 146, as the meter refuses.
  Result<void> charge(std::uint64_t bytes) const;
  std::uint64_t charged_bytes() const noexcept;
  // The charges since charged_bytes() was `before` are replaced by this size.
  Result<void> replace_charge(std::uint64_t before, std::uint64_t bytes) const;

 private:
  const ParseScope* outer_ = nullptr;
  absl::flat_hash_map<std::string_view, Variable> variables_;
  int slots_ = 0;
  bool refuses_partial_ = false;
  Meter* meter_ = nullptr;
};

// The input of an expression: the document ($$ROOT), its variables, and the meter that pays for new values. The
// resulting values are valid while the document is.
struct EvalContext {
  DocView root;
  Meter& meter;
  std::vector<Value> slots;
};

// Immutable once parsed; may be evaluated from any thread, with a context of that thread.
class Expression {
 public:
  virtual ~Expression() = default;
  virtual Result<Value> evaluate(EvalContext& context) const = 0;
  // The value, if it does not depend on the document.
  virtual const Value* constant() const noexcept { return nullptr; }
};
using ExpressionPtr = std::unique_ptr<const Expression>;

// Parses the server's expression language. CommandNotSupported (115) for an operator or variable that the server
// knows and that is not evaluated here; the server's code for malformed expressions.
Result<ExpressionPtr> parse_expression(ValueView spec, const ParseScope& scope);
// A field path without its '$' ("a.b"), as an expression.
Result<ExpressionPtr> parse_field_path(std::string_view dotted);
ExpressionPtr make_constant(Value value);

inline constexpr std::size_t path_parts_max = 200;
Error path_too_long_error();  // Overflow (15)
// The memory of a path's parts once it is split.
std::uint64_t path_bytes(std::string_view dotted) noexcept;

// Splits "a.b.c". The server's error for an empty component (15998), one that starts with '$'
// (16410), a trailing dot (40353), or more than path_parts_max components.
Result<std::vector<std::string>> split_field_path(std::string_view dotted);

// Follows a path from a document or array as "$a.b" does: an array on the way gives an array of the results of its
// documents.
Result<Value> follow_path(const Value& from, const std::string* at, const std::string* end,
                          Meter& meter);

// doc.find(name), with the elements that it passed over.
Element find_field(DocView doc, std::string_view name, std::uint64_t& passed) noexcept;

Error unsupported_error(std::string_view kind, std::string_view name);

}  // namespace spillway::pipeline
