#include "cursor/registry.h"

#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "cursor/cursor_id.h"

namespace spillway {

namespace {

Error killed_error(std::int64_t id) {
  return Error(ErrorCode::cursor_killed, "cursor id " + std::to_string(id) + " was killed");
}

// The session rules of a getMore.
Result<void> check_session(const CursorSession& cursor, const CursorCaller& caller, std::int64_t id) {
  const auto refused = [id](std::int32_t code, const char* why) {
    return Error(code, "Cannot run getMore on cursor " + std::to_string(id) + ", which was " + why);
  };
  if (cursor.lsid.empty() && !caller.lsid.empty()) {
    return refused(50799, "not created in a session, in a session");
  }
  if (!cursor.lsid.empty() && caller.lsid.empty()) {
    return refused(50800, "created in a session, without an lsid");
  }
  if (cursor.lsid != caller.lsid) {
    return refused(50801, "created in another session");
  }
  if (!cursor.in_transaction && caller.in_transaction) {
    return refused(50802, "not created in a transaction, in a transaction");
  }
  if (cursor.in_transaction && !caller.in_transaction) {
    return refused(50803, "created in a transaction, without a txnNumber");
  }
  if (cursor.in_transaction && cursor.txn_number != caller.txn_number) {
    return refused(50804, "created in another transaction");
  }
  if (cursor.api != caller.api) {
    return Error(ErrorCode::api_mismatch_error,
                 "API parameter mismatch: getMore on cursor " + std::to_string(id) +
                     " has other API parameters than the command that created it");
  }
  return {};
}

std::uint64_t owner_number(std::string_view user) { return absl::HashOf(user); }

// Null: no client uses it.
std::int64_t connection_of(const ClusterCursor& cursor) noexcept {
  return cursor.client ? cursor.client->connection_id : 0;
}

Error not_the_owner(std::int64_t id) {
  return Error(ErrorCode::unauthorized,
               "cursor id " + std::to_string(id) + " was not created by the authenticated user");
}

Result<void> check_caller(const ClusterCursor& cursor, const CursorCaller& caller, std::int64_t id) {
  if (cursor.owner != caller.user) {
    return not_the_owner(id);
  }
  return check_session(cursor.session, caller, id);
}

}  // namespace

void CursorRegistry::Stripe::used_by(std::int64_t id, Entry& entry, std::int64_t connection_id) {
  if (entry.connection_id == connection_id) return;
  if (entry.connection_id != 0) by_connection.erase({entry.connection_id, id});
  if (connection_id != 0) by_connection.insert({connection_id, id});
  entry.connection_id = connection_id;
}

void CursorRegistry::Stripe::erase(Entries::iterator at) {
  used_by(at->first, at->second, 0);
  if (!at->second.lsid.empty()) by_session.erase({session_id_of_lsid(at->second.lsid), at->first});
  entries.erase(at);
}

void CursorRegistry::Stripe::put_idle(Entry& entry, CursorPtr cursor, SteadyNs now) {
  entry.last_used = now;
  entry.filling = false;
  if (cursor->charge.account() != nullptr) cursor->charge.hold(cursor->buffered_bytes());
  used_by(cursor->id, entry, connection_of(*cursor));
  if (!entry.no_timeout) (entry.lsid.empty() ? idle : idle_session).push_back(*cursor);
  entry.cursor = std::move(cursor);
}

CursorPtr CursorRegistry::Stripe::take_idle(Entry& entry) {
  if (!entry.no_timeout) (entry.lsid.empty() ? idle : idle_session).remove(*entry.cursor);
  entry.cursor->idle.clientless_since_ns_ = 0;
  return std::move(entry.cursor);
}

void CursorRegistry::Stripe::remember(std::int64_t id, EndedBy by) {
  ended[next_ended++ % ended.size()] = {id, by};
}

Error CursorRegistry::Stripe::not_found(std::int64_t id) const {
  std::string text = "cursor id " + std::to_string(id) + " not found";
  for (const Ended& one : ended) {
    if (one.id == 0 || one.id != id) continue;  // 0: an empty slot
    text += one.by == EndedBy::eviction
                ? ": memory was short, and the cursor was ended because it was idle and held much"
                : ": the cursor was ended because the client that used it had gone";
    break;
  }
  return Error(ErrorCode::cursor_not_found, std::move(text));
}

CursorRegistry::CursorRegistry() = default;
CursorRegistry::~CursorRegistry() = default;

std::int64_t CursorRegistry::emplace(Entry entry, SteadyNs now, CursorPtr cursor) {
  entry.last_used = now;
  for (;;) {
    const std::int64_t id = random_cursor_id();
    Stripe& stripe = stripes_[stripe_of(id)];
    MutexLock lock(stripe.mutex);
    const auto [at, inserted] = stripe.entries.try_emplace(id);
    if (!inserted) continue;
    const std::int64_t connection_id = std::exchange(entry.connection_id, 0);
    at->second = std::move(entry);
    stripe.used_by(id, at->second, connection_id);
    if (!at->second.lsid.empty()) stripe.by_session.insert({session_id_of_lsid(at->second.lsid), id});
    if (cursor) {
      cursor->id = id;
      stripe.put_idle(at->second, std::move(cursor), now);
    }
    ++stripe.opened;
    return id;
  }
}

std::int64_t CursorRegistry::insert(CursorPtr cursor, SteadyNs now) {
  Entry entry;
  entry.ns = cursor->ns;
  entry.lsid = cursor->session.lsid;
  entry.owner = owner_number(cursor->owner);
  entry.multi_target = cursor->remotes.size() > 1;
  entry.no_timeout = cursor->no_timeout;
  return emplace(std::move(entry), now, std::move(cursor));
}

std::int64_t CursorRegistry::insert_checked_out(const ClusterCursor& cursor, SteadyNs now) {
  Entry entry;
  entry.ns = cursor.ns;
  entry.lsid = cursor.session.lsid;
  entry.owner = owner_number(cursor.owner);
  entry.multi_target = cursor.remotes.size() > 1;
  entry.no_timeout = cursor.no_timeout;
  entry.connection_id = connection_of(cursor);
  return emplace(std::move(entry), now, nullptr);
}

Result<CursorPtr> CursorRegistry::check_out(std::int64_t id, std::string_view ns,
                                            const CursorCaller& caller,
                                            const MakeWaiter& make_waiter) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.ns != ns || found->second.killed) {
    return stripe.not_found(id);
  }
  Entry& entry = found->second;
  if (!entry.cursor) {
    if (entry.owner != owner_number(caller.user)) return not_the_owner(id);
    if (entry.filling && !entry.waiter && make_waiter) {
      entry.waiter = make_waiter();
      return CursorPtr();
    }
    return Error(ErrorCode::cursor_in_use,
                 "cursor id " + std::to_string(id) + " is already in use");
  }
  if (auto checked = check_caller(*entry.cursor, caller, id); checked.has_error()) {
    return checked.error();
  }
  return stripe.take_idle(entry);
}

bool CursorRegistry::stop_waiting(std::int64_t id, const CursorWaiter& waiter) {
  Stripe& stripe = stripes_[stripe_of(id)];
  std::shared_ptr<CursorWaiter> gone;
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.waiter.get() != &waiter) return false;
  gone = std::move(found->second.waiter);
  return true;
}

bool CursorRegistry::begin_filling(const ClusterCursor& cursor) {
  Stripe& stripe = stripes_[stripe_of(cursor.id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(cursor.id);
  if (found == stripe.entries.end() || found->second.killed) return false;
  found->second.filling = true;
  stripe.used_by(cursor.id, found->second, connection_of(cursor));
  return true;
}

CursorPtr CursorRegistry::check_in(CursorPtr cursor, SteadyNs now) {
  const std::int64_t id = cursor->id;
  Stripe& stripe = stripes_[stripe_of(id)];
  std::shared_ptr<CursorWaiter> waiter;
  std::optional<Error> refused;
  {
    MutexLock lock(stripe.mutex);
    const auto found = stripe.entries.find(id);
    if (found == stripe.entries.end()) return cursor;
    Entry& entry = found->second;
    if (entry.killed) {
      stripe.erase(found);
      return cursor;
    }
    waiter = std::move(entry.waiter);
    entry.waiter = nullptr;
    if (waiter) {
      if (auto checked = check_caller(*cursor, waiter->caller(), id); checked.has_error()) {
        refused = checked.error();
      }
    }
    if (waiter && !refused) {
      entry.filling = false;  // it belongs to the waiter from now on
    } else {
      stripe.put_idle(entry, std::move(cursor), now);
    }
  }
  if (refused) {
    waiter->deliver(*std::move(refused));
  } else if (waiter) {
    waiter->deliver(std::move(cursor));
  }
  return nullptr;
}

bool CursorRegistry::forget(std::int64_t id) {
  Stripe& stripe = stripes_[stripe_of(id)];
  std::shared_ptr<CursorWaiter> waiter;
  bool was_killed = true;
  {
    MutexLock lock(stripe.mutex);
    const auto found = stripe.entries.find(id);
    if (found == stripe.entries.end()) return true;
    was_killed = found->second.killed;
    waiter = std::move(found->second.waiter);
    stripe.erase(found);
  }
  if (waiter) waiter->deliver(killed_error(id));
  return was_killed;
}

bool CursorRegistry::killed(std::int64_t id) const {
  const Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  return found == stripe.entries.end() || found->second.killed;
}

bool CursorRegistry::is_another_users(std::int64_t id, std::string_view ns, std::string_view user) const {
  const Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  return found != stripe.entries.end() && found->second.ns == ns && found->second.owner != owner_number(user);
}

std::string CursorRegistry::ns_of(std::int64_t id) const {
  const Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  return found == stripe.entries.end() ? std::string() : found->second.ns;
}

CursorRegistry::Killed CursorRegistry::kill(std::int64_t id, std::string_view ns) {
  Stripe& stripe = stripes_[stripe_of(id)];
  std::shared_ptr<CursorWaiter> waiter;
  Killed killed{KillOutcome::not_found, nullptr};
  {
    MutexLock lock(stripe.mutex);
    const auto found = stripe.entries.find(id);
    if (found == stripe.entries.end() || found->second.ns != ns || found->second.killed) return killed;
    if (!found->second.cursor) {
      found->second.killed = true;
      waiter = std::move(found->second.waiter);
      killed.outcome = KillOutcome::marked_in_use;
    } else {
      killed.outcome = KillOutcome::killed_idle;
      killed.cursor = stripe.take_idle(found->second);
      stripe.erase(found);
    }
  }
  if (waiter) waiter->deliver(killed_error(id));
  return killed;
}

void CursorRegistry::kill_here(Stripe& stripe, Entries::iterator at, AllKilled& killed) {
  if (!at->second.cursor) {
    at->second.killed = true;
    if (at->second.waiter) killed.waiters.emplace_back(at->first, std::move(at->second.waiter));
    return;
  }
  killed.idle.push_back(stripe.take_idle(at->second));
  stripe.erase(at);
}

std::vector<CursorPtr> CursorRegistry::AllKilled::tell() && {
  for (auto& [id, waiter] : waiters) waiter->deliver(killed_error(id));
  return std::move(idle);
}

std::vector<CursorPtr> CursorRegistry::kill_matching(
    const std::function<bool(const Entry&)>& matches) {
  AllKilled killed;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
      auto here = at++;
      if (matches(here->second)) kill_here(stripe, here, killed);
    }
  }
  return std::move(killed).tell();
}

std::vector<CursorPtr> CursorRegistry::kill_sessions(const std::vector<SessionId>& sessions) {
  const absl::flat_hash_set<SessionId> wanted(sessions.begin(), sessions.end());
  AllKilled killed;
  std::vector<std::int64_t> ids;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    ids.clear();
    if (wanted.size() < stripe.by_session.size()) {
      for (const SessionId& session : wanted) {
        auto at = stripe.by_session.lower_bound({session, std::numeric_limits<std::int64_t>::min()});
        for (; at != stripe.by_session.end() && at->first == session; ++at) ids.push_back(at->second);
      }
      stripe.looked_at += ids.size();
    } else {
      stripe.looked_at += stripe.by_session.size();
      for (const auto& [session, id] : stripe.by_session) {
        if (wanted.contains(session)) ids.push_back(id);
      }
    }
    for (const std::int64_t id : ids) kill_here(stripe, stripe.entries.find(id), killed);
  }
  return std::move(killed).tell();
}

std::vector<CursorPtr> CursorRegistry::kill_all_sessions() {
  return kill_matching([](const Entry& entry) { return !entry.lsid.empty(); });
}

std::vector<CursorPtr> CursorRegistry::kill_connection(std::int64_t connection_id) {
  AllKilled killed;
  std::vector<std::int64_t> ids;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    ids.clear();
    auto used = stripe.by_connection.lower_bound({connection_id, std::numeric_limits<std::int64_t>::min()});
    for (; used != stripe.by_connection.end() && used->first == connection_id; ++used) ids.push_back(used->second);
    stripe.looked_at += ids.size();
    for (const std::int64_t id : ids) {
      const auto at = stripe.entries.find(id);
      if (at->second.killed) continue;
      stripe.remember(id, EndedBy::orphanage);
      ++stripe.orphaned;
      kill_here(stripe, at, killed);
    }
  }
  return std::move(killed).tell();
}

std::vector<CursorPtr> CursorRegistry::kill_all() {
  return kill_matching([](const Entry&) { return true; });
}

}  // namespace spillway
