// Sweeps over all cursors: which are idle for long, which have lost their client, which hold much,
// how many there are.
#include <algorithm>

#include "cursor/registry.h"

namespace spillway {

void CursorRegistry::Stripe::expire(IdleList Stripe::*list, SteadyNs not_after,
                                    std::vector<CursorPtr>& taken) {
  while (ClusterCursor* const first = (this->*list).first()) {
    const auto found = entries.find(first->id);
    if (found->second.last_used > not_after) return;
    taken.push_back(take_idle(found->second));
    erase(found);
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

CursorPtr CursorRegistry::Stripe::evict(Entries::iterator at) {
  remember(at->first, EndedBy::eviction);
  ++evicted;
  evicted_bytes += at->second.cursor->buffered_bytes();
  CursorPtr cursor = take_idle(at->second);
  erase(at);
  return cursor;
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
        cursor.idle.clientless_since_ns_ = 0;
        continue;
      }
      if (cursor.idle.clientless_since_ns_ == 0) cursor.idle.clientless_since_ns_ = now;
      if (now - cursor.idle.clientless_since_ns_ < grace) {
        ++orphans.clientless;
        continue;
      }
      stripe.remember(here->first, EndedBy::orphanage);
      ++stripe.orphaned;
      orphans.ended.push_back(stripe.take_idle(here->second));
      stripe.erase(here);
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
      const bool clientless = entry.cursor->idle.clientless_since_ns_ != 0;
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
    counts.looked_at += stripe.looked_at;
    for (const auto& [id, entry] : stripe.entries) {
      if (entry.killed) continue;
      ++counts.open_total;
      ++(entry.multi_target ? counts.open_multi_target : counts.open_single_target);
      if (entry.no_timeout) ++counts.no_timeout;
      if (entry.cursor) {
        counts.buffered_bytes += entry.cursor->buffered_bytes();
        if (entry.cursor->idle.clientless_since_ns_ != 0) ++counts.clientless;
      } else {
        ++counts.pinned;
        if (entry.filling) ++counts.filling;
      }
    }
  }
  return counts;
}

}  // namespace spillway
