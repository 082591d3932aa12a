#include "allocator/retention.h"

#include <sys/mman.h>

#include <algorithm>

#include "allocator/heaps.h"

namespace spillway {

namespace {
// Set once before there are threads that take blocks; tests set it again between two.
std::atomic<Retention::OnChange> change_hook{nullptr};
std::atomic<void*> change_context{nullptr};
std::int64_t busy_at_ns = 0;  // review()'s own

void report_change() noexcept {
  if (const auto hook = change_hook.load(std::memory_order_acquire)) hook(change_context.load());
}
}  // namespace

void Retention::set_up(std::uint64_t room_bytes, OnChange on_change, void* context) noexcept {
  change_hook.store(nullptr);
  change_context.store(context);
  change_hook.store(on_change, std::memory_order_release);
  most_.store(room_bytes == 0 ? UINT64_MAX : room_bytes / 2);
  look_after_.store(room_bytes == 0 ? UINT64_MAX : room_bytes / 16);
  since_look_.store(0);
  state_.store(State::keep);
  busy_at_ns = 0;
}

Retention::Pass::~Pass() {
  auto before = State::give_back;
  if (ending_) state_.compare_exchange_strong(before, State::gone);
}

void Retention::end() noexcept {
  auto before = State::keep;
  if (!state_.compare_exchange_strong(before, State::give_back)) return;
  ended_.fetch_add(1, std::memory_order_relaxed);
  report_change();
}

// Until the next look a sixteenth of the room may be taken, and until what is kept is gone, another one.
void Retention::look() noexcept {
  since_look_.store(0, std::memory_order_relaxed);
  std::uint64_t kept = 0;
  for (const Heap* heap : linked_heaps()) kept += heap->usage().kept_bytes;
  if (in_use_bytes() + kept > most_.load(std::memory_order_relaxed) / 4 * 7) end();
}

void Retention::review(std::int64_t now_ns) noexcept {
  const std::uint64_t most = most_.load(std::memory_order_relaxed);
  if (allowed()) return;
  if (in_use_bytes() > most / 4 * 3 || busy_at_ns == 0) busy_at_ns = now_ns;
  if (most != UINT64_MAX && now_ns - busy_at_ns < calm_ns) return;
  busy_at_ns = 0;
  state_.store(State::keep);
  report_change();
}

void discard_pages(void* pages, std::size_t bytes) noexcept {
  auto* at = static_cast<std::uint8_t*>(pages);
  for (std::size_t done = 0; done < bytes; done += release_slice_bytes) {
    ::madvise(at + done, std::min(bytes - done, release_slice_bytes), MADV_DONTNEED);
  }
}

}  // namespace spillway
