// The metadata of a simulated cluster, and the scripted config servers that show it: config.shards, databases,
// collections, chunks, version, settings, tags and admin.system.keys, in the formats of 4.2 to 8.0.
//
//   SimConfig      what is true: a test splits, moves, merges, drops here; each change is one state in time
//   ConfigRole     a member of the config set: answers from the newest state, or, while it lags, from an older one
//
// The shapes of the documents and the numbers of the versions are those of recorded conversations with 4.2; newer
// formats follow the servers' sources.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/catalog/shard_key.h"
#include "tests/support/sim_role.h"

namespace spillway::test {

// maxWireVersion of the releases whose forms differ.
inline constexpr std::int32_t wire_4_2 = 8, wire_4_4 = 9, wire_5_0 = 13, wire_6_0 = 17, wire_7_0 = 21, wire_8_0 = 25;

// A collection's or a shard's version: of a chunk, with what makes it another collection's.
struct SimVersion {
  std::uint64_t lastmod = 0;  // a Timestamp's value: major, minor
  std::array<std::uint8_t, 12> epoch{};
  std::uint64_t timestamp = 0;  // 0: none, to 4.4

  std::uint32_t major() const noexcept { return static_cast<std::uint32_t>(lastmod >> 32); }
  bool is_ignored() const noexcept;
  // What a shard compares: not the minor version.
  bool fits(const SimVersion& other) const noexcept {
    return major() == other.major() && epoch == other.epoch && timestamp == other.timestamp;
  }
};

constexpr std::uint64_t sim_version(std::uint32_t major, std::uint32_t minor) noexcept {
  return std::uint64_t{major} << 32 | minor;
}

struct SimChunk {
  BsonDoc min, max;
  std::string max_key;  // in the order of keys
  std::string shard;
  std::uint64_t lastmod = 0;
  std::vector<std::pair<std::uint64_t, std::string>> history;  // since when on which shard; the newest first
};

struct SimCollection {
  std::string ns;
  catalog::ShardKeyPattern key;
  std::array<std::uint8_t, 12> epoch;
  std::uint64_t timestamp;
  std::array<std::uint8_t, 16> uuid;
  std::vector<SimChunk> chunks;  // ascending

  SimVersion version() const;                           // the highest of all chunks
  SimVersion version_of(const std::string& shard) const;  // without chunks: 0|0 of the epoch
  std::size_t chunk_of(DocView document) const;
  bool owns(const std::string& shard, DocView document) const { return chunks[chunk_of(document)].shard == shard; }
};

struct SimDatabase {
  std::string primary;
  std::array<std::uint8_t, 16> uuid;
  std::uint64_t timestamp;  // 0: none, to 4.4
  std::int32_t last_mod = 1;
};

class SimConfig {
 public:
  using Collections = std::map<std::string, std::vector<BsonDoc>>;
  // What config servers show from `time` on.
  struct State {
    std::uint64_t time = 0;
    Collections documents;
  };

  explicit SimConfig(std::int32_t wire_version);

  // Each call is one change. REQUIRES: what it names exists, and can be done.
  void add_shard(const std::string& id, const std::string& host);
  void remove_shard(const std::string& id);
  void create_database(const std::string& db, const std::string& primary);
  // Split at these points; the chunks lie on `owners` by turns.
  void shard_collection(const std::string& ns, DocView key, const std::vector<BsonDoc>& points,
                        const std::vector<std::string>& owners);
  void split(const std::string& ns, DocView at);
  void merge(const std::string& ns, std::size_t first);  // this chunk and the next, of one shard
  void move(const std::string& ns, std::size_t chunk, const std::string& to);
  void move_primary(const std::string& db, const std::string& to);
  void drop(const std::string& ns);
  void drop_database(const std::string& db);
  void put(const std::string& ns, BsonDoc document);  // replaces the one with its _id
  void add_key(std::int64_t id, std::string_view twenty_bytes, std::uint32_t expires_at_seconds);

  std::int32_t wire_version() const noexcept { return wire_version_; }
  bool has_timestamps() const noexcept { return wire_version_ >= wire_5_0; }
  std::vector<std::string> shards() const;
  // Null: it is not sharded.
  std::shared_ptr<const SimCollection> collection(const std::string& ns) const;
  std::vector<std::string> sharded() const;
  std::optional<SimDatabase> database(const std::string& db) const;
  std::array<std::uint8_t, 12> cluster_id() const noexcept { return cluster_id_; }

  // The cluster's time: of the newest change anywhere, a Timestamp's value. tick() is one more.
  std::uint64_t time() const noexcept { return time_; }
  std::uint64_t tick();
  const State& newest() const { return *states_.back(); }
  // The newest state that is not after `time`.
  std::shared_ptr<const State> state_at(std::uint64_t time) const;

 private:
  std::array<std::uint8_t, 12> next_id();
  std::array<std::uint8_t, 16> next_uuid();
  SimCollection copy(const std::string& ns) const { return *collections_.at(ns); }
  void keep(SimCollection collection);
  void publish();  // what changed is a new state
  BsonDoc document_of(const SimCollection& collection) const;
  BsonDoc document_of(const SimCollection& collection, const SimChunk& chunk) const;

  std::int32_t wire_version_;
  std::uint64_t time_ = 0;
  std::uint32_t ids_ = 0;
  std::array<std::uint8_t, 12> cluster_id_;
  std::map<std::string, std::pair<std::string, std::uint64_t>> shards_;  // id: host, since when
  std::map<std::string, SimDatabase> databases_;
  std::map<std::string, std::shared_ptr<const SimCollection>> collections_;
  std::map<std::string, BsonDoc> tombstones_;  // to 4.4, of dropped collections
  Collections others_;
  std::deque<std::shared_ptr<const State>> states_;
};

// {clusterTime, signature}, with the signature that peers without authentication get, and operationTime.
void append_times(BsonWriter& reply, std::uint64_t cluster_time, std::uint64_t operation_time);
// The times that a command carries; 0: none.
std::uint64_t cluster_time_of(DocView body);
std::uint64_t timestamp_of(ValueView value);

class ConfigRole final : public SimRole {
 public:
  explicit ConfigRole(SimConfig& config) : config_(config), heard_(config.time()) {}

  // From now on it shows the present state, until it catches up.
  void lag() { lags_at_ = config_.state_at(config_.time()); }
  void catch_up() { lags_at_ = nullptr; }
  bool lags() const noexcept { return lags_at_ != nullptr; }

  Task<std::optional<BsonDoc>> admit(Loop& loop, SimRequest& request) override;
  std::optional<SimRefusal> refuse_statement(SimRequest&, std::size_t) override { return std::nullopt; }
  const std::vector<BsonDoc>* documents(const SimRequest& request) override;
  bool sees(const SimRequest&, DocView) override { return true; }
  void wrote(const SimRequest&) override { config_.tick(); }
  BsonDoc finish(const SimRequest& request, BsonDoc reply) override;
  void add_to_hello(BsonWriter& hello) override { hello.append("configsvr", 2); }

 private:
  std::uint64_t applied() const { return lags_at_ ? lags_at_->time : config_.time(); }

  SimConfig& config_;
  std::shared_ptr<const SimConfig::State> lags_at_;
  std::shared_ptr<const SimConfig::State> shown_;  // while a command is executed
  std::uint64_t heard_;
};

}  // namespace spillway::test
