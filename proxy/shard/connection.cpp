#include "proxy/shard/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "proxy/base/memory_wait.h"
#include "proxy/shard/message_turns.h"
#include "proxy/shard/shard_time.h"
#include "proxy/shard/unread_reply.h"
#include "proxy/wire/crc32c.h"
#include "proxy/wire/op_msg.h"

namespace spillway::shard {

namespace {

using wire::OpCode;

// How long a reply may stay in its socket because memory is short.
constexpr Duration room_wait_max = std::chrono::seconds(30);

// The buffer for a reply's first read: small replies are complete after one system call. Its content is lost at the
// next suspension, so that one per thread serves all connections.
constexpr std::size_t scratch_bytes = 16 * limits::kib;
MutableBytes receive_scratch() noexcept {
  alignas(64) thread_local std::array<std::uint8_t, scratch_bytes> scratch;
  return scratch;
}

// This much of a reply's start suffices to check it: the header, the flags, the kind of the first section and its
// length. It is also the size of the smallest OP_MSG with a body.
constexpr std::size_t empty_document_bytes = 5;
constexpr std::size_t start_bytes = wire::op_msg_prefix_bytes + empty_document_bytes;
// Where a reply goes at first, of whose start `have` bytes are there. Without room for a reply no more than its start
// is read: what comes with that would need memory while the reply waits.
MutableBytes room_for_start(const MemoryBudget& budget, const ReplyRoom* room, std::size_t have) noexcept {
  const MutableBytes scratch = receive_scratch();
  const bool paid = room != nullptr && room->paid.bytes() >= Buffer::charged_bytes(scratch.size());
  const bool all = paid || budget.has_room(limits::reply_complete_bytes_max);
  return (all ? scratch : scratch.first(start_bytes)).subspan(have);
}

// What the room lacks is taken where it came from.
std::optional<Buffer> allocate_from(ReplyRoom* room, std::size_t bytes) noexcept {
  if (room == nullptr || room->paid.budget() == nullptr) return std::nullopt;
  const std::uint64_t charged = Buffer::charged_bytes(bytes);
  Reservation& paid = room->paid;
  if (charged > paid.bytes() && !paid.try_grow(charged - paid.bytes())) return std::nullopt;
  return Buffer::allocate(paid, bytes);
}

std::optional<Buffer> allocate_now(MemoryBudget& budget, ReplyRoom* room, std::size_t bytes) noexcept {
  auto paid = allocate_from(room, bytes);
  return paid ? std::move(paid) : spillway::allocate_now(budget, bytes);
}

// Counts a reply's memory among what its operation holds, unless the rest of the reply does not come.
class HeldReply {
 public:
  HeldReply(ReplyRoom* room, const Buffer& reply, const MemoryBudget& budget) noexcept
      : part_(room == nullptr || room->held == nullptr ? nullptr : room->held->part_of(reply, budget)),
        bytes_(reply.capacity()) {
    if (part_ != nullptr) *part_ += bytes_;
  }
  HeldReply(const HeldReply&) = delete;
  HeldReply& operator=(const HeldReply&) = delete;
  ~HeldReply() {
    if (part_ != nullptr) *part_ -= bytes_;
  }
  void came() noexcept { part_ = nullptr; }

 private:
  std::uint64_t* part_;
  std::uint64_t bytes_;
};

bool may_fit(const ReplyRoom* room, const MemoryBudget& budget, std::size_t bytes) noexcept {
  return room == nullptr || room->held == nullptr || room->held->leave_room(budget, bytes);
}

// A reply that can never fit would wait for memory that its own operation holds.
Error no_room(const ReplyRoom* room, const MemoryBudget& budget, std::size_t bytes) {
  if (may_fit(room, budget, bytes) || !room->held->least) return memory_refused(budget, bytes, "a shard's reply");
  return Error(ErrorCode::exceeded_memory_limit,
               fmt::format("a merge that holds {} bytes of other replies needs {} more for a shard's reply, which is "
                           "more than memory.limit leaves",
                           room->held->of_budget + room->held->of_reserve, bytes));
}

// Compressing a shorter command does not pay.
constexpr std::size_t compression_threshold_bytes = 512;

// How many bytes of a large reply wake a worker, rather than every segment (64 KiB on loopback, 1 KiB elsewhere). For
// a smaller reply a quarter of the rest: waiting for more would cost time on a slow line.
std::size_t worth_waking(std::size_t wanted, std::size_t remaining) noexcept {
  constexpr std::size_t least = 64 * limits::kib;
  constexpr std::size_t most = 256 * limits::kib;
  const std::size_t part = std::min(wanted, std::clamp(remaining / 4, least, most));
  return part < least ? 1 : std::bit_floor(part);
}

Error protocol_error(std::string text) { return Error(ErrorCode::protocol_error, std::move(text)); }

// The name of a command whose body comes first; empty if it does not.
std::string_view command_name(const Command& command) noexcept {
  if (command.section_count == 0 || command.sections[0].iov_len < 8) return {};
  const auto* bytes = static_cast<const char*>(command.sections[0].iov_base);
  if (bytes[0] != 0) return {};
  const std::string_view rest(bytes + 6, command.sections[0].iov_len - 6);
  return rest.substr(0, rest.find('\0'));
}

void write_prefix(std::uint8_t* to, std::size_t total, std::int32_t request_id,
                  std::uint32_t flags) {
  wire::write_header(to, {.message_length = static_cast<std::int32_t>(total),
                          .request_id = request_id,
                          .response_to = 0,
                          .op_code = static_cast<std::int32_t>(OpCode::msg)});
  store_le(to + limits::message_header_bytes, flags);
}

}  // namespace

Connection::Connection(std::unique_ptr<Transport> transport, HostAddress address, Pump* pump)
    : transport_(std::move(transport)), address_(std::move(address)), pump_(pump) {}

Connection::~Connection() { transport_->close(); }

void Connection::use_compression(wire::Compressor compressor, MemoryBudget& budget) noexcept {
  SPILLWAY_CHECK(pump_ != nullptr);
  compressor_ = compressor;
  compression_budget_ = &budget;
}

bool Connection::clean() const noexcept { return !broken_ && !awaiting_reply_ && remaining_ == 0; }

void Connection::fail(Error why) {
  if (!cause_) cause_ = std::make_unique<Error>(std::move(why));
  broken_ = true;
  transport_->close();
}

Error Connection::failure() const {
  if (cause_) return *cause_;
  if (send_timed_out_) return time_limit_exceeded();
  return Error(ErrorCode::host_unreachable, "the connection broke while a command was sent");
}

bool Connection::still_quiet() {
  std::uint8_t byte;
  if (transport_->try_read({&byte, 1}).would_block()) return true;
  broken_ = true;
  return false;
}

Error Connection::broken_by(Error why) {
  broken_ = true;
  return cause_ ? *cause_ : why;
}

// Nothing of the reply is kept, and its rest is still in the socket.
Error Connection::refused(Bytes start, Error why) {
  if (broken_ || remaining_ == 0) return broken_by(std::move(why));
  unread_ = std::make_unique<UnreadReply>(start);
  return why;
}

std::unique_ptr<UnreadReply> Connection::take_unread() noexcept { return std::move(unread_); }

Error Connection::wait_failed(bool timed_out) {
  if (timed_out) return broken_by(time_limit_exceeded());
  return broken_by(Error(ErrorCode::host_unreachable, "the connection was closed"));
}

Error Connection::read_failed(IoResult got) {
  return broken_by(
      Error(ErrorCode::host_unreachable, got.status == IoResult::Status::closed
                                             ? "the connection was closed by the shard"
                                             : "the connection broke while a reply was awaited"));
}

// --- sending

std::span<iovec> OutgoingMessage::lay_out(const Command& command, std::int32_t request_id) noexcept {
  write_prefix(prefix_.data(), header_and_flags_bytes + command.bytes(), request_id, command.flags);
  count_ = 0;
  add(prefix_.data(), prefix_.size());
  if (command.suffix.empty()) {
    std::copy_n(command.sections.begin(), command.section_count, pieces_.begin() + 1);
    count_ += command.section_count;
    return std::span(pieces_).first(count_);
  }
  const auto body = command.find_body();
  SPILLWAY_CHECK(body.has_value());
  store_le(body_length_.data(), static_cast<std::uint32_t>(body->size + command.suffix.size()));
  const std::size_t body_nul = body->offset + body->size - 1;
  add_sections(command, 0, body->offset);
  add(body_length_.data(), body_length_.size());
  add_sections(command, body->offset + body_length_.size(), body_nul);
  add(command.suffix.data(), command.suffix.size());
  add_sections(command, body_nul, SIZE_MAX);
  return std::span(pieces_).first(count_);
}

void OutgoingMessage::add(const void* data, std::size_t size) noexcept {
  pieces_[count_++] = {const_cast<void*>(data), size};
}

// The bytes of the sections in this range.
void OutgoingMessage::add_sections(const Command& command, std::size_t from, std::size_t to) noexcept {
  std::size_t start = 0;
  for (std::size_t i = 0; i < command.section_count; ++i) {
    const iovec& each = command.sections[i];
    const std::size_t end = start + each.iov_len;
    const std::size_t first = std::max(from, start), last = std::min(to, end);
    if (first < last) add(static_cast<const std::uint8_t*>(each.iov_base) + (first - start), last - first);
    start = end;
  }
}

bool Connection::wants_compression(const Command& command) const noexcept {
  return compressor_ && command.bytes() >= compression_threshold_bytes &&
         wire::may_compress(command_name(command));
}

Connection::Sending::Sending(Connection& connection, const Command& command, TimePoint deadline)
    : connection_(connection), command_(command), deadline_(deadline) {}

// A small command leaves in one call, whole, without a frame.
bool Connection::Sending::await_ready() {
  SPILLWAY_CHECK(connection_.clean());
  connection_.sent_whole_ = false;
  connection_.awaiting_reply_ = true;
  const std::size_t total = header_and_flags_bytes + command_.bytes();
  if (total > limits::message_bytes_max) {
    connection_.fail(Error(ErrorCode::bson_object_too_large,
                           fmt::format("a command of {} bytes is longer than a message may be", total)));
    return true;
  }
  if (connection_.wants_compression(command_)) return false;
  left_ = message_.lay_out(command_, connection_.next_request_id_);
  const IoResult wrote = connection_.transport_->try_write(left_);
  if (wrote.would_block()) return false;
  if (wrote.ok()) left_ = advance_pieces(left_, wrote.bytes);
  connection_.sent_whole_ = wrote.ok() && left_.empty();
  if (!wrote.ok()) connection_.broken_ = true;
  return connection_.sent_whole_ || !wrote.ok();
}

bool Connection::Sending::await_suspend(std::coroutine_handle<> waiter) {
  rest_.emplace(left_.empty() ? connection_.send_compressed(command_, deadline_)
                              : connection_.send_pieces(left_, deadline_));
  return rest_->await_suspend(waiter);
}

Connection::Sending Connection::send(const Command& command, TimePoint deadline) {
  return {*this, command, deadline};
}

Task<void> Connection::send_pieces(std::span<iovec> pieces, TimePoint deadline) {
  for (;;) {
    const IoResult wrote = transport_->try_write(pieces);
    if (wrote.ok()) {
      pieces = advance_pieces(pieces, wrote.bytes);
      if (pieces.empty()) break;
      continue;
    }
    if (!wrote.would_block()) break;
    ReadyWait writable(*transport_, Transport::Direction::write, deadline);
    const bool ready = co_await writable;
    if (!ready) {
      send_timed_out_ = writable.timed_out();
      break;
    }
  }
  sent_whole_ = pieces.empty();
  if (!sent_whole_) broken_ = true;
}

// If the budget has no room, the command leaves uncompressed.
Task<void> Connection::send_compressed(const Command& command, TimePoint deadline) {
  OutgoingMessage message;
  std::span<iovec> pieces = message.lay_out(command, next_request_id_);
  const auto header = wire::parse_header({static_cast<const std::uint8_t*>(pieces[0].iov_base), pieces[0].iov_len});
  const auto packed = co_await pack_in_turns(*pump_, *compression_budget_, *compressor_, pieces, *header);
  if (packed) {
    pieces[0] = {const_cast<std::uint8_t*>(packed->data()), packed->size()};
    pieces = pieces.first(1);
  }
  co_await send_pieces(pieces, deadline);
}

// --- receiving

// Checks the first bytes of a reply, as far as they are there (at least a header).
Result<Connection::Incoming> Connection::check_start(Bytes start) const {
  Incoming incoming;
  auto header = wire::parse_reply_header(start);
  if (header.has_error()) return header.error();
  incoming.header = *header;
  incoming.compressed = header->is(OpCode::compressed);
  if (!incoming.compressed && !header->is(OpCode::msg)) {
    return protocol_error(fmt::format("a reply has opcode {}", header->op_code));
  }
  if (incoming.compressed && !compressor_) {
    return protocol_error("a reply is compressed, which was not agreed upon");
  }
  if (header->response_to != next_request_id_) {
    return protocol_error("a reply answers another request");
  }
  if (static_cast<std::size_t>(header->message_length) < start_bytes) {
    return protocol_error("a reply is too short");
  }
  if (!incoming.compressed && start.size() >= header_and_flags_bytes) {
    incoming.flags = load_le<std::uint32_t>(start.data() + limits::message_header_bytes);
  }
  return incoming;
}

// Decides how much of a reply must be in memory, of which `have_bytes` have come.
Result<void> Connection::size_up(std::size_t have_bytes, bool stream, Incoming& incoming) {
  const auto length = static_cast<std::size_t>(incoming.header.message_length);
  if (have_bytes > length) return broken_by(protocol_error("bytes follow a reply"));
  const bool whole = !stream || incoming.compressed || length <= limits::reply_complete_bytes_max ||
                     (incoming.flags & wire::flags::checksum_present) != 0;
  incoming.wanted_bytes = whole ? length : limits::reply_complete_bytes_max;
  remaining_ = length - have_bytes;
  awaiting_reply_ = false;
  return {};
}

// Memory is short: the rest of the reply stays in the socket meanwhile.
Task<Result<Buffer>> Connection::wait_for_room(Bytes have, MemoryBudget& budget, ReplyRoom* room,
                                               std::size_t wanted, TimePoint deadline) {
  std::array<std::uint8_t, start_bytes> few;
  Buffer many;
  if (have.size() <= few.size()) {
    std::copy(have.begin(), have.end(), few.begin());
    have = Bytes(few).first(have.size());
  } else {
    auto buffer = allocate_now(budget, room, have.size());
    if (!buffer) co_return refused(have, memory_refused(budget, wanted, "a shard's reply"));
    buffer->append(have.data(), have.size());
    many = *std::move(buffer);
    have = many.bytes();
  }
  if (room != nullptr) room->paid.release();  // too little: it must not wait, too
  if (!may_fit(room, budget, wanted)) co_return refused(have, no_room(room, budget, wanted));
  const std::function<bool()> whole = [this, room, &budget, wanted] {
    return !broken_ && may_fit(room, budget, wanted);
  };
  auto waiting = wait_for_buffer(transport_->loop(), budget, wanted,
                                 std::min(deadline, Clock::now() + room_wait_max), whole,
                                 room == nullptr ? nullptr : room->holder);
  auto buffer = co_await waiting;
  if (!buffer && Clock::now() >= deadline) co_return refused(have, time_limit_exceeded());
  if (!buffer) co_return refused(have, no_room(room, budget, wanted));
  buffer->append(have.data(), have.size());
  co_return *std::move(buffer);
}

// `wait_first`: the last read emptied the socket, so that another one at once would find nothing.
Task<Result<Buffer>> Connection::receive_rest(Buffer buffer, std::size_t want, bool wait_first,
                                              TimePoint deadline) {
  while (buffer.size() < want) {
    if (wait_first) {
      ReadyWait readable(*transport_, Transport::Direction::read, deadline);
      const bool ready = co_await readable;
      if (!ready) co_return wait_failed(readable.timed_out());
    }
    const MutableBytes room(buffer.data() + buffer.size(), want - buffer.size());
    const IoResult got = try_read_rest(room);
    wait_first = true;
    if (got.would_block()) continue;
    if (!got.ok()) co_return read_failed(got);
    buffer.set_size(buffer.size() + got.bytes);
  }
  co_return std::move(buffer);
}

Task<std::size_t> Connection::read_rest(MutableBytes into, TimePoint deadline) {
  for (;;) {
    const IoResult got = try_read_rest(into);
    if (!got.would_block()) co_return got.ok() ? got.bytes : 0;
    ReadyWait readable(*transport_, Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) co_return 0;
  }
}

IoResult Connection::try_splice_rest(SplicePipe& pipe, std::size_t most) {
  const std::size_t wanted = std::min(most, remaining_);
  return note_rest(pipe.fill(*transport_, wanted), wanted);
}

IoResult Connection::try_read_rest(MutableBytes into) {
  const std::size_t wanted = std::min(into.size(), remaining_);
  return note_rest(transport_->try_read(into.first(wanted)), wanted);
}

IoResult Connection::note_rest(IoResult got, std::size_t wanted) {
  if (got.ok() || got.would_block()) {
    remaining_ -= got.bytes;
    // (If all requested bytes came, the next read is tried without a wait.)
    if (got.bytes < wanted || remaining_ == 0) {
      transport_->set_read_low_water(worth_waking(wanted - got.bytes, remaining_));
    }
  } else {
    broken_ = true;
  }
  return got;
}

Task<Result<Buffer>> Connection::decompressed(const Incoming& incoming, const Buffer& envelope,
                                              MemoryBudget& budget, ReplyRoom* room,
                                              TimePoint deadline) {
  auto header = wire::parse_compressed(envelope.bytes());
  if (header.has_error()) co_return broken_by(header.error());
  if (header->original_opcode != static_cast<std::int32_t>(OpCode::msg)) {
    co_return broken_by(protocol_error(
        fmt::format("a compressed reply has opcode {}", header->original_opcode)));
  }
  const std::size_t size = limits::message_header_bytes + header->uncompressed_size;
  if (size < start_bytes) co_return broken_by(protocol_error("a reply is too short"));
  Buffer plain;
  if (auto buffer = allocate_now(budget, room, size)) {
    plain = *std::move(buffer);
  } else {
    auto waited = co_await wait_for_room({}, budget, room, size, deadline);
    if (waited.has_error()) co_return waited.error();
    plain = *std::move(waited);
  }
  HeldReply held(room, plain, budget);
  const auto done = co_await unpack_in_turns(*pump_, budget, incoming.header, *header, {plain.data(), size});
  if (done.has_error()) co_return broken_by(done.error());
  if (broken_) co_return wait_failed(false);  // meanwhile
  plain.set_size(size);
  held.came();
  co_return std::move(plain);
}

// Requires one section with one document that fills the message: Reply::body() relies on it.
Result<void> Connection::check_reply(const Buffer& bytes, const Incoming& incoming) const {
  const bool complete = remaining_ == 0;
  const auto length =
      complete ? bytes.size() : static_cast<std::size_t>(incoming.header.message_length);
  const std::uint8_t* at = bytes.data();
  const auto flags = load_le<std::uint32_t>(at + limits::message_header_bytes);
  if ((flags & wire::flags::more_to_come) != 0) {
    return protocol_error("a reply announces another one, which was not asked for");
  }
  const bool checksum = (flags & wire::flags::checksum_present) != 0;
  const std::size_t tail = checksum ? 4 : 0;
  const std::size_t document_bytes = load_le<std::uint32_t>(at + wire::op_msg_prefix_bytes);
  if (at[header_and_flags_bytes] != 0 || document_bytes < empty_document_bytes ||
      wire::op_msg_prefix_bytes + document_bytes + tail != length) {
    return protocol_error("a reply is not one document");
  }
  if (!complete) return {};
  if (at[length - tail - 1] != 0) return protocol_error("a reply's document does not end");
  // A compressed message's checksum was taken of the message before compression, header included.
  if (checksum && !incoming.compressed &&
      wire::crc32c(bytes.bytes().first(length - 4)) != load_le<std::uint32_t>(at + length - 4)) {
    return Error(ErrorCode::checksum_mismatch, "a reply's checksum does not match");
  }
  return {};
}

// Checks a complete reply, and makes the connection ready for the next one.
Result<Reply> Connection::finish_reply(Buffer&& bytes, const Incoming& incoming) {
  Result<Reply> reply{boost::system::in_place_value};
  if (auto checked = check_reply(bytes, incoming); checked.has_error()) {
    reply = broken_by(checked.error());
    return reply;
  }
  ++next_request_id_;
  if (next_request_id_ == INT32_MAX) next_request_id_ = 1;
  reply->message_bytes = bytes.size() + remaining_;
  reply->bytes = std::move(bytes);
  reply->host = address_;
  return reply;
}

// The first `have` bytes of a reply are in the scratch. nullopt: they are not all of it, or wrong, or there is no
// memory for them now.
std::optional<Buffer> Connection::take_whole(std::size_t have, MemoryBudget& budget, ReplyRoom* room,
                                             Incoming& incoming) {
  if (have < start_bytes) return std::nullopt;
  const Bytes bytes = receive_scratch().first(have);
  incoming.header = wire::load_header(bytes);
  // What check_start() refuses, or does not take as it is.
  if (static_cast<std::size_t>(incoming.header.message_length) != have || !incoming.header.is(OpCode::msg) ||
      incoming.header.response_to != next_request_id_) {
    return std::nullopt;
  }
  auto buffer = allocate_now(budget, room, have);
  if (!buffer) return std::nullopt;
  HeldReply(room, *buffer, budget).came();
  buffer->append(bytes.data(), have);
  awaiting_reply_ = false;
  return buffer;
}

Connection::Receiving::Receiving(Connection& connection, MemoryBudget& budget, bool stream, TimePoint deadline,
                                 ReplyRoom* room, ShardWait* first_byte) noexcept
    : connection_(connection),
      budget_(budget),
      deadline_(deadline),
      room_(room),
      first_byte_(first_byte),
      stream_(stream) {}

Connection::Receiving Connection::receive(MemoryBudget& budget, bool stream, TimePoint deadline, ReplyRoom* room,
                                          ShardWait* first_byte) {
  return {*this, budget, stream, deadline, room, first_byte};
}

void Connection::Receiving::await_suspend(std::coroutine_handle<> waiter) {
  SPILLWAY_CHECK(connection_.awaiting_reply_);
  waiter_ = waiter;
  wait();
}

void Connection::Receiving::wait() {
  Transport& transport = *connection_.transport_;
  if (deadline_ != time_point_never) transport.loop().arm(*this, deadline_);
  transport.wait(Transport::Direction::read, *this);
}

void Connection::Receiving::on_timer() {
  timed_out_ = true;
  connection_.transport_->cancel();  // on_ready follows, from the loop
}

// False: it is not known yet.
bool Connection::Receiving::reads_whole() {
  const MutableBytes into = room_for_start(budget_, room_, 0);
  got_ = connection_.transport_->try_read(into);
  all_came_ = got_.bytes < into.size();
  if (!got_.ok()) return !got_.would_block();
  if (first_byte_ != nullptr) first_byte_->end();
  whole_ = connection_.take_whole(got_.bytes, budget_, room_, incoming_);
  return whole_.has_value();
}

void Connection::Receiving::on_ready(bool aborted) {
  connection_.transport_->loop().disarm(*this);
  if (!aborted && !timed_out_ && !reads_whole()) {
    if (got_.would_block()) return wait();
    rest_.emplace(connection_.receive_more(budget_, stream_, deadline_, room_, first_byte_, got_.bytes, all_came_));
    if (rest_->await_suspend(waiter_)) return;
  }
  waiter_.resume();
}

// No suspension since the read.
Result<Reply> Connection::Receiving::await_resume() {
  if (whole_) return connection_.finish_reply(*std::move(whole_), incoming_);
  if (rest_) return rest_->await_resume();
  return got_.would_block() ? connection_.wait_failed(timed_out_) : connection_.read_failed(got_);
}

// The first `have` bytes are in the scratch. `all_came`: the last read emptied the socket.
Task<Result<Reply>> Connection::receive_more(MemoryBudget& budget, bool stream, TimePoint deadline, ReplyRoom* room,
                                             ShardWait* first_byte, std::size_t have, bool all_came) {
  Incoming incoming;
  std::array<std::uint8_t, start_bytes> early;  // bytes that came before the start was complete
  for (;;) {
    const MutableBytes scratch = receive_scratch();
    if (have >= limits::message_header_bytes) {
      auto checked = check_start(scratch.first(have));
      if (checked.has_error()) co_return broken_by(checked.error());
      incoming = *checked;
    }
    if (have >= start_bytes) break;
    std::copy_n(scratch.begin(), have, early.begin());
    ReadyWait readable(*transport_, Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) co_return wait_failed(readable.timed_out());
    std::copy_n(early.begin(), have, scratch.begin());
    const MutableBytes into = room_for_start(budget, room, have);
    const IoResult got = transport_->try_read(into);
    if (got.would_block()) continue;
    if (!got.ok()) co_return read_failed(got);
    if (first_byte != nullptr) first_byte->end();
    all_came = got.bytes < into.size();
    have += got.bytes;
  }
  if (auto sized = size_up(have, stream, incoming); sized.has_error()) co_return sized.error();
  // No suspension since the read: the bytes are still in the scratch.
  const Bytes start = receive_scratch().first(have);
  Result<Buffer> started = Buffer();
  // An envelope takes of the room only where there is nothing else: what it holds needs that.
  auto paid = allocate_now(budget, incoming.compressed ? nullptr : room, incoming.wanted_bytes);
  if (!paid && incoming.compressed) paid = allocate_from(room, incoming.wanted_bytes);
  if (paid) {
    paid->append(start.data(), start.size());
    started = *std::move(paid);
  } else {
    started = co_await wait_for_room(start, budget, room, incoming.wanted_bytes, deadline);
    if (started.has_error()) co_return started.error();
    if (broken_) co_return wait_failed(false);  // meanwhile
  }
  HeldReply held(incoming.compressed ? nullptr : room, *started, budget);
  if (have < incoming.wanted_bytes) {
    auto reading = receive_rest(*std::move(started), incoming.wanted_bytes, all_came, deadline);
    started = co_await reading;
    if (started.has_error()) co_return started.error();
  }
  if (incoming.compressed) {
    auto plain = co_await decompressed(incoming, *started, budget, room, deadline);
    if (plain.has_error()) co_return plain.error();
    started = std::move(plain);
  }
  held.came();
  co_return finish_reply(*std::move(started), incoming);
}

}  // namespace spillway::shard
