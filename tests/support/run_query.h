// Whole queries over documents in memory: what simulated shards and the pipeline's tests run.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "proxy/pipeline/split/run.h"

namespace spillway::pipeline {

namespace detail {

inline Result<std::vector<BsonDoc>> run_query(std::span<const BsonDoc> docs,
                                              const std::function<Result<DocumentQuery>(DocumentQuery::Take)>& make) {
  std::vector<BsonDoc> output;
  auto query = make([&output](BsonDoc doc) -> Result<void> {
    output.push_back(std::move(doc));
    return {};
  });
  if (!query) return query.error();
  const auto run_steps = [&query]() -> Result<void> {
    for (;;) {
      const auto done = query->step();
      if (!done) return done.error();
      if (*done) return {};
    }
  };
  for (const BsonDoc& doc : docs) {
    if (!query->wants_more()) break;
    if (auto pushed = query->push(doc); !pushed) return pushed.error();
    if (auto stepped = run_steps(); !stepped) return stepped.error();
  }
  if (auto finished = query->finish(); !finished) return finished.error();
  if (auto stepped = run_steps(); !stepped) return stepped.error();
  return output;
}

}  // namespace detail

// The documents that a find with these arguments returns, in its order; without a sort in the given order. Errors as
// the server's; 115 for parts that are not evaluated here ($where, $text, $slice in a projection…).
inline Result<std::vector<BsonDoc>> run_find(std::span<const BsonDoc> docs, const FindQuery& query,
                                             MemoryBudget& budget) {
  return detail::run_query(docs, [&](DocumentQuery::Take take) {
    return DocumentQuery::of_find(query, budget, std::move(take));
  });
}

// The output of a pipeline (the array) over these documents. Errors likewise.
inline Result<std::vector<BsonDoc>> run_pipeline(std::span<const BsonDoc> docs, DocView pipeline,
                                                 MemoryBudget& budget) {
  return detail::run_query(docs, [&](DocumentQuery::Take take) {
    return DocumentQuery::of_pipeline(pipeline, budget, std::move(take));
  });
}

}  // namespace spillway::pipeline
