// Updates that give a document a key of another shard. Its shard refuses them with WouldChangeOwningShard(283), and
// says how the document is and would be: it is deleted there and inserted where it belongs, in one transaction.
#pragma once

#include <functional>
#include <string_view>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

// Did a shard refuse it so? Its answer is {preImage, postImage, shouldUpsert}.
bool would_move(const ShardOutcome& outcome) noexcept;

// Within the client's transaction. False: it has been deleted meanwhile. `refusal`: the shard's answer, which
// outlives the task.
Task<Result<bool>> move_document(Context& context, const Request& request, std::string_view collection,
                                 const catalog::CollectionRouting& routing, DocView refusal);

// The router's answer for a document that was moved, or was gone.
BsonDoc moved_update_reply(DocView refusal, bool moved);
BsonDoc moved_modify_reply(DocView refusal, bool moved, bool wants_new);

// A retryable write that a shard has refused so.
struct MovingWrite {
  std::string_view collection;
  DocView command;  // without the fields of sessions and concerns
  DocView filter;
  bool simple_collation = true;
  catalog::ShardIndex shard = 0;  // that has refused it
  std::function<BsonDoc(DocView refusal, bool moved)> reply;
};
// Does it once more in a transaction with the same number, and moves the document there if that is still due. The
// views of `write` outlive the task. Returns the reply for the client.
Task<Result<BsonDoc>> move_in_own_transaction(Context& context, const Request& request, MovingWrite write);

}  // namespace spillway::exec
