#include "proxy/exec/tables/failed_logins.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "absl/hash/hash.h"

namespace spillway::exec {

namespace {
// Failures are in a row while there is less than this between two.
constexpr Duration forgotten_after = std::chrono::minutes(15);
constexpr Duration first_wait = std::chrono::seconds(1);
constexpr std::int64_t doublings_max = 30;
}  // namespace

FailedLogins::Key FailedLogins::key_of(std::string_view address, std::string_view user) {
  return {absl::HashOf(address, user), absl::HashOf(user, std::string_view("at"), address)};
}

Duration FailedLogins::wait_after(std::int64_t failures) const noexcept {
  const std::int64_t beyond = failures - allowed.load(std::memory_order_relaxed);
  if (beyond < 0) return Duration::zero();
  return std::min(wait_max, Duration(first_wait * (std::int64_t{1} << std::min(beyond, doublings_max))));
}

Duration FailedLogins::refused_for(std::string_view address, std::string_view user, TimePoint now) {
  if (allowed.load(std::memory_order_relaxed) == 0) return Duration::zero();
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key_of(address, user));
  if (found == by_key_.end() || found->second->not_before <= now) return Duration::zero();
  refused_.add();
  return found->second->not_before - now;
}

void FailedLogins::failed(std::string_view address, std::string_view user, TimePoint now) {
  if (allowed.load(std::memory_order_relaxed) == 0) return;
  const Key key = key_of(address, user);
  MutexLock lock(mutex_);
  auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (by_key_.size() >= pairs_max_) {
      forget(std::prev(waiting_.size() > pairs_max_ / 2 ? waiting_.end() : counted_.end()));
    }
    counted_.push_front({key, 0, now, {}});
    found = by_key_.emplace(key, counted_.begin()).first;
  }
  Pair& pair = *found->second;
  Pairs& before = list_of(pair);
  if (now - pair.last >= forgotten_after) pair.failures = 0;
  pair.last = now;
  const Duration wait = wait_after(++pair.failures);
  pair.not_before = now + wait;
  pair.waits = wait > Duration::zero();
  Pairs& after = list_of(pair);
  after.splice(after.begin(), before, found->second);
}

void FailedLogins::succeeded(std::string_view address, std::string_view user) {
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key_of(address, user));
  if (found != by_key_.end()) forget(found->second);
}

void FailedLogins::forget(Pairs::iterator pair) {
  by_key_.erase(pair->key);
  list_of(*pair).erase(pair);
}

std::size_t FailedLogins::tracked() const {
  MutexLock lock(mutex_);
  return by_key_.size();
}

}  // namespace spillway::exec
