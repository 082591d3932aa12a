// The cluster's time as this router knows it: the highest of what servers and clients told it. One for the process.
// Thread-safe. Time on the wall is a parameter (seconds since the Unix epoch). Source: mongod's logical_clock.cpp,
// logical_time_validator.cpp and mongos's strategy.cpp (4.2).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "allocator/mutex.h"
#include "proxy/auth/cluster_time.h"

namespace spillway::auth {

// May a peer say what time it is?
enum class TimeTrust : std::uint8_t {
  stranger,  // a client that has not logged in, where it must: zeros are ignored (a mongod's rule; a mongos refuses)
  user,      // its times must be signed
  full,      // authorization is off, or it has the action advanceClusterTime: times bear no signature
};

class LogicalClock {
 public:
  // maxAcceptableLogicalClockDriftSecs: how far ahead of the wall a time may be.
  static constexpr std::uint32_t drift_secs_default = 365 * 24 * 3'600;
  // Before the first time is heard.
  void set_drift_secs_max(std::int64_t secs) noexcept { drift_secs_max_ = secs; }

  // 0: nothing was heard yet.
  std::uint64_t now() const noexcept { return now_.load(std::memory_order_relaxed); }

  // A server's time. False: it is too far ahead of the wall, and was not taken.
  bool hear(const ClusterTime& time, std::int64_t wall_secs);

  // A client's time. ClusterTimeFailsRateLimiter(205), 40484; for users TimeProofMismatch(204), KeyNotFound(211): then
  // the keys may be read again, and this be tried once more. Without any keys, a user's time ahead of ours is not
  // taken, and no error: a server would have to check it.
  Result<void> take(const ClusterTime& time, TimeTrust trust, std::int64_t wall_secs);

  // Null: this router may not read them.
  void use_keys(ClusterKeys::Ptr keys);
  ClusterKeys::Ptr keys() const;

  // What a client is told; nullopt: nothing. Without a key for this time: the highest time that a server signed.
  std::optional<ClusterTime> for_client(TimeTrust trust) const;
  // What servers are told, which trust this router (__system, or authorization is off) or do not.
  std::optional<ClusterTime> for_server(bool trusts_us) const;

 private:
  Result<void> advance(std::uint64_t time, std::int64_t wall_secs);
  // Our signature, else a server's of an earlier time.
  std::optional<ClusterTime> signed_now() const;

  std::int64_t drift_secs_max_ = drift_secs_default;
  std::atomic<std::uint64_t> now_ = 0;
  mutable Mutex mutex_;
  ClusterKeys::Ptr keys_ ABSL_GUARDED_BY(mutex_);
  ClusterTime heard_ ABSL_GUARDED_BY(mutex_);         // the highest that a server signed
  mutable ClusterTime made_ ABSL_GUARDED_BY(mutex_);  // our last signature: of most times within a second
};

}  // namespace spillway::auth
