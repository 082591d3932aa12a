#include "proxy/exec/counters/splice_choice.h"

#include <chrono>
#include <ctime>

#include "proxy/config/parameters.h"

namespace spillway::exec {

namespace {

constexpr Duration look_every = std::chrono::milliseconds(100);
constexpr double enter_share = 0.3;
constexpr double leave_share = 0.08;
constexpr double enter_bytes_per_s = 100e6;
constexpr double leave_bytes_per_s = 25e6;

std::int64_t thread_cpu_ns() noexcept {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
}

}  // namespace

bool SpliceChoice::is_busy(bool was, double share, double bytes_per_s) noexcept {
  if (was) return share >= leave_share || bytes_per_s >= leave_bytes_per_s;
  return share >= enter_share || bytes_per_s >= enter_bytes_per_s;
}

bool SpliceChoice::splices(SpliceReplies wanted, TimePoint now) noexcept {
  if (wanted != SpliceReplies::automatic) return wanted == SpliceReplies::always;
  const Duration past = now - looked_;
  if (past < look_every) return busy_;
  const std::int64_t cpu_ns = thread_cpu_ns();
  const auto past_ns = static_cast<double>(std::chrono::nanoseconds(past).count());
  busy_ = is_busy(busy_, static_cast<double>(cpu_ns - cpu_ns_) / past_ns, static_cast<double>(bytes_) * 1e9 / past_ns);
  looked_ = now;
  cpu_ns_ = cpu_ns;
  bytes_ = 0;
  return busy_;
}

}  // namespace spillway::exec
