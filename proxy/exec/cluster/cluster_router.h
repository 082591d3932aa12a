// ClusterRouter: one worker's knowledge of a cluster's databases and collections. What it does not know it asks the
// first worker for (cluster_table.h), and remembers.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proxy/cluster/catalog_cache.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/routes.h"

namespace spillway::exec {

class ClusterTable;

// Its worker's thread only.
class ClusterRouter final : public Router {
 public:
  // `table` is the first worker's; both outlive it. `shards`: of start-up.
  ClusterRouter(Context& context, ClusterTable& table, Routes::Table shards);

  std::optional<Routes> resolve(const RouteNames& names) override;
  Task<Result<void>> learn(RouteNames names, RouteWait wait) override;
  Task<void> learn_keys(RouteWait wait) override;
  Task<Result<std::uint64_t>> know_shards(std::uint64_t time, RouteWait wait);
  // Has the first worker read something again; all workers' next commands know it.
  using Reads = Task<Result<void>> (ClusterTable::*)();
  Task<Result<void>> read_again(Reads reads, RouteWait wait);
  void note_stale(RouteName name) override;
  void note_refused(const catalog::CollectionRouting& sent_by) override;
  void note_refused(const catalog::Database& sent_by) override;
  const catalog::ConcernDefaults* concern_defaults() const override { return concern_defaults_.get(); }
  std::size_t databases() const override { return databases_.size(); }
  std::size_t collections() const override { return collections_.size(); }

  // Requests that begin from now on use these shards.
  void use_shards(Routes::Table shards);
  void use_concern_defaults(catalog::ConcernDefaults::Ptr defaults) { concern_defaults_ = std::move(defaults); }
  // Another worker has read it: replaces what is known, if anything is.
  void offer(cluster::KnownCollection known);
  // Forgets what it knows of all names, of a database's, or of one; what it is being told now is forgotten, too.
  void forget(std::string_view db, std::string_view collection);
  // Gives back tables of collections: those that no command has used since the last time; if all were used, all.
  void drop_tables();

 private:
  // A question to the first worker; in cluster_router.cpp.
  template <class Value>
  struct Asked;
  // About each name the oldest one that is unanswered and may serve later requests.
  template <class Value>
  using Questions = absl::flat_hash_map<std::string, std::weak_ptr<Asked<Value>>>;
  // A name that is being learned.
  struct Learning {
    Learning(ClusterRouter& router, RouteName name);
    Learning(const Learning&) = delete;
    Learning& operator=(const Learning&) = delete;
    ~Learning();
    ClusterRouter& router;
    RouteName name;
    bool forgotten = false;  // meanwhile
  };
  template <class Ptr>
  struct Known {
    Ptr value;
    std::uint64_t read = 0;
    bool stale = false;
    std::uint64_t learned_at = 0;  // the cluster's time
    bool used = true;  // since the last time that room was made
    std::uint64_t since = 0;  // of a database: KnownDatabase's
  };
  // That a collection is not sharded was so on the database's primary at that time. A shard of 4.2 that has become the
  // primary since believes it, whatever has become of the collection.
  static bool is_outdated(const Known<Routes::CollectionPtr>& known, std::uint64_t since) noexcept {
    return known.value->routing == nullptr && known.read < since;
  }
  template <class Ptr>
  using Names = absl::flat_hash_map<std::string, Known<Ptr>>;
  template <class Ptr>
  static void keep(Names<Ptr>& names, const std::string& name, Known<Ptr> known);
  // Null: too many wait for the config servers.
  template <class Value>
  std::shared_ptr<Asked<Value>> ask_first_worker(std::function<Task<Result<Value>>(ClusterTable&)> ask);
  template <class Value>
  Task<Result<Value>> answer_of(std::shared_ptr<Asked<Value>> asked, RouteWait wait);
  template <class Value>
  Task<Result<Value>> ask_about(Questions<Value>& questions, std::string name, std::uint64_t after,
                                std::function<Task<Result<Value>>(ClusterTable&)> ask, RouteWait wait);
  Task<Result<void>> learn_database(std::string name, RouteWait wait);
  Task<Result<void>> learn_collection(std::string ns, std::uint64_t since, RouteWait wait);

  Context& context_;
  ClusterTable& table_;
  Routes::Table shards_;
  absl::flat_hash_set<Learning*> learning_;
  Questions<cluster::KnownDatabase> databases_asked_;
  Questions<cluster::KnownCollection> collections_asked_;
  std::weak_ptr<Asked<bool>> keys_asked_;
  // Questions of all kinds; each answer counts one down, on this worker.
  std::shared_ptr<std::size_t> unanswered_ = std::make_shared<std::size_t>(0);
  Routes::DatabasePtr admin_, config_;  // on the config servers
  catalog::ConcernDefaults::Ptr concern_defaults_;
  Names<Routes::DatabasePtr> databases_;
  Names<Routes::CollectionPtr> collections_;
};

}  // namespace spillway::exec
