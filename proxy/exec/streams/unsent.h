// Unsent: bytes of a streaming reply that the client's socket has not taken yet.
#pragma once

#include <cstddef>
#include <deque>

#include "allocator/buffer.h"
#include "allocator/small_blocks.h"
#include "allocator/spill.h"
#include "cursor/bson_view.h"
#include "proxy/base/transport.h"

namespace spillway::exec {

// In order: the rest of a piece, then what was read from the shard meanwhile, in memory or in the spill file. Owns its
// buffers and tickets.
class Unsent {
 public:
  bool empty() const noexcept { return bytes_ == 0 && tickets_ == 0; }
  std::size_t memory_bytes() const noexcept { return bytes_; }
  // By send(), so far.
  std::size_t sent_bytes() const noexcept { return sent_bytes_; }
  // Are the next bytes in memory?
  bool can_send() const noexcept;

  // Memory for the rest of a piece; it is kept for the next piece.
  std::size_t leftover_room() const noexcept { return leftover_.capacity(); }
  void set_leftover_room(Buffer room) noexcept;  // REQUIRES empty()
  // Takes bytes [begin, end) of the buffer, and keeps the buffer for the next piece. REQUIRES empty().
  void hold(Buffer buffer, std::size_t begin, std::size_t end) noexcept;
  // Copies. REQUIRES empty() and bytes.size() <= leftover_room().
  void keep(Bytes bytes) noexcept;

  // Takes memory for `bytes` more, all of it or nothing.
  bool take_room(MemoryBudget& budget, std::size_t bytes);
  // Where the next bytes go. REQUIRES free memory.
  MutableBytes free_space() noexcept;
  void filled(std::size_t bytes) noexcept;  // of free_space()
  // Gives back what take_room() took. REQUIRES empty().
  void drop_room() noexcept { parts_.clear(); }

  void add(Buffer buffer);
  SpillTicket& add(SpillTicket ticket);  // valid until it is fetched
  // Where the next bytes are. REQUIRES !empty() and !can_send().
  SpillTicket& next_ticket() noexcept;
  // Takes bytes [begin, end) that were fetched with next_ticket().
  void put_back(Buffer buffer, std::size_t begin, std::size_t end);

  // Writes once, without waiting. Frees what was written. REQUIRES can_send().
  IoResult send(Transport& client);

 private:
  struct Part {
    Buffer buffer;
    SpillTicket ticket;
    bool room = false;     // the buffer takes more bytes
    std::size_t sent = 0;  // bytes of the buffer; 0 but for the first part
    std::size_t left() const noexcept { return buffer.size() - sent; }
  };
  Part& filling() noexcept;
  void note_sent(std::size_t bytes) noexcept;

  Buffer leftover_;
  std::size_t leftover_sent_ = 0;
  std::deque<Part, RecyclingAllocator<Part>> parts_;
  std::size_t bytes_ = 0;    // in memory
  std::size_t tickets_ = 0;  // in the spill file
  std::size_t sent_bytes_ = 0;
};

}  // namespace spillway::exec
