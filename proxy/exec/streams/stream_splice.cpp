// Passes the inside of a batch from socket to socket within the kernel.
#include <algorithm>

#include "allocator/pressure.h"
#include "proxy/base/memory_wait.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stalled_clients.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/streams/stream_relay.h"
#include "proxy/shard/connection.h"

namespace spillway::exec {

namespace {

// For fewer bytes a pipe costs more than it saves.
constexpr std::size_t splice_bytes_least = 64 * limits::kib;

// Writes the pipe to the client. Bytes that the client does not take within client_stall move into memory as unsent
// bytes: into the memory that `room` has for the pipe, if there is no other.
Task<void> drain(Relay& relay, SplicePipe& pipe, Reservation& room) {
  while (!pipe.empty()) {
    const IoResult sent = pipe.drain(relay.client);
    if (sent.ok()) continue;
    if (!sent.would_block()) co_return client_went(relay);
    ReadyWait writable(relay.client, Transport::Direction::write, Clock::now() + client_stall);
    const bool ready = co_await writable;
    if (ready) continue;
    if (!writable.timed_out()) co_return client_went(relay);
    MemoryBudget& budget = relay.context.shared.memory.replies;
    const std::size_t bytes = pipe.bytes();
    auto kept = allocate_now(budget, std::max(bytes, limits::stream_piece_bytes));
    if (!kept) {
      room.release();
      kept = allocate_now(budget, bytes);
    }
    if (!kept) {
      if (auto again = budget.try_reserve(SplicePipe::bytes_max)) room = *std::move(again);
      continue;
    }
    if (!pipe.take({kept->data(), bytes})) co_return client_went(relay);
    relay.unsent.hold(*std::move(kept), 0, bytes);
    relay.has_stalled = true;
  }
}

}  // namespace

Result<void> count(Relay& relay, Bytes bytes) {
  return relay.spliced == 0 ? relay.counter.feed(bytes) : Result<void>();
}

std::size_t documents_of(const Relay& relay) noexcept {
  const std::size_t counted = relay.counter.count();
  if (relay.spliced == 0 || counted == 0) return std::max<std::size_t>(counted, relay.spliced > 0 ? 1 : 0);
  return counted * relay.stream.batch_bytes / std::max<std::size_t>(1, relay.counter.passed_bytes());
}

bool may_splice(Relay& relay) noexcept {
  Context& context = relay.context;
  const bool can = relay.splices && relay.left >= splice_bytes_least && relay.unsent.empty() && !relay.client_gone &&
                   relay.client.can_splice() && relay.stream.reply.lease->transport().can_splice();
  if (!can || context.shared.pressure.at_least(PressureLevel::critical)) return false;
  if (!is_half_free(context, SplicePipe::bytes_max)) return false;
  const SpliceReplies wanted = context.shared.parameters.splice_replies.load(std::memory_order_relaxed);
  return context.splice_choice.splices(wanted, Clock::now());
}

Task<Step> splice_batch(Relay& relay) {
  shard::Connection& connection = *relay.stream.reply.lease;
  while (may_splice(relay)) {
    co_await relay.context.pump.turn();
    // Pays for the bytes in the pipe while the client stalls.
    auto room = relay.context.shared.memory.replies.try_reserve(SplicePipe::bytes_max);
    auto pipe = room ? relay.context.pipes.take() : std::nullopt;
    if (!pipe) {
      relay.splices = false;
      break;
    }
    const IoResult got = connection.try_splice_rest(*pipe, relay.left);
    if (got.would_block()) {
      relay.context.pipes.give_back(*std::move(pipe));
      room.reset();
      ReadyWait readable = wait_for_shard(relay);
      const bool ready = co_await readable;
      if (!ready && !waits_on(relay, readable)) co_return Step::shard_lost;
      continue;
    }
    if (!got.ok()) co_return Step::shard_lost;
    took(relay, got.bytes);
    relay.spliced += got.bytes;
    relay.context.shared.metrics.spliced_bytes.add(got.bytes);
    co_await drain(relay, *pipe, *room);
    relay.context.pipes.give_back(*std::move(pipe));
  }
  co_return Step::passed;
}

}  // namespace spillway::exec
