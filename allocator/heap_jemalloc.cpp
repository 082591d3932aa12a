// jemalloc: the payload's arenas are purged by the releasing thread only. Their own decay is off: it would run inside
// the next allocation, on a worker, for all memory that is due.
//
// arena.<i>.purge returns everything at once, 50 to 100 ms per GiB; so the arenas have a purge hook
// that works in slices. Meanwhile jemalloc holds no lock that an allocation waits for: it has taken
// the extents out of the arena first.
#include "allocator/heap_jemalloc.h"

#include <jemalloc/jemalloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>

#include "allocator/retention.h"
#include "allocator/spanned_heap.h"

namespace spillway {

namespace {

constexpr std::size_t jemalloc_page_bytes = 4096;
constexpr std::size_t own_arenas = 4;

// The pacer of the release under way on this thread.
thread_local SlicePacer* current_pacer = nullptr;
std::atomic<std::uint64_t> purged_bytes{0};

bool purge_in_slices(extent_hooks_t*, void* address, std::size_t, std::size_t offset,
                     std::size_t length, unsigned) noexcept {
  auto* at = static_cast<std::uint8_t*>(address) + offset;
  while (length > 0) {
    const std::size_t bytes = std::min(length, release_slice_bytes);
    if (current_pacer != nullptr) current_pacer->begin();
    const bool failed = ::madvise(at, bytes, MADV_DONTNEED) != 0;
    if (!failed) purged_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (current_pacer != nullptr) current_pacer->end(failed ? 0 : bytes);
    if (failed) return true;
    at += bytes;
    length -= bytes;
  }
  return false;
}

class WithPacer {
 public:
  explicit WithPacer(SlicePacer& pacer) noexcept { current_pacer = &pacer; }
  WithPacer(const WithPacer&) = delete;
  WithPacer& operator=(const WithPacer&) = delete;
  ~WithPacer() { current_pacer = nullptr; }
};

// "<prefix>.<arena>.<suffix>"
struct Name {
  std::array<char, 64> text;
  Name(const char* prefix, unsigned arena, const char* suffix) noexcept {
    std::snprintf(text.data(), text.size(), "%s.%u.%s", prefix, arena, suffix);
  }
};

template <class T>
T read_value(const char* name, T otherwise) noexcept {
  T value = otherwise;
  std::size_t bytes = sizeof value;
  return ::mallctl(name, &value, &bytes, nullptr, 0) == 0 ? value : otherwise;
}

template <class T>
bool write_value(const char* name, T value) noexcept {
  return ::mallctl(name, nullptr, nullptr, &value, sizeof value) == 0;
}

// Statistics are as of the last epoch.
void refresh_statistics() noexcept { write_value<std::uint64_t>("epoch", 1); }

std::uint64_t free_bytes_of(unsigned arena) noexcept {
  const auto pages = read_value<std::size_t>(Name("stats.arenas", arena, "pdirty").text.data(), 0) +
                     read_value<std::size_t>(Name("stats.arenas", arena, "pmuzzy").text.data(), 0);
  return std::uint64_t{pages} * jemalloc_page_bytes;
}

void purge(unsigned arena) noexcept {
  ::mallctl(Name("arena", arena, "purge").text.data(), nullptr, nullptr, nullptr, 0);
}

// An arena's hooks with the purge replaced. The table lives as long as the arena.
bool install_hooks(unsigned arena, extent_hooks_t& table) noexcept {
  const Name name("arena", arena, "extent_hooks");
  auto* hooks = read_value<extent_hooks_t*>(name.text.data(), nullptr);
  if (hooks == nullptr) return false;
  if (hooks == &table) return true;
  table = *hooks;
  table.purge_forced = purge_in_slices;
  return write_value<extent_hooks_t*>(name.text.data(), &table);
}

class JemallocHeap final : public SpannedHeap {
 public:
  JemallocHeap() : SpannedHeap("jemalloc") {
    for (unsigned& arena : arenas_) {
      arena = read_value<unsigned>("arenas.create", 0);
      if (arena == 0) continue;  // no memory: malloc's own arena serves; nothing here purges it
      install_hooks(arena, hooks_);
      // No sbrk() when the kernel has no mapping left: glibc's malloc uses it, too, under another lock.
      write_value<const char*>(Name("arena", arena, "dss").text.data(), "disabled");
      write_value<ssize_t>(Name("arena", arena, "dirty_decay_ms").text.data(), never_ms);
    }
  }

  bool decays() const noexcept override { return true; }

 protected:
  // jemalloc's large classes: four to a doubling.
  std::size_t pages_bytes(std::size_t bytes) const noexcept override {
    const std::size_t step = std::bit_ceil(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }
  void* take_pages(std::size_t bytes) noexcept override {
    return ::mallocx(
        bytes, MALLOCX_ARENA(arena_of_thread()) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(jemalloc_page_bytes));
  }
  void give_back_pages(void* pages, std::size_t bytes) noexcept override {
    // Before the arena gets it: the arena may leave the purge to another thread that is purging already.
    if (!Retention::allowed()) discard_pages(pages, bytes);
    ::dallocx(pages, MALLOCX_TCACHE_NONE);
  }
  void release_pages(SlicePacer& pacer) noexcept override {
    const WithPacer paced(pacer);
    set_decay(Retention::allowed() ? never_ms : at_once_ms);
    for (const unsigned arena : arenas_) {
      if (arena != 0 && pacer.more()) purge(arena);
    }
  }
  PagesUsage pages_usage() const noexcept override {
    refresh_statistics();
    PagesUsage usage;
    for (const unsigned arena : arenas_) {
      if (arena != 0) usage.kept_bytes += free_bytes_of(arena);
    }
    usage.given_back_bytes = purged_bytes.load(std::memory_order_relaxed);
    return usage;
  }

 private:
  static constexpr ssize_t never_ms = -1, at_once_ms = 0;

  // On the releasing thread. Purging is immediate: pages count as given back when they are freed.
  void set_decay(ssize_t decay_ms) noexcept {
    if (decay_ms == decay_ms_) return;
    decay_ms_ = decay_ms;
    for (const unsigned arena : arenas_) {
      if (arena != 0)
        write_value<ssize_t>(Name("arena", arena, "dirty_decay_ms").text.data(), decay_ms);
    }
  }
  unsigned arena_of_thread() noexcept {
    thread_local const std::size_t mine = next_thread_.fetch_add(1, std::memory_order_relaxed);
    return arenas_[mine % own_arenas];
  }

  std::array<unsigned, own_arenas> arenas_{};
  extent_hooks_t hooks_{};
  ssize_t decay_ms_ = never_ms;
  std::atomic<std::size_t> next_thread_{0};
};

}  // namespace

Heap& jemalloc_heap() {
  static Heap* const heap = new JemallocHeap;
  return *heap;
}

namespace jemalloc_plain {

namespace {
unsigned automatic_arenas() noexcept { return read_value<unsigned>("opt.narenas", 1); }
}  // namespace

void flush_thread_cache() noexcept {
  ::mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
}

void release(SlicePacer& pacer) noexcept {
  static extent_hooks_t hooks;
  const WithPacer paced(pacer);
  refresh_statistics();
  for (unsigned arena = 0; arena < automatic_arenas() && pacer.more(); ++arena) {
    if (free_bytes_of(arena) == 0) continue;
    install_hooks(arena, hooks);
    purge(arena);
  }
}

HeapUsage usage() noexcept {
  refresh_statistics();
  HeapUsage usage;
  for (unsigned arena = 0; arena < automatic_arenas(); ++arena) {
    usage.kept_bytes += free_bytes_of(arena);
    usage.in_use_bytes +=
        read_value<std::size_t>(Name("stats.arenas", arena, "small.allocated").text.data(), 0) +
        read_value<std::size_t>(Name("stats.arenas", arena, "large.allocated").text.data(), 0);
  }
  return usage;
}

}  // namespace jemalloc_plain

}  // namespace spillway
