// How a connection reads: a message's header, then its room, then the rest; where there is no room,
// the refusal.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/server/connections/client_connection.h"
#include "proxy/server/connections/refusal_slot.h"
#include "proxy/shard/message_turns.h"
#include "proxy/wire/frame_reader.h"

namespace spillway::server {

namespace {

// How long a request may wait for memory before its client is asked to try again. (Long, because a refused large
// request is sent once more.)
constexpr Duration room_wait_max = std::chrono::seconds(15);
// A shorter wait was none: it could not begin.
constexpr Duration waited_least = std::chrono::milliseconds(100);
// The first read of a message while other requests wait for memory: a request that joins them keeps these bytes
// meanwhile.
constexpr std::size_t first_read_bytes_scarce = 512;
// A sender that stops in the middle of a message holds its memory for net.slowSenderTimeoutMillis; beyond that it
// must keep up at least this rate.
constexpr std::size_t sender_bytes_per_second_min = 16 * limits::kib;
// While other requests wait for memory, a sender must send this much in each period.
constexpr Duration contended_patience = std::chrono::seconds(2);
constexpr std::size_t contended_bytes_min = 32 * limits::kib;
// The part of a message that tells whether it wants an answer.
constexpr std::size_t flags_end = limits::message_header_bytes + 4;
constexpr std::size_t answer_told_by = std::max(flags_end, wire::compressed_flags_bytes);

// Before the login: a hello and the steps of logging in are much shorter.
constexpr std::size_t stranger_message_bytes_max = 64 * limits::kib;

Duration sender_patience(const exec::Services& shared) noexcept {
  return std::chrono::milliseconds(shared.parameters.slow_sender_ms.load(std::memory_order_relaxed));
}

// The latest end of a message of this size that begins now.
TimePoint sender_end(TimePoint now, Duration patience, std::size_t message_bytes) noexcept {
  return now + patience + std::chrono::seconds(message_bytes / sender_bytes_per_second_min);
}

// Whether the sender of a message still keeps up.
class SenderWatch {
 public:
  SenderWatch(Duration patience, TimePoint end, const MemoryQueue& queue)
      : patience_(patience), end_(end), queue_(queue) {}

  void heard(std::size_t bytes) noexcept {
    window_bytes_ += bytes;
    last_heard_ = time_point_never;  // now; the clock is asked when there is nothing to do
  }
  // Until when to wait for more; nullopt: it is too slow.
  std::optional<TimePoint> wait_end() {
    const TimePoint now = Clock::now();
    if (last_heard_ == time_point_never) last_heard_ = now;
    const TimePoint patience_end = std::min(end_, last_heard_ + patience_);
    if (now >= patience_end) return std::nullopt;
    if (now - window_start_ >= contended_patience) {
      if (window_bytes_ < contended_bytes_min && queue_.somebody_waits()) return std::nullopt;
      window_start_ = now;
      window_bytes_ = 0;
    }
    return std::min(patience_end, window_start_ + contended_patience);
  }

 private:
  const Duration patience_;
  const TimePoint end_;
  const MemoryQueue& queue_;
  TimePoint last_heard_ = Clock::now();
  TimePoint window_start_ = last_heard_;
  std::size_t window_bytes_ = 0;
};

Error authentication_required() {
  return Error(ErrorCode::unauthorized, "Command requires authentication: nothing of this size is read before");
}

// The flags of a message whose start is there; nullopt: unknown.
std::optional<std::uint32_t> flags_of(const wire::MessageHeader& header, Bytes start) {
  if (header.is(wire::OpCode::compressed)) return wire::peek_compressed_flags(start);
  if (!header.is(wire::OpCode::msg) || start.size() < flags_end) return std::nullopt;
  return load_le<std::uint32_t>(start.data() + limits::message_header_bytes);
}

}  // namespace

// As much of a message as tells whether and how it is answered.
class ClientConnection::MessageStart {
 public:
  explicit MessageStart(Bytes have) { add(have); }
  void add(Bytes more) {
    const std::size_t now = std::min(more.size(), bytes_.size() - size_);
    std::copy_n(more.begin(), now, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += now;
  }
  Bytes bytes() const noexcept { return Bytes(bytes_).first(size_); }

 private:
  std::array<std::uint8_t, answer_told_by> bytes_{};
  std::size_t size_ = 0;
};

// While other requests wait for memory, little is read ahead of it.
MutableBytes ClientConnection::room_for_first_read() const noexcept {
  const MutableBytes scratch = environment_.scratch;
  const exec::Services& shared = environment_.context.shared;
  const bool scarce = shared.memory.request_queue.somebody_waits() ||
                      (is_stranger() && shared.memory.stranger_queue.somebody_waits());
  return scarce ? scratch.first(std::min(scratch.size(), first_read_bytes_scarce)) : scratch;
}

// `have`: the bytes that are in the scratch.
ClientConnection::FirstRead ClientConnection::read_first(std::size_t& have) {
  const IoResult got = transport_->try_read(room_for_first_read());
  have = got.bytes;
  if (got.would_block()) return FirstRead::part;
  if (!got.ok()) return FirstRead::gone;
  const Bytes fresh = environment_.scratch.first(have);
  const wire::FrameReader::Need need = wire::FrameReader::peek(fresh);
  const bool whole = need.kind == wire::FrameReader::Kind::message && need.bytes <= have;
  if (!whole || need.header.is(wire::OpCode::compressed) || too_large_for_a_stranger(need.bytes)) {
    return FirstRead::part;
  }
  header_ = need.header;
  received_ = arrived_ = Clock::now();
  const Admission admission = take_message(need.bytes, fresh);
  if (admission == Admission::taken) return FirstRead::whole;
  return admission == Admission::gone ? FirstRead::gone : FirstRead::part;
}

// `have`: the bytes that are in the scratch; 0: those that are kept come first.
Task<bool> ClientConnection::read_message(std::size_t have) {
  if (have > 0 && have < limits::message_header_bytes) {
    if (!keep_for_later(environment_.scratch.first(have))) co_return false;
    have = 0;
  }
  Buffer ahead =
      std::move(pipelined_);  // bytes behind the last message, or a piece of a header
  Bytes fresh = have > 0 ? Bytes(environment_.scratch.first(have)) : ahead.bytes();
  for (;; fresh = ahead.bytes()) {
    if (wire::FrameReader::peek(fresh).kind == wire::FrameReader::Kind::more) {
      // One read fills the scratch; a whole small message is copied once, into a buffer of its
      // size.
      idle_ = fresh.empty();
      in_header_ = !idle_;
      ReadyWait readable(*transport_, Transport::Direction::read);
      const bool ready = co_await readable;
      idle_ = false;
      in_header_ = false;
      rests_ = std::exchange(asked_to_leave_, false) && !ready && !closing_;
      if (!ready || (closing_ && fresh.empty())) co_return false;
      const MutableBytes scratch = environment_.scratch;
      std::copy(fresh.begin(), fresh.end(), scratch.begin());
      const MutableBytes room = room_for_first_read();
      const IoResult got = transport_->try_read(room.subspan(fresh.size()));
      if (got.would_block()) continue;
      if (!got.ok()) co_return false;
      fresh = scratch.first(fresh.size() + got.bytes);
    }
    const wire::FrameReader::Need need = wire::FrameReader::peek(fresh);
    if (need.kind == wire::FrameReader::Kind::bad) {
      log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer,
                wire::FrameReader::why_bad(fresh).message);
      co_return false;
    }
    if (need.kind == wire::FrameReader::Kind::message) {
      header_ = need.header;
      if (fresh.size() >= need.bytes) received_ = arrived_ = Clock::now();
      const bool too_large = too_large_for_a_stranger(need.bytes);
      Admission admission = too_large ? Admission::refused : take_message(need.bytes, fresh);
      if (too_large) {
        const MessageStart start(fresh);  // all of it is this message's: it is longer than the scratch
        const std::size_t seen = fresh.size();
        ahead = Buffer();
        auto refusing = refuse_message(need.bytes, start, seen, authentication_required());
        admission = co_await refusing;
      } else if (admission == Admission::refused) {
        admission = co_await wait_for_room(need.bytes, fresh);
        arrived_ = Clock::now();
      }
      if (admission == Admission::gone) co_return false;
      ahead = Buffer();
      if (admission == Admission::refused) {
        ahead = std::move(pipelined_);
        if (ahead.size() == 0 && ends_between_requests()) co_return false;
        continue;
      }
      if (message_.size() < need.bytes) {
        const bool read = co_await read_rest(need.bytes);
        if (!read) co_return false;
        received_ = arrived_ = Clock::now();
      }
      if (!header_.is(wire::OpCode::compressed)) co_return true;
      const Admission inflated = co_await decompress();
      arrived_ = Clock::now();
      if (inflated != Admission::refused) co_return inflated == Admission::taken;
      message_.reset();
      ahead = std::move(pipelined_);
      if (ahead.size() == 0 && ends_between_requests()) co_return false;
      continue;
    }
    if (!keep_for_later(fresh)) co_return false;
    ahead = std::move(pipelined_);
  }
}

// A suspended login may be back: its next command looks.
bool ClientConnection::is_stranger() const noexcept {
  const exec::Services& shared = environment_.context.shared;
  const exec::Login& login = client_.login;
  const bool may_be_back = login.suspended && login.generation != shared.users.generation();
  return refused_ || (shared.authorization && !login.user && !may_be_back);
}

// A client that still has to log in may not send long messages.
bool ClientConnection::too_large_for_a_stranger(std::size_t message_bytes) const noexcept {
  return message_bytes > stranger_message_bytes_max && is_stranger();
}

// Incomplete messages before the login share a small budget. A complete message is answered at once.
MemoryBudget& ClientConnection::memory_for(std::size_t message_bytes, std::size_t have_bytes) const noexcept {
  const exec::Services& shared = environment_.context.shared;
  return is_stranger() && have_bytes < message_bytes ? shared.memory.strangers : shared.memory.requests;
}

// `have` starts with the message and may lie in the scratch, which the next suspension overwrites: all of it is
// copied. Refused: there is no room now.
ClientConnection::Admission ClientConnection::take_message(std::size_t message_bytes, Bytes have) {
  MemoryBudget& budget = memory_for(message_bytes, have.size());
  if (must_wait(budget, message_bytes)) return Admission::refused;
  auto buffer = allocate_now(budget, message_bytes);
  if (!buffer) return Admission::refused;
  message_ = std::move(*buffer);
  const std::size_t now = std::min(message_bytes, have.size());
  message_.append(have.data(), now);
  return keep_for_later(have.subspan(now)) ? Admission::taken : Admission::gone;
}

// Keeps bytes of the next message, behind those that are kept already. False: there is no room for them.
bool ClientConnection::keep_for_later(Bytes bytes) {
  if (bytes.empty()) return true;
  if (pipelined_.room() < bytes.size()) {
    auto larger =
        allocate_now(environment_.context.shared.memory.requests, pipelined_.size() + bytes.size());
    if (!larger) {
      log::warning(
          "connection {} from {} closed: no memory is left for {} bytes that it sent ahead",
          client_.connection_id, client_.peer, pipelined_.size() + bytes.size());
      environment_.context.shared.metrics.requests_refused.add();
      return false;
    }
    if (pipelined_) larger->append(pipelined_.data(), pipelined_.size());
    pipelined_ = std::move(*larger);
  }
  pipelined_.append(bytes.data(), bytes.size());
  return true;
}

// There is no memory for the message now: its rest stays in the socket until there is.
Task<ClientConnection::Admission> ClientConnection::wait_for_room(std::size_t message_bytes, Bytes have) {
  const exec::Services& shared = environment_.context.shared;
  auto kept = allocate_now(shared.memory.requests, have.size());
  if (!kept) {
    log::warning("connection {} from {} closed: no memory is left for a message of {} bytes",
                 client_.connection_id, client_.peer, message_bytes);
    shared.metrics.requests_refused.add();
    co_return Admission::gone;
  }
  kept->append(have.data(), have.size());
  MemoryBudget& budget = memory_for(message_bytes, have.size());
  const TimePoint patient_until = Clock::now() + room_wait_max;
  // It keeps its place while too many others are being refused.
  const std::function<bool()> wanted = [&] {
    return is_wanted() && (Clock::now() < patient_until || !RefusalSlot::may_take(shared.memory.refusals_under_way,
                                                                             message_bytes));
  };
  std::optional<Buffer> buffer;
  while (!buffer) {
    const TimePoint asked = Clock::now();
    auto waiting = wait_for_buffer(environment_.context.loop, budget, message_bytes, time_point_never, wanted);
    buffer = co_await waiting;
    begun_ += Clock::now() - asked;  // this wait is not the client's fault
    if (!is_wanted()) co_return Admission::gone;
    if (buffer) break;
    const RefusalSlot slot(shared.memory.refusals_under_way, message_bytes);
    if (!slot.free() && Clock::now() - asked >= waited_least) continue;  // another one was quicker
    if (Clock::now() >= patient_until && budget.queue() != nullptr) budget.queue()->count_in_vain();
    shared.metrics.requests_refused.add();
    const MessageStart start(kept->bytes());
    const std::size_t seen = std::min(message_bytes, kept->size());
    if (!keep_for_later(kept->bytes().subspan(seen))) co_return Admission::gone;
    kept.reset();
    auto refusing = refuse_message(message_bytes, start, seen, memory_refused(budget, message_bytes, "a request"));
    co_return co_await refusing;
  }
  message_ = std::move(*buffer);
  const Bytes kept_bytes = kept->bytes();
  const std::size_t now = std::min(message_bytes, kept_bytes.size());
  message_.append(kept_bytes.data(), now);
  co_return keep_for_later(kept_bytes.subspan(now)) ? Admission::taken : Admission::gone;
}

// Reads and drops a message that there is no room for, then sends the reason.
// `seen`: of its bytes, of which `start` has the first.
Task<ClientConnection::Admission> ClientConnection::refuse_message(std::size_t message_bytes, MessageStart start,
                                                                   std::size_t seen, Error why) {
  const Duration patience = sender_patience(environment_.context.shared);
  const std::size_t granted = too_large_for_a_stranger(message_bytes) ? stranger_message_bytes_max : message_bytes;
  TimePoint end = sender_end(Clock::now(), patience, granted);
  end = std::min(end, handshake_end());
  if (refused_) end = std::min(end, begun_ + refused_patience);
  SenderWatch watch(patience, end, *memory_for(message_bytes, seen).queue());
  TimeSlice slice(environment_.context.pump);
  while (seen < message_bytes) {
    const MutableBytes scratch = environment_.scratch;
    const IoResult got =
        transport_->try_read(scratch.first(std::min(scratch.size(), message_bytes - seen)));
    if (got.ok()) {
      start.add(Bytes(scratch).first(got.bytes));
      seen += got.bytes;
      watch.heard(got.bytes);
      if (slice.is_over(got.bytes)) co_await slice.next();
      continue;
    }
    if (!got.would_block()) co_return Admission::gone;
    const auto wait_end = watch.wait_end();
    if (!wait_end) co_return Admission::gone;
    ReadyWait readable(*transport_, Transport::Direction::read, *wait_end);
    const bool ready = co_await readable;
    if (!ready && !readable.timed_out()) co_return Admission::gone;
  }
  auto answering = answer_refusal(start.bytes(), std::move(why));
  const bool go_on = co_await answering;
  co_return go_on ? Admission::refused : Admission::gone;
}

// Tells a client why its message was dropped, if it waits for an answer. `start`: the message's first bytes. False:
// the connection ends.
Task<bool> ClientConnection::answer_refusal(Bytes start, Error why) {
  const bool readable = !header_.is(wire::OpCode::compressed) || is_in_enabled_compressor(start);
  const auto flags = readable ? flags_of(header_, start) : std::nullopt;
  if (!flags) {
    // Unknown whether it wants an answer: the client learns by the connection's end.
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, why.message);
    co_return false;
  }
  if ((*flags & wire::flags::more_to_come) != 0) co_return true;
  checksum_ = false;
  exec::Response response = exec::refuse(environment_.context.shared.metrics, without_writes(std::move(why)));
  co_return co_await write_response(response);
}

// Receiving a large message through a small buffer costs the kernel several times as much.
void ClientConnection::grow_receive_buffer(std::size_t message_bytes) {
  const SocketBuffers& sockets = environment_.socket_buffers;
  if (sockets.client_receive_bytes == 0 || receive_growth_.bytes() > 0 || is_stranger() ||
      message_bytes <= static_cast<std::size_t>(sockets.client_receive_bytes)) {
    return;
  }
  const auto doubled = 2 * static_cast<std::uint64_t>(sockets.client_receive_large_bytes);
  auto room = environment_.context.shared.memory.sockets.try_reserve(doubled);
  if (!room) return;
  receive_growth_ = std::move(*room);
  transport_->grow_receive_buffer(sockets.client_receive_large_bytes);
}

Task<bool> ClientConnection::read_rest(std::size_t message_bytes) {
  grow_receive_buffer(message_bytes);
  const Duration patience = sender_patience(environment_.context.shared);
  const TimePoint end = std::min(sender_end(Clock::now(), patience, message_bytes), handshake_end());
  SenderWatch watch(patience, end, *memory_for(message_bytes, message_.size()).queue());
  TimeSlice slice(environment_.context.pump);
  while (message_.size() < message_bytes) {
    const IoResult got =
        transport_->try_read(message_.free_space().first(message_bytes - message_.size()));
    if (got.ok()) {
      message_.set_size(message_.size() + got.bytes);
      watch.heard(got.bytes);
      if (slice.is_over(got.bytes)) co_await slice.next();
      continue;
    }
    if (!got.would_block()) co_return false;
    const auto wait_end = watch.wait_end();
    if (!wait_end) break;
    ReadyWait readable(*transport_, Transport::Direction::read, *wait_end);
    const bool ready = co_await readable;
    if (!ready && !readable.timed_out()) co_return false;
    slice.renew();
  }
  if (message_.size() == message_bytes) co_return true;
  log::info("connection {} from {} closed: it stopped {} bytes into a message of {}",
            client_.connection_id, client_.peer, message_.size(), message_bytes);
  environment_.context.shared.metrics.senders_stopped.add();
  co_return false;
}

// A message in a compressor that is not enabled is never decompressed, whatever was negotiated here; a client of the
// process before goes on as it began. (noop compresses nothing, and is always allowed.)
bool ClientConnection::is_in_enabled_compressor(Bytes compressed_message) const noexcept {
  if (compressed_message.size() < wire::compressed_prefix_bytes) return false;
  const auto compressor = static_cast<wire::Compressor>(compressed_message[wire::compressed_prefix_bytes - 1]);
  const auto is_among = [compressor](const auto& list) {
    return std::find(list.begin(), list.end(), compressor) != list.end();
  };
  return compressor == wire::Compressor::noop || is_among(environment_.compressors) ||
         (moved_ && is_among(negotiated_));
}

Task<ClientConnection::Admission> ClientConnection::decompress() {
  auto parsed = wire::parse_compressed(message_.bytes());
  std::optional<Error> failed;
  if (parsed.has_error()) {
    failed = parsed.error();
  } else if (!is_in_enabled_compressor(message_.bytes())) {
    failed = Error(ErrorCode::internal_error, fmt::format("the compressor {} is not enabled",
                                                          wire::compressor_name(parsed->compressor)));
  } else {
    MemoryBudget& budget = environment_.context.shared.memory.writes;
    const std::size_t whole = limits::message_header_bytes + parsed->uncompressed_size;
    if (too_large_for_a_stranger(whole)) {
      const Bytes start = message_.bytes().first(std::min(message_.size(), answer_told_by));
      auto answering = answer_refusal(start, authentication_required());
      const bool go_on = co_await answering;
      co_return go_on ? Admission::refused : Admission::gone;
    }
    const std::function<bool()> wanted = [this] { return is_wanted(); };
    auto buffer =
        co_await allocate_or_wait(environment_.context.loop, budget, whole, Clock::now() + room_wait_max, wanted);
    if (!buffer) {
      environment_.context.shared.metrics.requests_refused.add();
      const Bytes start = message_.bytes().first(std::min(message_.size(), answer_told_by));
      auto answering = answer_refusal(start, memory_refused(budget, whole, "a compressed request"));
      const bool go_on = co_await answering;
      co_return go_on ? Admission::refused : Admission::gone;
    }
    auto unpacking =
        shard::unpack_in_turns(environment_.context.pump, budget, header_, *parsed, {buffer->data(), whole});
    if (auto done = co_await unpacking; done.has_error()) {
      failed = done.error();
    } else {
      buffer->set_size(whole);
      request_compressor_ = parsed->compressor;
      message_ = std::move(*buffer);
      header_ = *wire::parse_header(message_.bytes().first(limits::message_header_bytes));
    }
  }
  if (failed) {
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer,
              failed->message);
  }
  co_return failed ? Admission::gone : Admission::taken;
}

}  // namespace spillway::server
