// UnreadReply: a reply that receive() refused for want of memory, or gave up at its deadline, of which only the start
// was read. Its command was executed: it may have opened a cursor, whose id stands behind the documents.
//
// Reads the reply to its end, keeping nothing, and ends that cursor over the same connection, which then is clean. The
// shard would otherwise keep the cursor until its own time-out, ten minutes as a rule.
#pragma once

#include <array>
#include <cstdint>

#include "proxy/shard/handshake.h"

namespace spillway::shard {

class UnreadReply {
 public:
  explicit UnreadReply(Bytes start) noexcept;

  // Gives up, and leaves the connection unclean, if the reply is no uncompressed reply of a cursor, or at the deadline.
  // REQUIRES that the reply's other bytes were not read. This, the connection and the pump outlive the task.
  Task<void> end_cursor(Connection& connection, Pump& pump, LinkBudgets budgets, TimePoint deadline);

 private:
  std::array<std::uint8_t, 1'024> head_;  // what stands before the documents is shorter
  std::size_t head_bytes_;
  std::size_t came_bytes_;  // of the message
};

}  // namespace spillway::shard
