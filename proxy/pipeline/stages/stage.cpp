#include "proxy/pipeline/stages/stage.h"

#include <utility>

#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

constexpr std::pair<std::string_view, StageParser*> parsers[] = {
    {"$match", parse_match_stage},
    {"$project", parse_project_stage},
    {"$addFields", parse_add_fields_stage},
    {"$set", parse_add_fields_stage},
    {"$unset", parse_unset_stage},
    {"$replaceRoot", parse_replace_root_stage},
    {"$replaceWith", parse_replace_with_stage},
    {"$limit", parse_limit_stage},
    {"$skip", parse_skip_stage},
    {"$count", parse_count_stage},
    {"$unwind", parse_unwind_stage},
    {"$sort", parse_sort_stage},
    {"$group", parse_group_stage}};

// {$sortByCount: e} is {$group: {_id: e, count: {$sum: 1}}}, {$sort: {count: -1}}.
Result<void> parse_sort_by_count(const Element& element, const ParseScope& scope,
                                 std::vector<StagePtr>& out) {
  if (element.is_document() && !element.as_document().first().name.starts_with('$')) {
    return Error(40147, "the sortByCount field must be defined as an expression inside an object");
  }
  if (element.is_string() && !element.as_string().starts_with('$')) {
    return Error(40148, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object");
  }
  if (!element.is_document() && !element.is_string()) {
    return Error(40149, "the sortByCount field must be specified as a string or as an object");
  }
  const BsonDoc group_spec = BsonWriter().append("_id", static_cast<const ValueView&>(element))
                                         .begin_document("count").append("$sum", std::int32_t{1}).end().finish();
  const BsonDoc sort_spec = BsonWriter().append("count", std::int32_t{-1}).finish();
  for (const auto& [parser, spec] :
       {std::pair(&parse_group_stage, &group_spec), std::pair(&parse_sort_stage, &sort_spec)}) {
    SPILLWAY_TRY(stage, parser({BsonType::document, spec->view().bytes()}, scope));
    out.push_back(std::move(*stage));
  }
  return {};
}

}  // namespace

Result<bool> Stage::emit(Sink&) { return false; }

Result<void> check_stage_count(const std::vector<StagePtr>& stages) {
  if (stages.size() <= stages_max) {
    return {};
  }
  return Error(7749501, join("Pipeline length must be no longer than ", stages_max, " stages"));
}

Result<void> parse_stage(DocView spec, const ParseScope& scope, std::vector<StagePtr>& out) {
  if (spec.count() != 1) return Error(40323, "A pipeline stage specification object must contain exactly one field.");
  const Element element = spec.first();
  if (auto charged = scope.charge(stage_cost_bytes + element.bytes.size()); !charged) return charged;
  if (element.name == "$sortByCount") return parse_sort_by_count(element, scope, out);
  for (const auto& [name, parser] : parsers) {
    if (name != element.name) continue;
    SPILLWAY_TRY(stage, parser(element, scope));
    if (name == "$limit" && !out.empty()) out.back()->expect_limit(*parse_limit(element));
    out.push_back(std::move(*stage));
    return {};
  }
  return no_stage(element.name);
}

Result<std::vector<StagePtr>> parse_stages(DocView pipeline, const ParseScope& scope) {
  std::vector<StagePtr> stages;
  for (const Element& element : pipeline) {
    if (!element.is_document()) {
      return Error(ErrorCode::type_mismatch,
                   "Each element of the 'pipeline' array must be an object");
    }
    if (auto parsed = parse_stage(element.as_document(), scope, stages); !parsed) return parsed.error();
    if (auto checked = check_stage_count(stages); !checked) return checked.error();
  }
  return stages;
}

Result<std::int64_t> parse_limit(ValueView value) {
  if (!value.is_number()) return Error(15957, "the limit must be specified as a number");
  const auto limit = value.truncated_int64();  // as to 4.4
  if (*limit <= 0) return Error(15958, "the limit must be positive");
  return *limit;
}

Result<std::int64_t> parse_skip(ValueView value) {
  const auto skip = value.truncated_int64();
  if (!skip) return Error(15972, join("invalid argument to $skip stage: expected a number: ", to_json(value)));
  if (*skip < 0) return Error(15956, "Argument to $skip cannot be negative");
  return *skip;
}

Result<std::string> parse_count_field(ValueView spec) {
  if (!spec.is_string() || spec.as_string().empty()) {
    return Error(spec.is_string() ? 40157 : 40156, "the count field must be a non-empty string");
  }
  const std::string_view name = spec.as_string();
  if (name.starts_with('$')) return Error(40158, "the count field cannot be a $-prefixed path");
  if (name.find('\0') != std::string_view::npos) return Error(40159, "the count field cannot contain a null byte");
  if (name.find('.') != std::string_view::npos) return Error(40160, "the count field cannot contain '.'");
  return std::string(name);
}

}  // namespace spillway::pipeline
