// Divides an aggregation pipeline over several shards: the part that every shard runs on its own documents, and the
// part that runs here on their results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/pipeline/stages/stage.h"

namespace spillway::pipeline {

// The two halves of a pipeline. Run it once: the stages keep state.
struct SplitPipeline {
  // The memory of `merge`, by an estimate: must live as long. nullptr without a budget.
  std::unique_ptr<Meter> parsed;
  // The pipeline for each shard: the bytes of a BSON array, for append_array().
  BsonDoc shard_part;
  // The shards' streams are sorted by this pattern and must be merged in its order.
  std::optional<BsonDoc> merge_sort;
  // The stages of the merge part, for a MergePipeline. Empty: a plain union.
  std::vector<StagePtr> merge;
  // The same stages as specifications, for explain: the bytes of a BSON array.
  BsonDoc merge_part;
  // The client's stages that no shard part contains, behind a $match that matches nothing: run on one shard this
  // gives the shard's error for them, or no document. The bytes of a BSON array; nullopt when the shards see every
  // stage.
  std::optional<BsonDoc> unseen;
  // The merge part only skips and limits, so that documents can be passed on unchanged. Also true of an empty merge
  // part.
  bool window_only = true;
  std::int64_t skip = 0;              // valid when window_only
  std::optional<std::int64_t> limit;  // likewise; applied after the skip

};

struct SplitOptions {
  // The command's `let`: constants by name, visible as $$name in the merge part.
  DocView let = {};
  // Pays for the parsed merge part; outlives it. nullptr: no charge.
  MemoryBudget* budget = nullptr;
  // A shard may merge instead: what could fail at a value that only servers evaluate is refused at once.
  bool refuse_partial = false;
};

// Walks the stages. CommandNotSupported (115) names the first stage, accumulator or expression that
// cannot be divided or evaluated here; a malformed stage of the merge part gives the server's code.
// 7749501 for too many stages. 462 or 146 when the budget refuses. `pipeline` is the array.
Result<SplitPipeline> split(DocView pipeline, const SplitOptions& options = {});

}  // namespace spillway::pipeline
