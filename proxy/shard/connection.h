// Connection: one shard connection and its message under way. Belongs to one worker.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "allocator/buffer.h"
#include "allocator/limits.h"
#include "proxy/base/pump.h"
#include "proxy/base/splice.h"
#include "proxy/base/transport.h"
#include "proxy/shard/gateway.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/message.h"

namespace spillway::shard {

class ShardWait;    // shard_time.h
class UnreadReply;  // unread_reply.h

// The bytes of an OP_MSG before its body section.
inline constexpr std::size_t header_and_flags_bytes = limits::message_header_bytes + 4;

// A command as it leaves: header and flags, then the sections, the suffix in the body. Stays where it is while sent.
class OutgoingMessage {
 public:
  OutgoingMessage() = default;
  OutgoingMessage(const OutgoingMessage&) = delete;
  OutgoingMessage& operator=(const OutgoingMessage&) = delete;
  // Views into this and the command's bytes.
  std::span<iovec> lay_out(const Command& command, std::int32_t request_id) noexcept;

 private:
  void add(const void* data, std::size_t size) noexcept;
  void add_sections(const Command& command, std::size_t from, std::size_t to) noexcept;

  std::array<std::uint8_t, header_and_flags_bytes> prefix_;
  std::array<std::uint8_t, 4> body_length_;  // with the suffix
  // Prefix, length and suffix; the body is cut twice.
  std::array<iovec, std::tuple_size_v<decltype(Command::sections)> + 5> pieces_;
  std::size_t count_ = 0;
};

// Life: connected → handshaken → (send → receive)* → closed. A connection whose reply was not read
// to its end is dirty: it is never pooled again.
class Connection : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  // `pump` gives turns to the work on large compressed messages. Null: there are none.
  Connection(std::unique_ptr<Transport> transport, HostAddress address, Pump* pump = nullptr);
  ~Connection();

  // From now on commands leave compressed, and compressed replies are accepted. `budget` pays for the compressed
  // bytes; where it refuses, the command leaves uncompressed. REQUIRES a pump.
  void use_compression(wire::Compressor compressor, MemoryBudget& budget) noexcept;

  // co_await connection.send(command, deadline): sends header, flags and sections. False: the
  // connection failed; nothing or only part of the command left. `command` outlives it. REQUIRES a body, if the
  // command has a suffix.
  class Sending;
  Sending send(const Command& command, TimePoint deadline);

  // To be named, then awaited: reads a reply's header and then the whole message, or, with `stream` and a long
  // message, its first limits::reply_complete_bytes_max bytes. The size is checked before memory is taken.
  // Errors: HostUnreachable(6), MaxTimeMSExpired(50) at the deadline, ProtocolError(17),
  // ChecksumMismatch(288), memory_refused() (base/memory_wait.h), or what fail() was given. After an error the
  // connection is broken; where memory was short, take_unread() may clean it.
  // `room` pays in place of the budget, if it is large enough; of a compressed reply it pays for the content, not for
  // the envelope. What is left of it stays there. `first_byte` ends with the reply's first byte.
  class Receiving;
  Receiving receive(MemoryBudget& budget, bool stream, TimePoint deadline, ReplyRoom* room = nullptr,
                    ShardWait* first_byte = nullptr);

  // The rest of a streaming reply, as the socket gives it; never reads past the message's end. After a short read the
  // next wait for reading lasts until a good part of the rest is there, or nothing more comes: a caller that must
  // pass on the bytes at once tries again later.
  // REQUIRES remaining() > 0.
  IoResult try_read_rest(MutableBytes into);
  // Waits for some of it. 0: the connection broke, or the deadline passed. No suspension since the read. REQUIRES
  // remaining() > 0.
  Task<std::size_t> read_rest(MutableBytes into, TimePoint deadline);
  // As try_read_rest() into a pipe, without a copy. REQUIRES remaining() > 0, pipe.empty() and
  // transport().can_splice().
  IoResult try_splice_rest(SplicePipe& pipe, std::size_t most);
  // Bytes of the current reply that have not been read.
  std::size_t remaining() const noexcept { return remaining_; }
  bool clean() const noexcept;  // no request under way, nothing unread, not broken
  void mark_broken() noexcept { broken_ = true; }
  // What the last receive() refused for want of memory, and can still be read. Null: nothing.
  std::unique_ptr<UnreadReply> take_unread() noexcept;
  // Ends the connection while others wait on it: send() and receive() then return `why`.
  void fail(Error why);
  // The reason that send() failed.
  Error failure() const;
  // True if no byte has arrived and the peer has not hung up: costs one read. REQUIRES clean().
  bool still_quiet();

  // All of the last command left: the shard may have executed it.
  bool sent_whole() const noexcept { return sent_whole_; }
  bool broken() const noexcept { return broken_; }
  Transport& transport() noexcept { return *transport_; }
  const HostAddress& address() const noexcept { return address_; }

  // State that only the pool uses.
  struct PoolNotes {
    std::uint64_t generation = 0;
    TimePoint idle_since;
    Use use = Use::point;
  };
  PoolNotes pool_notes;

 private:
  struct Incoming {
    wire::MessageHeader header;
    std::uint32_t flags = 0;
    bool compressed = false;
    std::size_t wanted_bytes = 0;  // of the message, before receive() returns
  };
  Task<void> send_pieces(std::span<iovec> pieces, TimePoint deadline);
  Task<void> send_compressed(const Command& command, TimePoint deadline);
  bool wants_compression(const Command& command) const noexcept;
  Result<Incoming> check_start(Bytes start) const;
  Result<void> size_up(std::size_t have_bytes, bool stream, Incoming& incoming);
  std::optional<Buffer> take_whole(std::size_t have, MemoryBudget& budget, ReplyRoom* room, Incoming& incoming);
  Task<Result<Reply>> receive_more(MemoryBudget& budget, bool stream, TimePoint deadline, ReplyRoom* room,
                                   ShardWait* first_byte, std::size_t have, bool all_came);
  Task<Result<Buffer>> wait_for_room(Bytes have, MemoryBudget& budget, ReplyRoom* room, std::size_t wanted,
                                     TimePoint deadline);
  Result<Reply> finish_reply(Buffer&& bytes, const Incoming& incoming);
  Task<Result<Buffer>> receive_rest(Buffer buffer, std::size_t want, bool wait_first,
                                    TimePoint deadline);
  Task<Result<Buffer>> decompressed(const Incoming& incoming, const Buffer& envelope,
                                    MemoryBudget& budget, ReplyRoom* room, TimePoint deadline);
  Result<void> check_reply(const Buffer& bytes, const Incoming& incoming) const;
  Error broken_by(Error why);
  Error refused(Bytes start, Error why);
  Error wait_failed(bool timed_out);
  Error read_failed(IoResult got);
  IoResult note_rest(IoResult got, std::size_t wanted);

  std::unique_ptr<Transport> transport_;
  HostAddress address_;
  Pump* pump_;
  std::int32_t next_request_id_ = 1;
  std::size_t remaining_ = 0;
  bool awaiting_reply_ = false;
  bool broken_ = false;
  bool sent_whole_ = false;
  bool send_timed_out_ = false;
  std::optional<wire::Compressor> compressor_;
  MemoryBudget* compression_budget_ = nullptr;
  std::unique_ptr<Error> cause_;
  std::unique_ptr<UnreadReply> unread_;
};

class [[nodiscard]] Connection::Sending {
 public:
  Sending(Connection& connection, const Command& command, TimePoint deadline);
  bool await_ready();
  bool await_suspend(std::coroutine_handle<> waiter);
  bool await_resume() const noexcept { return connection_.sent_whole_; }

 private:
  Connection& connection_;
  const Command& command_;
  TimePoint deadline_;
  OutgoingMessage message_;
  std::span<iovec> left_;  // empty before the first attempt
  std::optional<Task<void>> rest_;
};

// A short reply that comes with one read takes no frame.
class [[nodiscard]] Connection::Receiving final : private IoWaiter, private Timer {
 public:
  Receiving(Connection& connection, MemoryBudget& budget, bool stream, TimePoint deadline, ReplyRoom* room,
            ShardWait* first_byte) noexcept;
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter);
  Result<Reply> await_resume();

 private:
  void wait();
  void on_ready(bool aborted) override;
  void on_timer() override;
  bool reads_whole();

  Connection& connection_;
  MemoryBudget& budget_;
  TimePoint deadline_;
  ReplyRoom* room_;
  ShardWait* first_byte_;
  bool stream_;
  bool timed_out_ = false;
  std::coroutine_handle<> waiter_;
  IoResult got_{IoResult::Status::would_block, 0};
  Incoming incoming_;
  bool all_came_ = false;  // the last read emptied the socket
  std::optional<Buffer> whole_;
  std::optional<Task<Result<Reply>>> rest_;
};

}  // namespace spillway::shard
