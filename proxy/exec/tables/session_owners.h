// The owners of logical sessions. The shards of a static table see one user, the router's own, so the router itself
// refuses another user's lsid. Those of a cluster are told the user.
//
// Thread-safe, striped by lsid. An entry lives for as long as shards keep a session: 30 minutes after its
// last use. When the table is full, the user with most sessions loses the least recently used one: so no user is kept
// out, and a user that fills the table only hurts itself. (A forgotten session only loses its protection: another
// user might use its id, which cannot be guessed.)
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"
#include "cursor/session_id.h"
#include "proxy/base/clock.h"

namespace spillway::exec {

class SessionOwners {
 public:
  static constexpr Duration lifetime = std::chrono::minutes(30);
  static constexpr std::size_t entries_max = 200'000;
  static constexpr std::size_t entry_bytes = 128;  // memory of an entry, at most

  explicit SessionOwners(std::size_t capacity = entries_max) { set_capacity(capacity); }
  // Before the first use.
  void set_capacity(std::size_t capacity) noexcept;

  enum class Claim : std::uint8_t { own, another_users };
  // From now on the session is this user's, unless another user owns it.
  Claim claim(const SessionId& session, std::string_view user, TimePoint now);
  // Is it a live session of another user?
  bool is_another_users(const SessionId& session, std::string_view user, TimePoint now) const;
  bool is_of(const SessionId& session, std::string_view user) const;
  // The user has ended it.
  void release(const SessionId& session, std::string_view user);
  // At most `most`.
  std::vector<SessionId> of(std::string_view user, std::size_t most) const;
  std::size_t size() const;

 private:
  static constexpr std::size_t stripe_count = 16;
  struct Entry {
    SessionId session;
    std::uint64_t user;  // a hash: users are few, and named by the operator
    TimePoint last_used;
  };
  using Sessions = std::list<Entry>;  // of one user, the longest unused first
  struct alignas(64) Stripe {
    mutable Mutex mutex;
    absl::flat_hash_map<SessionId, Sessions::iterator> entries ABSL_GUARDED_BY(mutex);
    absl::flat_hash_map<std::uint64_t, Sessions> holders ABSL_GUARDED_BY(mutex);  // by user; none is empty
    std::size_t sweep_at ABSL_GUARDED_BY(mutex) = 256;  // the size for the next sweep of expired ones
    TimePoint next_sweep ABSL_GUARDED_BY(mutex){};      // and not before

    void add(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void erase(Sessions::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void drop_expired(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void drop_oldest_of_largest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };
  static std::size_t stripe_of(const SessionId& session) noexcept { return session[1] % stripe_count; }

  std::size_t stripe_entries_max_;
  std::array<Stripe, stripe_count> stripes_;
};

}  // namespace spillway::exec
