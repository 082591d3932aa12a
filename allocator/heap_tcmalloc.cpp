// gperftools' tcmalloc: blocks of 1 MiB and more come from its page heap, which keeps what is freed
// until told otherwise.
//
// ReleaseToSystem(1 MiB) gives back whole spans with the page heap's lock held, and free neighbours
// are one span: it held the lock for 34 ms over 512 MB. So pieces of 1 MiB are taken out of the page heap as blocks
// and given to the system outside the lock. When no piece is left they are freed, with aggressive decommit switched
// on for that moment: the page heap then books them as returned, at the cost of an madvise of pages that are gone
// already.
#include "allocator/heap_tcmalloc.h"

#include <gperftools/malloc_extension.h>
#include <gperftools/tcmalloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#include "allocator/retention.h"
#include "allocator/spanned_heap.h"

namespace spillway {

namespace {

constexpr std::size_t tcmalloc_page_bytes = 8192;  // tcmalloc's, the least it gives out and takes back
// Sizes of pieces. A large span that has no pages any more may fit better than one that still has: large pieces use
// it up in few steps.
constexpr std::array<std::size_t, 3> piece_sizes = {32 * release_slice_bytes,
                                                    4 * release_slice_bytes, release_slice_bytes};
// After this number of growths for one piece no span of this size is free: the heap grows for other threads, too.
constexpr int growths_max = 3;
// More than this is not left to ReleaseToSystem.
constexpr std::uint64_t small_rest_bytes = 8 * release_slice_bytes;
// Rounds that fetch what other threads freed meanwhile.
constexpr int rounds_max = 16;
// Freed in one slice.
constexpr std::size_t freed_pieces = 16;

std::uint64_t property(const char* name) noexcept {
  std::size_t value = 0;
  MallocExtension::instance()->GetNumericProperty(name, &value);
  return value;
}

std::uint64_t page_heap_free_bytes() noexcept { return property("tcmalloc.pageheap_free_bytes"); }

// tcmalloc grows by sbrk() unless told otherwise. So does glibc's malloc, each under a lock of its
// own, and sbrk() is not thread-safe: one of them could set the break back below what the other had
// just been given. Here it grows through addresses that are reserved ahead, so that what it gets in
// turn is one free span once it is freed. It calls with a lock held.
class MappedMemory final : public SysAllocator {
 public:
  void* Alloc(std::size_t size, std::size_t* actual_size, std::size_t alignment) override {
    alignment = std::max(alignment, tcmalloc_page_bytes);
    if (size > static_cast<std::size_t>(PTRDIFF_MAX) - ahead_bytes - alignment) return nullptr;
    const std::size_t bytes = round_up(size, tcmalloc_page_bytes);
    std::uintptr_t begin = round_up(next_, alignment);
    if (next_ == 0 || begin > end_ || end_ - begin < bytes) {
      if (!reserve(std::max(bytes, ahead_bytes) + alignment) && !reserve(bytes + alignment)) {
        return nullptr;
      }
      begin = round_up(next_, alignment);
    }
    next_ = begin + bytes;
    if (actual_size != nullptr) *actual_size = bytes;
    return reinterpret_cast<void*>(begin);
  }

 private:
  static constexpr std::size_t ahead_bytes = std::size_t{256} << 20;

  static std::uintptr_t round_up(std::uintptr_t value, std::size_t to) noexcept {
    return (value + to - 1) / to * to;
  }
  // What is left of the range before is addresses, not memory.
  bool reserve(std::size_t bytes) noexcept {
    void* const range = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return false;
    next_ = reinterpret_cast<std::uintptr_t>(range);
    end_ = next_ + bytes;
    return true;
  }

  std::uintptr_t next_ = 0, end_ = 0;
};

void set_aggressive_decommit(bool on) noexcept {
  MallocExtension::instance()->SetNumericProperty("tcmalloc.aggressive_memory_decommit",
                                                  on ? 1 : 0);
}

std::atomic<std::uint64_t> released_bytes{0};

void discard_pages(void* block, std::size_t bytes, SlicePacer& pacer) noexcept {
  auto* at = static_cast<std::uint8_t*>(block);
  for (std::size_t done = 0; done < bytes; done += release_slice_bytes) {
    const std::size_t slice = std::min(bytes - done, release_slice_bytes);
    pacer.begin();
    ::madvise(at + done, slice, MADV_DONTNEED);
    released_bytes.fetch_add(slice, std::memory_order_relaxed);
    pacer.end(slice);
  }
}

// Free spans of a MiB and more, out of the page heap and out of memory. Held until free().
class CarvedPieces {
 public:
  explicit CarvedPieces(std::size_t most) noexcept
      : most_(most), pieces_(new (std::nothrow) void*[most]) {}

  void carve(SlicePacer& pacer) noexcept {
    for (const std::size_t bytes : piece_sizes) {
      int growths = 0;
      while (!full() && growths < growths_max && pacer.more()) {
        const std::uint64_t before = page_heap_free_bytes();
        if (before < bytes) break;
        const std::uint64_t heap_bytes = property("generic.heap_size");
        void* piece = ::tc_malloc(bytes);
        if (piece == nullptr) return;
        add(piece);
        if (property("generic.heap_size") > heap_bytes) ++growths;
        // Otherwise the piece comes from an unmapped span: nothing to discard.
        if (page_heap_free_bytes() < before) discard_pages(piece, bytes, pacer);
      }
    }
  }

  bool full() const noexcept { return !pieces_ || count_ == most_; }
  // A block of any size whose pages are gone. REQUIRES !full()
  void add(void* block) noexcept { pieces_[count_++] = block; }

  // Frees them as returned memory. While heaps keep nothing, every block is freed in this way; its pages are gone
  // before.
  void free(SlicePacer& pacer) noexcept {
    set_aggressive_decommit(true);
    while (count_ > 0) {
      const std::size_t last = count_ > freed_pieces ? count_ - freed_pieces : 0;
      pacer.begin();
      while (count_ > last) ::tc_free(pieces_[--count_]);
      pacer.end(0);
    }
    set_aggressive_decommit(!Retention::allowed());
  }

 private:
  std::size_t most_;
  std::size_t count_ = 0;
  std::unique_ptr<void*[]> pieces_;
};

// Blocks that were given back while a release is under way. Freed into the page heap, they would
// become neighbours of pieces that are freed with their pages gone, and be returned with them: at
// once, and with the lock held. They wait here instead, resident, linked through their first bytes.
class WaitingBlocks {
 public:
  struct Link {
    Link* next;
    std::size_t bytes;
    bool gone;  // its pages, but for the first
  };

  // False: no release is under way, the block is the caller's to free.
  bool keep(void* block, std::size_t bytes, bool gone) noexcept {
    if (!open_.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(mutex_);
    if (!open_.load(std::memory_order_relaxed)) return false;
    push(new (block) Link{nullptr, bytes, gone});
    return true;
  }
  void open() noexcept { open_.store(true, std::memory_order_release); }
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    open_.store(false, std::memory_order_release);
  }
  Link* pop() noexcept {
    const std::lock_guard lock(mutex_);
    Link* const link = first_;
    if (link == nullptr) return nullptr;
    first_ = link->next;
    bytes_.fetch_sub(link->bytes, std::memory_order_relaxed);
    return link;
  }
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  void push(Link* link) noexcept {
    link->next = first_;
    first_ = link;
    bytes_.fetch_add(link->bytes, std::memory_order_relaxed);
  }

  std::atomic<bool> open_{false};
  std::atomic<std::uint64_t> bytes_{0};
  std::mutex mutex_;
  Link* first_ = nullptr;
};

// Spans of less than a MiB, when little else is free: a large one would hold the lock.
void release_small_spans(SlicePacer& pacer) noexcept {
  std::uint64_t before = page_heap_free_bytes();
  // A call may only work off what an earlier one gave back too much: several without effect mean
  // the end.
  int idle_calls = 0;
  while (before > 0 && before <= small_rest_bytes && idle_calls < 16 && pacer.more()) {
    pacer.begin();
    MallocExtension::instance()->ReleaseToSystem(release_slice_bytes);
    const std::uint64_t after = page_heap_free_bytes();
    const std::uint64_t gone = before > after ? before - after : 0;
    released_bytes.fetch_add(gone, std::memory_order_relaxed);
    pacer.end(gone);
    idle_calls = gone == 0 ? idle_calls + 1 : 0;
    before = after;
  }
}

class TcmallocHeap final : public SpannedHeap {
 public:
  TcmallocHeap() : SpannedHeap("tcmalloc") {
    MallocExtension::instance()->SetSystemAllocator(new MappedMemory);
    // Its own occasional release happens in whichever free comes next, lock held.
    MallocExtension::instance()->SetMemoryReleaseRate(0);
  }

  bool decays() const noexcept override { return false; }

 protected:
  std::size_t pages_bytes(std::size_t bytes) const noexcept override {
    return (bytes + tcmalloc_page_bytes - 1) / tcmalloc_page_bytes * tcmalloc_page_bytes;
  }
  void* take_pages(std::size_t bytes) noexcept override { return ::tc_malloc(bytes); }
  void give_back_pages(void* pages, std::size_t bytes) noexcept override {
    const bool gone = !Retention::allowed();
    if (gone) {
      spillway::discard_pages(pages, bytes);
      released_bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    if (!waiting_.keep(pages, bytes, gone)) ::tc_free(pages);
  }
  void release_pages(SlicePacer& pacer) noexcept override {
    constexpr std::size_t room_for_others = 4096;
    const std::uint64_t free_bytes =
        page_heap_free_bytes() + property("tcmalloc.pageheap_unmapped_bytes");
    CarvedPieces pieces(static_cast<std::size_t>(free_bytes / release_slice_bytes) +
                        room_for_others);
    if (Retention::allowed()) set_aggressive_decommit(false);
    waiting_.open();
    pieces.carve(pacer);
    for (int round = 0; round < rounds_max && waiting_.bytes() > 0; ++round) {
      discard_waiting(pieces, pacer);
    }
    release_small_spans(pacer);
    pieces.free(pacer);
    waiting_.close();
    while (WaitingBlocks::Link* left = waiting_.pop()) ::tc_free(left);
  }
  PagesUsage pages_usage() const noexcept override {
    return {page_heap_free_bytes() + waiting_.bytes(),
            released_bytes.load(std::memory_order_relaxed)};
  }

 private:
  // As many as wait now.
  void discard_waiting(CarvedPieces& pieces, SlicePacer& pacer) noexcept {
    for (std::uint64_t left = waiting_.bytes(); left > 0 && !pieces.full() && pacer.more();) {
      WaitingBlocks::Link* const block = waiting_.pop();
      if (block == nullptr) return;
      const std::size_t bytes = block->bytes;
      left -= std::min<std::uint64_t>(left, bytes);
      discard_pages(block, block->gone ? tcmalloc_page_bytes : bytes, pacer);
      pieces.add(block);
    }
  }

  WaitingBlocks waiting_;
};

}  // namespace

Heap& tcmalloc_heap() {
  static Heap* const heap = new TcmallocHeap;
  return *heap;
}

namespace tcmalloc_plain {

void flush_thread_cache() noexcept { MallocExtension::instance()->MarkThreadIdle(); }

HeapUsage usage() noexcept {
  HeapUsage usage;
  usage.in_use_bytes = property("generic.current_allocated_bytes");
  usage.kept_bytes = property("tcmalloc.central_cache_free_bytes") +
                     property("tcmalloc.transfer_cache_free_bytes") +
                     property("tcmalloc.thread_cache_free_bytes");
  return usage;
}

}  // namespace tcmalloc_plain

}  // namespace spillway
