// LiveStatus: what an operator watches, as one document: for the admin port's page and for `spillway top`. The cells
// are those of serverStatus and /metrics. With `details` it also has clients, namespaces, shapes of commands and
// lines of the log; never values of documents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/counters/slow_shapes.h"

namespace spillway::exec {

// How many of a kind are shown: the oldest operations and cursors, the last warnings, the largest tables.
inline constexpr std::size_t live_rows_max = 15;
inline constexpr std::size_t live_tables_max = 1'000;
inline constexpr std::size_t live_log_lines_max = 8;
// The most bytes of its text, and what each shard adds.
inline constexpr std::size_t live_bytes_max = 96 * limits::kib;
inline constexpr std::size_t live_shard_bytes_max = 2 * limits::kib;

// An operation under way.
struct LiveOperation {
  std::int64_t id = 0;  // for killOp
  std::int64_t age_us = 0;
  std::string client, application, name, ns, shape;
};

// One worker's answer. Made on its thread.
struct LiveFacts {
  WorkerFacts worker;
  std::vector<LiveOperation> operations;  // the oldest
  // Of the first worker: the sharded collections that it knows, and the shards that their owners index.
  std::vector<std::shared_ptr<const catalog::CollectionRouting>> tables;
};
LiveFacts look_at_live(const Context& context, bool details);

// Any thread, while the workers live. Takes the locks that serverStatus takes.
BsonDoc live_status(const Services& shared, std::vector<LiveFacts> workers, bool details);

// Memory of idle cursors by namespace, client, application and user: the heaviest of each.
void append_cursor_memory(BsonWriter& out, const CursorRegistry& cursors);
// {forgotten, shapes: […]}: the first `most` of SlowShapes.
void append_slow_shapes(BsonWriter& out, const SlowShapes& slow, std::size_t most);

// The fields of a command, every value in it as "?": {find: ?, filter: {a: {$gt: ?}}}. Of a command that may hold a
// password: its name. At most 200 bytes.
std::string shape_of(DocView command);

}  // namespace spillway::exec
