#include <absl/container/flat_hash_map.h>
#include <absl/hash/hash.h>

#include <deque>
#include <vector>

#include "cursor/bson_order.h"
#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/stages/group.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// Groups come out in the order of their first documents.
class GroupStage final : public Stage {
 public:
  explicit GroupStage(GroupSpec spec) : spec_(std::move(spec)) {}
  std::string_view name() const noexcept override { return "$group"; }

  Result<void> push(DocView doc, Sink&) override {
    EvalContext context{doc, meter(), {}};
    SPILLWAY_TRY(id, evaluate(*spec_.id, context));
    SPILLWAY_TRY(group, spec_.id_field.empty() ? group_of(id->missing() ? Value::null() : *id) : group_of_field(*id));
    for (std::size_t i = 0; i < spec_.fields.size(); ++i) {
      const GroupField& field = spec_.fields[i];
      const std::uint64_t kept = meter().used_bytes();
      auto input = field.input->evaluate(context);
      auto second =
          field.second != nullptr ? field.second->evaluate(context) : Result<Value>(Value());
      if (!input || !second) return input ? second.error() : input.error();
      meter().credit(meter().used_bytes() - kept);  // frees the evaluation's temporary values
      if (auto added = groups_[*group].states[i]->add(*input, *second, meter()); !added) return added;
    }
    return {};
  }

  Result<bool> emit(Sink& next) override {
    if (!index_.empty()) index_.pop_back();
    if (groups_.empty()) {
      meter().credit(meter().used_bytes());
      return false;
    }
    const Group group = std::move(groups_.front());
    groups_.pop_front();
    const MeterScope scope(meter());
    BsonWriter out;
    out.append("_id", group.id.view());
    for (std::size_t i = 0; i < spec_.fields.size(); ++i) {
      SPILLWAY_TRY(value, group.states[i]->result(meter()));
      if (value->missing()) continue;
      if (out.size() + value->view().bytes.size() > value_bytes_max) return too_large_error();
      out.append(spec_.fields[i].name, value->view());
    }
    const BsonDoc doc = std::move(out).finish();
    if (auto pushed = next.push_built(doc); !pushed) return pushed.error();
    return true;
  }

 private:
  struct Group {
    Value id;
    std::vector<std::unique_ptr<Accumulator>> states;
  };

  // Evaluates without keeping the charge.
  Result<Value> evaluate(const Expression& expression, EvalContext& context) {
    const MeterScope scope(meter());
    return expression.evaluate(context);
  }

  // A missing value of the _id's only field counts as null; of several fields it is left out.
  Result<std::size_t> group_of_field(const Value& id) {
    if (!id.view().as_document().empty()) return group_of(id);
    const BsonDoc holder = BsonWriter().begin_document("_id").append_null(spec_.id_field).end().finish();
    return group_of(Value::borrowed(holder.view()["_id"]));
  }

  Result<std::size_t> group_of(const Value& id) {
    if (index_.empty()) {
      if (auto charged = meter().charge(index_parts * sizeof(Index)); !charged) return charged.error();
      index_.resize(index_parts);
    }
    std::string key;
    append_order_key(key, id.view());
    // The upper bits choose the part: its index uses the lower ones.
    Index& index = index_[(absl::HashOf(key) >> 32) % index_parts];
    const auto found = index.find(key);
    if (found != index.end()) return found->second;
    std::uint64_t bytes = key.size() + id.view().bytes.size() + sizeof(Group) + 64;
    for (const GroupField& field : spec_.fields) {
      bytes += sizeof(std::unique_ptr<Accumulator>) + accumulator_bytes(field.kind);
    }
    if (auto charged = meter().charge(bytes); !charged) return charged.error();
    Group group{Value::borrowed(id.view()).retained(), {}};
    group.states.reserve(spec_.fields.size());
    for (const GroupField& field : spec_.fields) group.states.push_back(make_accumulator(field.kind));
    groups_.push_back(std::move(group));
    index.emplace(std::move(key), groups_.size() - 1);
    return groups_.size() - 1;
  }

  GroupSpec spec_;
  // There may be hundreds of thousands of groups: parts neither grow nor are freed all at once.
  using Index = absl::flat_hash_map<std::string, std::size_t>;
  static constexpr std::size_t index_parts = 64;
  std::vector<Index> index_;  // by the hash of the key; empty before the first group
  std::deque<Group> groups_;
};

Result<GroupField> parse_field(const AccumulatorElement& element, const ParseScope& scope) {
  const auto kind = find_accumulator(element.accumulator);
  if (!kind) return no_accumulator(element.accumulator);
  GroupField field{std::string(element.name), *kind, nullptr, nullptr};
  if (*kind == AccumulatorKind::count) {
    if (!element.argument.is_document() || !element.argument.as_document().empty()) {
      return Error(ErrorCode::type_mismatch, "$count takes no arguments, i.e. $count:{}");
    }
    field.input = make_constant(Value());
    return field;
  }
  if (element.argument.is_array()) {
    return Error(40237, join("The ", element.accumulator, " accumulator is a unary operator"));
  }
  SPILLWAY_TRY(input, parse_expression(element.argument, scope));
  field.input = std::move(*input);
  return field;
}

}  // namespace

Result<std::vector<AccumulatorElement>> read_group(ValueView spec, ValueView* id) {
  if (!spec.is_document()) return Error(15947, "a group's fields must be specified in an object");
  std::vector<AccumulatorElement> elements;
  *id = ValueView();
  for (const Element& element : spec.as_document()) {
    if (element.name == "_id") {
      if (id->exists()) return Error(15948, "a group's _id may only be specified once");
      *id = element;
      continue;
    }
    if (!element.is_document() || !element.as_document().first().name.starts_with('$')) {
      return Error(40234, join("The field '", element.name, "' must be an accumulator object"));
    }
    if (element.name.find('.') != std::string_view::npos) {
      return Error(40235, join("The field name '", element.name, "' cannot contain '.'"));
    }
    if (element.name.starts_with('$')) {
      return Error(40236, join("The field name '", element.name, "' cannot be an operator name"));
    }
    if (element.as_document().count() != 1) {
      return Error(40238, join("The field '", element.name, "' must specify one accumulator"));
    }
    const Element accumulator = element.as_document().first();
    elements.push_back({element.name, accumulator.name, accumulator});
  }
  if (!id->exists()) return Error(15955, "a group specification must include an _id");
  return elements;
}

StagePtr make_group_stage(GroupSpec spec) { return std::make_unique<GroupStage>(std::move(spec)); }

Result<StagePtr> parse_group_stage(ValueView value, const ParseScope& scope) {
  ValueView id;
  SPILLWAY_TRY(elements, read_group(value, &id));
  GroupSpec spec;
  if (id.is_array()) {  // a constant, with its strings as they are
    if (auto charged = scope.charge(id.bytes.size()); !charged) return charged.error();
    spec.id = make_constant(Value::borrowed(id).retained());
  } else {
    SPILLWAY_TRY(parsed, parse_expression(id, scope));
    spec.id = std::move(*parsed);
  }
  if (id.is_document() && id.as_document().count() == 1 && !id.as_document().first().name.starts_with('$')) {
    spec.id_field = id.as_document().first().name;
  }
  for (const AccumulatorElement& element : *elements) {
    if (auto charged = scope.charge(group_field_bytes(element)); !charged) return charged.error();
    SPILLWAY_TRY(field, parse_field(element, scope));
    spec.fields.push_back(std::move(*field));
  }
  return make_group_stage(std::move(spec));
}

}  // namespace spillway::pipeline
