// A write over several shards while it runs: round after round, calls in parallel within each.
#pragma once

#include <absl/container/flat_hash_map.h>

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

// For send_everywhere(). nullopt: no multi-write goes to other shards than its target's. A shard that has nothing of a
// time series would refuse it (NamespaceNotFound).
inline std::optional<catalog::ShardSet> shards_for_multi_writes(const Request& request, const Routes& routes,
                                                                const catalog::CollectionRouting* routing) {
  const bool may = routes.in_cluster() && !request.in_transaction && routing != nullptr && !routing->is_time_series();
  return may ? std::optional(routes.all_shards()) : std::nullopt;
}

// Belongs to one command's coroutine, on its worker.
struct WriteRun {
  Context& context;
  SteppedRequest request;
  const WriteCommand& command;
  const Routes* routes;                        // the request's, or newer ones
  const catalog::CollectionRouting* routing;  // null: all operations go to the database's primary shard
  WriteBatch batch;
  WriteResults results;

  // Of an operation that goes to several shards: those that have executed it must not do so again.
  struct Partly {
    catalog::ShardSet shards;
    std::int64_t n = 0;
  };
  absl::flat_hash_map<std::uint32_t, Partly> partly{};
  bool stale = false;  // shards have refused operations for the table that they came with: those are due again
  bool collection_missing = false;  // they refused, for the router is to make the collection
  std::optional<Routes> newer_routes{};

  std::optional<catalog::ShardSet> all_shards() const { return shards_for_multi_writes(*request, *routes, routing); }
  RoutedBy by(bool everywhere) const { return everywhere ? RoutedBy::multi_write(*routing) : by(); }
  RoutedBy by() const { return RoutedBy::collection(routing, routes->database(request->db)); }
  // Within a transaction the router sends nothing again.
  bool may_send_again() const noexcept { return routes->in_cluster() && !request->in_transaction; }
  // Without those that have executed it.
  catalog::ShardSet shards_left(std::uint32_t op, const catalog::ShardSet& shards) const;

  // Of an update or a deletion that could be targeted.
  struct Targeted {
    Statement statement;
    WriteTarget target;
    bool everywhere = false;
  };
  Targeted targeted(std::size_t op) const;
  std::string_view shard_name(catalog::ShardIndex shard) const {
    return routes->shard(shard).name;
  }
};

// Sends these children and takes their answers. A returned error ends the whole command: nothing was executed, or a
// driver will send the command again.
Task<std::optional<Error>> send_children(WriteRun& run, std::vector<ChildBatch> children);

// Did the shard refuse operations for the table that they came with? If so, the router reads that again before it uses
// it again, and this is the first such error.
Task<std::optional<Error>> find_stale(Context& context, RoutedBy by, const ShardOutcome& outcome);
// The same, noted in the run.
Task<std::optional<Error>> find_stale(WriteRun& run, const ShardOutcome& outcome);
// The answers to these children, one for each. Operations that were not executed for a stale table are given back to
// the batch. Errors as above.
Task<std::optional<Error>> take_answers(WriteRun& run, std::span<const ChildBatch> children,
                                        std::span<const ShardOutcome> outcomes);

// Has the shard refused its only operation since the document would be another shard's, although its key stays as it
// is, or all chunks are there? So it does while the collection gets another key (resharding). Then the operation is due
// again, and moves.
bool may_move_after(WriteRun& run, std::span<const std::uint32_t> ops, const ShardOutcome& outcome);

// An operation of several steps: see Route. Errors as above.
Task<std::optional<Error>> run_special(WriteRun& run, std::uint32_t op);

// One shard's outcome for these operations. `refused` collects ok: 0 answers, for settle_refusals(). `lost` collects
// operations without an answer; null: they are added to the results here.
struct Refusal {
  std::vector<std::uint32_t> ops;
  Error error;
};
// All of these have failed.
Task<void> add_failures(WriteRun& run, TimeSlice& slice, std::span<const Refusal> failures);
std::optional<Error> take_outcome(WriteRun& run, std::span<const std::uint32_t> ops,
                                  const ShardOutcome& outcome, std::vector<Refusal>& refused,
                                  std::int64_t* n = nullptr, std::vector<Refusal>* lost = nullptr);
// A refusal before anything was written is the command's own failure, as it is with one server;
// otherwise it becomes an error of each operation.
std::optional<Error> settle_refusals(WriteRun& run, const std::vector<Refusal>& refused);

}  // namespace spillway::exec
