// Heaps: where payload memory (blocks of 16 KiB and more) comes from. Two libraries live in one
// process behind this interface; which of them new blocks come from is chosen in buffer_heaps.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway {

class Heap;
struct Span;

// Payload memory on loan from a heap. A plain value: its holder gives it back, once.
struct Block {
  std::uint8_t* data = nullptr;  // null: there was no memory
  std::size_t bytes = 0;
  Heap* heap = nullptr;
  Span* span = nullptr;  // what it was cut from; null: a block of its own
};

// Bytes, as far as the heap knows. in_use + kept is what it makes the process hold.
struct HeapUsage {
  std::uint64_t in_use_bytes = 0;      // in blocks on loan
  std::uint64_t kept_bytes = 0;        // free, but still the process's
  std::uint64_t given_back_bytes = 0;  // to the operating system, ever
  std::uint64_t taken_bytes = 0;       // by all blocks, ever: the measure of activity
};

// Giving memory back is done in slices, so that no thread waits long for a lock or a core. A heap
// calls begin() before and end() after each; what happens between two slices (a pause, a look at
// the clock) is the pacer's business. Used on the releasing thread only.
class SlicePacer {
 public:
  virtual ~SlicePacer() = default;
  virtual void begin() noexcept = 0;
  virtual void end(std::uint64_t given_back_bytes) noexcept = 0;
  virtual bool more() const noexcept = 0;  // false: stop as soon as nothing is left half done
};

// The most that one slice gives back.
inline constexpr std::size_t release_slice_bytes = 1024 * 1024;

// Thread-safe, except release(): one thread at a time. Heaps live until the process ends.
class Heap {
 public:
  explicit Heap(std::string_view name) noexcept : name_(name) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  virtual ~Heap() = default;

  std::string_view name() const noexcept { return name_; }

  // What take(bytes) would take, exactly: what a reservation must cover.
  virtual std::size_t block_bytes(std::size_t bytes) const noexcept = 0;
  // REQUIRES bytes >= block_bytes_min. Never throws; a block without data: there is no memory.
  virtual Block take(std::size_t bytes) noexcept = 0;
  virtual void give_back(const Block& block) noexcept = 0;

  // Returns free memory to the operating system, slice by slice.
  virtual void release(SlicePacer& pacer) noexcept = 0;
  // Takes the library's locks for some microseconds: not for hot paths.
  virtual HeapUsage usage() const noexcept = 0;
  // True: free memory goes back while the proxy is busy, too (jemalloc). False: it stays for the next scan until a
  // release is requested (tcmalloc).
  virtual bool decays() const noexcept = 0;

  // Bytes of all blocks ever given back by their holders; cheap.
  std::uint64_t freed_bytes() const noexcept { return freed_.load(std::memory_order_relaxed); }
  std::uint64_t taken_bytes() const noexcept { return taken_.load(std::memory_order_relaxed); }

 protected:
  void count_taken(std::size_t bytes) noexcept {
    taken_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_freed(std::size_t bytes) noexcept {
    freed_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Read in this order, or a block freed in between would count as in use for ever.
  std::uint64_t in_use_bytes() const noexcept {
    const std::uint64_t freed = freed_.load(std::memory_order_acquire);
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    return taken > freed ? taken - freed : 0;
  }

 private:
  std::string_view name_;
  alignas(64) std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> freed_{0};
};

// The least block of a heap, and what the smaller ones are cut from (span_pool.h).
inline constexpr std::size_t block_bytes_min = 16 * 1024;
inline constexpr std::size_t span_bytes = 1024 * 1024;

}  // namespace spillway
