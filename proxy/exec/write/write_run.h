// A write over several shards while it runs: round after round, calls in parallel within each.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/write/write_batch.h"
#include "proxy/exec/write/write_child.h"
#include "proxy/exec/write/write_parse.h"
#include "proxy/exec/write/write_results.h"

namespace spillway::exec {

// Belongs to one command's coroutine, on its worker.
struct WriteRun {
  Context& context;
  SteppedRequest request;
  const WriteCommand& command;
  const catalog::CollectionRouting& routing;
  WriteBatch batch;
  WriteResults results;

  // Of an update or a deletion that could be targeted.
  struct Targeted {
    Statement statement;
    WriteTarget target;
  };
  Targeted targeted(std::size_t op) const;
  std::string_view shard_name(catalog::ShardIndex shard) const {
    return request->routes->shard(shard).name;
  }
};

// Sends these children and takes their answers. A returned error ends the whole command: nothing was executed, or a
// driver will send the command again.
Task<std::optional<Error>> send_children(WriteRun& run, std::vector<ChildBatch> children);

// An operation of several steps: see Route. Errors as above.
Task<std::optional<Error>> run_special(WriteRun& run, std::uint32_t op);

// One shard's outcome for these operations. `refused` collects ok: 0 answers, for settle_refusals(). `lost` collects
// operations without an answer; null: they are added to the results here.
struct Refusal {
  std::vector<std::uint32_t> ops;
  Error error;
};
std::optional<Error> take_outcome(WriteRun& run, std::span<const std::uint32_t> ops,
                                  const ShardOutcome& outcome, std::vector<Refusal>& refused,
                                  std::int64_t* n = nullptr, std::vector<Refusal>* lost = nullptr);
// A refusal before anything was written is the command's own failure, as it is with one server;
// otherwise it becomes an error of each operation.
std::optional<Error> settle_refusals(WriteRun& run, const std::vector<Refusal>& refused);

}  // namespace spillway::exec
