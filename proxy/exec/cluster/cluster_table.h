// ClusterTable: the first worker's part of routing in a cluster. It reads the config servers for all workers, and
// makes shards known to all of them.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/base/tls_context.h"
#include "proxy/cluster/catalog_cache.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// The shards that a cluster's router knows before it has read anything.
Routes::Table table_of_config_servers(std::string uri);

// How shards are reached, each of them the same way.
struct ClusterLinks {
  std::optional<TlsClientSettings> tls;
  shard::ShardCredentials credentials;
};

// The first worker's thread only, but for worker(). Owned by the server, outlives the workers' loops.
class ClusterTable final : public cluster::ShardDirectory {
 public:
  // `config_servers`: table_of_config_servers().
  ClusterTable(Context& first, Routes::Table config_servers, ClusterLinks links);

  // Reads the cluster's id and its shards. Errors: those of the config servers.
  Task<Result<void>> start();
  // Every quarter of a second: when it is time, reads the shards again, and tells the config servers that this router
  // is there (config.mongos). Nothing before start() knows the cluster's id.
  void tick(TimePoint now);

  Task<Result<cluster::KnownDatabase>> database(std::string name, std::uint64_t after, bool make);
  Task<Result<cluster::KnownCollection>> collection(std::string ns, std::uint64_t after);

  Task<Result<void>> use(std::vector<catalog::ShardEntry> shards) override;
  std::optional<catalog::ShardIndex> index_of(std::string_view name) const override;

  // The next request for these names gets what is read from now on (CatalogCache::forget).
  void forget(std::string_view db, std::string_view collection);
  // What setDefaultRWConcern has set: the workers use what it is now. A failed read changes nothing.
  Task<Result<void>> read_concern_defaults();
  // Reads the keys of cluster times, at most once a second; one read serves all requests meanwhile. False: it was
  // done a moment ago.
  Task<Result<bool>> look_for_keys();
  // Reads config.shards.
  Task<Result<void>> read_shards() { return cache_.shards(); }
  // Reads config.shards until it is known which there are at this time, as far as one read tells it; one read serves
  // all callers meanwhile, ten times a second at most. The time up to which it is known.
  Task<Result<std::uint64_t>> know_shards(std::uint64_t time);

  // Asks each new shard which cluster it belongs to; one of another cluster is left out from then on. Nothing before
  // start() knows the cluster's id.
  Task<Result<void>> check_identities();

  // A command for the config servers' primary.
  cluster::ConfigClient& config() noexcept { return config_; }
  const cluster::CatalogCache& cache() const noexcept { return cache_; }
  Routes::Table shards() const noexcept { return table_; }
  Context& worker() noexcept { return first_; }

 private:
  Task<void> look_again();
  Task<void> look_at_shards();
  Task<void> read_keys();
  bool keys_expire() const;
  Task<void> read_expiring_keys();
  Task<void> ping();
  Task<void> check_identity(const catalog::Shard& shard);
  Task<Result<catalog::ObjectId>> cluster_of(catalog::ShardIndex shard);
  bool names_other_servers(const catalog::Shard& shard, const catalog::ShardEntry& entry);
  Result<std::string> uri_of(const catalog::ShardEntry& entry) const;
  void leave_out(const catalog::Shard& shard, const catalog::ObjectId& cluster);
  void publish(std::vector<catalog::Shard> shards);
  void forget_on_all(const std::string& db);
  Task<void> forget_changed_databases();

  Context& first_;
  ClusterLinks links_;
  cluster::ConfigClient config_;
  cluster::CatalogCache cache_;
  Routes::Table table_;
  std::optional<catalog::ObjectId> cluster_id_;  // none: start() has not read it
  absl::flat_hash_set<std::string> identified_;  // shards of this cluster
  absl::flat_hash_map<std::string, std::string> strangers_;  // of another one, with their connection strings
  absl::flat_hash_map<std::string, TimePoint> unheard_of_;  // shards whose entry names none of the hosts known, since
  std::uint64_t shards_known_at_ = 0, shard_looks_begun_ = 0, shard_looks_ended_ = 0;
  std::optional<Error> shards_unknown_;  // of the last look that failed
  std::vector<Event*> shards_waiters_;
  TimePoint next_look_{}, next_ping_{}, next_keys_{}, next_look_at_shards_{}, next_drop_{};
  bool looking_ = false, pinging_ = false, reading_keys_ = false, looking_at_shards_ = false;
  std::vector<Event*> key_waiters_;
  std::uint64_t forgotten_ = 0;  // how often something was forgotten
  bool keys_refused_ = false;
  catalog::ConcernDefaults::Ptr concern_defaults_;
  std::uint64_t concern_reads_ = 0, concern_read_used_ = 0;  // their numbers
};

// What was known of these names before is not used by a command that begins when this has returned, on any worker.
// Both empty: all names; no collection: all of the database.
Task<void> forget_everywhere(Context& context, std::string db, std::string collection);
// ClusterTable::know_shards(): when it returns, this worker's next commands know these shards. Errors: of the config
// servers, of the wait.
Task<Result<std::uint64_t>> know_shards(Context& context, std::uint64_t time, RouteWait wait);
// Reads config.shards: when it returns, all workers' next commands know what it says. Errors: of the config servers, of
// the wait.
Task<Result<void>> read_shards_again(Context& context, RouteWait wait);
// Reads what setDefaultRWConcern has set, likewise.
Task<Result<void>> read_concern_defaults_again(Context& context, RouteWait wait);

}  // namespace spillway::exec
