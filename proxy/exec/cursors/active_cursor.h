// ActiveCursor: a cursor that a request works on, and its one way home. What finish(), refuse() and put_back() have not
// given away ends with this object: its registration, its buffers, its shard cursors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

class BatchBuilder;

// How a batch was made; what follows from it differs.
enum class BatchOrigin : std::uint8_t {
  merged,    // document by document: of a cursor that was killed meanwhile the client hears that, as from a server
  passed,    // a shard's own: it goes out all the same, and the next getMore finds no cursor
  streamed,  // likewise; and nothing is read ahead of what the client will read for long (repacked: beside much)
};

// Does the cursor stay after this batch?
enum class Keep : std::uint8_t {
  unless_exhausted,
  always,  // batchSize 0: the client has seen nothing
  never,   // singleBatch, or the client is gone
};

class ActiveCursor {
 public:
  ActiveCursor() = default;
  // Of the registry, checked out; or a new one, whose id is 0. The context outlives it.
  ActiveCursor(Context& context, CursorPtr cursor) noexcept : context_(&context), cursor_(std::move(cursor)) {}
  ActiveCursor(ActiveCursor&&) = default;
  ActiveCursor& operator=(ActiveCursor other) noexcept {
    std::swap(context_, other.context_);
    std::swap(cursor_, other.cursor_);
    return *this;
  }
  ~ActiveCursor() { end(); }

  ClusterCursor* operator->() const noexcept { return cursor_.get(); }
  ClusterCursor& operator*() const noexcept { return *cursor_; }
  explicit operator bool() const noexcept { return cursor_ != nullptr; }

  // A new one gets its id before its first batch is known. Its charge was taken.
  void enroll();

  // A batch of so many documents goes out to the client: counts it, and puts the cursor back (or begins to read ahead
  // with it), or ends it. The client's cursor id; 0: it has ended. Errors: a new cursor is one too many
  // (charge_cursor()); CursorKilled(237), of BatchOrigin::merged.
  Result<std::int64_t> finish(std::size_t documents, BatchOrigin origin, Keep keep = Keep::unless_exhausted);
  // The same; the batch as the client's reply.
  Result<Response> answer(BatchBuilder batch, std::string_view batch_name, BatchOrigin origin,
                          Keep keep = Keep::unless_exhausted);
  // The command fails, and the cursor ends. If the client knew it, the error has no labels that say "try again".
  Error fail(Error error);
  // The command is refused before anything has happened: the client may ask again. REQUIRES a registered one.
  Error refuse(Error error);
  // As it is, to the registry. False: it was killed meanwhile, and has ended. REQUIRES a registered one.
  bool put_back();

 private:
  void end() noexcept;

  Context* context_ = nullptr;
  CursorPtr cursor_;
};

}  // namespace spillway::exec
