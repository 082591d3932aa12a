#include "proxy/exec/tables/session_owners.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace spillway::exec {

namespace {

constexpr Duration sweep_pause = std::chrono::seconds(10);

std::uint64_t number_of(std::string_view user) { return absl::HashOf(user); }

}  // namespace

void SessionOwners::set_capacity(std::size_t capacity) noexcept {
  stripe_entries_max_ = std::max<std::size_t>(1, capacity / stripe_count);
}

void SessionOwners::Stripe::add(const Entry& entry) {
  Sessions& sessions = holders[entry.user];
  entries[entry.session] = sessions.insert(sessions.end(), entry);
}

void SessionOwners::Stripe::erase(Sessions::iterator entry) {
  entries.erase(entry->session);
  const auto holder = holders.find(entry->user);
  holder->second.erase(entry);
  if (holder->second.empty()) holders.erase(holder);
}

void SessionOwners::Stripe::drop_expired(TimePoint now) {
  for (auto at = holders.begin(); at != holders.end();) {
    const auto here = at++;
    Sessions& sessions = here->second;
    while (!sessions.empty() && now - sessions.front().last_used > lifetime) {
      entries.erase(sessions.front().session);
      sessions.pop_front();
    }
    if (sessions.empty()) holders.erase(here);
  }
}

void SessionOwners::Stripe::drop_oldest_of_largest() {
  const auto largest = std::max_element(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  erase(largest->second.begin());
}

SessionOwners::Claim SessionOwners::claim(const SessionId& session, std::string_view user,
                                          TimePoint now) {
  const std::uint64_t number = number_of(user);
  Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  if (const auto found = stripe.entries.find(session); found != stripe.entries.end()) {
    Entry& entry = *found->second;
    if (entry.user == number) {
      entry.last_used = now;
      Sessions& sessions = stripe.holders.find(number)->second;
      sessions.splice(sessions.end(), sessions, found->second);
      return Claim::own;
    }
    if (now - entry.last_used <= lifetime) return Claim::another_users;
    stripe.erase(found->second);
  }
  if (stripe.entries.size() >= std::min(stripe.sweep_at, stripe_entries_max_) &&
      now >= stripe.next_sweep) {
    stripe.drop_expired(now);
    stripe.sweep_at = std::max<std::size_t>(256, 2 * stripe.entries.size());
    stripe.next_sweep = now + sweep_pause;
  }
  if (stripe.entries.size() >= stripe_entries_max_) stripe.drop_oldest_of_largest();
  stripe.add({session, number, now});
  return Claim::own;
}

bool SessionOwners::is_another_users(const SessionId& session, std::string_view user,
                                     TimePoint now) const {
  const Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  return found != stripe.entries.end() && found->second->user != number_of(user) &&
         now - found->second->last_used <= lifetime;
}

bool SessionOwners::is_of(const SessionId& session, std::string_view user) const {
  const Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  return found != stripe.entries.end() && found->second->user == number_of(user);
}

void SessionOwners::release(const SessionId& session, std::string_view user) {
  Stripe& stripe = stripes_[stripe_of(session)];
  MutexLock lock(stripe.mutex);
  const auto found = stripe.entries.find(session);
  if (found != stripe.entries.end() && found->second->user == number_of(user)) stripe.erase(found->second);
}

std::vector<SessionId> SessionOwners::of(std::string_view user, std::size_t most) const {
  const std::uint64_t number = number_of(user);
  std::vector<SessionId> sessions;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(stripe.mutex);
    const auto holder = stripe.holders.find(number);
    if (holder == stripe.holders.end()) continue;
    for (const Entry& entry : holder->second) {
      if (sessions.size() < most) sessions.push_back(entry.session);
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
