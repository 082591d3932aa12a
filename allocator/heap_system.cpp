// glibc: blocks of 128 KiB and more are mappings of their own and vanish when freed; smaller ones
// are cut from spans, which are such mappings. So this heap keeps next to nothing, and pays for it
// with page faults. (glibc would raise its threshold to 32 MiB as blocks are freed, keep what is
// below, and return it only through malloc_trim, which holds an arena's lock all the while.)
#include "allocator/heap_system.h"

#include <atomic>

#include "allocator/libc_malloc.h"
#include "allocator/spanned_heap.h"

namespace spillway {

namespace {

constexpr std::size_t system_page_bytes = 4096;
constexpr int mapping_threshold_bytes = 128 * 1024;

class SystemHeap final : public SpannedHeap {
 public:
  SystemHeap() : SpannedHeap("system", true) {
    libc_malloc().mallopt(M_MMAP_THRESHOLD, mapping_threshold_bytes);
  }

 protected:
  std::size_t pages_bytes(std::size_t bytes) const noexcept override {
    return (bytes + system_page_bytes - 1) / system_page_bytes * system_page_bytes;
  }
  void* take_pages(std::size_t bytes) noexcept override {
    return libc_malloc().memalign(system_page_bytes, bytes);
  }
  void give_back_pages(void* pages, std::size_t bytes) noexcept override {
    libc_malloc().free(pages);
    given_back_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void release_pages(SlicePacer&) noexcept override {}  // nothing is kept
  bool decays() const noexcept override { return false; }
  PagesUsage pages_usage() const noexcept override {
    return {0, given_back_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> given_back_{0};
};

}  // namespace

Heap& system_heap() {
  static Heap* const heap = new SystemHeap;
  return *heap;
}

}  // namespace spillway
