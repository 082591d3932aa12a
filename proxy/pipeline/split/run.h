// Whole queries over documents in memory: reads of config.*, $currentOp and the like.
#pragma once

#include <cstdint>
#include <functional>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "cursor/error.h"
#include "proxy/pipeline/split/merge_pipeline.h"

namespace spillway::pipeline {

// The arguments of a find. Empty documents mean "not given".
struct FindQuery {
  DocView filter;
  DocView sort;
  DocView projection;
  std::int64_t skip = 0;   // ≥ 0
  std::int64_t limit = 0;  // 0: none
};

// A query over documents that are given one by one. Results go to `take` at once; the stages' memory is charged to
// the budget, which outlives it, as do the query's documents. Errors of `take` are passed on.
class DocumentQuery {
 public:
  using Take = std::function<Result<void>(BsonDoc)>;
  // Errors as below.
  static Result<DocumentQuery> of_find(const FindQuery& query, MemoryBudget& budget, Take take);
  static Result<DocumentQuery> of_pipeline(DocView pipeline, MemoryBudget& budget, Take take);

  bool wants_more() const noexcept { return stages_.wants_more(); }
  // After each of both, step() until it returns true: one step may be the work of a whole document (meter.h).
  Result<void> push(DocView document) { return stages_.push(document); }
  Result<void> finish() { return stages_.finish(); }
  Result<bool> step();

 private:
  DocumentQuery(MergePipeline stages, Take take) : stages_(std::move(stages)), take_(std::move(take)) {}

  MergePipeline stages_;
  Take take_;
};

}  // namespace spillway::pipeline
