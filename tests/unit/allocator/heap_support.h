// What the tests of heaps share: a pacer that records, a heap of malloc's, the process's RSS.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "allocator/spanned_heap.h"

namespace spillway {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

inline std::uint64_t resident_bytes() {
  long size = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &size, &resident) != 2) std::abort();
  std::fclose(file);
  return static_cast<std::uint64_t>(resident) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

class RecordingPacer final : public SlicePacer {
 public:
  void begin() noexcept override { ++open; }
  void end(std::uint64_t given_back_bytes) noexcept override {
    --open;
    ++slices;
    total += given_back_bytes;
    largest = std::max(largest, given_back_bytes);
  }
  bool more() const noexcept override { return slices < slices_max; }

  int open = 0;
  std::uint64_t slices = 0, slices_max = UINT64_MAX, total = 0, largest = 0;
};

// Pages straight from malloc, counted; a limit makes it run dry.
class FakeHeap final : public SpannedHeap {
 public:
  explicit FakeHeap(std::string_view name) : SpannedHeap(name) {}

  bool decays() const noexcept override { return false; }

  std::atomic<std::uint64_t> pages_in_use{0};
  std::atomic<std::uint64_t> pages_limit{UINT64_MAX};
  std::atomic<std::uint64_t> releases{0};

 protected:
  std::size_t pages_bytes(std::size_t bytes) const noexcept override {
    return (bytes + 4095) / 4096 * 4096;
  }
  void* take_pages(std::size_t bytes) noexcept override {
    if (pages_in_use.load() + bytes > pages_limit.load()) return nullptr;
    pages_in_use += bytes;
    return std::aligned_alloc(4096, bytes);
  }
  void give_back_pages(void* pages, std::size_t bytes) noexcept override {
    pages_in_use -= bytes;
    std::free(pages);
  }
  void release_pages(SlicePacer&) noexcept override { ++releases; }
  PagesUsage pages_usage() const noexcept override { return {}; }
};

}  // namespace spillway
