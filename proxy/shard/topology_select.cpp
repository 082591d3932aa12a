// Topology: the choice of a host.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "proxy/shard/topology.h"

namespace spillway::shard {

namespace {

// How often an idle primary writes a no-op: staleness cannot be measured more finely.
constexpr std::int64_t idle_write_period_ms = 10'000;

bool has_tags(const ServerDescription& server, const ReadPreference::TagSet& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& tag) {
    return std::find(server.tags.begin(), server.tags.end(), tag) != server.tags.end();
  });
}

std::int64_t ms_between(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count();
}

}  // namespace

const Topology::Host* Topology::primary() const noexcept {
  for (const Host& host : hosts_) {
    if (host.server.type == ServerType::rs_primary) return &host;
  }
  return nullptr;
}

bool Topology::fresh_enough(const Host& host, const ReadPreference& preference) const {
  if (preference.max_staleness_seconds < 0 || host.server.type != ServerType::rs_secondary) {
    return true;
  }
  std::int64_t staleness_ms = options_.heartbeat_ms;
  if (const Host* first = primary()) {
    staleness_ms += ms_between(first->server.updated, host.server.updated) -
                    (host.server.last_write_ms - first->server.last_write_ms);
  } else {
    std::int64_t newest = 0;
    for (const Host& other : hosts_) newest = std::max(newest, other.server.last_write_ms);
    staleness_ms += newest - host.server.last_write_ms;
  }
  return staleness_ms <= preference.max_staleness_seconds * 1000;
}

Topology::Candidates Topology::matching(const ReadPreference& preference, bool with_primary) const {
  Candidates readable;
  for (const Host& host : hosts_) {
    const ServerType type = host.server.type;
    if (type != ServerType::rs_secondary && !(with_primary && type == ServerType::rs_primary))
      continue;
    if (fresh_enough(host, preference)) readable.push_back(&host);
  }
  if (preference.tag_sets.empty()) return readable;
  for (const ReadPreference::TagSet& wanted : preference.tag_sets) {
    Candidates tagged;
    std::copy_if(readable.begin(), readable.end(), std::back_inserter(tagged),
                 [&](const Host* host) { return has_tags(host->server, wanted); });
    if (!tagged.empty()) return tagged;
  }
  return {};
}

const Topology::Host* Topology::pick(Candidates candidates, std::uint64_t random) const {
  if (candidates.empty()) return nullptr;
  Duration nearest = Duration::max();
  for (const Host* host : candidates) nearest = std::min(nearest, host->round_trip);
  const Duration limit = nearest + std::chrono::milliseconds(options_.local_threshold_ms);
  std::erase_if(candidates, [&](const Host* host) { return host->round_trip > limit; });
  return candidates[random % candidates.size()];
}

// A host that would suit if it let the router log in.
const Topology::Host* Topology::refusing(ReadMode mode) const noexcept {
  for (const Host& host : hosts_) {
    if (host.logins_refused == 0 || host.server.known() || !host.server.refused) continue;
    const ServerType was = host.refused_as;
    if (mode == ReadMode::primary ? was == ServerType::rs_primary
                                  : mode != ReadMode::secondary || was == ServerType::rs_secondary) {
      return &host;
    }
  }
  return nullptr;
}

Result<const Topology::Host*> Topology::select(const ReadPreference& preference, std::uint64_t random) const {
  const auto chosen = choose(preference, random);
  if (chosen.has_error() || *chosen != nullptr) return chosen;
  const Host* host = refusing(preference.mode);
  if (host == nullptr) return nullptr;
  return Error(host->server.error->code,
               fmt::format("{} cannot be used: {}", host->address.text(), host->server.error->message));
}

Result<const Topology::Host*> Topology::choose(const ReadPreference& preference, std::uint64_t random) const {
  if (!replica_set_) {
    // There is only one host: it is tried even while it is down, so that errors come at once.
    const Host& host = hosts_.front();
    if (host.server.refused && host.server.error) {
      return Error(
          host.server.error->code,
          fmt::format("{} cannot be used: {}", host.address.text(), host.server.error->message));
    }
    return &host;
  }
  if (preference.max_staleness_seconds >= 0 &&
      preference.max_staleness_seconds * 1000 < options_.heartbeat_ms + idle_write_period_ms) {
    return Error(ErrorCode::max_staleness_out_of_range,
                 fmt::format("maxStalenessSeconds must be at least {} seconds",
                             (options_.heartbeat_ms + idle_write_period_ms) / 1000));
  }
  switch (preference.mode) {
    case ReadMode::primary:
      return primary();
    case ReadMode::primary_preferred:
      if (const Host* host = primary()) return host;
      return pick(matching(preference, false), random);
    case ReadMode::secondary:
      return pick(matching(preference, false), random);
    case ReadMode::secondary_preferred:
      if (const Host* host = pick(matching(preference, false), random)) return host;
      return primary();
    case ReadMode::nearest:
      return pick(matching(preference, true), random);
  }
  return nullptr;
}

}  // namespace spillway::shard
