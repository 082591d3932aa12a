// When the inside of a large reply passes from socket to socket within the kernel (base/splice.h) and when it is
// copied.
//
// A spliced byte costs the proxy a third to a seventh of the CPU of a copied one (bench/RESULTS.md, "Splicing").
// Copied bytes are visible: documents are counted exactly, and a client on the same machine reads them from warmer
// pages. So a worker copies while it has little to do, and splices once it passes a hundred megabytes a second or
// uses a third of its core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proxy/base/clock.h"

namespace spillway {
enum class SpliceReplies : std::uint8_t;  // config/parameters.h
}

namespace spillway::exec {

// A worker's choice. Its own thread only.
class SpliceChoice {
 public:
  // `now`: reads the thread's CPU time every tenth of a second, if `wanted` is automatic.
  bool splices(SpliceReplies wanted, TimePoint now) noexcept;
  // Counts the bytes of replies that were passed on, in either way.
  void passed(std::size_t bytes) noexcept { bytes_ += bytes; }
  // The decision for a thread's share of a core and its rate. Splicing lowers the share, which is no reason to stop.
  static bool is_busy(bool was, double share, double bytes_per_s) noexcept;

 private:
  bool busy_ = false;
  TimePoint looked_{};
  std::int64_t cpu_ns_ = 0;
  std::size_t bytes_ = 0;  // since it looked
};

}  // namespace spillway::exec
