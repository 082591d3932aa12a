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

std::string not_found_text(std::int64_t id) { return "cursor id " + std::to_string(id) + " not found"; }

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

}  // namespace

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
    if (cursor) cursor->id = id;
    at->second.cursor = std::move(cursor);
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
  return emplace(std::move(entry), now, nullptr);
}

Result<CursorPtr> CursorRegistry::check_out(std::int64_t id, std::string_view ns,
                                            const CursorCaller& caller) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.ns != ns) {
    return Error(ErrorCode::cursor_not_found, not_found_text(id));
  }
  Entry& entry = found->second;
  if (!entry.cursor) {
    if (entry.killed) return Error(ErrorCode::cursor_not_found, not_found_text(id));
    return Error(ErrorCode::cursor_in_use, "cursor id " + std::to_string(id) + " is already in use");
  }
  if (entry.cursor->owner != caller.user) {
    return Error(ErrorCode::unauthorized,
                 "cursor id " + std::to_string(id) + " was not created by the authenticated user");
  }
  if (auto checked = check_session(entry.cursor->session, caller, id); checked.has_error()) {
    return checked.error();
  }
  return std::move(entry.cursor);
}

CursorPtr CursorRegistry::check_in(CursorPtr cursor, SteadyNs now) {
  Stripe& stripe = stripes_[stripe_of(cursor->id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(cursor->id);
  if (found == stripe.entries.end()) return cursor;
  if (found->second.killed) {
    stripe.entries.erase(found);
    return cursor;
  }
  found->second.last_used = now;
  found->second.cursor = std::move(cursor);
  return nullptr;
}

bool CursorRegistry::forget(std::int64_t id) {
  Stripe& stripe = stripes_[stripe_of(id)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end()) return true;
  const bool was_killed = found->second.killed;
  stripe.entries.erase(found);
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
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(id);
  if (found == stripe.entries.end() || found->second.ns != ns || found->second.killed) {
    return {KillOutcome::not_found, nullptr};
  }
  if (!found->second.cursor) {
    found->second.killed = true;
    return {KillOutcome::marked_in_use, nullptr};
  }
  CursorPtr cursor = std::move(found->second.cursor);
  stripe.entries.erase(found);
  return {KillOutcome::killed_idle, std::move(cursor)};
}

std::vector<CursorPtr> CursorRegistry::kill_sessions(
    const std::function<bool(std::string_view lsid)>& matches) {
  std::vector<CursorPtr> taken;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
      auto here = at++;
      if (!matches(here->second.lsid)) continue;
      if (!here->second.cursor) {
        here->second.killed = true;
        continue;
      }
      taken.push_back(std::move(here->second.cursor));
      stripe.entries.erase(here);
    }
  }
  return taken;
}

std::vector<CursorPtr> CursorRegistry::kill_all() {
  return kill_sessions([](std::string_view) { return true; });
}

std::vector<CursorPtr> CursorRegistry::expire(SteadyNs not_after, bool with_sessions) {
  std::vector<CursorPtr> taken;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
      auto here = at++;
      const Entry& entry = here->second;
      if (!entry.cursor || entry.no_timeout || entry.last_used > not_after) continue;
      if (!with_sessions && !entry.lsid.empty()) continue;
      taken.push_back(std::move(here->second.cursor));
      stripe.entries.erase(here);
      ++stripe.timed_out;
    }
  }
  return taken;
}

std::vector<std::int64_t> CursorRegistry::heaviest_idle(SteadyNs not_after, std::size_t bytes_min,
                                                        std::size_t count_max) const {
  std::vector<std::pair<std::size_t, std::int64_t>> found;  // bytes, id
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (!entry.cursor || entry.last_used > not_after) continue;
      const std::size_t bytes = entry.cursor->parkable_bytes();
      if (bytes >= bytes_min) found.emplace_back(bytes, id);
    }
  }
  const std::size_t count = std::min(count_max, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    std::greater<>());
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(found[i].second);
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

CursorCounts CursorRegistry::counts() const {
  CursorCounts counts;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    counts.timed_out += stripe.timed_out;
    counts.total_opened += stripe.opened;
    for (const auto& [id, entry] : stripe.entries) {
      if (entry.killed) continue;
      ++counts.open_total;
      ++(entry.multi_target ? counts.open_multi_target : counts.open_single_target);
      if (entry.no_timeout) ++counts.no_timeout;
      if (entry.cursor) {
        counts.buffered_bytes += entry.cursor->buffered_bytes();
      } else {
        ++counts.pinned;
      }
    }
  }
  return counts;
}

std::vector<IdleCursor> CursorRegistry::idle() const {
  std::vector<IdleCursor> rows;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [id, entry] : stripe.entries) {
      if (!entry.cursor) continue;
      const ClusterCursor& c = *entry.cursor;
      rows.push_back({id, c.ns, c.session.lsid, c.originating_command, c.created_ms, entry.last_used,
                      c.documents_returned, c.batches_returned, c.buffered_bytes(), c.no_timeout,
                      c.tailable, c.await_data});
    }
  }
  return rows;
}

}  // namespace spillway
