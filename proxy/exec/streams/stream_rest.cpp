#include <algorithm>
#include <chrono>
#include <utility>

#include "allocator/spill.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stalled_clients.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/parking.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/streams/stream_relay.h"
#include "proxy/shard/connection.h"

namespace spillway::exec {

namespace {

// The size of a piece for the spill file. It is smaller than other pieces, because memory is short.
constexpr std::size_t spill_piece_bytes = 64 * limits::kib;
constexpr auto spill_check = std::chrono::milliseconds(2);
// The file's disk may hang. What is read back waits as long.
constexpr auto spill_patience = std::chrono::seconds(30);
// The router notices a closed client when it writes. While the shard sends nothing, it looks for it this often.
constexpr auto client_check = std::chrono::milliseconds(250);

// Writes as much as the client's socket takes now.
void send_unsent(Relay& relay) {
  while (relay.unsent.can_send()) {
    const IoResult wrote = relay.unsent.send(relay.client);
    if (wrote.would_block()) return;
    if (!wrote.ok()) return client_went(relay);
  }
}

enum class Taken : std::uint8_t { some, nothing, gone };

// Reads the next unsent part back from the spill file. False: that failed.
Task<bool> unspill(Relay& relay) {
  auto fetching = fetch_parked(relay.context, relay.unsent.next_ticket(),
                               relay.context.shared.memory.replies, nullptr);
  auto fetched = co_await fetching;
  if (fetched.has_error()) {
    log::warning("a reply to a slow client ends early: {}", fetched.error().message);
    co_return false;
  }
  relay.unsent.put_back(std::move(fetched->buffer), fetched->begin, fetched->end);
  co_return true;
}

// Waits at most client_stall until the client takes some of the unsent bytes.
Task<Taken> wait_for_client(Relay& relay) {
  if (!relay.unsent.can_send()) {
    const bool back = co_await unspill(relay);
    if (!back) {
      client_went(relay);
      relay.client.reset();
      co_return Taken::gone;
    }
  }
  IoResult wrote = relay.unsent.send(relay.client);
  if (wrote.would_block()) {
    ReadyWait writable(relay.client, Transport::Direction::write, Clock::now() + client_stall);
    const bool ready = co_await writable;
    // Tries again after a timeout, too: the socket may take bytes before it is reported as writable.
    if (ready || writable.timed_out()) wrote = relay.unsent.send(relay.client);
    if (!ready && !writable.timed_out()) wrote.status = IoResult::Status::failed;
  }
  if (wrote.ok()) co_return Taken::some;
  if (wrote.would_block()) co_return Taken::nothing;
  client_went(relay);
  co_return Taken::gone;
}

bool take_room_for_rest(Relay& relay) {
  return !is_scarce(relay.context, relay.left) &&
         relay.unsent.take_room(relay.context.shared.memory.replies, relay.left);
}

bool may_spill(const Relay& relay) {
  const SpillStore* const store = relay.context.shared.spill.get();
  return store != nullptr && store->has_file();
}

// Reads once from the shard into `into`; `got` is the number of bytes. 0: there were none, and now more bytes have
// come, or the client is gone, or it is time to write to the client again.
Task<Step> read_some(Relay& relay, MutableBytes into, std::size_t& got) {
  shard::Connection& connection = *relay.stream.reply.lease;
  co_await relay.context.pump.turn();
  const IoResult read = connection.try_read_rest(into.first(std::min(into.size(), relay.left)));
  got = read.ok() ? read.bytes : 0;
  if (read.would_block()) {
    ReadyWait readable = wait_for_shard(relay);
    const bool ready = co_await readable;
    co_return ready || waits_on(relay, readable) ? Step::passed : Step::shard_lost;
  }
  if (!read.ok()) co_return Step::shard_lost;
  if (count(relay, into.first(got)).has_error()) co_return Step::malformed;
  took(relay, got);
  co_return Step::passed;
}

// Reads the rest of the batch into memory. Ends when all of it was read, or when the client has taken all unsent bytes.
Task<Step> move_rest(Relay& relay) {
  relay.context.shared.metrics.streams_moved.add();
  while (relay.left > 0) {
    send_unsent(relay);
    if (relay.unsent.empty()) {
      relay.unsent.drop_room();
      relay.rest.hold(0);
      co_return Step::passed;
    }
    const MutableBytes space = relay.unsent.free_space();
    std::size_t got = 0;
    auto reading =
        read_some(relay, space.first(std::min(space.size(), limits::stream_piece_bytes)), got);
    const Step step = co_await reading;
    if (step != Step::passed) co_return step;
    if (got > 0) relay.unsent.filled(got);
  }
  co_return Step::passed;
}

// Reads the rest of the batch until `into` is full, nothing is left, or the client is gone.
Task<Step> read_piece(Relay& relay, Buffer& into) {
  while (into.room() > 0 && relay.left > 0 && !relay.client_gone) {
    std::size_t got = 0;
    const Step step = co_await read_some(relay, into.free_space(), got);
    if (step != Step::passed) co_return step;
    into.set_size(into.size() + got);
  }
  co_return Step::passed;
}

std::size_t cut_anywhere(std::span<const std::uint8_t> rest, std::size_t wanted) noexcept {
  return std::min(rest.size(), wanted);
}

// Reads the rest of the batch into the spill file, piece by piece, until all is there or the file is full.
Task<Step> spill_rest(Relay& relay) {
  SpillStore& store = *relay.context.shared.spill;
  while (relay.left > 0 && !relay.client_gone) {
    auto piece = allocate_now(relay.context.shared.memory.replies, spill_piece_bytes);
    if (!piece) co_return Step::passed;
    const Step step = co_await read_piece(relay, *piece);
    if (step != Step::passed || relay.client_gone) co_return step;
    auto ticket = store.park(*piece, 0, piece->size(), cut_anywhere, steady_ns());
    if (!ticket) {
      relay.unsent.add(*std::move(piece));
      co_return Step::passed;
    }
    SpillTicket& parked = relay.unsent.add(*std::move(ticket));
    // Only one piece at a time is in memory. If the file is full, the piece stays there, compressed.
    const TimePoint end = Clock::now() + spill_patience;
    while (!parked.settled()) {
      co_await relay.context.loop.sleep_for(spill_check);
      if (Clock::now() < end && !relay.client.peer_hung_up() && !relay.stream.reply.lease->broken()) continue;
      client_went(relay);
      relay.client.reset();
      co_return Step::passed;
    }
    if (parked.memory_bytes() > 0) co_return Step::passed;
    send_unsent(relay);
  }
  co_return Step::passed;
}

std::size_t stalled_max(const Relay& relay) {
  for (const shard::ShardState& shard : relay.context.gateway.states()) {
    for (const shard::HostState& host : shard.hosts) {
      if (host.address == relay.stream.reply.host) return host.connections_max / 2;
    }
  }
  return 0;
}

}  // namespace

void client_went(Relay& relay) {
  relay.client_gone = true;
  relay.drain_until = Clock::now() + drain_time_max;
  relay.unsent = Unsent();
}

ReadyWait wait_for_shard(const Relay& relay) {
  const TimePoint until = relay.client_gone ? relay.drain_until : Clock::now() + client_check;
  return {relay.stream.reply.lease->transport(), Transport::Direction::read, until};
}

void took(Relay& relay, std::size_t bytes) {
  relay.left -= bytes;
  relay.context.shared.metrics.streamed_bytes.add(bytes);
  relay.context.splice_choice.passed(bytes);
}

bool waits_on(Relay& relay, const ReadyWait& waited) {
  if (!waited.timed_out() || relay.client_gone) return false;
  if (relay.client.peer_hung_up()) client_went(relay);
  return true;
}

void note_stall(Relay& relay, StalledClients::Place& place) {
  const TimePoint now = Clock::now();
  place.enter(now - client_stall);
  if (relay.context.stalled_clients.close_longest(relay.stream.reply.host, stalled_max(relay), now)) {
    relay.context.shared.metrics.stalled_clients_closed.add();
  }
}

Task<Step> pass_unsent(Relay& relay) {
  StalledClients::Place place(relay.context.stalled_clients, relay.stream.reply.host, relay.client);
  while (!relay.unsent.empty() && relay.left > 0) {
    Taken taken = Taken::nothing;
    if (!std::exchange(relay.has_stalled, false)) {
      taken = co_await wait_for_client(relay);
    }
    if (taken == Taken::gone) co_return Step::passed;
    if (taken == Taken::some) {
      place.leave();
      continue;
    }
    if (take_room_for_rest(relay)) {
      place.leave();
      relay.rest.assign(relay.stream.cursor->charge.shared_account());
      relay.rest.hold(relay.left);
      co_return co_await move_rest(relay);
    }
    if (may_spill(relay)) {
      const Step step = co_await spill_rest(relay);
      if (step != Step::passed) co_return step;
      if (relay.left == 0) relay.context.shared.metrics.streams_moved.add();
      if (relay.left == 0 || relay.client_gone) co_return Step::passed;
    }
    note_stall(relay, place);
  }
  co_return Step::passed;
}

Task<bool> send_all_unsent(Relay& relay) {
  const Services& shared = relay.context.shared;
  ReaderWindow window(Clock::now(), relay.unsent.sent_bytes());
  while (!relay.unsent.empty()) {
    const Taken taken = co_await wait_for_client(relay);
    if (taken == Taken::gone) co_return false;
    const bool holds_memory = relay.unsent.memory_bytes() > limits::stream_piece_bytes;  // not in the spill file
    const bool slow = window.is_too_slow(Clock::now(), relay.unsent.sent_bytes());
    if (!slow || !holds_memory || !others_wait_for_memory(shared)) continue;
    shared.metrics.stalled_clients_closed.add();
    log::info("a client is closed: it takes its reply from {} too slowly while others wait for memory",
              relay.stream.reply.host.text());
    client_went(relay);
    relay.client.reset();
    co_return false;
  }
  relay.unsent = Unsent();
  relay.rest.hold(0);
  co_return true;
}

}  // namespace spillway::exec
