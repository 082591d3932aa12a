// Memory for the work on a request, waited for where it is short (base/memory_wait.h).
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "allocator/buffer.h"
#include "allocator/small_blocks.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// What a wait for memory heeds.
struct Patience {
  const shard::Interrupt* interrupt = nullptr;
  TimePoint deadline = time_point_never;  // the operation's
  // What is under way is worth waiting for: a getMore cannot be tried again.
  Duration longest = std::chrono::seconds(30);
};

// A request that waits must not hold what others wait for in the same queue. Ends with the error of memory_refused(),
// or of the operation's deadline or interrupt. `what` is static.
Task<Result<Buffer>> take_buffer(Context& context, Patience patience, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what);
Task<Result<Buffer>> take_buffer(Context& context, const Request& request, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what);
Task<Result<Reservation>> take_reservation(Context& context, Patience patience, MemoryBudget& budget,
                                           std::size_t bytes, std::string_view what);
Task<Result<Reservation>> take_reservation(Context& context, const Request& request,
                                           MemoryBudget& budget, std::size_t bytes,
                                           std::string_view what);

// co_await TakeCopyRoom(context, request): room for `copies` of the request's body in another shape (copy_command() and
// the like), to be held as long as they. Empty, and no frame, where they are small blocks, which belong to no
// budget. For reads that have not begun: they wait outside the line, and take no reserve from what is under way.
class [[nodiscard]] TakeCopyRoom {
 public:
  TakeCopyRoom(Context& context, const Request& request, std::size_t copies = 1) noexcept
      : context_(context), request_(request), copies_(copies) {}
  bool await_ready() const noexcept {
    return request_.body.size() <= small_blocks::block_bytes_max;
  }
  bool await_suspend(std::coroutine_handle<> waiter) {
    waiting_.emplace(take());
    return waiting_->await_suspend(waiter);
  }
  Result<Reservation> await_resume() {
    return waiting_ ? waiting_->await_resume() : Result<Reservation>(Reservation());
  }

 private:
  Task<Result<Reservation>> take();

  Context& context_;
  const Request& request_;
  std::size_t copies_;
  std::optional<Task<Result<Reservation>>> waiting_;
};

// Room for the first replies of `count` shards, all of it or none: a cursor that is being opened waits outside the
// line, and takes no reserve from those that are open already.
Task<Result<std::vector<Buffer>>> take_rooms(Context& context, const Request& request, std::size_t count,
                                             std::size_t bytes_each);

// Is memory so short that room for a reply had better be taken before it is asked for? A getMore whose reply finds none
// has lost documents. `coming_bytes`: what will be taken soon, too.
bool is_scarce(const Context& context, std::uint64_t coming_bytes = 0) noexcept;

// What cursors that are being opened without room will get of their shards: a crowd of them is under way before the
// first answer is counted. Lives while its cursor waits for answers.
class OpeningShare {
 public:
  OpeningShare(Context& context, std::uint64_t bytes) noexcept;
  OpeningShare(const OpeningShare&) = delete;
  OpeningShare& operator=(const OpeningShare&) = delete;
  ~OpeningShare();
  // Is memory scarce once all of them have it? Then room is to be taken first, and counts by itself.
  bool is_scarce() const noexcept;
  void release() noexcept;

 private:
  Context& context_;
  std::uint64_t bytes_;
};

// Memory is critical: a cursor that would buffer batches of several shards is not opened.
// One client's idle cursors do not lock the others out: those of a large holder give way first.
std::optional<Error> refuse_new_cursor(Context& context, Client& client);

// A refusal for want of memory (others stay as they are), when the command may be tried again, or may not: because a
// cursor has ended with it.
Error try_again(Error refusal);
Error do_not_try_again(Error refusal);
// The same refusal of a write of which nothing was executed.
Error without_writes(Error refusal);

}  // namespace spillway::exec
