// ActiveCursor: a cursor that a request works on. finish(), refuse() and put_back() give it back to the registry. If
// none of them was called, the cursor ends with this object: its registration, its buffers and its shard cursors.
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

// How a batch was made. It decides what happens after it.
enum class BatchOrigin : std::uint8_t {
  merged,    // document by document. If the cursor was killed meanwhile, the client gets CursorKilled, as from a server
  passed,    // a shard's own batch. It goes out even if the cursor was killed; the next getMore finds no cursor
  streamed,  // like passed, but without read-ahead: the client will read this batch for long
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
  // `cursor`: checked out of the registry, or a new one, whose id is 0. The context outlives this object.
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

  // Registers a new cursor before its first batch is known. The caller has charged for it.
  void enroll();

  // A batch of `documents` documents goes out to the client. Counts it, then starts read-ahead, puts the cursor back,
  // or ends it. Returns the client's cursor id; 0: the cursor has ended. Errors: those of charge_cursor() for a new
  // cursor, CursorKilled(237) for BatchOrigin::merged.
  Result<std::int64_t> finish(std::size_t documents, BatchOrigin origin, Keep keep = Keep::unless_exhausted);
  // The same; returns the reply with the batch.
  Result<Response> answer(BatchBuilder batch, std::string_view batch_name, BatchOrigin origin,
                          Keep keep = Keep::unless_exhausted);
  // The command fails and the cursor ends. If the client knew the cursor, the labels that say "try again" are removed.
  Error fail(Error error);
  // The command is refused before anything was done, so the client may try again. REQUIRES a registered cursor.
  Error refuse(Error error);
  // Puts the cursor back unchanged. False: it was killed meanwhile and has ended. REQUIRES a registered cursor.
  bool put_back();

 private:
  void end() noexcept;

  Context* context_ = nullptr;
  CursorPtr cursor_;
};

}  // namespace spillway::exec
