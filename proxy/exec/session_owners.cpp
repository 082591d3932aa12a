#include "proxy/exec/session_owners.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace spillway::exec {

namespace {

constexpr Duration sweep_pause = std::chrono::seconds(10);

std::uint64_t number_of(std::string_view user) { return absl::HashOf(user); }

}  // namespace

SessionOwners::SessionOwners(std::size_t capacity)
    : stripe_entries_max_(std::max<std::size_t>(1, capacity / stripe_count)) {}

void SessionOwners::drop_expired(Stripe& stripe, TimePoint now) {
  for (auto at = stripe.entries.begin(); at != stripe.entries.end();) {
    const auto here = at++;
    if (now - here->second.last_used > lifetime) stripe.entries.erase(here);
  }
}

SessionOwners::Claim SessionOwners::claim(const SessionId& session, std::string_view user,
                                          TimePoint now) {
  const std::uint64_t number = number_of(user);
  Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  if (const auto found = stripe.entries.find(session); found != stripe.entries.end()) {
    Entry& entry = found->second;
    if (entry.user != number && now - entry.last_used <= lifetime) return Claim::another_users;
    entry = {number, now};
    return Claim::own;
  }
  if (stripe.entries.size() >= std::min(stripe.sweep_at, stripe_entries_max_) &&
      now >= stripe.next_sweep) {
    drop_expired(stripe, now);
    stripe.sweep_at = std::max<std::size_t>(256, 2 * stripe.entries.size());
    stripe.next_sweep = now + sweep_pause;
  }
  if (stripe.entries.size() >= stripe_entries_max_) return Claim::too_many;
  stripe.entries.emplace(session, Entry{number, now});
  return Claim::own;
}

bool SessionOwners::is_another_users(const SessionId& session, std::string_view user,
                                     TimePoint now) const {
  const Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  return found != stripe.entries.end() && found->second.user != number_of(user) &&
         now - found->second.last_used <= lifetime;
}

bool SessionOwners::is_of(const SessionId& session, std::string_view user) const {
  const Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  return found != stripe.entries.end() && found->second.user == number_of(user);
}

void SessionOwners::release(const SessionId& session, std::string_view user) {
  Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  if (found != stripe.entries.end() && found->second.user == number_of(user))
    stripe.entries.erase(found);
}

std::vector<SessionId> SessionOwners::of(std::string_view user, std::size_t most) const {
  const std::uint64_t number = number_of(user);
  std::vector<SessionId> sessions;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    for (const auto& [session, entry] : stripe.entries) {
      if (entry.user == number && sessions.size() < most) sessions.push_back(session);
    }
  }
  return sessions;
}

std::size_t SessionOwners::size() const {
  std::size_t total = 0;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    total += stripe.entries.size();
  }
  return total;
}

}  // namespace spillway::exec
