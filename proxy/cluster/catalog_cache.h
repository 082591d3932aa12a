// CatalogCache: what this process knows of a cluster's databases and collections.
//
// It belongs to the first worker, whose config client reads; other workers keep references to what it gave them. An
// entry is read at the first request for it, and again when a command needs a newer one, because a shard has refused
// the command. There is one read of a name at a time. A read does not serve requests that came after it began, since
// it may have missed what they must see.
//
// While the config servers are away, known entries stay as they are, and what must be read fails.
#pragma once

#include <absl/container/node_hash_map.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/base/task.h"
#include "proxy/catalog/routing.h"
#include "proxy/cluster/config_client.h"

namespace spillway::cluster {

// Values with the number of the read that they come from. A higher one began later.
struct KnownDatabase {
  std::shared_ptr<const catalog::Database> database;
  std::uint64_t read = 0;
  std::uint64_t since = 0;  // the read that first found it on this primary, in this version
};
struct KnownCollection {
  std::shared_ptr<const catalog::CachedCollection> collection;
  std::uint64_t read = 0;
};

// The shards of the cluster, by the names that config.shards has. The first worker's thread.
class ShardDirectory {
 public:
  virtual ~ShardDirectory() = default;
  // From now on these are the cluster's shards. When it returns, every worker can reach each of them.
  virtual Task<Result<void>> use(std::vector<catalog::ShardEntry> shards) = 0;
  virtual std::optional<catalog::ShardIndex> index_of(std::string_view name) const = 0;
};

class CatalogCache {
 public:
  // Names whose entries are kept, of databases and of collections. Any client can ask for names.
  static constexpr std::size_t names_max = 10'000;

  // All outlive it; `budget`, which pays for collections' chunks, also what it has given away.
  CatalogCache(ConfigClient& config, ShardDirectory& shards, MemoryBudget& budget) noexcept
      : config_(config), shards_(shards), budget_(budget) {}
  CatalogCache(const CatalogCache&) = delete;
  CatalogCache& operator=(const CatalogCache&) = delete;

  // From a read that began after read number `after` (0: any). NamespaceNotFound(26): there is no such database.
  Task<Result<KnownDatabase>> database(std::string name, std::uint64_t after);
  // The same; a collection that config.collections does not list is not sharded.
  Task<Result<KnownCollection>> collection(std::string ns, std::uint64_t after);
  // Reads config.shards.
  Task<Result<void>> shards();
  // Reads config.databases: which of those known are not what they were? Shards of 4.2 that know nothing of a database
  // answer reads of it with nothing.
  Task<Result<std::vector<std::string>>> changed_databases();
  // Makes the database, on a shard that the config servers choose, unless there is one.
  Task<Result<void>> create_database(std::string name);

  // What was read of this name, of all names of a database, or of all (both empty) is too old for requests from now
  // on.
  void forget(std::string_view db, std::string_view collection);

  // Gives back its references to chunks of collections that no task is asking for now.
  void drop_tables();

  // The number of the last read that began. Asking for a later one asks for a read that begins from now on.
  std::uint64_t last_read() const noexcept { return reads_begun_.value(); }

  // For the status. Any thread.
  struct Counts {
    std::uint64_t reads = 0, failed_reads = 0, reads_in_part = 0;
  };
  Counts counts() const noexcept { return {reads_begun_.value(), failed_reads_.value(), reads_in_part_.value()}; }
  // Of sharded collections, at most `most`.
  std::vector<std::shared_ptr<const catalog::CollectionRouting>> routings(std::size_t most) const;

 private:
  template <class Value>
  struct Slot {
    std::optional<Value> value;  // of the last read that succeeded
    std::uint64_t begun = 0;     // the read under way; 0: none
    std::uint64_t forgotten = 0; // the last read that is too old
    std::uint64_t failures = 0;  // a counter
    std::optional<Error> failure;  // of the last read, if it failed
    TimePoint failed_at{};
    std::uint64_t failed_with_shards = 0;  // which list of the shards it knew
    std::vector<Event*> waiters;
    std::size_t users = 0;    // tasks that read it or wait for it
    std::uint64_t asked = 0;  // a counter of the cache's: when it was asked for last
  };
  template <class Value>
  using Slots = absl::node_hash_map<std::string, Slot<Value>>;
  template <class Value>
  Slot<Value>& slot_of(Slots<Value>& slots, const std::string& name);
  template <class Value>
  using Read = std::function<Task<Result<Value>>(std::optional<Value> before)>;
  template <class Value>
  Task<Result<Value>> newer(Slot<Value>& slot, std::uint64_t after, Read<Value> read);

  Task<Result<KnownDatabase>> read_database(std::string name, bool again);
  Task<Result<KnownCollection>> read_collection(std::string ns, std::optional<KnownCollection> before);
  Task<Result<KnownCollection>> read_chunks(std::string ns, catalog::CollectionEntry entry,
                                            std::shared_ptr<const catalog::CollectionRouting> before, bool again);

  ConfigClient& config_;
  ShardDirectory& shards_;
  MemoryBudget& budget_;
  OwnCounter reads_begun_;
  std::uint64_t asks_ = 0;
  OwnCounter failed_reads_, reads_in_part_;
  std::uint64_t shard_reads_begun_ = 0, shard_read_used_ = 0;
  std::vector<catalog::ShardEntry> last_shards_;
  std::uint64_t all_forgotten_ = 0;  // the last read of any name that is too old
  std::uint64_t shard_lists_ = 0;  // that differed from the one before
  Slots<KnownDatabase> databases_;
  Slots<KnownCollection> collections_;
};

}  // namespace spillway::cluster
