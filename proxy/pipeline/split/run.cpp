#include "proxy/pipeline/split/run.h"

#include "proxy/pipeline/split/merge_pipeline.h"
#include "proxy/pipeline/stages/stage.h"

namespace spillway::pipeline {
namespace {

// Checks for the features of a find's projection that $project lacks.
Result<void> check_find_projection(DocView projection) {
  for (const Element& element : projection) {
    if (element.name.ends_with(".$") || element.name == "$") {
      return unsupported_error("the positional projection", element.name);
    }
    if (!element.is_document()) continue;
    for (const std::string_view op : {"$slice", "$elemMatch", "$meta"}) {
      if (element.as_document().first().name == op) return unsupported_error("the projection operator", op);
    }
  }
  return {};
}

}  // namespace

Result<bool> DocumentQuery::step() {
  if (stages_.busy()) {
    if (auto stepped = stages_.step(); !stepped) return stepped.error();
    return false;
  }
  auto doc = stages_.take();
  if (!doc) return true;
  if (auto taken = take_(std::move(*doc)); !taken) return taken.error();
  return false;
}

Result<DocumentQuery> DocumentQuery::of_find(const FindQuery& query, MemoryBudget& budget, Take take) {
  auto parsed = std::make_unique<Meter>(budget, "the parsed query", any_number_of_bytes);
  std::vector<StagePtr> stages;
  const auto add = [&](Result<StagePtr> stage) -> Result<void> {
    if (!stage) return stage.error();
    stages.push_back(std::move(*stage));
    return {};
  };
  const ParseScope scope(parsed.get());
  for (const DocView part : {query.filter, query.sort, query.projection}) {
    if (auto valid = part.validate(); !valid) return valid.error();
  }
  if (query.skip < 0 || query.limit < 0) return Error(ErrorCode::bad_value, "skip and limit must not be negative");
  SPILLWAY_TRY(matching, add(parse_match_stage({BsonType::document, query.filter.bytes()}, scope)));
  if (!query.sort.empty()) {
    if (auto added = add(make_sort_stage(query.sort)); !added) return added.error();
  }
  if (query.skip > 0) stages.push_back(make_skip_stage(query.skip));
  if (query.limit > 0) stages.push_back(make_limit_stage(query.limit));
  if (!query.projection.empty()) {
    if (auto checked = check_find_projection(query.projection); !checked) return checked.error();
    auto project = parse_project_stage({BsonType::document, query.projection.bytes()}, scope);
    if (auto added = add(std::move(project)); !added) return added.error();
  }
  return DocumentQuery(MergePipeline(std::move(stages), budget, stage_bytes_max, std::move(parsed)),
                       std::move(take));
}

Result<DocumentQuery> DocumentQuery::of_pipeline(DocView pipeline, MemoryBudget& budget, Take take) {
  if (auto valid = pipeline.validate(); !valid) return valid.error();
  auto parsed = std::make_unique<Meter>(budget, "the parsed pipeline", any_number_of_bytes);
  SPILLWAY_TRY(stages, parse_stages(pipeline, ParseScope(parsed.get())));
  return DocumentQuery(MergePipeline(std::move(*stages), budget, stage_bytes_max, std::move(parsed)),
                       std::move(take));
}

}  // namespace spillway::pipeline
