#include "cursor/registry.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace spillway {

namespace {

// Unguessable ids from the kernel's generator, fetched in blocks.
std::int64_t random_cursor_id() {
  struct Block {
    std::array<std::uint64_t, 64> words;
    std::size_t used = 64;
  };
  thread_local Block block;
  for (;;) {
    if (block.used == block.words.size()) {
      std::size_t have = 0;
      auto* bytes = reinterpret_cast<std::uint8_t*>(block.words.data());
      while (have < sizeof block.words) {
        const ssize_t n = ::getrandom(bytes + have, sizeof block.words - have, 0);
        if (n > 0) have += static_cast<std::size_t>(n);
      }
      block.used = 0;
    }
    const auto id = static_cast<std::int64_t>(block.words[block.used++] >> 1);
    if (id != 0) return id;
  }
}

Error killed_error(std::int64_t id) {
  return Error(ErrorCode::cursor_killed, "cursor id " + std::to_string(id) + " was killed");
}

// The session rules of a getMore. (mongos behaviour reference, section 5.4, step 6)
Result<void> check_session(const CursorSession& cursor, const CursorCaller& caller, std::int64_t id) {
  const std::string name = "cursor " + std::to_string(id);
  if (cursor.lsid.empty() && !caller.lsid.empty()) {
    return Error(50799, "Cannot run getMore on " + name + ", which was not created in a session, in a session");
  }
  if (!cursor.lsid.empty() && caller.lsid.empty()) {
    return Error(50800, "Cannot run getMore on " + name + ", which was created in a session, without an lsid");
  }
  if (cursor.lsid != caller.lsid) {
    return Error(50801, "Cannot run getMore on " + name + ", which was created in another session");
  }
  if (!cursor.in_transaction && caller.in_transaction) {
    return Error(50802, "Cannot run getMore on " + name + ", which was not created in a transaction, in a transaction");
  }
  if (cursor.in_transaction && !caller.in_transaction) {
    return Error(50803, "Cannot run getMore on " + name + ", which was created in a transaction, without a txnNumber");
  }
  if (cursor.in_transaction && cursor.txn_number != caller.txn_number) {
    return Error(50804, "Cannot run getMore on " + name + ", which was created in another transaction");
  }
  return {};
}

Result<void> check_caller(const ClusterCursor& cursor, const CursorCaller& caller, std::int64_t id) {
  if (cursor.owner != caller.user) {
    return Error(ErrorCode::unauthorized,
                 "cursor id " + std::to_string(id) + " was not created by the authenticated user");
  }
  return check_session(cursor.session, caller, id);
}

}  // namespace

void CursorRegistry::Stripe::put_idle(Entry& entry, CursorPtr cursor, SteadyNs now) {
  entry.last_used = now;
  entry.filling = false;
  entry.connection_id = cursor->client ? cursor->client->connection_id : 0;
  if (!entry.no_timeout) (entry.lsid.empty() ? idle : idle_session).push_back(*cursor);
  entry.cursor = std::move(cursor);
}

CursorPtr CursorRegistry::Stripe::take_idle(Entry& entry) {
  if (!entry.no_timeout) (entry.lsid.empty() ? idle : idle_session).remove(*entry.cursor);
  entry.cursor->clientless_since_ns = 0;
  return std::move(entry.cursor);
}

void CursorRegistry::Stripe::remember(std::int64_t id, EndedBy by) {
  ended[next_ended++ % ended.size()] = {id, by};
}

Error CursorRegistry::Stripe::not_found(std::int64_t id) const {
  std::string text = "cursor id " + std::to_string(id) + " not found";
  for (const Ended& one : ended) {
    if (one.id != id) continue;
    text += one.by == EndedBy::eviction
                ? ": memory was short, and the cursor was ended because it was idle and held much"
                : ": the cursor was ended because the client that used it had gone";
    break;
  }
  return Error(ErrorCode::cursor_not_found, std::move(text));
}

CursorPtr CursorRegistry::Stripe::evict(Entries::iterator at) {
  remember(at->first, EndedBy::eviction);
  ++evicted;
  evicted_bytes += at->second.cursor->buffered_bytes();
  CursorPtr cursor = take_idle(at->second);
  entries.erase(at);
  return cursor;
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
    at->second = std::move(entry);
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
  entry.multi_target = cursor->remotes.size() > 1;
  entry.no_timeout = cursor->no_timeout;
  return emplace(std::move(entry), now, std::move(cursor));
}

std::int64_t CursorRegistry::insert_checked_out(const ClusterCursor& cursor, SteadyNs now) {
  Entry entry;
  entry.ns = cursor.ns;
  entry.lsid = cursor.session.lsid;
  entry.multi_target = cursor.remotes.size() > 1;
  entry.no_timeout = cursor.no_timeout;
  entry.connection_id = cursor.client ? cursor.client->connection_id : 0;
  return emplace(std::move(entry), now, nullptr);
}

Result<CursorPtr> CursorRegistry::check_out(std::int64_t id, std::string_view ns,
                                            const CursorCaller& caller,
                                            std::shared_ptr<CursorWaiter> waiter) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.ns != ns || found->second.killed) {
    return stripe.not_found(id);
  }
  Entry& entry = found->second;
  if (!entry.cursor) {
    if (!entry.filling || entry.waiter || !waiter) {
      return Error(ErrorCode::cursor_in_use, "cursor id " + std::to_string(id) + " is already in use");
    }
    entry.waiter = std::move(waiter);
    return CursorPtr();
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

bool CursorRegistry::begin_filling(std::int64_t id) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.killed) return false;
  found->second.filling = true;
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
      stripe.entries.erase(found);
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
    stripe.entries.erase(found);
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
      stripe.entries.erase(found);
    }
  }
  if (waiter) waiter->deliver(killed_error(id));
  return killed;
}

std::vector<CursorPtr> CursorRegistry::kill_matching(
    const std::function<bool(const Entry&)>& matches) {
  std::vector<CursorPtr> taken;
  std::vector<std::pair<std::int64_t, std::shared_ptr<CursorWaiter>>> waiters;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
      auto here = at++;
      if (!matches(here->second)) continue;
      if (!here->second.cursor) {
        here->second.killed = true;
        if (here->second.waiter) waiters.emplace_back(here->first, std::move(here->second.waiter));
        continue;
      }
      taken.push_back(stripe.take_idle(here->second));
      stripe.entries.erase(here);
    }
  }
  for (auto& [id, waiter] : waiters) waiter->deliver(killed_error(id));
  return taken;
}

std::vector<CursorPtr> CursorRegistry::kill_sessions(
    const std::function<bool(std::string_view lsid)>& matches) {
  return kill_matching([&](const Entry& entry) { return matches(entry.lsid); });
}

std::vector<CursorPtr> CursorRegistry::kill_connection(std::int64_t connection_id) {
  return kill_matching([&](const Entry& entry) { return entry.connection_id == connection_id; });
}

std::vector<CursorPtr> CursorRegistry::kill_all() {
  return kill_matching([](const Entry&) { return true; });
}

void CursorRegistry::Stripe::expire(IdleList Stripe::* list, SteadyNs not_after,
                                    std::vector<CursorPtr>& taken) {
  while (ClusterCursor* const first = (this->*list).first()) {
    const auto found = entries.find(first->id);
    if (found->second.last_used > not_after) return;
    taken.push_back(take_idle(found->second));
    entries.erase(found);
    ++timed_out;
  }
}

std::vector<CursorPtr> CursorRegistry::expire(SteadyNs not_after, bool with_sessions) {
  std::vector<CursorPtr> taken;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    stripe.expire(&Stripe::idle, not_after, taken);
    if (with_sessions) stripe.expire(&Stripe::idle_session, not_after, taken);
  }
  return taken;
}

// Null: it was used, or ended, since it was weighed.
CursorPtr CursorRegistry::evict_one(const Weight& chosen) {
  Stripe& stripe = stripes_[stripe_of(chosen.id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(chosen.id);
  if (found == stripe.entries.end() || !found->second.cursor) return nullptr;
  if (found->second.last_used != chosen.last_used) return nullptr;
  return stripe.evict(found);
}

std::vector<CursorPtr> CursorRegistry::evict(SteadyNs not_after, std::uint64_t bytes_wanted) {
  std::vector<Weight> found;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (!entry.cursor || entry.last_used > not_after) continue;
      const std::uint64_t bytes = entry.cursor->buffered_bytes();
      if (bytes > 0) found.push_back({bytes, id, entry.last_used});
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<CursorPtr> taken;
  std::uint64_t bytes = 0;
  for (const Weight& weight : found) {
    if (bytes >= bytes_wanted) break;
    if (CursorPtr cursor = evict_one(weight)) {
      bytes += weight.bytes;
      taken.push_back(std::move(cursor));
    }
  }
  return taken;
}

std::vector<CursorPtr> CursorRegistry::evict_beyond_share(const CursorClient* asking,
                                                          std::uint64_t share_bytes,
                                                          SteadyNs not_after) {
  struct Holder {
    std::uint64_t bytes = 0;
    std::vector<Weight> idle;
  };
  absl::flat_hash_map<std::string, Holder> holders;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (!entry.cursor || !entry.cursor->client) continue;
      const CursorClient& client = *entry.cursor->client;
      if (asking != nullptr && client.same_holder(*asking)) continue;
      const std::uint64_t bytes = entry.cursor->buffered_bytes();
      if (bytes == 0) continue;
      Holder& holder = holders[client.address + '\0' + client.application];
      holder.bytes += bytes;
      if (entry.last_used <= not_after) holder.idle.push_back({bytes, id, entry.last_used});
    }
  }
  std::vector<CursorPtr> taken;
  for (auto& [name, holder] : holders) {
    std::sort(holder.idle.begin(), holder.idle.end(), std::greater<>());
    for (const Weight& weight : holder.idle) {
      if (holder.bytes <= share_bytes) break;
      if (CursorPtr cursor = evict_one(weight)) {
        holder.bytes -= weight.bytes;
        taken.push_back(std::move(cursor));
      }
    }
  }
  return taken;
}

CursorRegistry::Orphans CursorRegistry::end_orphans(
    const std::function<bool(const ClusterCursor&)>& has_client, SteadyNs now, SteadyNs grace) {
  Orphans orphans;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
      auto here = at++;
      if (!here->second.cursor) continue;
      ClusterCursor& cursor = *here->second.cursor;
      if (has_client(cursor)) {
        cursor.clientless_since_ns = 0;
        continue;
      }
      if (cursor.clientless_since_ns == 0) cursor.clientless_since_ns = now;
      if (now - cursor.clientless_since_ns < grace) {
        ++orphans.clientless;
        continue;
      }
      stripe.remember(here->first, EndedBy::orphanage);
      ++stripe.orphaned;
      orphans.ended.push_back(stripe.take_idle(here->second));
      stripe.entries.erase(here);
    }
  }
  return orphans;
}

std::vector<std::int64_t> CursorRegistry::heaviest_idle(SteadyNs not_after, std::size_t bytes_min,
                                                        std::size_t count_max) const {
  struct Found {
    bool clientless;
    std::size_t bytes;
    std::int64_t id;
    auto operator<=>(const Found&) const = default;
  };
  std::vector<Found> found;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (!entry.cursor) continue;
      const bool clientless = entry.cursor->clientless_since_ns != 0;
      if (!clientless && entry.last_used > not_after) continue;
      const std::size_t bytes = entry.cursor->parkable_bytes();
      if (bytes >= bytes_min) found.push_back({clientless, bytes, id});
    }
  }
  const std::size_t count = std::min(count_max, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    std::greater<>());
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(found[i].id);
  return ids;
}

bool CursorRegistry::with_idle(std::int64_t id, const std::function<void(ClusterCursor&)>& work) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || !found->second.cursor) return false;
  work(*found->second.cursor);
  return true;
}

void CursorRegistry::for_each_idle(
    const std::function<void(const ClusterCursor&, SteadyNs last_used)>& look) const {
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (entry.cursor) look(*entry.cursor, entry.last_used);
    }
  }
}

CursorCounts CursorRegistry::counts() const {
  CursorCounts counts;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    counts.timed_out += stripe.timed_out;
    counts.evicted += stripe.evicted;
    counts.evicted_bytes += stripe.evicted_bytes;
    counts.orphaned += stripe.orphaned;
    counts.total_opened += stripe.opened;
    for (const auto& [id, entry] : stripe.entries) {
      if (entry.killed) continue;
      ++counts.open_total;
      ++(entry.multi_target ? counts.open_multi_target : counts.open_single_target);
      if (entry.no_timeout) ++counts.no_timeout;
      if (entry.cursor) {
        counts.buffered_bytes += entry.cursor->buffered_bytes();
        if (entry.cursor->clientless_since_ns != 0) ++counts.clientless;
      } else {
        ++counts.pinned;
        if (entry.filling) ++counts.filling;
      }
    }
  }
  return counts;
}

std::vector<IdleCursor> CursorRegistry::idle() const {
  std::vector<IdleCursor> rows;
  for_each_idle([&](const ClusterCursor& c, SteadyNs last_used) {
    const CursorClient client = c.client ? *c.client : CursorClient{};
    rows.push_back({c.id, c.ns, c.session.lsid, c.originating_command, client.address,
                    client.application, c.owner, c.created_ms, last_used, c.documents_returned,
                    c.batches_returned, c.buffered_bytes(), c.no_timeout, c.tailable, c.await_data});
  });
  return rows;
}

}  // namespace spillway
