// SharedShard: what the workers of a process share of one shard: its topology, and a monitor for each host.
//
//   worker ──report()──▶ the topology ──published──▶ each worker's copy of it, by which it chooses hosts
//             monitors ──────▲
//
// It lives on the loop of the first worker: that one ends last in a shutdown, and an occasional hello per host is too
// little load to spread. Loops post to each other: there are no locks, and each worker gets all in order.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/shard/gateway.h"
#include "proxy/shard/monitor.h"
#include "proxy/shard/pool.h"
#include "proxy/shard/topology.h"

namespace spillway::shard {

class ShardListener {
 public:
  // The shard's state has changed, or (once stopped) it may have become quiet.
  virtual void shard_changed() = 0;

 protected:
  ~ShardListener() = default;
};

// One worker's end. Called on its loop.
class TopologyFollower {
 public:
  // `reports`: how many of this follower's reports the topology contains. `for_pools`: the events since the last
  // call.
  virtual void topology_published(const Topology& topology, std::uint64_t reports,
                                  const TopologyActions& for_pools) = 0;
  // No more is published: it is no shard any more.
  virtual void shard_retired() = 0;

 protected:
  ~TopologyFollower() = default;
};

// A worker's observation of a host: an event of Topology, which the worker's copy gets as well; empty: it only asks
// for the newest topology.
struct TopologyReport {
  HostAddress host;
  std::function<TopologyActions(Topology&)> event;
};

// Life: start() → stop() → quiet() → destroyed. Its loop and those of its subscriptions outlive all that is posted to
// them.
class SharedShard final : public std::enable_shared_from_this<SharedShard>, private MonitorSink {
 public:
  class Subscription;
  using SubscriptionPtr = std::shared_ptr<Subscription>;

  SharedShard(const PoolSettings& settings, TopologyOptions options, ShardListener& listener);

  // --- its loop's thread
  void use_credentials(const ShardCredentials& credentials) {
    settings_.tls = credentials.tls;
    settings_.login = credentials.login;
  }
  void start();
  void tick();
  void stop();
  // Stops for good while the loop goes on, and tells the followers, those too that come later.
  void retire();
  bool quiet() const noexcept;

  // --- any thread, until the loop has stopped
  SubscriptionPtr subscribe(Loop& loop, TopologyFollower& follower);
  // On the subscription's loop: the follower gets no more calls.
  void unsubscribe(const SubscriptionPtr& subscription);
  // The next publication to the reporter contains it.
  void report(const SubscriptionPtr& by, TopologyReport report);
  void no_progress(const HostAddress& host);
  // A request waits for a host: hosts are asked more often.
  void begin_wait();
  void end_wait() noexcept { requests_waiting_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  // MonitorSink
  void check_started(const HostAddress& host) override;
  void check_succeeded(const HostAddress& host, ServerDescription server, const BuildInfo& build,
                       Duration round_trip) override;
  void check_failed(const HostAddress& host, Error why, bool silent) override;
  TimePoint next_check(const HostAddress& host) override;
  void monitor_ended() override;

  void take_report(Subscription& by, const TopologyReport& report);
  void perform(const TopologyActions& actions, const Subscription* done_by = nullptr);
  std::unique_ptr<Monitor> make_monitor(const HostAddress& host);
  void add_monitor(const HostAddress& host);
  void retire_monitor(const HostAddress& host);
  void wake_monitors();
  void publish();
  void publish_now();
  void log_unreachable(const HostAddress& host, const Error& why) const;
  void log_change(const HostAddress& host, ServerType before);
  void log_login(const HostAddress& host, int refused_before) const;

  PoolSettings settings_;
  ShardListener& listener_;
  Topology topology_;
  std::vector<std::unique_ptr<Monitor>> monitors_;
  std::vector<std::unique_ptr<Monitor>> retired_;  // that end
  std::vector<SubscriptionPtr> subscriptions_;
  std::atomic<std::size_t> requests_waiting_{0};  // of all workers
  std::size_t changes_logged_ = 0;                // since `changes_since_`
  TimePoint changes_since_{};
  bool publishing_ = false;                       // is posted
  bool stopped_ = false;
  bool is_retired_ = false;
};

}  // namespace spillway::shard
