#include "proxy/base/socket_growth.h"

#include <algorithm>

#include "allocator/limits.h"

namespace spillway {

namespace {

// Of all that there is, for one socket. A shard that may send more than fits into the window sends it when this end
// reads, and this end pays for that: receiving needs four times as much as sending.
constexpr std::uint64_t receiving_part = 10;
constexpr std::uint64_t sending_part = 40;
// More saves nothing.
constexpr std::uint64_t receiving_most = 4 * limits::mib;
constexpr std::uint64_t sending_most = 2 * limits::mib;
constexpr std::uint64_t least = 64 * limits::kib;
constexpr std::uint64_t part_of_rest = 4;

std::uint64_t lendable(const BudgetUsage& payload) noexcept { return payload.limit_bytes / 4 * 3; }

std::uint64_t left_of(const BudgetUsage& usage, std::uint64_t limit_bytes) noexcept {
  return limit_bytes - std::min(limit_bytes, usage.used_bytes);
}

}  // namespace

void SocketGrowth::set_limits(std::uint64_t own_bytes, std::uint64_t borrowed_bytes) noexcept {
  own_limit_bytes_ = own_bytes;
  borrowed_limit_bytes_ = payload_ == nullptr ? 0 : std::min(borrowed_bytes, lendable(payload_->usage()));
  own_.set_limit(own_limit_bytes_);
  borrowed_.set_limit(borrowed_limit_bytes_);
}

Reservation SocketGrowth::take_for_receiving() noexcept { return take(receiving_part, receiving_most); }

Reservation SocketGrowth::take_for_sending() noexcept { return take(sending_part, sending_most); }

Reservation SocketGrowth::take(std::uint64_t part, std::uint64_t most) noexcept {
  const std::uint64_t own_left = left_of(own_.usage(), own_limit_bytes_);
  const std::uint64_t borrowed_left = left_to_borrow();
  const std::uint64_t all = own_limit_bytes_ + borrowed_limit_bytes_;
  const std::uint64_t wanted = std::min({most, all / part, (own_left + borrowed_left) / part_of_rest});
  const bool from_own = own_left >= std::min(wanted, borrowed_left);
  const std::uint64_t bytes = std::min(wanted, from_own ? own_left : borrowed_left);
  if (bytes < least) return {};
  return (from_own ? own_ : borrowed_).try_reserve(bytes).value_or(Reservation());
}

// A refusal by the payload's budget would count as a client's.
std::uint64_t SocketGrowth::left_to_borrow() const noexcept {
  if (borrowed_limit_bytes_ == 0) return 0;
  const BudgetUsage payload = payload_->usage();
  return std::min(left_of(borrowed_.usage(), borrowed_limit_bytes_), left_of(payload, lendable(payload)));
}

bool SocketGrowth::wants_back(const Reservation& taken) const noexcept {
  if (taken.budget() != &borrowed_) return false;
  const BudgetUsage payload = payload_->usage();
  return payload.used_bytes > payload.limit_bytes / 8 * 7;
}

}  // namespace spillway
