// ConfigClient: what one worker asks the config servers of a cluster. They are one more replica set of its gateway.
//
// The worker's thread only. Reads take what a majority of the config servers has, from their primary, or from another
// member while there is none. A failed read changes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocator/budget.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/base/pump.h"
#include "proxy/base/task.h"
#include "proxy/catalog/concern_defaults.h"
#include "proxy/catalog/config_entries.h"
#include "proxy/catalog/config_reader.h"
#include "proxy/shard/gateway.h"

namespace spillway::cluster {

// The config servers' place in the gateway's shards.
inline constexpr std::uint16_t config_shard = 0;

// How long a worker waits for the table: a read may take several questions.
inline constexpr auto config_patience = std::chrono::seconds(60);

class ConfigClient {
 public:
  // `budget` pays for replies; all of them outlive it. `trusted`: the config servers take times without a signature.
  ConfigClient(shard::Gateway& gateway, Pump& pump, MemoryBudget& budget, auth::LogicalClock& clock,
               bool trusted) noexcept
      : gateway_(gateway), pump_(pump), budget_(budget), clock_(clock), trusted_(trusted) {}

  // Errors of all: those of Gateway::call(), those of the config servers' replies, and those of a document that cannot
  // be read (catalog/config_entries.h).

  // A command for their primary, on `admin`. An error: of the reply, too.
  Task<Result<BsonDoc>> command(BsonDoc body);
  // As they are after all that was heard of so far.
  Task<Result<std::vector<catalog::ShardEntry>>> shards();
  // `after_now`: the same; a shard has refused what is known. nullopt: there is none.
  Task<Result<std::optional<catalog::DatabaseEntry>>> database(std::string name, bool after_now);
  // nullopt: it is not sharded.
  Task<Result<std::optional<catalog::CollectionEntry>>> collection(std::string ns, bool after_now);
  // Adds the chunks that `update` asks for.
  Task<Result<void>> chunks(catalog::RoutingUpdate& update, bool after_now);
  // config.version's clusterId; 26: the config servers hold no cluster yet.
  Task<Result<catalog::ObjectId>> cluster_id();

  Task<Result<catalog::ConcernDefaults>> concern_defaults();
  // The keys that sign cluster times.
  Task<Result<auth::ClusterKeys::Ptr>> keys();

  // Each document of config.<collection>, in order. `take` is called on this thread, while the read goes on.
  struct Find {
    std::string collection;
    BsonDoc filter{};
    BsonDoc sort{};                 // empty: in no order
    std::int64_t limit = 0;         // 0: all
    std::string_view db = "config";  // a literal
    bool after_now = false;         // what was written before this time, as far as it was heard
  };
  using Take = std::function<Result<void>(DocView)>;
  Task<Result<void>> find(Find find, Take take);

 private:
  Task<Result<shard::Reply>> call(BsonDoc body, std::optional<shard::HostAddress> host, bool reads);
  template <class Entry>
  Task<Result<std::optional<Entry>>> entry(std::string collection, std::string id, bool after_now,
                                           Result<Entry> (*read)(DocView));
  Task<Result<void>> read_on(std::string_view db, std::string collection, std::int64_t id, shard::HostAddress host,
                             Take take);

  shard::Gateway& gateway_;
  Pump& pump_;
  MemoryBudget& budget_;
  auth::LogicalClock& clock_;
  bool trusted_;
};

}  // namespace spillway::cluster
