// Dividing an aggregation pipeline over several shards: what every shard runs on its own documents,
// and what is left to do here, on what they send.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/pipeline/stage.h"

namespace spillway::pipeline {

// The two halves of a pipeline. Run it once: the stages keep what they gather.
struct SplitPipeline {
  // What `merge` holds, an estimate of it: to be kept as long. nullptr without a budget.
  std::unique_ptr<Meter> parsed;
  // The pipeline for each shard: the bytes of a BSON array, for append_array().
  BsonDoc shard_part;
  // The shards' streams are sorted by this pattern and have to be merged in its order.
  std::optional<BsonDoc> merge_sort;
  // The stages of the merge part, for a MergePipeline. Empty: a plain union.
  std::vector<StagePtr> merge;
  // The same stages as specifications, for explain: the bytes of a BSON array.
  BsonDoc merge_part;
  // The client's stages that no shard part contains, behind a $match that finds nothing: run on one
  // shard this gives the error that the shard has for them, or no document. The bytes of a BSON
  // array; nullopt when the shards see every stage.
  std::optional<BsonDoc> unseen;
  // The merge part does nothing but skip and limit, so that documents can be passed on as they are.
  // True of an empty merge part, too.
  bool window_only = true;
  std::int64_t skip = 0;              // valid when window_only
  std::optional<std::int64_t> limit;  // likewise; applied after the skip

  // Nothing but perhaps the order of merge_sort is done here.
  bool plain_union() const noexcept { return merge.empty(); }
};

struct SplitOptions {
  // The command's `let`: constants by name, visible as $$name in the merge part.
  DocView let;
  // Pays for the parsed merge part; outlives it. nullptr: nobody does.
  MemoryBudget* budget = nullptr;
};

// Walks the stages. CommandNotSupported (115) names the first stage, accumulator or expression that
// cannot be divided or evaluated here; a malformed stage of the merge part gives the server's code.
// 7749501 for too many stages. 462 or 146 when the budget refuses. `pipeline` is the array.
Result<SplitPipeline> split(DocView pipeline, const SplitOptions& options = {});

}  // namespace spillway::pipeline
