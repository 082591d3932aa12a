#include "proxy/shard/shared_shard.h"

#include <algorithm>
#include <utility>

#include "proxy/base/log.h"

namespace spillway::shard {

namespace {

// Of refused logins to a host, the first of so many in a row is logged: with their pauses one a minute.
constexpr int refusals_per_line = 6;
constexpr std::size_t changes_logged_max = 20;
constexpr Duration changes_period = std::chrono::seconds(10);

std::string_view remedy_of_login(const auth::ServiceLogin* login) {
  if (login == nullptr) return "see its log";
  if (login->internal() && login->passwords() == 0) {
    return "compare O, OU and DC of net.tls.clusterFile (or certificateKeyFile) here and on the server";
  }
  if (login->internal()) return "compare security.keyFile here and on the server";
  return "compare the user and the password (security.shards, or the connection string) with the server's";
}

}  // namespace

class SharedShard::Subscription {
 public:
  Subscription(Loop& on, TopologyFollower& told) : loop(on), follower(&told) {}

  Loop& loop;
  TopologyFollower* follower;  // of `loop`'s thread; null: it has unsubscribed
  // Of the monitors' thread.
  std::uint64_t reports = 0;
  TopologyActions for_pools;  // since the last publication
};

SharedShard::SharedShard(const PoolSettings& settings, TopologyOptions options, ShardListener& listener)
    : settings_(settings), listener_(listener), topology_(std::move(options)) {}

void SharedShard::start() {
  for (const Topology::Host& host : topology_.hosts()) {
    monitors_.push_back(make_monitor(host.address));
  }
  // A monitor may report before it first suspends, and so change the list: walk a copy.
  std::vector<Monitor*> seeds;
  for (const auto& monitor : monitors_) seeds.push_back(monitor.get());
  for (Monitor* monitor : seeds) settings_.loop.spawn(monitor->run());
}

void SharedShard::tick() {
  std::erase_if(retired_, [](const auto& monitor) { return monitor->ended(); });
}

void SharedShard::stop() {
  stopped_ = true;
  for (const auto& monitor : monitors_) monitor->stop();
}

void SharedShard::retire() {
  stop();
  for (auto& monitor : monitors_) retired_.push_back(std::move(monitor));
  monitors_.clear();
  is_retired_ = true;
  publish();
}

bool SharedShard::quiet() const noexcept {
  const auto ended = [](const auto& monitor) { return monitor->ended(); };
  return std::all_of(monitors_.begin(), monitors_.end(), ended) &&
         std::all_of(retired_.begin(), retired_.end(), ended);
}

// --- workers

SharedShard::SubscriptionPtr SharedShard::subscribe(Loop& loop, TopologyFollower& follower) {
  auto subscription = std::make_shared<Subscription>(loop, follower);
  settings_.loop.post([self = shared_from_this(), subscription] {
    self->subscriptions_.push_back(subscription);
    self->publish();
  });
  return subscription;
}

void SharedShard::unsubscribe(const SubscriptionPtr& subscription) {
  subscription->follower = nullptr;
  settings_.loop.post([self = shared_from_this(), subscription] { std::erase(self->subscriptions_, subscription); });
}

void SharedShard::report(const SubscriptionPtr& by, TopologyReport report) {
  settings_.loop.post([self = shared_from_this(), by, report = std::move(report)] { self->take_report(*by, report); });
}

void SharedShard::take_report(Subscription& by, const TopologyReport& report) {
  ++by.reports;
  if (report.event) {
    const ServerType before = topology_.type_of(report.host);
    const int refused_before = topology_.logins_refused(report.host);
    TopologyActions actions = report.event(topology_);
    // The reporter handles its own pool. The other workers' connections are broken, too: they are told once.
    if (before == ServerType::unknown) {
      std::erase_if(actions, [](const TopologyAction& action) { return action.is_for_pool(); });
    }
    perform(actions, &by);
    if (topology_.logins_refused(report.host) != refused_before) {
      log_login(report.host, refused_before);
    } else {
      log_change(report.host, before);
    }
  }
  publish();
}

void SharedShard::no_progress(const HostAddress& host) {
  settings_.loop.post(
      [self = shared_from_this(), host] { self->perform(self->topology_.no_progress(host, Clock::now())); });
}

void SharedShard::begin_wait() {
  if (requests_waiting_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  settings_.loop.post([self = shared_from_this()] { self->wake_monitors(); });
}

// All changes in one turn of the loop are published together.
void SharedShard::publish() {
  if (std::exchange(publishing_, true)) return;
  settings_.loop.post([self = shared_from_this()] { self->publish_now(); });
}

void SharedShard::publish_now() {
  publishing_ = false;
  if (is_retired_) {
    for (const SubscriptionPtr& each : subscriptions_) {
      each->loop.post([each] {
        if (each->follower != nullptr) each->follower->shard_retired();
      });
    }
    return;
  }
  const auto snapshot = std::make_shared<const Topology>(topology_);
  for (const SubscriptionPtr& each : subscriptions_) {
    each->loop.post([each, snapshot, reports = each->reports, for_pools = std::exchange(each->for_pools, {})] {
      if (each->follower != nullptr) each->follower->topology_published(*snapshot, reports, for_pools);
    });
  }
}

// --- monitors

std::unique_ptr<Monitor> SharedShard::make_monitor(const HostAddress& host) {
  MonitorSink& sink = *this;
  return std::make_unique<Monitor>(settings_, host, sink);
}

void SharedShard::add_monitor(const HostAddress& host) {
  if (stopped_) return;
  log::info("Shard {}: host {} was discovered", topology_.options().name, host.text());
  monitors_.push_back(make_monitor(host));
  settings_.loop.spawn(monitors_.back()->run());
}

void SharedShard::retire_monitor(const HostAddress& host) {
  for (auto& monitor : monitors_) {
    if (!(monitor->address() == host)) continue;
    log::info("Shard {}: host {} is no member any more", topology_.options().name, host.text());
    monitor->stop();
    retired_.push_back(std::move(monitor));
    std::erase(monitors_, nullptr);
    return;
  }
}

void SharedShard::wake_monitors() {
  for (const auto& monitor : monitors_) monitor->wake();
}

void SharedShard::perform(const TopologyActions& actions, const Subscription* done_by) {
  using Kind = TopologyAction::Kind;
  for (const TopologyAction& action : actions) {
    switch (action.kind) {
      case Kind::add_host:
        add_monitor(action.host);
        break;
      case Kind::remove_host:
        retire_monitor(action.host);
        break;
      case Kind::check_now:
        for (const auto& monitor : monitors_) {
          if (monitor->address() == action.host) monitor->wake();
        }
        break;
      case Kind::drop_pool:
      case Kind::fail_in_flight:
        for (const SubscriptionPtr& each : subscriptions_) {
          if (each.get() != done_by) each->for_pools.push_back(action);
        }
        break;
    }
  }
}

// A host that has no room for connections is lost with each attempt, and found again by the monitor's connection.
void SharedShard::log_change(const HostAddress& host, ServerType before) {
  const ServerType now = topology_.type_of(host);
  if (now == before) return;
  const std::string& name = topology_.options().name;
  if (Clock::now() >= changes_since_ + changes_period) {
    changes_since_ = Clock::now();
    changes_logged_ = 0;
  }
  if (++changes_logged_ > changes_logged_max) {
    if (changes_logged_ == changes_logged_max + 1) {
      log::warning("Shard {}: its hosts are lost and found all the time; further changes of these {} s are not told",
                   name, std::chrono::duration_cast<std::chrono::seconds>(changes_period).count());
    }
    return;
  }
  if (now == ServerType::unknown) {
    log::warning("Shard {}: lost {}; {}", name, host.text(), topology_.explain());
  } else {
    log::info("Shard {}: {} is {}", name, host.text(), server_type_name(now));
  }
}

void SharedShard::log_login(const HostAddress& host, int refused_before) const {
  const std::string& name = topology_.options().name;
  const int refused = topology_.logins_refused(host);
  if (refused == 0) {
    log::info("Shard {}: {} lets the router log in now", name, host.text());
    return;
  }
  if (refused_before % refusals_per_line != 0) return;
  for (const Topology::Host& each : topology_.hosts()) {
    if (!(each.address == host) || !each.server.error) continue;
    log::warning("Shard {}: {}: {} (spillway doctor says more); the router tries again after pauses of up to {} s",
                 name, each.server.error->message, remedy_of_login(settings_.login.get()),
                 topology_.options().heartbeat_ms / 1'000);
  }
}

// A host that has never answered is reported once, and again when it fails in another way.
void SharedShard::log_unreachable(const HostAddress& address, const Error& why) const {
  for (const Topology::Host& host : topology_.hosts()) {
    if (!(host.address == address) || host.server.type != ServerType::unknown) continue;
    if (host.server.error && host.server.error->message == why.message) return;
    log::warning("Shard {}: {} cannot be used: {}", topology_.options().name, address.text(), why.message);
  }
}

void SharedShard::check_started(const HostAddress& host) { topology_.check_started(host); }

void SharedShard::check_succeeded(const HostAddress& host, ServerDescription server, const BuildInfo& build,
                                  Duration round_trip) {
  const ServerType before = topology_.type_of(host);
  const HostAddress address = host;  // the monitor may be retired below
  perform(topology_.check_succeeded(host, std::move(server), build, round_trip, Clock::now()));
  // While it refuses logins, that it answers is no news.
  if (before != ServerType::unknown || topology_.logins_refused(address) == 0) log_change(address, before);
  publish();
}

void SharedShard::check_failed(const HostAddress& host, Error why, bool silent) {
  const ServerType before = topology_.type_of(host);
  log_unreachable(host, why);
  perform(topology_.check_failed(host, std::move(why), silent, Clock::now()));
  log_change(host, before);
  publish();
}

TimePoint SharedShard::next_check(const HostAddress& host) {
  return topology_.next_check(host, requests_waiting_.load(std::memory_order_relaxed) > 0);
}

void SharedShard::monitor_ended() { listener_.shard_changed(); }

}  // namespace spillway::shard
