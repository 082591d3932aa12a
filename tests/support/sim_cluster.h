// A scripted sharded cluster: config servers and shards with one truth behind them. What an administrator or the
// balancer would do is a call here, which moves documents and tells those shards of it that a real one would tell.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/sim_config.h"
#include "tests/support/sim_shard.h"
#include "tests/support/sim_shard_role.h"

namespace spillway::test {

struct SimClusterOptions {
  std::int32_t wire_version = wire_4_2;            // of the config servers, and of shards not named in:
  std::vector<std::int32_t> shard_wire_versions = {};  // while a cluster is upgraded
  std::size_t shards = 2;
  std::size_t members = 1;  // of each shard
  std::size_t config_members = 1;
};

// Shards are named sh0, sh1, …; their hosts sh0-0:27100, …; the config servers' config-0:27019, ….
class SimCluster {
 public:
  SimCluster(const SimClusterOptions& options, SimLog& log);

  // All of its servers listen in one more network.
  void attach(SimNetwork& network);
  // "config/config-0:27019,…", as sharding.configDB has it.
  std::string config_db() const { return "config/" + hosts_of(config_set_); }
  std::vector<SimShard*> servers();

  SimConfig& config() noexcept { return config_; }
  ConfigRole& config_role(std::size_t member) { return *config_roles_[member]; }
  SimShard& config_server(std::size_t member) { return *config_set_.members[member]; }
  SimSet& config_set() noexcept { return config_set_; }
  std::size_t shard_count() const noexcept { return shards_.size(); }
  SimShard& shard(std::size_t index, std::size_t member = 0) { return *shards_[index]->set.members[member]; }
  ShardRole& role(std::size_t index, std::size_t member = 0) { return *shards_[index]->roles[member]; }
  // Another primary, which knows nothing of versions yet.
  void elect(std::size_t index, std::size_t member);

  // --- collections and documents, at once and everywhere

  void create_database(const std::string& db, std::size_t primary);
  void shard_collection(const std::string& ns, DocView key, const std::vector<BsonDoc>& points);  // owners by turns
  void drop(const std::string& ns);
  // On the shard that owns it.
  void store(const std::string& ns, BsonDoc document);
  // Every document of a collection that its owner has.
  std::vector<BsonDoc> owned(const std::string& ns);
  std::size_t orphans(const std::string& ns);

  // --- what a balancer does

  void split(const std::string& ns, DocView at) { config_.split(ns, at); }
  // The chunk with this document's key. The donor knows it at once, the recipient does not; the donor keeps orphans.
  void move(const std::string& ns, DocView key, std::size_t to);
  // The same, with the donor's critical section for so long.
  Task<void> move_slowly(Loop& loop, std::string ns, BsonDoc key, std::size_t to, Duration critical);
  void move_primary(const std::string& db, std::size_t to);
  void delete_orphans(const std::string& ns);
  // One of them, by chance; nothing, if there is nothing to be done.
  void churn(std::mt19937_64& random);

 private:
  struct Shard {
    std::string id;
    SimSet set;
    std::vector<std::unique_ptr<ShardRole>> roles;  // of the members
  };
  std::string hosts_of(const SimSet& set) const;
  void add_server(SimShardOptions options, SimSet& set, SimRole& role);
  std::size_t index_of(const std::string& shard) const;
  SimShard& primary(std::size_t index) { return *shards_[index]->set.primary; }
  ShardRole& primary_role(std::size_t index);

  SimLog& log_;
  SimConfig config_;
  SimSet config_set_;
  std::vector<std::unique_ptr<ConfigRole>> config_roles_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<SimShard>> servers_;
};

}  // namespace spillway::test
