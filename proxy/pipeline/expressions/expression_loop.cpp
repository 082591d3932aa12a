// Operators that bind variables.

#include <utility>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

void set_slot(EvalContext& context, int slot, Value value) {
  const auto index = static_cast<std::size_t>(slot);
  if (context.slots.size() <= index) context.slots.resize(index + 1);
  context.slots[index] = std::move(value);
}

class Let final : public Expression {
 public:
  using Bindings = std::vector<std::pair<int, ExpressionPtr>>;
  Let(Bindings bindings, ExpressionPtr body)
      : bindings_(std::move(bindings)), body_(std::move(body)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    if (!context.meter.spend(1 + bindings_.size())) return too_many_steps_error();
    for (const auto& [slot, expression] : bindings_) {
      SPILLWAY_TRY(value, expression->evaluate(context));
      set_slot(context, slot, std::move(*value));
    }
    return body_->evaluate(context);
  }

 private:
  Bindings bindings_;
  ExpressionPtr body_;
};

Result<void> check_variable_name(std::string_view name) {
  if (name.empty()) return Error(ErrorCode::failed_to_parse, "empty variable names are not allowed");
  const auto first = static_cast<unsigned char>(name.front());
  if (!(first >= 'a' && first <= 'z') && first < 0x80 && name != "CURRENT") {
    return Error(ErrorCode::failed_to_parse,
                 join("'", name,
                      "' starts with an invalid character for a user variable "
                      "name"));
  }
  if (name == "CURRENT") return unsupported_error("rebinding the variable", "$$CURRENT");
  return {};
}

// $map, $filter and $reduce: one pass over an array with a variable per element.
class Loop final : public Expression {
 public:
  enum class Kind { map, filter, reduce };
  Loop(Kind kind, ExpressionPtr input, ExpressionPtr body, ExpressionPtr initial, int slot)
      : kind_(kind),
        input_(std::move(input)),
        body_(std::move(body)),
        initial_(std::move(initial)),
        slot_(slot) {}
  Result<Value> evaluate(EvalContext& context) const override {
    SPILLWAY_TRY(input, input_->evaluate(context));
    if (input->nullish()) return Value::null();
    if (!input->is_array()) return input_error(*input);
    return kind_ == Kind::reduce ? reduce(*input, context) : gather(*input, context);
  }

 private:
  Error input_error(const Value& input) const {
    switch (kind_) {
      case Kind::map:
        return {16883, join("input to $map must be an array not ", type_name(input))};
      case Kind::filter:
        return {28651, join("input to $filter must be an array not ", type_name(input))};
      default:
        return {40080,
                join("$reduce requires that 'input' be an array, found: ", type_name(input))};
    }
  }
  Result<Value> gather(const Value& input, EvalContext& context) const {
    ArrayBuilder out;
    for (const Element& element : input.as_document()) {
      if (!context.meter.spend(1)) return too_many_steps_error();
      set_slot(context, slot_, input.part(element));
      SPILLWAY_TRY(value, body_->evaluate(context));
      if (kind_ == Kind::map) {
        out.add(*value);
      } else if (value->truthy()) {
        out.add(element);
      }
      if (out.overflowed()) break;
    }
    return std::move(out).finish(context.meter);
  }
  Result<Value> reduce(const Value& input, EvalContext& context) const {
    SPILLWAY_TRY(total, initial_->evaluate(context));
    for (const Element& element : input.as_document()) {
      if (!context.meter.spend(1)) return too_many_steps_error();
      set_slot(context, slot_, input.part(element));    // $$this
      set_slot(context, slot_ + 1, std::move(*total));  // $$value
      total = body_->evaluate(context);
      if (!total) return total;
    }
    return total;
  }

  Kind kind_;
  ExpressionPtr input_;
  ExpressionPtr body_;
  ExpressionPtr initial_;
  int slot_;
};

struct LoopNames {
  Loop::Kind kind;
  std::string_view op;
  std::string_view body;
  int not_object, unknown, no_input, no_body;
};

Result<ExpressionPtr> parse_loop(ValueView argument, const ParseScope& scope,
                                 const LoopNames& names) {
  if (!argument.is_document()) {
    return Error(names.not_object, join(names.op, " only supports an object as its argument"));
  }
  const bool is_reduce = names.kind == Loop::Kind::reduce;
  const DocView doc = argument.as_document();
  for (const Element& element : doc) {
    const bool known = element.name == "input" || element.name == names.body ||
                       element.name == (is_reduce ? "initialValue" : "as");
    if (!known && element.name == "limit") return unsupported_error("the parameter", join("limit of ", names.op));
    if (!known) return Error(names.unknown, join("Unrecognized parameter to ", names.op, ": ", element.name));
  }
  const auto missing = [&](int code, std::string_view field) {
    return Error(code, join("Missing '", field, "' parameter to ", names.op));
  };
  if (!doc["input"].exists()) return missing(names.no_input, "input");
  if (is_reduce && !doc["initialValue"].exists()) return missing(40078, "initialValue");
  if (!doc[names.body].exists()) return missing(names.no_body, names.body);
  std::string_view variable = "this";
  if (const ValueView as = doc["as"]; as.exists()) {
    if (!as.is_string()) return Error(ErrorCode::type_mismatch, "the parameter 'as' must be a string");
    variable = as.as_string();
    if (auto checked = check_variable_name(variable); !checked) return checked.error();
  }
  ParseScope inner = scope.inside();
  const int slot = inner.bind(variable);
  ExpressionPtr initial;
  if (is_reduce) {
    inner.bind("value");
    SPILLWAY_TRY(parsed, parse_expression(doc["initialValue"], scope));
    initial = std::move(*parsed);
  }
  SPILLWAY_TRY(input, parse_expression(doc["input"], scope));
  SPILLWAY_TRY(body, parse_expression(doc[names.body], inner));
  return std::make_unique<Loop>(names.kind, std::move(*input), std::move(*body), std::move(initial),
                                slot);
}

}  // namespace

Result<ExpressionPtr> parse_let(ValueView argument, const ParseScope& scope) {
  if (!argument.is_document()) return Error(16874, "$let only supports an object as its argument");
  const DocView doc = argument.as_document();
  for (const Element& element : doc) {
    if (element.name != "vars" && element.name != "in") {
      return Error(16875, join("Unrecognized parameter to $let: ", element.name));
    }
  }
  const ValueView vars = doc["vars"];
  if (!vars.exists()) return Error(16876, "Missing 'vars' parameter to $let");
  if (!doc["in"].exists()) return Error(16877, "Missing 'in' parameter to $let");
  if (!vars.is_document()) return Error(10065, "invalid parameter: expected an object (vars)");
  ParseScope inner = scope.inside();
  Let::Bindings bindings;
  for (const Element& element : vars.as_document()) {
    if (auto checked = check_variable_name(element.name); !checked) return checked.error();
    // Bindings do not see one another, but must not use the slots of earlier ones.
    const ParseScope beside = scope.inside(inner.slots());
    SPILLWAY_TRY(value, parse_expression(element, beside));
    bindings.emplace_back(inner.bind(element.name), std::move(*value));
  }
  SPILLWAY_TRY(body, parse_expression(doc["in"], inner));
  return std::make_unique<Let>(std::move(bindings), std::move(*body));
}

Result<ExpressionPtr> parse_map(ValueView argument, const ParseScope& scope) {
  return parse_loop(argument, scope, {Loop::Kind::map, "$map", "in", 16878, 16879, 16880, 16882});
}
Result<ExpressionPtr> parse_filter(ValueView argument, const ParseScope& scope) {
  return parse_loop(argument, scope,
                    {Loop::Kind::filter, "$filter", "cond", 28646, 28647, 28648, 28650});
}
Result<ExpressionPtr> parse_reduce(ValueView argument, const ParseScope& scope) {
  return parse_loop(argument, scope,
                    {Loop::Kind::reduce, "$reduce", "in", 40075, 40076, 40077, 40079});
}

}  // namespace spillway::pipeline
