// CursorKeeper: housekeeping of idle cursors. It parks them, and ends those that time out, whose clients are gone, or
// that hold too much while memory is short; and of getMores that wait for one another's memory.
#pragma once

#include <cstdint>

#include "cursor/cursor.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// One per process, on the first worker: the registry is shared.
class CursorKeeper {
 public:
  // Every 250 ms. Never blocks; kills on shards go on in the background.
  void tick(Context& context, TimePoint now);

 private:
  bool memory_is_short(Context& context);
  void expire(Context& context, TimePoint now);
  void end_orphans(Context& context, TimePoint now, bool memory_is_short);
  void end_change_streams(Context& context, TimePoint now);
  void evict(Context& context, TimePoint now);
  void end_standstill(Context& context, TimePoint now);

  TimePoint next_park_{}, next_expiry_{}, next_orphans_{}, next_full_orphans_{};
  std::uint64_t departures_seen_ = 0;
  std::uint64_t refusals_seen_ = 0;
  // Of a line in which requests wait for memory.
  struct Progress {
    std::uint64_t served = 0;  // at the last tick
    TimePoint at{};            // when one had got memory, or none waited
  };
  Progress merges_, others_;
  bool clientless_ = false;
};

// A client is about to be refused, or to wait, because memory is short: ends idle cursors of other clients that hold
// more than half of the memory. True if there were any. Does nothing if it ran less than 100 ms ago.
bool take_from_large_holders(Context& context, const CursorClient& client);

}  // namespace spillway::exec
