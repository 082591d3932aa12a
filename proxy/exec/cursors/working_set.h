// The working set of a merge: memory for one reply of each shard, with at least one document.
//
// A merge goes on only with a document of each shard. Where many of them hold some and wait for memory for the others,
// none goes on. So a cursor over several shards takes its working set before the shards are asked, and keeps what its
// replies do not use of it (ClusterCursor::working_set) until it ends. More than that comes from what is free: no fetch
// waits for it.
//
// Without a memory limit nothing is taken. A change stream keeps nothing, and neither does an idle cursor over small
// documents, or one that is parked: they take their memory with each fetch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "allocator/memory_queue.h"
#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

// A shard's reply with so many documents, one of which may be much larger than the mean; 0 documents: an empty one. If
// the size is not known: a guess.
std::size_t reply_bytes(const DocumentSize& size, std::int64_t documents) noexcept;

// A cursor begins with the sizes that this worker has seen of the same documents: a collection's, or what a projection
// or a pipeline makes of them (`made_by`, valid BSON; empty: whole documents).
void expect_output(Context& context, ClusterCursor& cursor, DocView made_by);
// Later cursors over the same documents begin with what this one has seen.
void learn_output(Context& context, const ClusterCursor& cursor);

// How many documents each of several shards is asked for when a cursor is opened.
struct FirstReplies {
  std::int64_t documents = 0;
  std::size_t bytes_each = 0;  // of a reply, at most about

  static FirstReplies none() noexcept { return {0, reply_bytes({}, 0)}; }
};
// `wanted`, or as many as there is room for. Where no size is known, all of them while there is plenty of memory, else
// one.
FirstReplies first_replies(const Context& context, const ClusterCursor& cursor, std::int64_t wanted,
                           std::size_t shards) noexcept;

// refuse_new_cursor(), unless the cursor passes replies on, or its working set is small and all that it takes.
std::optional<Error> refuse_new_merge(Context& context, Client& client, const ClusterCursor& cursor,
                                      const FirstReplies& first, std::size_t shards);

// Before the cursor is opened on its shards: memory for the first reply of each of them, all of it or nothing. Unless
// it is a little, a quarter of the memory is left to others. Waits while memory is scarce; otherwise goes on without.
// Errors: a refusal that may be tried again, the operation's end.
Task<Result<void>> take_working_set(Context& context, const Request& request, ClusterCursor& cursor,
                                    std::size_t shards, std::size_t reply_bytes_each);

// Memory for a reply with `documents` documents, or with as many as the working set has memory for: then it lowers
// `documents`. nullopt: not even that is there.
std::optional<Reservation> room_for_reply(const Context& context, ClusterCursor& cursor, std::int64_t& documents);

bool found_no_memory(const Error& error) noexcept;
// Its shards' replies found no memory: next time one document of each is asked for at first.
void distrust_sizes(Context& context, ClusterCursor& cursor);

// Of the memory queue; null: it does not merge.
MemoryQueue::Holder holder_of(const ClusterCursor& cursor) noexcept;

// What it holds of earlier replies.
shard::HeldReplies held_replies(const Context& context, const ClusterCursor& cursor) noexcept;

// What a reply has left of its room. (A room from a reserve goes back there.)
void give_back(const Context& context, ClusterCursor& cursor, Reservation room) noexcept;

// After documents came, left or were parked: takes or gives back what the cursor's replies now leave of the working
// set. May leave less than that, where others were faster.
void keep_working_set(const Context& context, ClusterCursor& cursor) noexcept;
// The same for a cursor that is about to become idle.
void keep_idle_working_set(const Context& context, ClusterCursor& cursor) noexcept;

}  // namespace spillway::exec
