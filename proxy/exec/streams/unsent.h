// Unsent: what a client's socket has not taken yet of a reply that streams.
#pragma once

#include <cstddef>
#include <deque>

#include "allocator/buffer.h"
#include "allocator/small_blocks.h"
#include "allocator/spill.h"
#include "cursor/bson_view.h"
#include "proxy/base/transport.h"

namespace spillway::exec {

// In order: what was left over of a piece; then what was read ahead of the client, in memory or spilled. A value: what
// it holds goes with it.
class Unsent {
 public:
  bool empty() const noexcept { return bytes_ == 0 && tickets_ == 0; }
  // What comes next is in memory.
  bool can_send() const noexcept;

  // Room for what is left over of a piece; stays for the next one.
  std::size_t leftover_room() const noexcept { return leftover_.capacity(); }
  void set_leftover_room(Buffer room) noexcept;  // REQUIRES empty()
  // Bytes [begin, end) of the buffer, which becomes the room for what is left over. REQUIRES empty().
  void hold(Buffer buffer, std::size_t begin, std::size_t end) noexcept;
  // Copies. REQUIRES empty() and bytes.size() <= leftover_room().
  void keep(Bytes bytes) noexcept;

  // Room for so many bytes behind the rest, all of it or none.
  bool take_room(MemoryBudget& budget, std::size_t bytes);
  // Where the next bytes go. REQUIRES that room is left.
  MutableBytes free_space() noexcept;
  void filled(std::size_t bytes) noexcept;  // of free_space()
  // Gives the room that was taken back. REQUIRES empty().
  void drop_room() noexcept { parts_.clear(); }

  void add(Buffer buffer);
  SpillTicket& add(SpillTicket ticket);  // valid until it is fetched
  // REQUIRES !empty() and !can_send(): what comes next is there.
  SpillTicket& next_ticket() noexcept;
  // Bytes [begin, end) of what next_ticket() gave.
  void put_back(Buffer buffer, std::size_t begin, std::size_t end);

  // Writes once, without waiting. What was written is no longer held. REQUIRES can_send().
  IoResult send(Transport& client);

 private:
  struct Part {
    Buffer buffer;
    SpillTicket ticket;
    bool room = false;     // more goes into the buffer
    std::size_t sent = 0;  // of the buffer; only of the first part
    std::size_t left() const noexcept { return buffer.size() - sent; }
  };
  Part& filling() noexcept;
  void note_sent(std::size_t bytes) noexcept;

  Buffer leftover_;
  std::size_t leftover_sent_ = 0;
  std::deque<Part, RecyclingAllocator<Part>> parts_;
  std::size_t bytes_ = 0;    // in memory
  std::size_t tickets_ = 0;  // that are not
};

}  // namespace spillway::exec
