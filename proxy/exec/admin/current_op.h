// The operations under way: of this router's clients, its idle cursors, and of the shards that know
// $currentOp.
#pragma once

#include <string>
#include <string_view>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// The options of $currentOp, by the names of its fields.
struct CurrentOpOptions {
  bool idle_connections = false;
  bool idle_cursors = false;
  bool idle_sessions = true;  // of shards: the router keeps none
  bool local_operations = false;  // localOps: this router's only
  bool truncate_operations = false;
  bool all_users = false;
  // With authorization: operations of this user alone. Empty: every user's.
  std::string only_user = {};
};

// The value of the stage. Errors: FailedToParse(9) for unknown fields and values that are no
// booleans.
Result<CurrentOpOptions> parse_current_op(ValueView stage);

// One client's operation, or its idle connection. REQUIRES the client's own thread.
BsonDoc operation_document(const Context& context, const Client& client,
                           const CurrentOpOptions& options);
// A shard's row as a router shows it: `shard` is added, opid becomes "shard:n", client becomes
// client_s.
BsonDoc shard_operation_document(std::string_view shard, DocView operation);

// The target of killOp.
struct KillTarget {
  std::string shard;  // empty: an operation of this router
  std::int64_t operation_id = 0;
};
// Errors: 50759 no op, 50760 neither a number nor a string, 26823 no whole number, 28625 no
// "shard:n", 9 no number after the colon.
Result<KillTarget> parse_kill_op(DocView command);

}  // namespace spillway::exec
