#include "proxy/server/establishment.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proxy/base/log.h"

namespace spillway::server {

namespace {
// Settings may change, and those who wait may leave.
constexpr Duration ask_again_max = std::chrono::milliseconds(100);

bool has_left(const FileDescriptor& socket) noexcept {
  pollfd look{socket.get(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}
}  // namespace

Establishment::Verdict Establishment::offer(Comer& comer, bool exempt, TimePoint now) {
  const bool enabled = limiter_.enabled.load(std::memory_order_relaxed);
  if (!enabled) return Verdict::enters;
  if (exempt) {
    limiter_.exempted.add();
    return Verdict::enters;
  }
  limiter_.attempted.add();
  if (queue_.empty() && limiter_.try_take(now)) {
    limiter_.successful.add();
    return Verdict::enters;
  }
  const auto room = static_cast<std::size_t>(limiter_.queue_max.load(std::memory_order_relaxed));
  if (queue_.size() >= room && now - looked_at_ >= ask_again_max) {
    looked_at_ = now;
    drop_absent();
  }
  if (queue_.size() >= room) {
    limiter_.rejected.add();
    if (const auto unwritten = limiter_.log_pace.due(now)) {
      log::warning("connection closed: ingressConnectionEstablishmentRatePerSec ({}) is reached, and the queue ({}) is full; "
                   "{} more since the last such line",
                   limiter_.per_second.load(), room, *unwritten);
    }
    return Verdict::is_closed;
  }
  limiter_.added_to_queue.add();
  comer.since = now;
  queue_.push_back(std::move(comer));
  shared_.connections_queued.fetch_add(1, std::memory_order_relaxed);
  return Verdict::waits;
}

Establishment::Comer Establishment::take_first() {
  Comer comer = std::move(queue_.front());
  queue_.pop_front();
  limiter_.removed_from_queue.add();
  shared_.connections_queued.fetch_sub(1, std::memory_order_relaxed);
  return comer;
}

std::optional<Establishment::Comer> Establishment::next(TimePoint now) {
  while (!queue_.empty()) {
    if (has_left(queue_.front().socket)) {
      take_first();
      limiter_.interrupted.add();
      continue;
    }
    const bool enabled = limiter_.enabled.load(std::memory_order_relaxed);
    if (enabled && !limiter_.try_take(now)) return std::nullopt;
    Comer comer = take_first();
    limiter_.successful.add();
    limiter_.note_wait(now - comer.since);
    return comer;
  }
  return std::nullopt;
}

std::optional<Duration> Establishment::ask_again_in(TimePoint now) const {
  if (queue_.empty()) return std::nullopt;
  return std::min(limiter_.wait(now), ask_again_max);
}

void Establishment::drop_absent() {
  const auto left = std::stable_partition(queue_.begin(), queue_.end(),
                                          [](const Comer& comer) { return !has_left(comer.socket); });
  const auto dropped = std::distance(left, queue_.end());
  queue_.erase(left, queue_.end());
  limiter_.interrupted.add(static_cast<std::uint64_t>(dropped));
  limiter_.removed_from_queue.add(static_cast<std::uint64_t>(dropped));
  shared_.connections_queued.fetch_sub(dropped, std::memory_order_relaxed);
}

void Establishment::close_all() {
  while (!queue_.empty()) take_first();
}

}  // namespace spillway::server
