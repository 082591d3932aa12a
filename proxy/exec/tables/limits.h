// Limits: what one user, one address may have at once, over all workers (the key
// `limits` of the configuration): connections, cursors, buffered bytes, operations per second.
//
// Thread-safe. A key (a user's id, an address) is looked up when a connection
// learns it; from then on its counters are reached through a LimitHandle: no lock, no memory, per
// operation. Everything is counted at all times, so that a reload can limit what exists already. An unused entry is
// forgotten as soon as its bucket is full again; beyond `idle_max` entries the longest unused goes first: the table
// does not grow with past addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"
#include "cursor/cursor_charge.h"
#include "cursor/error.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log_pace.h"
#include "proxy/base/token_bucket.h"
#include "proxy/config/limit_settings.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

enum class LimitOf : std::uint8_t { connections, cursors, buffered_bytes, operations };
inline constexpr std::size_t limited_things = 4;

std::string_view name_of(LimitOf thing) noexcept;     // "operationsPerSecond"

// A key's use and limits. A reload replaces the limits: read them once per decision.
struct alignas(64) LimitEntry {
  std::array<std::atomic<std::int64_t>, 3> used{};  // by LimitOf, without operations
  std::array<std::atomic<std::int64_t>, 3> most{};
  std::atomic<std::int64_t> interval_ns{0}, slack_ns{0};
  TokenBucket operations;

  // Under the table's lock.
  std::size_t handles = 0;
  std::uint64_t idle_stamp = 0;
  LimitKey key = LimitKey::user;
  std::string name;

  BucketPace pace() const noexcept {
    return {interval_ns.load(std::memory_order_relaxed), slack_ns.load(std::memory_order_relaxed)};
  }
  // Adds, unless that would be more than is allowed.
  bool try_add(LimitOf thing, std::int64_t change) noexcept;
  void add(LimitOf thing, std::int64_t change) noexcept {
    used[static_cast<std::size_t>(thing)].fetch_add(change, std::memory_order_relaxed);
  }
  bool at_most(LimitOf thing) const noexcept;  // true: no room for one more
};

class Limits;

// Keeps an entry while it lives. Not thread-safe itself; may end on another thread.
class LimitHandle {
 public:
  LimitHandle() = default;
  LimitHandle(Limits& limits, LimitEntry& entry) noexcept : limits_(&limits), entry_(&entry) {}
  LimitHandle(const LimitHandle& other);
  LimitHandle(LimitHandle&& other) noexcept;
  LimitHandle& operator=(LimitHandle other) noexcept;
  ~LimitHandle();
  LimitEntry* get() const noexcept { return entry_; }
  LimitEntry* operator->() const noexcept { return entry_; }
  Limits* limits() const noexcept { return limits_; }
  explicit operator bool() const noexcept { return entry_ != nullptr; }

 private:
  Limits* limits_ = nullptr;
  LimitEntry* entry_ = nullptr;
};

struct LimitUsage {
  std::size_t tracked = 0;
  std::array<std::uint64_t, limited_things> refused{};
};

class Limits {
 public:
  explicit Limits(std::size_t idle_max = 10'000) : idle_max_(idle_max) {}
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;
  ~Limits();

  // Applies to all from now on; existing connections and cursors stay.
  void configure(LimitSettings settings);
  LimitHandle find(LimitKey key, std::string_view name);
  // An address as it is counted: IPv6 by the first 64 bits, which identify one machine.
  static std::string address_name(const IpAddress& address);

  // False: no operation is limited, and no buffered byte.
  bool looks_at_operations() const noexcept { return looks_at_operations_.load(std::memory_order_relaxed); }
  bool looks_at_bytes() const noexcept { return looks_at_bytes_.load(std::memory_order_relaxed); }

  // Counts a refusal, writes a line about it now and then, and returns it:
  // IngressRequestRateLimitExceeded(462) with the labels that tell drivers to try again.
  Error refuse(const LimitEntry& entry, LimitOf thing);
  LimitUsage usage(LimitKey key) const;

 private:
  friend class LimitHandle;
  struct Table {
    absl::flat_hash_map<std::string, std::unique_ptr<LimitEntry>> entries;
    struct Idle {
      std::string name;
      std::uint64_t stamp;
    };
    std::deque<Idle> idle;  // unused ones whose buckets are not full, the longest unused first
  };
  void keep(LimitEntry& entry);
  void release(LimitEntry& entry);
  void forget_idle(Table& table, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LimitValues values_of(LimitKey key, std::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void apply(LimitEntry& entry, const LimitValues& values) noexcept;

  const std::size_t idle_max_;
  mutable Mutex mutex_;
  LimitSettings settings_ ABSL_GUARDED_BY(mutex_);
  std::array<Table, limit_keys> tables_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_stamp_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> looks_at_operations_{false}, looks_at_bytes_{false};
  struct Refusals {
    Counter count;
    log::LogPace pace;
  };
  std::array<std::array<Refusals, limited_things>, limit_keys> refusals_;
};

// The keys of a connection at one time, to which its cursors and replies count.
class LimitAccount final : public CursorAccount {
 public:
  explicit LimitAccount(std::array<LimitHandle, limit_keys> handles) : handles_(std::move(handles)) {}
  void add_cursors(std::int64_t change) noexcept override { add(LimitOf::cursors, change); }
  void add_bytes(std::int64_t change) noexcept override { add(LimitOf::buffered_bytes, change); }
  const std::array<LimitHandle, limit_keys>& handles() const noexcept { return handles_; }
  // Counts one more open cursor, or returns the entry whose limit is reached.
  const LimitHandle* try_open_cursor() noexcept;
  // The entry that has reached its limit of bytes; null: none.
  const LimitHandle* full_of_bytes() const noexcept;

 private:
  void add(LimitOf thing, std::int64_t change) noexcept {
    for (const LimitHandle& handle : handles_) {
      if (handle) handle->add(thing, change);
    }
  }
  std::array<LimitHandle, limit_keys> handles_;
};

// One connection's part. Belongs to the connection's worker.
class ClientLimits {
 public:
  ClientLimits() = default;
  ClientLimits(const ClientLimits&) = delete;
  ClientLimits& operator=(const ClientLimits&) = delete;
  ~ClientLimits();

  // From now on the connection counts for this user or address; else the refusal, and nothing changes.
  std::optional<Error> enter(Limits& limits, LimitKey key, std::string_view name);
  void leave(LimitKey key);
  bool has(LimitKey key) const noexcept { return static_cast<bool>(handles_[static_cast<std::size_t>(key)]); }
  // Takes a token of each key; `opens_cursor`: the operation may hold more memory afterwards.
  std::optional<Error> admit(TimePoint now, bool opens_cursor);
  // For cursors and replies; null before the first enter().
  const std::shared_ptr<LimitAccount>& account();
  Limits* limits() const noexcept { return limits_; }

 private:
  Limits* limits_ = nullptr;
  std::array<LimitHandle, limit_keys> handles_;
  std::shared_ptr<LimitAccount> account_;
};

// Bytes of a reply that waits for its client to read it.
class HeldReply {
 public:
  HeldReply(ClientLimits& client, std::size_t bytes);
  HeldReply(const HeldReply&) = delete;
  HeldReply& operator=(const HeldReply&) = delete;
  ~HeldReply();

 private:
  std::shared_ptr<LimitAccount> account_;
  std::int64_t bytes_ = 0;
};

// May one more cursor be opened now? null: always.
bool may_open_cursor(const LimitAccount* account) noexcept;
// Counts a cursor that is about to become known to its client, once; an error: it must not be.
std::optional<Error> charge_cursor(CursorCharge& charge);

}  // namespace spillway::exec
