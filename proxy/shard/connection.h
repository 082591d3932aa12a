// Connection: one shard connection and the message it is in the middle of. Belongs to one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "allocator/buffer.h"
#include "proxy/base/transport.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

// Life: connected → handshaken → (send → receive)* → closed. A connection whose reply was not read to its end is
// dirty: it is never pooled again.
class Connection {
 public:
  Connection(std::unique_ptr<Transport> transport, HostAddress address);
  ~Connection();

  // Sends header, flags and sections. False: the connection failed; nothing or only part of the command left.
  Task<bool> send(const Command& command, TimePoint deadline);

  // Reads a reply's header and then the whole message, or, with `stream` and a long message, its first
  // limits::reply_complete_bytes_max bytes. The size is checked before memory is taken.
  Task<Result<Reply>> receive(MemoryBudget& budget, bool stream, TimePoint deadline);

  // The rest of a streaming reply, as the socket gives it; never reads past the message's end.
  // REQUIRES remaining() > 0.
  IoResult try_read_rest(MutableBytes into);
  // Bytes of the current reply that have not been read.
  std::size_t remaining() const noexcept { return remaining_; }
  bool clean() const noexcept;  // no request under way, nothing unread, not broken
  void mark_broken() noexcept { broken_ = true; }

  Transport& transport() noexcept { return *transport_; }
  const HostAddress& address() const noexcept { return address_; }

 private:
  std::unique_ptr<Transport> transport_;
  HostAddress address_;
  std::int32_t next_request_id_ = 1;
  std::size_t remaining_ = 0;
  bool awaiting_reply_ = false;
  bool broken_ = false;
};

}  // namespace spillway::shard
