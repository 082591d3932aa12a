#include "proxy/shard/remote_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "proxy/base/log.h"
#include "proxy/shard/interrupt.h"

namespace spillway::shard {

namespace {

const ReadPreference primary_only;

// Requests that take longer than this make their host's monitor ask for a sign of life.
constexpr auto progress_expected_within = std::chrono::seconds(1);

PoolSettings settings_of(PoolSettings settings, const ConnectionString& connection_string) {
  if (connection_string.connect_timeout_ms) {
    settings.connect_timeout_ms = *connection_string.connect_timeout_ms;
  }
  return settings;
}

PoolSettings as_router(PoolSettings settings) {
  settings.introduction.as_router = true;
  settings.limits.min = 0;
  settings.limits.max = std::max<std::size_t>(settings.limits.max / 2, 1);
  return settings;
}

TopologyOptions topology_options(const GatewayOptions& options, const std::string& name,
                                 ConnectionString connection_string) {
  TopologyOptions result;
  result.name = name;
  result.seeds = std::move(connection_string.hosts);
  result.set_name = std::move(connection_string.set_name);
  result.direct = connection_string.direct;
  result.heartbeat_ms = options.heartbeat_ms;
  result.expedited_heartbeat_ms = options.expedited_heartbeat_ms;
  result.local_threshold_ms = options.local_threshold_ms;
  return result;
}

}  // namespace

RemoteShard::RemoteShard(const PoolSettings& settings, const GatewayOptions& options,
                         std::string name, ConnectionString connection_string,
                         std::shared_ptr<SharedShard> shared, ShardListener& listener, CallCounts& counts)
    : settings_(settings_of(settings, connection_string)),
      settings_as_router_(as_router(settings_)),
      name_(std::move(name)),
      listener_(listener),
      counts_(counts),
      leads_(shared == nullptr),
      topology_(topology_options(options, name_, std::move(connection_string))),
      shared_(leads_ ? std::make_shared<SharedShard>(settings_, topology_.options(), listener) : std::move(shared)),
      random_(std::hash<std::string>{}(name_) | 1) {}

void RemoteShard::use_credentials(const ShardCredentials& credentials) {
  const bool same_user = auth::same_user(settings_.login.get(), credentials.login.get());
  for (PoolSettings* const each : {&settings_, &settings_as_router_}) {
    each->tls = credentials.tls;
    each->login = credentials.login;
  }
  if (leads_) shared_->use_credentials(credentials);
  if (subscription_ && topology_.any_login_refused()) {
    report({{}, [](Topology& topology) { return topology.try_logins_again(); }});
  }
  if (same_user) return;
  for (const auto& member : members_) member->each([](Pool& pool) { pool.drop(); });
}

void RemoteShard::start() {
  follow_members();
  if (leads_) shared_->start();
  subscription_ = shared_->subscribe(settings_.loop, *this);
}

Duration RemoteShard::connect_timeout() const noexcept {
  return std::chrono::milliseconds(settings_.connect_timeout_ms);
}

Duration RemoteShard::host_patience() const noexcept {
  constexpr Duration of_a_set = std::chrono::seconds(20);
  return replica_set() ? std::max(connect_timeout(), of_a_set) : connect_timeout();
}

// --- members

RemoteShard::Member* RemoteShard::find(const HostAddress& host) const noexcept {
  for (const auto& member : members_) {
    if (member->pool.address() == host) return member.get();
  }
  return nullptr;
}

void RemoteShard::add_member(const HostAddress& host) {
  // Each reply carries the name: it is not shared with the other workers.
  const HostAddress own{host.host.separate(), host.port};
  members_.push_back(std::make_unique<Member>(settings_, own, *this));
}

void RemoteShard::follow_members() {
  for (const Topology::Host& host : topology_.hosts()) {
    if (find(host.address) == nullptr) add_member(host.address);
  }
  for (auto& member : members_) {
    if (topology_.is_member(member->pool.address())) continue;
    retired_.push_back(std::move(member));
    retired_.back()->each([](Pool& pool) { pool.stop(); });
  }
  std::erase(members_, nullptr);
}

void RemoteShard::perform(const TopologyActions& actions) {
  using Kind = TopologyAction::Kind;
  for (const TopologyAction& action : actions) {
    Member* member = find(action.host);
    if (member == nullptr) continue;
    if (action.kind == Kind::drop_pool) member->each([](Pool& pool) { pool.drop(); });
    if (action.kind == Kind::fail_in_flight) {
      const Error why(ErrorCode::network_timeout,
                      fmt::format("no sign of life for {} ms", settings_.connect_timeout_ms));
      member->each([&why](Pool& pool) { pool.fail_in_flight(why); });
    }
  }
}

void RemoteShard::changed() {
  has_changed_ = true;
  wake_all(choosing_);
  listener_.shard_changed();
}

// --- what happened

// Returns the report's number: when heard_ reaches it, the report is part of topology_.
std::uint64_t RemoteShard::report(TopologyReport report) {
  if (report.event) perform(report.event(topology_));
  unheard_.push_back(report);
  shared_->report(subscription_, std::move(report));
  return heard_ + unheard_.size();
}

void RemoteShard::topology_published(const Topology& topology, std::uint64_t reports,
                                     const TopologyActions& for_pools) {
  topology_ = topology;
  for (; heard_ < reports; ++heard_) unheard_.pop_front();
  for (const TopologyReport& each : unheard_) {
    if (each.event) each.event(topology_);
  }
  perform(for_pools);
  follow_members();
  changed();
}

void RemoteShard::stopped_pool_changed() { listener_.shard_changed(); }

void RemoteShard::connect_failed(const HostAddress& host, const Error& why) {
  report({host, [host, why, now = Clock::now()](Topology& topology) {
            return topology.network_error(host, why, now);
          }});
  changed();
}

void RemoteShard::login_refused(const HostAddress& host, const Error& why) {
  report({host, [host, why, now = Clock::now()](Topology& topology) {
            return topology.login_refused(host, why, now);
          }});
  changed();
}

void RemoteShard::login_accepted(const HostAddress& host) {
  if (topology_.logins_refused(host) == 0) return;
  report({host, [host](Topology& topology) { return topology.login_accepted(host); }});
}

void RemoteShard::network_error(const HostAddress& host, std::uint64_t generation,
                                const Error& why) {
  const Member* member = find(host);
  // Connections that break together drop a pool only once.
  if (member == nullptr || member->pool.generation() != generation) return;
  connect_failed(host, why);
}

void RemoteShard::state_change_error(const HostAddress& host, std::int32_t code, DocView reply) {
  const auto version = TopologyVersion::parse(reply["topologyVersion"]);
  report({host, [host, code, version, now = Clock::now()](Topology& topology) {
            return topology.state_change_error(host, code, version, now);
          }});
  changed();
}

// --- leases

Error retired_error() { return Error(ErrorCode::shard_not_found, "it is no shard of the cluster any more"); }

Result<RemoteShard::Member*> RemoteShard::select(const CallOptions& options) {
  if (is_retired_) return retired_error();
  if (stopped_) return Error(ErrorCode::host_unreachable, "the proxy is shutting down");
  if (options.host) return find(*options.host);
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const ReadPreference& preference =
      options.read_preference != nullptr ? *options.read_preference : primary_only;
  auto host = topology_.select(preference, random_);
  if (host.has_error()) return host.error();
  if (*host == nullptr) return nullptr;
  return find((*host)->address);
}

Pool& RemoteShard::pool_of(Member& member, const CallOptions& options) {
  if (!options.as_router) return member.pool;
  if (!member.as_router) {
    PoolOwner& owner = *this;
    member.as_router =
        std::make_unique<Pool>(settings_as_router_, member.pool.address(), owner, member.pool.generation());
  }
  return *member.as_router;
}

Result<Lease> RemoteShard::try_lease(const CallOptions& options) {
  auto member = select(options);
  if (member.has_error()) return member.error();
  if (*member == nullptr) return Lease();
  return pool_of(**member, options).try_acquire(options.use);
}

Error RemoteShard::none_eligible(const CallOptions& options) const {
  const ReadMode mode =
      options.read_preference != nullptr ? options.read_preference->mode : ReadMode::primary;
  return Error(
      ErrorCode::failed_to_satisfy_read_preference,
      fmt::format("Could not find host matching read preference {{ mode: \"{}\" }} for set {} "
                  ":: caused by :: {}",
                  read_mode_name(mode), topology_.set_name(), topology_.explain()));
}

Error RemoteShard::no_member(const HostAddress& host) const {
  return Error(ErrorCode::host_unreachable,
               fmt::format("{} is no member of the shard any more", host.text()));
}

Task<Result<RemoteShard::Member*>> RemoteShard::choose(const CallOptions& options,
                                                       TimePoint until) {
  // A cursor's host may be a member that so far only another worker knows.
  std::uint64_t asked = 0;
  for (;;) {
    if (const Error* why = requested_of(options.interrupt)) co_return *why;
    auto selected = select(options);
    if (selected.has_error() || *selected != nullptr) co_return selected;
    if (options.host && asked == 0) asked = report({});
    if (options.host && heard_ >= asked) co_return no_member(*options.host);
    ++requests_waiting_;
    if (!options.host) shared_->begin_wait();
    Waiter waiter(settings_.loop, until);
    choosing_.push_back(waiter);
    const Interruptible interruptible(options.interrupt, waiter);
    const bool called = co_await waiter;
    --requests_waiting_;
    if (!options.host) shared_->end_wait();
    if (const Error* why = requested_of(options.interrupt)) co_return *why;
    if (!called) co_return options.host ? no_member(*options.host) : none_eligible(options);
  }
}

Task<Result<Lease>> RemoteShard::lease(const CallOptions& options, TimePoint until) {
  auto member = co_await choose(options, until);
  if (member.has_error()) co_return member.error();
  const TimePoint connected_by = std::min(options.deadline, Clock::now() + connect_timeout());
  co_return co_await pool_of(**member, options).acquire(connected_by, options.deadline, options.use,
                                                        options.interrupt);
}

// --- housekeeping

void RemoteShard::watch_progress(Member& member, TimePoint now) {
  std::uint64_t returned = 0;
  member.each([&returned](const Pool& pool) { returned += pool.returned(); });
  if (member.sum(&Pool::in_use) == 0 || returned != member.returned_seen) {
    member.returned_seen = returned;
    member.returned_since = now;
  } else if (now - member.returned_since >= progress_expected_within) {
    if (!topology_.no_progress(member.pool.address(), now).empty()) shared_->no_progress(member.pool.address());
  }
}

void RemoteShard::tick(TimePoint now) {
  if (stopped_) return;
  if (leads_) shared_->tick();
  std::erase_if(retired_, [](const auto& member) { return member->quiet(); });
  const auto& hosts = topology_.hosts();
  const bool ends_cursors =
      std::any_of(hosts.begin(), hosts.end(), [](const Topology::Host& host) { return host.build.ferretdb; });
  for (const auto& member : members_) {
    watch_progress(*member, now);
    const ServerType type = topology_.type_of(member->pool.address());
    const bool useful = type != ServerType::unknown && type != ServerType::rs_arbiter &&
                        type != ServerType::rs_other;
    member->each([now, useful, ends_cursors](Pool& pool) { pool.tick(now, useful, ends_cursors); });
  }
}

void RemoteShard::abort_calls() {
  const Error why(ErrorCode::shutdown_in_progress, "the proxy is shutting down");
  for (const auto* list : {&members_, &retired_}) {
    for (const auto& member : *list) {
      member->each([&why](Pool& pool) {
        pool.fail_in_flight(why);
        pool.fail_requests(why);
      });
    }
  }
  wake_all(choosing_);
}

void RemoteShard::retire() {
  if (std::exchange(is_retired_, true)) return;
  log::info("Shard {} is no shard of the cluster any more", name_);
  if (leads_) shared_->retire();
  shared_->unsubscribe(subscription_);
  for (auto& member : members_) {
    member->each([](Pool& pool) {
      pool.fail_requests(retired_error());
      pool.stop();
    });
    retired_.push_back(std::move(member));
  }
  members_.clear();
  changed();
}

void RemoteShard::stop() {
  stopped_ = true;
  if (leads_) shared_->stop();
  shared_->unsubscribe(subscription_);
  for (const auto& member : members_) member->each([](Pool& pool) { pool.stop(); });
  wake_all(choosing_);
}

bool RemoteShard::quiet() const noexcept {
  const auto is_quiet = [](const auto& member) { return member->quiet(); };
  return stopped_ && requests_waiting_ == 0 && (!leads_ || shared_->quiet()) &&
         std::all_of(members_.begin(), members_.end(), is_quiet) &&
         std::all_of(retired_.begin(), retired_.end(), is_quiet);
}

// --- what it looks like

ShardState RemoteShard::state() const {
  ShardState state;
  state.name = name_;
  state.retired = is_retired_;
  if (is_retired_) return state;
  state.set_name = topology_.set_name();
  bool all_members = topology_.replica_set();
  std::int32_t lowest = 0;
  bool any_answered = false;
  bool sort_key = true;
  for (const Topology::Host& host : topology_.hosts()) {
    HostState& each = state.hosts.emplace_back();
    each.address = host.address;
    each.known = host.server.known();
    each.primary =
        host.server.type == ServerType::rs_primary || host.server.type == ServerType::standalone;
    each.secondary = host.server.type == ServerType::rs_secondary;
    each.ping_ms = std::chrono::duration_cast<std::chrono::milliseconds>(host.round_trip).count();
    if (host.answered) {
      any_answered = true;
      sort_key = sort_key && host.build.offers_sort_key;
      state.ferretdb = state.ferretdb || host.build.ferretdb;
    }
    if (const std::int32_t version = host.max_wire_version; version != 0) {
      lowest = lowest == 0 ? version : std::min(lowest, version);
    }
    if (each.known && host.server.set_name.empty()) all_members = false;
  }
  state.replica_set = all_members || (topology_.options().direct && !topology_.set_name().empty());
  state.offers_sort_key = any_answered && sort_key;
  state.max_wire_version = lowest;
  update_counts(state);
  return state;
}

void RemoteShard::update_counts(ShardState& state) const {
  for (HostState& each : state.hosts) {
    const Member* member = find(each.address);
    if (member == nullptr) continue;
    each.in_use = member->sum(&Pool::in_use);
    each.available = member->sum(&Pool::idle);
    each.created = member->sum(&Pool::created);
    each.waiting = member->sum(&Pool::waiting);
    each.connections_max = settings_.limits.max + (member->as_router ? settings_as_router_.limits.max : 0);
  }
}

}  // namespace spillway::shard
