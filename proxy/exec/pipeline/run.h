// Whole queries over documents that are in memory: reads of config.*, $currentOp and the like.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "cursor/error.h"

namespace spillway::pipeline {

// What a find command asks for. Empty documents mean "not given".
struct FindQuery {
  DocView filter;
  DocView sort;
  DocView projection;
  std::int64_t skip = 0;   // ≥ 0
  std::int64_t limit = 0;  // 0: none
};

// The documents that a find with these arguments returns, in its order; without a sort in the given
// order. Errors as the server's; 115 for what is not evaluated here ($where, $text, $slice in a
// projection…).
Result<std::vector<BsonDoc>> run_find(std::span<const BsonDoc> docs, const FindQuery& query,
                                      MemoryBudget& budget);

// The output of a pipeline (the array) over these documents. Errors likewise.
Result<std::vector<BsonDoc>> run_pipeline(std::span<const BsonDoc> docs, DocView pipeline,
                                          MemoryBudget& budget);

}  // namespace spillway::pipeline
