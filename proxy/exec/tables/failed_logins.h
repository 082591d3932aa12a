// FailedLogins: slows down attempts to guess passwords. It counts failures in a row of one user's logins from one
// address. Beyond the allowed number the next attempts are refused unchecked, for a time that doubles with each
// further failure. So an attacker cannot shut a user out of other addresses.
//
// Thread-safe; used once or twice per login. Beyond `pairs_max` pairs, the least recently used of those below the
// allowed number is forgotten first, so that made-up names do not end a user's wait. Those beyond it keep at most half
// of the places: if they had all, the first failures of two names would push out each other, and never add up.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"
#include "proxy/base/clock.h"
#include "proxy/base/log_pace.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

class FailedLogins {
 public:
  explicit FailedLogins(std::size_t pairs_max = 16'384) : pairs_max_(pairs_max) {}

  // 0 allowed: nothing is counted or refused. May change at any time.
  std::atomic<std::int64_t> allowed{10};
  static constexpr Duration wait_max = std::chrono::minutes(1);

  // How long this user must wait at this address; zero: not at all. Counts a refusal.
  Duration refused_for(std::string_view address, std::string_view user, TimePoint now);
  void failed(std::string_view address, std::string_view user, TimePoint now);
  void succeeded(std::string_view address, std::string_view user);

  std::uint64_t refused() const noexcept { return refused_.value(); }
  std::size_t tracked() const;
  log::LogPace log_pace;

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // two hashes: names may be long
  struct Pair {
    Key key;
    std::int64_t failures = 0;
    TimePoint last{};
    TimePoint not_before{};
    bool waits = false;  // which list it is in
  };
  using Pairs = std::list<Pair>;  // the longest untouched last
  static Key key_of(std::string_view address, std::string_view user);
  Duration wait_after(std::int64_t failures) const noexcept;
  Pairs& list_of(const Pair& pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pair.waits ? waiting_ : counted_; }
  void forget(Pairs::iterator pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::size_t pairs_max_;
  Counter refused_;
  mutable Mutex mutex_;
  Pairs counted_ ABSL_GUARDED_BY(mutex_);  // below the allowed number
  Pairs waiting_ ABSL_GUARDED_BY(mutex_);  // beyond it
  absl::flat_hash_map<Key, Pairs::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace spillway::exec
