// RemoteShard: one shard as one worker sees it: a copy of its topology (shared_shard.h), and a pool for each host.
// Belongs to one loop's thread.
//
// A host's failure changes the copy at once, so that no command goes there again, and is reported. If a topology
// without the report is published meanwhile, it is changed in the same way.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proxy/shard/connection_string.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/pool.h"
#include "proxy/shard/shared_shard.h"
#include "proxy/shard/topology.h"
#include "proxy/shard/waiter.h"

namespace spillway::shard {

// Life: start() → leases → (retire() →) stop() → quiet() → destroyed.
class RemoteShard final : private PoolOwner, private TopologyFollower {
 public:
  // `settings` are the worker's; a connectTimeoutMS in the connection string overrides theirs. `shared`: null if this
  // is the first worker, which makes and leads it. `counts`: its connections are counted there.
  RemoteShard(const PoolSettings& settings, const GatewayOptions& options, std::string name,
              ConnectionString connection_string, std::shared_ptr<SharedShard> shared, ShardListener& listener,
              CallCounts& counts);
  ~RemoteShard() = default;
  RemoteShard(const RemoteShard&) = delete;
  RemoteShard& operator=(const RemoteShard&) = delete;

  // Before start(), and again: Gateway::use_credentials().
  void use_credentials(const ShardCredentials& credentials);
  void start();

  // A connection to a host that suits the options; an empty lease if that needs a wait. Errors: those of lease() that
  // waiting does not cure.
  Result<Lease> try_lease(const CallOptions& options);
  // The same, waiting until `until` for a host, and as Pool::acquire() does for a connection. Errors:
  // FailedToSatisfyReadPreference(133), HostUnreachable(6), NetworkTimeout(89),
  // IllegalOperation(20), NetworkInterfaceExceededTimeLimit(202), MaxStalenessOutOfRange(160), the interrupt's.
  Task<Result<Lease>> lease(const CallOptions& options, TimePoint until);

  // The outcome of commands. `generation`: of the connection's pool when it was opened.
  void network_error(const HostAddress& host, std::uint64_t generation, const Error& why);
  void state_change_error(const HostAddress& host, std::int32_t code, DocView reply);

  void tick(TimePoint now);
  void abort_calls();
  // It is no shard any more: no leases, ShardNotFound(70). Those on loan go on.
  void retire();
  void stop();
  bool quiet() const noexcept;

  bool answered() const noexcept { return topology_.answered(); }
  bool is_retired() const noexcept { return is_retired_; }
  bool replica_set() const noexcept { return topology_.replica_set(); }
  const std::string& name() const noexcept { return name_; }
  const std::shared_ptr<SharedShard>& shared() const noexcept { return shared_; }
  Duration connect_timeout() const noexcept;
  // How long a request waits until a host of a set is fit for it. With the defaults of servers a set has no primary for
  // up to 12 s after its primary died. A mongos waits 20 s, too.
  Duration host_patience() const noexcept;
  ShardState state() const;
  void update_counts(ShardState& state) const;  // REQUIRES state() since the last change
  // Has more than the counts of state() changed since the last call?
  bool take_change() noexcept { return std::exchange(has_changed_, false); }

 private:
  struct Member {
    Member(const PoolSettings& settings, const HostAddress& address, RemoteShard& owner)
        : pool(settings, address, owner) {}
    Pool pool;
    std::unique_ptr<Pool> as_router;  // for CallOptions::as_router; null until the first

    template <class Work>
    void each(const Work& work) const {
      work(const_cast<Pool&>(pool));
      if (as_router) work(*as_router);
    }
    // Of both pools.
    std::size_t sum(std::size_t (Pool::*count)() const noexcept) const {
      return (pool.*count)() + (as_router ? (as_router.get()->*count)() : 0);
    }
    bool quiet() const noexcept { return pool.quiet() && (!as_router || as_router->quiet()); }
    std::uint64_t returned_seen = 0;  // leases returned, as last seen, and since when
    TimePoint returned_since{};
  };

  // PoolOwner
  void connect_failed(const HostAddress& host, const Error& why) override;
  void login_refused(const HostAddress& host, const Error& why) override;
  void login_accepted(const HostAddress& host) override;
  void connection_opened() override { counts_.opened.add(); }
  void stopped_pool_changed() override;
  // TopologyFollower
  void topology_published(const Topology& topology, std::uint64_t reports,
                          const TopologyActions& for_pools) override;
  void shard_retired() override { retire(); }

  Member* find(const HostAddress& host) const noexcept;
  void add_member(const HostAddress& host);
  void follow_members();
  std::uint64_t report(TopologyReport report);
  void perform(const TopologyActions& actions);
  void changed();
  void watch_progress(Member& member, TimePoint now);
  Pool& pool_of(Member& member, const CallOptions& options);
  Result<Member*> select(const CallOptions& options);
  Task<Result<Member*>> choose(const CallOptions& options, TimePoint until);
  Error none_eligible(const CallOptions& options) const;
  Error no_member(const HostAddress& host) const;

  PoolSettings settings_;
  PoolSettings settings_as_router_;
  std::string name_;
  ShardListener& listener_;
  CallCounts& counts_;
  bool leads_;
  Topology topology_;  // a copy
  std::shared_ptr<SharedShard> shared_;
  SharedShard::SubscriptionPtr subscription_;
  std::deque<TopologyReport> unheard_;  // reports that the published topology does not contain yet
  std::uint64_t heard_ = 0;             // the number of reports that it contains
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<Member>> retired_;
  WaiterLine choosing_;  // requests that wait for a host
  std::size_t requests_waiting_ = 0;
  std::uint64_t random_;
  bool stopped_ = false;
  bool is_retired_ = false;
  bool has_changed_ = false;
};

}  // namespace spillway::shard
