// When the inside of a large reply passes from socket to socket within the kernel (base/splice.h) and when it is
// copied.
//
// Spliced, a byte costs the proxy a third to a seventh of the CPU (bench/RESULTS.md, "Splicing"). Copied, it was
// seen: documents are counted to the last one, and a client on the same machine reads it from warmer pages. So a worker
// copies while it has little to do, and splices once it passes a hundred megabytes a second or uses a third of its
// core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proxy/base/clock.h"
#include "proxy/config/parameters.h"

namespace spillway::exec {

// A worker's choice. Its own thread only.
class SpliceChoice {
 public:
  // `now`: looks at the thread's CPU time once in a tenth of a second, if `wanted` leaves the choice.
  bool splices(SpliceReplies wanted, TimePoint now) noexcept;
  // So much of replies was passed on, in either way.
  void passed(std::size_t bytes) noexcept { bytes_ += bytes; }
  // What follows when this thread used such a share of a core and passed so much. Splicing lets the share sink, which
  // is no reason to stop.
  static bool is_busy(bool was, double share, double bytes_per_s) noexcept;

 private:
  bool busy_ = false;
  TimePoint looked_{};
  std::int64_t cpu_ns_ = 0;
  std::size_t bytes_ = 0;  // since it looked
};

}  // namespace spillway::exec
