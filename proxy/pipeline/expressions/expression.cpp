#include "proxy/pipeline/expressions/expression.h"

#include <algorithm>

#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// A node, its place in its parent, and the allocator's overhead.
constexpr std::uint64_t node_bytes = 128;

// The memory for parsing this value, without the values inside it.
std::uint64_t cost_of(ValueView spec) noexcept {
  if (spec.is_document() || spec.is_array()) return node_bytes;
  std::uint64_t bytes = node_bytes + spec.bytes.size();
  if (spec.is_string() && spec.as_string().starts_with('$')) bytes += path_bytes(spec.as_string());
  return bytes;
}

class Constant final : public Expression {
 public:
  explicit Constant(Value value) : value_(std::move(value)) {}
  Result<Value> evaluate(EvalContext&) const override { return value_; }
  const Value* constant() const noexcept override { return &value_; }

 private:
  Value value_;
};

// "$a.b", "$$ROOT.a", "$$variable.a": `slot` -1 starts at the document.
class Path final : public Expression {
 public:
  Path(int slot, std::vector<std::string> parts) : slot_(slot), parts_(std::move(parts)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    if (!context.meter.spend(1)) return too_many_steps_error();
    const std::string* begin = parts_.data();
    const std::string* end = begin + parts_.size();
    if (slot_ >= 0) return follow_path(context.slots[static_cast<std::size_t>(slot_)], begin, end, context.meter);
    return follow_path(Value::borrowed({BsonType::document, context.root.bytes()}), begin, end,
                       context.meter);
  }

 private:
  int slot_;
  std::vector<std::string> parts_;
};

// A path into the constant of a command's `let`.
class ConstantPath final : public Expression {
 public:
  ConstantPath(Value from, std::vector<std::string> parts)
      : from_(std::move(from)), parts_(std::move(parts)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    if (!context.meter.spend(1)) return too_many_steps_error();
    return follow_path(from_, parts_.data(), parts_.data() + parts_.size(), context.meter);
  }

 private:
  Value from_;
  std::vector<std::string> parts_;
};

class ArrayExpression final : public Expression {
 public:
  explicit ArrayExpression(std::vector<ExpressionPtr> items) : items_(std::move(items)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    if (!context.meter.spend(1 + items_.size())) return too_many_steps_error();
    ArrayBuilder array;
    for (const ExpressionPtr& item : items_) {
      SPILLWAY_TRY(value, item->evaluate(context));
      array.add(*value);
    }
    return std::move(array).finish(context.meter);
  }

 private:
  std::vector<ExpressionPtr> items_;
};

class ObjectExpression final : public Expression {
 public:
  using Fields = std::vector<std::pair<std::string, ExpressionPtr>>;
  explicit ObjectExpression(Fields fields) : fields_(std::move(fields)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    if (!context.meter.spend(1 + fields_.size())) return too_many_steps_error();
    DocumentBuilder doc;
    for (const auto& [name, expression] : fields_) {
      SPILLWAY_TRY(value, expression->evaluate(context));
      doc.add(name, *value);
    }
    return std::move(doc).finish(context.meter);
  }

 private:
  Fields fields_;
};

class Operator final : public Expression {
 public:
  Operator(const OperatorSpec& spec, std::vector<ExpressionPtr> operands)
      : spec_(spec), operands_(std::move(operands)) {}
  Result<Value> evaluate(EvalContext& context) const override {
    std::vector<Value> values;
    values.reserve(operands_.size());
    bool any_null = false;
    std::uint64_t steps = 1 + operands_.size();
    for (const ExpressionPtr& operand : operands_) {
      SPILLWAY_TRY(value, operand->evaluate(context));
      any_null = any_null || value->nullish();
      if ((spec_.traits & own_steps) == 0) {
        const std::uint64_t bytes = value->view().bytes.size();
        steps += value->is_array() || value->is_document() ? bytes / 16 : steps_of_bytes(bytes);
      }
      values.push_back(std::move(*value));
      if (any_null && (spec_.traits & stops_at_null) != 0) break;
    }
    if (!context.meter.spend(steps)) return too_many_steps_error();
    const bool is_null = any_null && (spec_.traits & null_of_null) != 0;
    return is_null ? Value::null() : spec_.evaluate(values, context);
  }

 private:
  const OperatorSpec& spec_;
  std::vector<ExpressionPtr> operands_;
};

Result<ExpressionPtr> parse_variable(std::string_view text, const ParseScope& scope) {
  const std::size_t dot = text.find('.');
  const std::string_view name = text.substr(0, dot);
  std::vector<std::string> parts;
  if (dot != std::string_view::npos) {
    SPILLWAY_TRY(split, split_field_path(text.substr(dot + 1)));
    parts = std::move(*split);
  }
  if (name == "ROOT" || name == "CURRENT") return std::make_unique<Path>(-1, std::move(parts));
  if (name == "REMOVE") return make_constant(Value());
  if (const auto* variable = scope.find(name)) {
    if (variable->slot >= 0) return std::make_unique<Path>(variable->slot, std::move(parts));
    return parts.empty() ? make_constant(variable->constant)
                         : std::make_unique<ConstantPath>(variable->constant, std::move(parts));
  }
  for (const std::string_view system :
       {"NOW", "CLUSTER_TIME", "DESCEND", "PRUNE", "KEEP", "USER_ROLES", "SEARCH_META"}) {
    if (name == system) return unsupported_error("the variable", join("$$", name));
  }
  return Error(17276, join("Use of undefined variable: ", name));
}

Error operand_count_error(const OperatorSpec& spec, std::size_t count) {
  if (spec.operands_min == spec.operands_max) {
    return {16020, join("Expression ", spec.name, " takes exactly ", spec.operands_min,
                        " arguments. ", count, " were passed in.")};
  }
  return {28667,
          join("Expression ", spec.name, " takes at least ", spec.operands_min,
               " arguments, and at most ", spec.operands_max, ", but ", count, " were passed in.")};
}

Result<ExpressionPtr> parse_operator(const Element& element, const ParseScope& scope) {
  if (SpecialParser* const special = find_special(element.name)) return special(element, scope);
  const OperatorSpec* spec = find_operator(element.name);
  if (spec == nullptr) return no_expression(element.name);
  if ((spec->traits & partly) != 0 && scope.refuses_partial()) {
    return unsupported_error("every value of the expression operator", element.name);
  }
  SPILLWAY_TRY(operands, parse_operands(element, scope));
  const auto count = static_cast<int>(operands->size());
  if (count < spec->operands_min || (spec->operands_max >= 0 && count > spec->operands_max)) {
    return operand_count_error(*spec, operands->size());
  }
  return std::make_unique<Operator>(*spec, std::move(*operands));
}

Result<ExpressionPtr> parse_object(DocView doc, const ParseScope& scope) {
  ObjectExpression::Fields fields;
  bool all_constant = true;
  const std::uint64_t before = scope.charged_bytes();
  for (const Element& element : doc) {
    if (element.name.starts_with('$')) {
      return Error(15983, join("An object representing an expression must have exactly one "
                               "field: ",
                               to_json(doc)));
    }
    if (element.name.find('.') != std::string_view::npos) {
      return Error(16412, join("FieldPath field names may not contain '.'. Consider using "
                               "$getField or $setField: ",
                               element.name));
    }
    SPILLWAY_TRY(value, parse_expression(element, scope));
    if (auto charged = scope.charge(sizeof(fields[0]) + element.name.size()); !charged) return charged.error();
    const Value* constant = (*value)->constant();
    all_constant = all_constant && constant != nullptr && !constant->missing();
    fields.emplace_back(element.name, std::move(*value));
  }
  if (!all_constant) return std::make_unique<ObjectExpression>(std::move(fields));
  BsonWriter writer;
  for (const auto& [name, expression] : fields) writer.append(name, expression->constant()->view());
  fields.clear();
  if (auto charged = scope.replace_charge(before, writer.size()); !charged) return charged.error();
  return make_constant(Value::document(std::move(writer).finish()));
}

Result<ExpressionPtr> parse_array(DocView array, const ParseScope& scope) {
  const std::uint64_t before = scope.charged_bytes();
  SPILLWAY_TRY(parsed, parse_operands({BsonType::array, array.bytes()}, scope));
  std::vector<ExpressionPtr>& items = *parsed;
  if (!std::all_of(items.begin(), items.end(), [](const auto& item) { return item->constant() != nullptr; })) {
    return std::make_unique<ArrayExpression>(std::move(items));
  }
  BsonWriter writer;
  std::size_t index = 0;
  for (const ExpressionPtr& item : items) {
    const std::string name = join(index++);
    const Value& value = *item->constant();
    value.missing() ? writer.append_null(name) : writer.append(name, value.view());
  }
  items.clear();
  if (auto charged = scope.replace_charge(before, writer.size()); !charged) return charged.error();
  return make_constant(Value::array(std::move(writer).finish()));
}

}  // namespace

const ParseScope::Variable* ParseScope::find(std::string_view name) const noexcept {
  for (const ParseScope* scope = this; scope != nullptr; scope = scope->outer_) {
    const auto found = scope->variables_.find(name);
    if (found != scope->variables_.end()) return &found->second;
  }
  return nullptr;
}

ParseScope ParseScope::inside(int slots) const {
  ParseScope inner;
  inner.outer_ = this;
  inner.slots_ = slots;
  inner.meter_ = meter_;
  inner.refuses_partial_ = refuses_partial_;
  return inner;
}

int ParseScope::bind(std::string_view name) {
  variables_.insert_or_assign(name, Variable{Value(), slots_});
  return slots_++;
}

void ParseScope::bind_constant(std::string_view name, Value constant) {
  variables_.insert_or_assign(name, Variable{std::move(constant), -1});
}

Result<void> ParseScope::charge(std::uint64_t bytes) const {
  return meter_ == nullptr ? Result<void>() : meter_->charge(bytes);
}

std::uint64_t ParseScope::charged_bytes() const noexcept {
  return meter_ == nullptr ? 0 : meter_->used_bytes();
}

Result<void> ParseScope::replace_charge(std::uint64_t before, std::uint64_t bytes) const {
  if (meter_ != nullptr) meter_->credit(meter_->used_bytes() - before);
  return charge(bytes);
}

ExpressionPtr make_constant(Value value) {
  return std::make_unique<Constant>(std::move(value).retained());
}

Error unsupported_error(std::string_view kind, std::string_view name) {
  return {ErrorCode::command_not_supported,
          join(kind, " ", name, " is not supported over several shards")};
}

Result<std::vector<ExpressionPtr>> parse_operands(ValueView argument, const ParseScope& scope) {
  std::vector<ExpressionPtr> operands;
  const auto add = [&](ValueView value) -> Result<void> {
    SPILLWAY_TRY(parsed, parse_expression(value, scope));
    operands.push_back(std::move(*parsed));
    return {};
  };
  if (!argument.is_array()) {
    auto added = add(argument);
    return added ? Result<std::vector<ExpressionPtr>>(std::move(operands)) : added.error();
  }
  for (const Element& element : argument.as_document()) {
    if (auto added = add(element); !added) return added.error();
  }
  return operands;
}

Result<ExpressionPtr> parse_field_path(std::string_view dotted) {
  SPILLWAY_TRY(parts, split_field_path(dotted));
  return std::make_unique<Path>(-1, std::move(*parts));
}

Result<ExpressionPtr> parse_expression(ValueView spec, const ParseScope& scope) {
  if (auto charged = scope.charge(cost_of(spec)); !charged) return charged.error();
  if (spec.is_document()) {
    const DocView doc = spec.as_document();
    const Element first = doc.first();
    if (first.exists() && first.name.starts_with('$')) {
      if (doc.count() != 1) {
        return Error(15983, join("An object representing an expression must have exactly "
                                 "one field: ",
                                 to_json(doc)));
      }
      return parse_operator(first, scope);
    }
    return parse_object(doc, scope);
  }
  if (spec.is_array()) return parse_array(spec.as_document(), scope);
  if (spec.is_string()) {
    const std::string_view text = spec.as_string();
    if (text == "$") return Error(16872, "'$' by itself is not a valid FieldPath");
    if (text.starts_with("$$")) return parse_variable(text.substr(2), scope);
    if (text.starts_with('$')) return parse_field_path(text.substr(1));
  }
  return make_constant(Value::borrowed(spec));
}

}  // namespace spillway::pipeline
