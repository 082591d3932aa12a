#include "proxy/exec/commands/stable_stages.h"

#include <fmt/format.h>

#include "cursor/field_table.h"
#include "proxy/exec/read/aggregate.h"

namespace spillway::exec {

namespace {

// Stages that depend on the server's inner state or on a search engine. Of $collStats only `count` is stable.
constexpr FieldTable<10> unstable_stages({"$currentOp", "$indexStats", "$listCatalog", "$listLocalSessions",
                                          "$listSessions", "$operationMetrics", "$planCacheStats", "$search",
                                          "$searchMeta", "$vectorSearch"});

Result<void> check_pipeline(ValueView pipeline, int depth);

// $count is made of {$collStats: {count: {}}}.
bool only_counts(ValueView stage) {
  for (const Element& field : stage.to_document()) {  // another type is no stage: refused when it is run
    if (field.name != "count") return false;
  }
  return true;
}

Result<void> check_stage(const Element& stage, int depth) {
  if (unstable_stages.contains(stage.name)) {
    return Error(ErrorCode::api_strict_error,
                 fmt::format("stage {} is not allowed with 'apiStrict: true' in API Version 1", stage.name));
  }
  if (stage.name == "$collStats" && !only_counts(stage)) {
    return Error(ErrorCode::api_strict_error,
                 "only the 'count' field of $collStats is allowed with 'apiStrict: true' in API Version 1");
  }
  const bool facets = stage.name == "$facet";
  if (!facets && stage.name != "$lookup" && stage.name != "$unionWith") return {};
  for (const Element& field : stage.to_document()) {
    if (!facets && field.name != "pipeline") continue;
    if (auto checked = check_pipeline(field, depth + 1); checked.has_error()) return checked;
  }
  return {};
}

Result<void> check_pipeline(ValueView pipeline, int depth) {
  if (depth > pipeline_nesting_max) return {};  // refused when it is run
  for (const Element& stage : pipeline.to_array()) {
    for (const Element& named : stage.to_document()) {
      if (auto checked = check_stage(named, depth); checked.has_error()) return checked;
    }
  }
  return {};
}

}  // namespace

Result<void> check_stable_stages(DocView command) {
  const Element first = command.first();
  if (first.name == "explain" && first.is_document()) return check_stable_stages(first.as_document());
  if (first.name != "aggregate") return {};
  return check_pipeline(command["pipeline"], 0);
}

}  // namespace spillway::exec
