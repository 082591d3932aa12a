// Forced release: free memory goes back to the operating system when cursors ended, when memory is short, or on
// request. Neither library does so by itself while it is idle.
//
//   request(kill) ─┐                       ┌─ flush: every worker empties its thread's cache
//   tick(): quiet ─┴─> schedule ──due──> thread ── heaps, slice by slice ── plain malloc ──> record
//                      (coalesced, rate-limited)
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "allocator/heap.h"

namespace spillway {

enum class ReleaseReason : std::uint8_t {
  exhaustion,  // some time after much was freed, and nothing more was taken
  decay,       // much was freed under a heap that gives back while busy
  expiry,      // cursors timed out
  kill,        // cursors were killed, or their session ended
  orphan,      // cursors lost their clients
  pressure,    // memory is short: no pauses between slices
  command,     // releaseMemory
  switched,    // another heap serves from now on: free memory of the old one is of no use
};
inline constexpr std::size_t release_reasons = 8;
std::string_view release_reason_name(ReleaseReason reason) noexcept;

// A set of reasons, by their bits.
using ReleaseReasons = std::uint8_t;
constexpr ReleaseReasons reason_bit(ReleaseReason reason) noexcept {
  return static_cast<ReleaseReasons>(1U << static_cast<unsigned>(reason));
}

// Slices by length: below 50, 100, 200, 500 µs, 1, 2, 5 ms, and above.
struct SliceHistogram {
  static constexpr std::array<std::uint32_t, 7> bounds_us = {50, 100, 200, 500, 1000, 2000, 5000};
  std::array<std::uint64_t, 8> counts{};
  std::uint64_t longest_us = 0;
  std::uint64_t longest_cpu_us = 0;  // without the time in which other threads had the core

  void add(std::uint64_t us, std::uint64_t cpu_us) noexcept;
  void add(const SliceHistogram& other) noexcept;
};

// One release as it was.
struct ReleaseRecord {
  std::uint64_t number = 0;  // from 1
  ReleaseReasons reasons = 0;
  std::int64_t started_ns = 0;  // steady_now_ns()
  std::uint64_t resident_before_bytes = 0;
  std::uint64_t resident_after_bytes = 0;
  std::uint64_t given_back_bytes = 0;  // as the heaps count it
  std::uint64_t total_us = 0;          // with the pauses
  std::uint64_t flush_us = 0;          // of it, waiting for the workers' caches
  SliceHistogram slices;
};

struct ReleaseSettings {
  std::uint64_t threshold_bytes = 8 << 20;  // freed since the last release: less is not worth one
  std::int64_t quiet_ns = 800'000'000;    // almost nothing taken for this time: the load is over
  std::int64_t interval_ns = 250'000'000;   // between two releases
  std::int64_t decay_ns = 5'000'000'000;    // between two while the load goes on, or of little
};

// When a release is due. Pure: time and counters are parameters. Not thread-safe.
class ReleaseSchedule {
 public:
  explicit ReleaseSchedule(ReleaseSettings settings) noexcept : settings_(settings) {}

  struct Counters {
    std::uint64_t freed_bytes = 0;  // by payload blocks, ever
    std::uint64_t taken_bytes = 0;
    bool decays = false;  // the current heap gives back while busy
  };
  void request(ReleaseReason reason) noexcept;
  // Reasons to release for now, at once; 0: not now.
  ReleaseReasons step(std::int64_t now_ns, const Counters& counters) noexcept;
  // Something was requested and is not due yet: step() again soon.
  bool waiting() const noexcept { return pending_ != 0 && !running_; }
  // A release that step() asked for has ended.
  void finished(std::int64_t now_ns) noexcept;

  const ReleaseSettings& settings() const noexcept { return settings_; }
  void set(ReleaseSettings settings) noexcept { settings_ = settings; }

 private:
  ReleaseSettings settings_;
  ReleaseReasons pending_ = 0;
  bool running_ = false;
  std::uint64_t freed_at_release_ = 0;
  std::uint64_t taken_seen_ = 0;
  std::int64_t busy_until_ns_ = 0;
  std::optional<std::int64_t> last_end_ns_;
};

// One round of emptying the workers' caches of free memory. The threads that take part share it.
class CacheFlush {
 public:
  explicit CacheFlush(std::size_t threads) noexcept : left_(threads) {}
  // On each thread that takes part, once.
  void flush_here() noexcept;
  // True: every thread has done so in time.
  bool wait(std::chrono::milliseconds at_most);

 private:
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::size_t left_;
};

struct ReleaserStatistics {
  std::uint64_t releases = 0;
  std::array<std::uint64_t, release_reasons> by_reason{};
  std::uint64_t given_back_bytes = 0;
  std::uint64_t total_us = 0;
  SliceHistogram slices;
  std::vector<ReleaseRecord> history;  // the latest last
};

// Owns the releasing thread. All members may be called from any thread.
class Releaser {
 public:
  using Done = std::function<void(const ReleaseRecord&)>;
  // Has every worker's thread call flush_here(); the caller that posts sets the number of threads in the round.
  using FlushCaches = std::function<std::shared_ptr<CacheFlush>()>;

  explicit Releaser(ReleaseSettings settings) : schedule_(settings) {}
  ~Releaser() { stop(); }
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;

  // Until start() nothing is released, and requests are dropped. Not while other threads use it.
  void start(FlushCaches flush_caches);
  // Ends the thread, after the slice under way. Callers that wait get what was done until then.
  void stop();
  bool running() const noexcept { return running_.load(std::memory_order_relaxed); }

  void request(ReleaseReason reason);
  // `done` is called on the releasing thread, after a release that began after this call; or by stop().
  void request(ReleaseReason reason, Done done);
  // A few times a second: sees whether the load is over.
  void tick(std::int64_t now_ns);

  void set_settings(ReleaseSettings settings);
  std::uint64_t threshold() const;
  ReleaserStatistics statistics() const;

  static constexpr std::size_t history_max = 32;

 private:
  class Pacer;

  void run();
  ReleaseRecord release(ReleaseReasons reasons);
  void step_locked(std::int64_t now_ns);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  ReleaseSchedule schedule_;
  ReleaseReasons due_ = 0;
  std::vector<Done> waiting_;
  ReleaserStatistics statistics_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
  std::thread thread_;
  FlushCaches flush_caches_;
};

// The clock that the releasing thread measures with.
std::int64_t steady_now_ns() noexcept;
// Of this process, now; 0: not known.
struct ProcessBytes {
  std::uint64_t size = 0, resident = 0;
};
ProcessBytes process_bytes() noexcept;
inline std::uint64_t process_resident_bytes() noexcept { return process_bytes().resident; }
// All heaps of this build together.
ReleaseSchedule::Counters heap_counters() noexcept;

}  // namespace spillway
