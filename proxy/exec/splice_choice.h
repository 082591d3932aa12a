// When the inside of a large reply passes from socket to socket within the kernel (base/splice.h) and when it is copied.
//
// Spliced, a byte costs the proxy a half to a quarter of the CPU (bench/README.md, "What splicing saves"). Copied, it was
// seen: documents are counted to the last one, and a client on the same machine reads it from warmer pages. So a worker
// copies while it has little to do, and splices once bulk takes a third of its core.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proxy/base/clock.h"

namespace spillway::exec {

// In the order of setParameter.spliceReplies.
enum class SpliceReplies : std::uint8_t { automatic, always, never };
std::string_view splice_replies_name(SpliceReplies wanted) noexcept;
std::optional<SpliceReplies> find_splice_replies(std::string_view name) noexcept;

// A worker's choice. Its own thread only.
class SpliceChoice {
 public:
  // `now`: looks at the thread's CPU time once in a tenth of a second, if `wanted` leaves the choice.
  bool splices(SpliceReplies wanted, TimePoint now) noexcept;
  // What follows when this thread used such a share of a core. Splicing lets the share sink to a third of it, which is no
  // reason to stop.
  static bool is_busy(bool was, double share) noexcept;

 private:
  bool busy_ = false;
  TimePoint looked_{};
  std::int64_t cpu_ns_ = 0;
};

}  // namespace spillway::exec
