// Operators that do not evaluate all of their operands.

#include <array>
#include <utility>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

using OperandList = std::vector<ExpressionPtr>;

// $and: stops at the first false; $or: at the first true.
class Logic final : public Expression {
 public:
  Logic(bool stop_at, OperandList list) : stop_at_(stop_at), list_(std::move(list)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    for (const ExpressionPtr& operand : list_) {
      if (!context.meter.spend(1)) return too_many_steps_error();
      SPILLWAY_TRY(value, operand->evaluate(context));
      if (value->truthy() == stop_at_) return Value::of(stop_at_);
    }
    return Value::of(!stop_at_);
  }

 private:
  bool stop_at_;
  OperandList list_;
};

template <bool stop_at>
Result<ExpressionPtr> parse_logic(ValueView argument, const ParseScope& scope) {
  SPILLWAY_TRY(list, parse_operands(argument, scope));
  return std::make_unique<Logic>(stop_at, std::move(*list));
}

Result<ExpressionPtr> parse_literal(ValueView argument, const ParseScope& scope) {
  if (auto charged = scope.charge(argument.bytes.size()); !charged) return charged.error();
  return make_constant(Value::borrowed(argument));
}

// A chain of (condition, value) with a default, for $cond and $switch.
class Branches final : public Expression {
 public:
  using Branch = std::pair<ExpressionPtr, ExpressionPtr>;
  Branches(std::vector<Branch> branches, ExpressionPtr otherwise)
      : branches_(std::move(branches)), otherwise_(std::move(otherwise)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    for (const auto& [condition, value] : branches_) {
      if (!context.meter.spend(1)) return too_many_steps_error();
      SPILLWAY_TRY(holds, condition->evaluate(context));
      if (holds->truthy()) return value->evaluate(context);
    }
    if (otherwise_ == nullptr) {
      return Error(40066,
                   "$switch could not find a matching branch for an input, and no default "
                   "was specified.");
    }
    return otherwise_->evaluate(context);
  }

 private:
  std::vector<Branch> branches_;
  ExpressionPtr otherwise_;
};

// Parses the named fields of an operator's object argument into `out`, in the order of `names`.
template <std::size_t n>
Result<void> parse_fields(DocView doc, const ParseScope& scope, std::string_view op,
                          const std::array<std::string_view, n>& names, int unknown_code,
                          std::array<ExpressionPtr, n>& out) {
  for (const Element& element : doc) {
    std::size_t i = 0;
    while (i < n && names[i] != element.name) ++i;
    if (i == n) return Error(unknown_code, join("Unrecognized parameter to ", op, ": ", element.name));
    SPILLWAY_TRY(parsed, parse_expression(element, scope));
    out[i] = std::move(*parsed);
  }
  return {};
}

Result<ExpressionPtr> parse_cond(ValueView argument, const ParseScope& scope) {
  std::array<ExpressionPtr, 3> parts;
  if (argument.is_document()) {
    const std::array<std::string_view, 3> names{"if", "then", "else"};
    SPILLWAY_TRY(parsed, parse_fields(argument.as_document(), scope, "$cond", names, 17083, parts));
    for (int i = 0; i < 3; ++i) {
      if (parts[static_cast<std::size_t>(i)] == nullptr) {
        return Error(17080 + i,
                     join("Missing '", names[static_cast<std::size_t>(i)], "' parameter to $cond"));
      }
    }
  } else {
    SPILLWAY_TRY(list, parse_operands(argument, scope));
    if (list->size() != 3) {
      return Error(16020, join("Expression $cond takes exactly 3 arguments. ", list->size(),
                               " were passed in."));
    }
    for (std::size_t i = 0; i < 3; ++i) parts[i] = std::move((*list)[i]);
  }
  std::vector<Branches::Branch> branches;
  branches.emplace_back(std::move(parts[0]), std::move(parts[1]));
  return std::make_unique<Branches>(std::move(branches), std::move(parts[2]));
}

Result<Branches::Branch> parse_branch(ValueView spec, const ParseScope& scope) {
  if (!spec.is_document()) {
    return Error(40062, join("$switch requires each branch to be an object, found: ",
                             bson_type_name(spec.type)));
  }
  std::array<ExpressionPtr, 2> parts;
  const std::array<std::string_view, 2> names{"case", "then"};
  SPILLWAY_TRY(parsed, parse_fields(spec.as_document(), scope, "$switch", names, 40063, parts));
  if (parts[0] == nullptr) return Error(40064, "$switch requires each branch have a 'case' expression");
  if (parts[1] == nullptr) return Error(40065, "$switch requires each branch have a 'then' expression.");
  return Branches::Branch(std::move(parts[0]), std::move(parts[1]));
}

Result<ExpressionPtr> parse_switch(ValueView argument, const ParseScope& scope) {
  if (!argument.is_document()) {
    return Error(40060, join("$switch requires an object as an argument, found: ",
                             bson_type_name(argument.type)));
  }
  std::vector<Branches::Branch> branches;
  ExpressionPtr otherwise;
  for (const Element& element : argument.as_document()) {
    if (element.name == "branches") {
      if (!element.is_array()) {
        return Error(40061, join("$switch expected an array for 'branches', found: ",
                                 bson_type_name(element.type)));
      }
      for (const Element& item : element.as_document()) {
        SPILLWAY_TRY(branch, parse_branch(item, scope));
        branches.push_back(std::move(*branch));
      }
    } else if (element.name == "default") {
      SPILLWAY_TRY(parsed, parse_expression(element, scope));
      otherwise = std::move(*parsed);
    } else {
      return Error(40067, join("$switch found an unknown argument: ", element.name));
    }
  }
  if (branches.empty()) return Error(40068, "$switch requires at least one branch.");
  return std::make_unique<Branches>(std::move(branches), std::move(otherwise));
}

class IfNull final : public Expression {
 public:
  explicit IfNull(OperandList list) : list_(std::move(list)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    for (std::size_t i = 0;; ++i) {
      if (!context.meter.spend(1)) return too_many_steps_error();
      auto value = list_[i]->evaluate(context);
      if (!value || !value->nullish() || i + 1 == list_.size()) return value;
    }
  }

 private:
  OperandList list_;
};

Result<ExpressionPtr> parse_if_null(ValueView argument, const ParseScope& scope) {
  SPILLWAY_TRY(list, parse_operands(argument, scope));
  if (list->size() < 2) return Error(1257300, join("$ifNull needs at least two arguments, had: ", list->size()));
  return std::make_unique<IfNull>(std::move(*list));
}

constexpr std::pair<std::string_view, SpecialParser*> specials[] = {
    {"$and", parse_logic<false>}, {"$or", parse_logic<true>}, {"$literal", parse_literal},
    {"$const", parse_literal},    {"$cond", parse_cond},      {"$switch", parse_switch},
    {"$ifNull", parse_if_null},   {"$let", parse_let},        {"$map", parse_map},
    {"$filter", parse_filter},    {"$reduce", parse_reduce}};

}  // namespace

SpecialParser* find_special(std::string_view name) noexcept {
  for (const auto& [op, parser] : specials) {
    if (op == name) return parser;
  }
  return nullptr;
}

}  // namespace spillway::pipeline
