// Retention: whether the heaps may keep what is freed for the next block. Kept bytes count against
// memory.limit like those in use, and go first: while less than half of the room is in use, and what
// is in use and kept fits into it, heaps keep; beyond that they keep nothing: every block's pages go
// back as it is freed, and the next pays with page faults.
//
//   in use:   0 ----- 3/8 ----- 1/2 ------------- room
//             keep <---- | ------> keep nothing, and give back what was kept
//                 (for 2 s)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spillway {

// Process-wide, as the heaps are. Thread-safe; everything but set_up() is a few instructions.
class Retention {
 public:
  // Called when heaps must no longer keep, on a thread that takes a block, and when they may again, on the thread
  // that calls review(). Kept memory must then be released. Must not take blocks.
  using OnChange = void (*)(void* context) noexcept;

  // `room_bytes`: what blocks in use and kept ones may take together; 0: without limit.
  static void set_up(std::uint64_t room_bytes, OnChange on_change, void* context) noexcept;
  static void reset() noexcept { set_up(0, nullptr, nullptr); }

  static bool allowed() noexcept { return state_.load(std::memory_order_acquire) == State::keep; }
  // Nothing is kept any more: a release has gone over all heaps since keeping ended.
  static bool gone() noexcept { return state_.load(std::memory_order_acquire) == State::gone; }
  // By the releasing thread, around each pass over all heaps.
  class Pass {
   public:
    Pass() noexcept : ending_(!allowed()) {}
    ~Pass();

   private:
    const bool ending_;
  };

  static void taken(std::size_t bytes) noexcept {
    const std::uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now > most_.load(std::memory_order_relaxed) && allowed()) end();
  }
  static void freed(std::size_t bytes) noexcept {
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  // Before pages are asked of a heap's library, without a lock of a heap. Each heap, and each arena of one, may keep
  // as much as was ever in use in it: now and then this looks at all of them, for 10 to 100 us.
  static void before_pages(std::size_t bytes) noexcept {
    const std::uint64_t since = since_look_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (since >= look_after_.load(std::memory_order_relaxed) && allowed()) look();
  }
  // A few times a second, from one thread. Steady time.
  static void review(std::int64_t now_ns) noexcept;

  static std::uint64_t in_use_bytes() noexcept { return in_use_.load(std::memory_order_relaxed); }
  static std::uint64_t times_ended() noexcept { return ended_.load(std::memory_order_relaxed); }

  static constexpr std::int64_t calm_ns = 2'000'000'000;

 private:
  enum class State : std::uint8_t { keep, give_back, gone };
  static void end() noexcept;
  static void look() noexcept;

  static inline std::atomic<State> state_{State::keep};
  static inline std::atomic<std::uint64_t> most_{UINT64_MAX};  // in use, while keeping
  static inline std::atomic<std::uint64_t> look_after_{UINT64_MAX};
  alignas(64) static inline std::atomic<std::uint64_t> since_look_{0};  // pages asked of libraries
  alignas(64) static inline std::atomic<std::uint64_t> in_use_{0};
  alignas(64) static inline std::atomic<std::uint64_t> ended_{0};
};

// Returns whole pages to the operating system, in slices, holding no lock.
void discard_pages(void* pages, std::size_t bytes) noexcept;

}  // namespace spillway
