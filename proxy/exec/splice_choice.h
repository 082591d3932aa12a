// When the inside of a large reply passes from socket to socket within the kernel (base/splice.h) and when it is copied.
//
// Spliced, a byte costs half the CPU. Copied, more bytes pass where CPU is left: what is received from pages that were
// just written is cheaper for the client than what the shard's kernel left in many small ones (bench/README.md). So a
// worker copies until its core is used up.
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
  // What follows when this thread used such a share of a core. Splicing lets the share sink by half, which is no reason
  // to stop.
  static bool is_used_up(bool was, double share) noexcept;

 private:
  bool used_up_ = false;
  TimePoint looked_{};
  std::int64_t cpu_ns_ = 0;
};

}  // namespace spillway::exec
