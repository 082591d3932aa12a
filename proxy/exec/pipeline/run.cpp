#include "proxy/exec/pipeline/run.h"

#include "proxy/exec/pipeline/merge_pipeline.h"
#include "proxy/exec/pipeline/stage.h"

namespace spillway::pipeline {
namespace {

Result<std::vector<BsonDoc>> run_stages(std::span<const BsonDoc> docs, std::vector<StagePtr> stages,
                                        MemoryBudget& budget) {
  MergePipeline pipeline(std::move(stages), budget);
  std::vector<BsonDoc> output;
  const auto drain = [&]() -> Result<void> {
    for (;;) {
      auto doc = pipeline.next();
      if (!doc) {
        return doc.error();
      }
      if (!*doc) {
        return {};
      }
      output.push_back(std::move(**doc));
    }
  };
  for (const BsonDoc& doc : docs) {
    if (!pipeline.wants_more()) {
      break;
    }
    if (auto pushed = pipeline.push(doc); !pushed) {
      return pushed.error();
    }
    if (auto drained = drain(); !drained) {
      return drained.error();
    }
  }
  if (auto finished = pipeline.finish(); !finished) {
    return finished.error();
  }
  if (auto drained = drain(); !drained) {
    return drained.error();
  }
  return output;
}

// What the projection of a find has and $project has not.
Result<void> check_find_projection(DocView projection) {
  for (const Element& element : projection) {
    if (element.name.ends_with(".$") || element.name == "$") {
      return unsupported_error("the positional projection", element.name);
    }
    if (!element.is_document()) {
      continue;
    }
    for (const std::string_view op : {"$slice", "$elemMatch", "$meta"}) {
      if (element.as_document().first().name == op) {
        return unsupported_error("the projection operator", op);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<BsonDoc>> run_find(std::span<const BsonDoc> docs, const FindQuery& query,
                                      MemoryBudget& budget) {
  Meter parsed(budget, "the parsed query", any_number_of_bytes);
  std::vector<StagePtr> stages;
  const auto add = [&](Result<StagePtr> stage) -> Result<void> {
    if (!stage) {
      return stage.error();
    }
    stages.push_back(std::move(*stage));
    return {};
  };
  const ParseScope scope(&parsed);
  for (const DocView part : {query.filter, query.sort, query.projection}) {
    if (auto valid = part.validate(); !valid) {
      return valid.error();
    }
  }
  if (query.skip < 0 || query.limit < 0) {
    return Error(ErrorCode::bad_value, "skip and limit must not be negative");
  }
  if (auto added = add(parse_match_stage({BsonType::document, query.filter.bytes()}, scope));
      !added) {
    return added.error();
  }
  if (!query.sort.empty()) {
    if (auto added = add(make_sort_stage(query.sort)); !added) {
      return added.error();
    }
  }
  if (query.skip > 0) {
    stages.push_back(make_skip_stage(query.skip));
  }
  if (query.limit > 0) {
    stages.push_back(make_limit_stage(query.limit));
  }
  if (!query.projection.empty()) {
    if (auto checked = check_find_projection(query.projection); !checked) {
      return checked.error();
    }
    auto project = parse_project_stage({BsonType::document, query.projection.bytes()}, scope);
    if (auto added = add(std::move(project)); !added) {
      return added.error();
    }
  }
  return run_stages(docs, std::move(stages), budget);
}

Result<std::vector<BsonDoc>> run_pipeline(std::span<const BsonDoc> docs, DocView pipeline,
                                          MemoryBudget& budget) {
  if (auto valid = pipeline.validate(); !valid) {
    return valid.error();
  }
  Meter parsed(budget, "the parsed pipeline", any_number_of_bytes);
  auto stages = parse_stages(pipeline, ParseScope(&parsed));
  if (!stages) {
    return stages.error();
  }
  return run_stages(docs, std::move(*stages), budget);
}

}  // namespace spillway::pipeline
