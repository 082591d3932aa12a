#include "proxy/shard/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace spillway::shard {

namespace {

using Kind = TopologyAction::Kind;

// The newest round trip counts for a fifth.
Duration moving_average(Duration old, Duration sample) { return (old * 4 + sample) / 5; }

// How often a host is asked for a sign of life while its requests run long.
constexpr auto no_progress_interval = std::chrono::seconds(1);

// Servers from 6.0 on order primaries by election first, older ones by configuration first.
constexpr std::int32_t election_first_wire_version = 17;

constexpr bool is_not_primary(std::int32_t code) noexcept {
  return code == 10107 || code == 13435 || code == 189;
}

// Our own lack of memory for an answer, or of file descriptors, says nothing about the host.
bool lacked_means(const Error& why) noexcept {
  return why.is(ErrorCode::ingress_request_rate_limit_exceeded) || why.is(ErrorCode::exceeded_memory_limit) ||
         why.is(ErrorCode::too_many_files_open);
}

}  // namespace

Topology::Topology(TopologyOptions options)
    : options_(std::move(options)),
      set_name_(options_.set_name),
      replica_set_(!options_.direct && !options_.set_name.empty()) {
  for (const HostAddress& seed : options_.seeds) {
    Host& host = hosts_.emplace_back();
    host.address = seed;
    host.server.error = Error(ErrorCode::host_unreachable, "not contacted yet");
  }
}

const Topology::Host* Topology::find(const HostAddress& address) const noexcept {
  for (const Host& host : hosts_) {
    if (host.address == address) return &host;
  }
  return nullptr;
}

Topology::Host* Topology::find(const HostAddress& address) noexcept {
  return const_cast<Host*>(std::as_const(*this).find(address));
}

ServerType Topology::type_of(const HostAddress& address) const noexcept {
  const Host* host = find(address);
  return host == nullptr ? ServerType::unknown : host->server.type;
}

int Topology::logins_refused(const HostAddress& address) const noexcept {
  const Host* host = find(address);
  return host == nullptr ? 0 : host->logins_refused;
}

bool Topology::any_login_refused() const noexcept {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.logins_refused > 0; });
}

bool Topology::answered() const noexcept {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.answered; });
}

void Topology::request_check(Host& host, TopologyActions& actions) {
  host.check_now = true;
  actions.push_back({Kind::check_now, host.address});
}

void Topology::check_started(const HostAddress& address) {
  Host* host = find(address);
  if (host == nullptr) return;
  host->checking = true;
  host->check_now = false;
  host->discard_answer = false;
}

TopologyActions Topology::check_succeeded(const HostAddress& address, ServerDescription server,
                                          const BuildInfo& build, Duration round_trip,
                                          TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr) return actions;
  host->checking = false;
  host->last_check = now;
  host->answered = true;
  host->build = build;
  host->round_trip = host->measured ? moving_average(host->round_trip, round_trip) : round_trip;
  host->measured = true;
  if (std::exchange(host->discard_answer, false)) {
    request_check(*host, actions);
    return actions;
  }
  accept(*host, std::move(server), actions);
  host = find(address);  // hosts may have come and gone
  if (host != nullptr && host->server.known()) host->max_wire_version = host->server.max_wire_version;
  return actions;
}

TopologyActions Topology::check_failed(const HostAddress& address, Error why, bool silent,
                                       TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr) return actions;
  host->checking = false;
  host->last_check = now;
  host->discard_answer = false;
  if (lacked_means(why)) return actions;
  host->measured = false;
  host->logins_refused = 0;
  host->login_pause_end = TimePoint::min();
  const bool refused = why.is(ErrorCode::illegal_operation) || why.is(ErrorCode::protocol_error);
  host->server = unknown_server(std::move(why), now, refused);
  actions.push_back({Kind::drop_pool, address});
  if (silent) actions.push_back({Kind::fail_in_flight, address});
  return actions;
}

TopologyActions Topology::state_change_error(const HostAddress& address, std::int32_t code,
                                             const std::optional<TopologyVersion>& version,
                                             TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr) return actions;
  const auto& known = host->server.topology_version;
  if (version && known && version->not_after(*known)) return actions;
  // A command that met a step-down may end, on any worker, after the host's hello has already said that it is no
  // primary.
  if (host->server.type == ServerType::rs_secondary && is_not_primary(code)) return actions;
  const bool was_known = host->server.known();
  host->discard_answer = host->checking;
  host->server = unknown_server(Error(code, fmt::format("it answered with code {}", code)), now);
  if (is_shutdown(code)) actions.push_back({Kind::drop_pool, address});
  if (was_known) request_check(*host, actions);
  return actions;
}

TopologyActions Topology::network_error(const HostAddress& address, Error why, TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr || lacked_means(why)) return actions;
  const bool was_known = host->server.known();
  host->discard_answer = host->checking;
  host->server = unknown_server(std::move(why), now);
  actions.push_back({Kind::drop_pool, address});
  if (was_known) request_check(*host, actions);
  return actions;
}

TopologyActions Topology::login_refused(const HostAddress& address, Error why, TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr || now < host->login_pause_end) return actions;
  constexpr int doublings_max = 16;
  const std::int64_t pause_ms = std::min(
      options_.expedited_heartbeat_ms << std::min(host->logins_refused, doublings_max), options_.heartbeat_ms);
  ++host->logins_refused;
  host->login_pause_end = now + std::chrono::milliseconds(pause_ms);
  const bool was_known = host->server.known();
  if (was_known) host->refused_as = host->server.type;
  host->discard_answer = host->checking;
  host->server = unknown_server(std::move(why), now, true);
  actions.push_back({Kind::drop_pool, address});
  if (was_known) request_check(*host, actions);
  return actions;
}

TopologyActions Topology::login_accepted(const HostAddress& address) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr || host->logins_refused == 0) return actions;
  host->logins_refused = 0;
  host->login_pause_end = TimePoint::min();
  if (!host->server.known()) request_check(*host, actions);
  return actions;
}

TopologyActions Topology::try_logins_again() {
  TopologyActions actions;
  for (Host& host : hosts_) {
    if (host.logins_refused == 0 || host.login_pause_end == TimePoint::min()) continue;
    host.login_pause_end = TimePoint::min();
    if (!host.server.known()) request_check(host, actions);
  }
  return actions;
}

TopologyActions Topology::no_progress(const HostAddress& address, TimePoint now) {
  TopologyActions actions;
  Host* host = find(address);
  if (host == nullptr || host->checking || !host->server.known()) return actions;
  if (now - host->last_check < no_progress_interval) return actions;
  request_check(*host, actions);
  return actions;
}

TimePoint Topology::next_check(const HostAddress& address, bool request_waits) const {
  const Host* host = find(address);
  if (host == nullptr || host->checking) return time_point_never;
  if (host->check_now || host->last_check == TimePoint::min()) return host->login_pause_end;
  const bool expedited = request_waits || !host->server.known();
  const std::int64_t interval_ms =
      expedited ? std::min(options_.expedited_heartbeat_ms, options_.heartbeat_ms)
                : options_.heartbeat_ms;
  return std::max(host->last_check + std::chrono::milliseconds(interval_ms), host->login_pause_end);
}

// --- changes by an answer

void Topology::accept(Host& host, ServerDescription server, TopologyActions& actions) {
  const TimePoint now = server.updated;
  if (options_.direct) {
    if (!options_.set_name.empty() && server.set_name != options_.set_name) {
      host.server = unknown_server(
          Error(ErrorCode::illegal_operation,
                fmt::format("it is no member of the replica set '{}'", options_.set_name)),
          now, true);
      return;
    }
    set_name_ = server.set_name;
    host.server = std::move(server);
    return;
  }
  if (server.type == ServerType::standalone) {
    if (!replica_set_) {
      host.server = std::move(server);
      return;
    }
    host.server = unknown_server(
        Error(ErrorCode::illegal_operation,
              fmt::format("it is a standalone, not a member of the replica set '{}'", set_name_)),
        now, true);
    return;
  }
  if (server.set_name.empty()) {
    host.server =
        unknown_server(Error(ErrorCode::host_unreachable, "its replica set is not initiated"), now);
    return;
  }
  if (set_name_.empty()) set_name_ = server.set_name;
  replica_set_ = true;
  if (server.set_name != set_name_) {
    host.server = unknown_server(Error(ErrorCode::illegal_operation,
                                       fmt::format("it belongs to the replica set '{}', not '{}'",
                                                   server.set_name, set_name_)),
                                 now, true);
    return;
  }
  accept_member(host, std::move(server), actions);
}

void Topology::accept_member(Host& host, ServerDescription server, TopologyActions& actions) {
  if (server.type == ServerType::rs_primary) {
    accept_primary(host, std::move(server), actions);
  } else {
    accept_other(host, std::move(server), actions);
  }
}

bool Topology::stale_primary(const ServerDescription& server) const {
  if (!server.election_id || !server.set_version || !election_id_max_ || !set_version_max_) {
    return false;
  }
  if (server.max_wire_version >= election_first_wire_version) {
    return std::pair(*server.election_id, *server.set_version) <
           std::pair(*election_id_max_, *set_version_max_);
  }
  return std::pair(*server.set_version, *server.election_id) <
         std::pair(*set_version_max_, *election_id_max_);
}

void Topology::accept_primary(Host& host, ServerDescription server, TopologyActions& actions) {
  const TimePoint now = server.updated;
  if (stale_primary(server)) {
    host.server = unknown_server(
        Error(ErrorCode::host_unreachable, "it is a primary of an older election"), now);
    return;
  }
  if (server.election_id) election_id_max_ = server.election_id;
  if (server.set_version) {
    // Since 6.0 the election counts before the version, which may be lower after a failover. (Specification of
    // discovery and monitoring, "updateRSFromPrimary")
    const bool is_pair = server.max_wire_version >= election_first_wire_version && server.election_id;
    set_version_max_ = is_pair ? *server.set_version
                               : std::max(set_version_max_.value_or(*server.set_version), *server.set_version);
  }
  const HostAddress self = host.address;
  const std::vector<HostAddress> list = server.hosts;
  host.server = std::move(server);
  for (Host& other : hosts_) {
    if (other.address == self || other.server.type != ServerType::rs_primary) continue;
    other.discard_answer = other.checking;
    other.server = unknown_server(
        Error(ErrorCode::host_unreachable, "another host has become the primary"), now);
    request_check(other, actions);
  }
  if (list.empty()) return;
  add_hosts(list, actions);  // `host` is not valid from here on
  remove_hosts_not_in(list, actions);
}

void Topology::accept_other(Host& host, ServerDescription server, TopologyActions& actions) {
  const HostAddress self = host.address;
  const std::vector<HostAddress> list = server.hosts;
  const bool goes_by_another_name = server.me && !(*server.me == self) && !list.empty() &&
                                    std::find(list.begin(), list.end(), self) == list.end();
  host.server = std::move(server);
  if (primary() != nullptr) return;  // the primary's list is the one that counts
  add_hosts(list, actions);
  if (goes_by_another_name) {
    std::erase_if(hosts_, [&](const Host& each) { return each.address == self; });
    actions.push_back({Kind::remove_host, self});
  }
}

void Topology::add_hosts(const std::vector<HostAddress>& list, TopologyActions& actions) {
  for (const HostAddress& address : list) {
    if (find(address) != nullptr) continue;
    Host& host = hosts_.emplace_back();
    host.address = address;
    host.server.error = Error(ErrorCode::host_unreachable, "not contacted yet");
    actions.push_back({Kind::add_host, address});
  }
}

void Topology::remove_hosts_not_in(const std::vector<HostAddress>& list, TopologyActions& actions) {
  std::erase_if(hosts_, [&](const Host& host) {
    if (std::find(list.begin(), list.end(), host.address) != list.end()) return false;
    actions.push_back({Kind::remove_host, host.address});
    return true;
  });
}

std::string Topology::explain() const {
  std::string text;
  for (const Host& host : hosts_) {
    fmt::format_to(std::back_inserter(text), "{}{} is {}", text.empty() ? "" : "; ",
                   host.address.text(), server_type_name(host.server.type));
    if (host.server.error) {
      fmt::format_to(std::back_inserter(text), " ({})", host.server.error->message);
    }
  }
  return text.empty() ? "no hosts are left" : text;
}

}  // namespace spillway::shard
