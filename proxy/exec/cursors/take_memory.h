// Memory for the work on a request. If memory is short, the request waits (base/memory_wait.h).
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <optional>
#include <string_view>

#include "allocator/buffer.h"
#include "allocator/memory_queue.h"
#include "allocator/small_blocks.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// What ends a wait for memory.
struct Patience {
  // `longest`: long, because a getMore cannot be tried again.
  Patience(const shard::Interrupt* until, TimePoint end, Duration most = std::chrono::seconds(30)) noexcept
      : interrupt(until), deadline(end), longest(most) {}
  Patience(const Request& request) noexcept : Patience(request.interrupt, request.deadline) {}  // NOLINT: as long as it

  const shard::Interrupt* interrupt;  // null: none
  TimePoint deadline;                 // the operation's
  Duration longest;
  MemoryQueue::Holder holder = nullptr;  // the cursor that the memory is for, if it merges
};

// A waiting request must not hold memory that others of the same queue wait for. Errors: memory_refused(), the
// operation's deadline, its interrupt. `what` is a literal.
Task<Result<Buffer>> take_buffer(Context& context, Patience patience, MemoryBudget& budget,
                                 std::size_t bytes, std::string_view what);
Task<Result<Reservation>> take_reservation(Context& context, Patience patience, MemoryBudget& budget,
                                           std::size_t bytes, std::string_view what);

// For an operation that has not begun: waits outside the queue, takes no reserve from running operations, and leaves
// `left` bytes to them.
Task<Result<Reservation>> wait_to_open(Context& context, const Request& request, MemoryBudget& budget,
                                       std::size_t bytes, std::size_t left, std::string_view what);

// co_await TakeCopyRoom(context, request): memory for `copies` of the request's body, rewritten by copy_command() and
// similar functions. Hold it as long as the copies. Empty, without a coroutine frame, if they are small blocks: those
// belong to no budget. For reads that have not begun.
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

// Is about half of the memory free, beside `coming_bytes`? At this moment: is_scarce() also remembers the last seconds.
bool is_half_free(const Context& context, std::uint64_t coming_bytes) noexcept;

// Is memory so short that memory for a reply must be taken before the shard is asked? A getMore whose reply finds no
// memory has lost documents. `coming_bytes`: what others will take soon.
bool is_scarce(const Context& context, std::uint64_t coming_bytes = 0) noexcept;

// While memory is critical and three quarters of it are in use (what sockets have borrowed is not counted), a cursor
// that would buffer batches of several shards is not opened. (refuse_new_merge() excepts small ones.) Before that, idle
// cursors of a client that holds more than half of the memory end, so that one client cannot lock out others.
std::optional<Error> refuse_new_cursor(Context& context, Client& client);

// Adds or removes the labels that say "try again", if the error is a refusal of memory. Not to be tried again: a
// command whose cursor has ended. Other errors do not change.
Error try_again(Error refusal);
Error do_not_try_again(Error refusal);

}  // namespace spillway::exec
