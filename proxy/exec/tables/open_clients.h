// OpenClients: which programs have a connection open, so that a cursor whose program is gone can end
// early.
//
// A cursor has a client as long as a connection is open with the same client metadata, from anywhere, of the cursor's
// user or of no user (a driver's monitor does not log in), or one that has used the cursor's session. This is a guess
// on the safe side: addresses do not identify programs (NAT pools, two load balancers, temporary IPv6 addresses), and
// other instances of a program that is gone keep its cursors until these time out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "allocator/mutex.h"
#include "cursor/bson_view.h"
#include "cursor/cursor.h"
#include "cursor/session_id.h"

namespace spillway::exec {

// Thread-safe: shared by the workers. Holds only counts.
class OpenClients {
 public:
  void join(std::uint64_t key);
  void leave(std::uint64_t key);
  bool has_client(const ClusterCursor& cursor) const;
  // By its last connection or its session alone.
  bool has_connection(const ClusterCursor& cursor) const;
  // Rises when the last connection of a program or a session has gone: cursors may have lost theirs.
  std::uint64_t departures() const noexcept { return departures_.load(std::memory_order_acquire); }

 private:
  bool has_session(const ClusterCursor& cursor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  // How many connections share a key: of a program, of a session.
  absl::flat_hash_map<std::uint64_t, std::uint32_t> counts_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> departures_{0};
};

// One connection's part in it. Belongs to the connection's worker; leaves when destroyed.
class ClientPresence {
 public:
  ClientPresence() = default;
  ClientPresence(const ClientPresence&) = delete;
  ClientPresence& operator=(const ClientPresence&) = delete;
  ~ClientPresence();

  // Once, before anything else. `peer` is "address:port".
  void attach(OpenClients& all, std::string_view peer, std::int64_t connection_id, bool load_balanced);
  // With hello's client document.
  void identify(std::string_view application, Bytes metadata);
  // The connection has logged in as this user, or out (empty).
  void set_user(std::string_view user);
  // Call for each command with a session. The lsid document's bytes, with a UUID.
  void note_session(std::string_view lsid) {
    const SessionId session = session_id_of(session_uuid(DocView::trusted(lsid.data())));
    if (session != last_session_ && all_ != nullptr) change_session(session);
  }
  // Those that this user has used on the connection, with the wall clock's milliseconds when it last changed to each.
  const absl::flat_hash_map<SessionId, std::int64_t>& sessions() const noexcept { return sessions_; }
  // For cursors. Null before attach().
  std::shared_ptr<const CursorClient> facts();
  bool load_balanced() const noexcept { return load_balanced_; }

  static std::uint64_t session_key(const SessionId& session) noexcept;

 private:
  void change_session(const SessionId& session);
  void forget_sessions();
  void set_facts(std::string_view application, Bytes metadata);
  std::uint64_t joined_key(std::uint64_t program) const noexcept;

  OpenClients* all_ = nullptr;
  std::string address_;
  std::int64_t connection_id_ = 0;
  bool load_balanced_ = false;
  SessionId last_session_{};
  std::shared_ptr<CursorClient> facts_;
  std::string user_;
  absl::InlinedVector<std::uint64_t, 2> programs_;  // keys of CursorClients
  absl::flat_hash_map<SessionId, std::int64_t> sessions_;
};

}  // namespace spillway::exec
