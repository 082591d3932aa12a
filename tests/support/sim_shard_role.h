// A scripted shard's part in a cluster: it enforces shardVersion and databaseVersion as a mongod of its release does.
//
//   - what it knows of a collection may be older than what is true: a donor knows a move at once, a recipient learns of
//     it from the config servers when a router's version does not fit, and answers stale once more
//   - epoch, timestamp and major version must be equal, the minor version does not matter; a command without a version
//     is served as any other
//   - a secondary looks at versions only if the read concern has a level or afterClusterTime, and knows on its own
//   - orphans are left out of what a versioned command reads, but for a count without a query; up to 5.3 writes change
//     them
//   - a read at a snapshot leaves out documents whose field `born` is a later time
//   - while a chunk's critical section lasts, a versioned command waits, and is answered stale after it
// Seen in recorded conversations with 4.2 and tried on it; the forms of newer releases follow the servers' sources.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tests/support/sim_config.h"

namespace spillway::test {

class ShardRole final : public SimRole {
 public:
  ShardRole(std::string id, std::int32_t wire_version, SimConfig& config)
      : id_(std::move(id)), wire_version_(wire_version), config_(config), heard_(config.time()) {}

  // It learns what is true now.
  void learn(const std::string& ns) { known_[ns] = config_.collection(ns); }
  void learn_database(const std::string& db) { databases_[db] = config_.database(db); }
  // As after an election: it knows nothing.
  void forget() {
    known_.clear();
    databases_.clear();
  }
  // As forget(), of a member that replaces this primary: what exists is the set's.
  void take_over(const ShardRole& primary) {
    forget();
    created_ = primary.created_;
    last_write_ = primary.last_write_;
    hear(primary.heard_);
  }
  void enter_critical_section(const std::string& ns) { critical_.insert(ns); }
  void leave_critical_section(const std::string& ns) { critical_.erase(ns); }
  // The next `times` it looks at a lagging config server, and learns nothing.
  void stay_behind(int times) { stays_behind_ = times; }
  // The next `times` versioned commands meet a lock that keeps it from looking: 343, from 5.0.
  void hold_locks(int times) { locks_held_ = times; }
  // The next `times` reads at a snapshot are refused: 246.
  void lose_snapshots(int times) { snapshots_lost_ = times; }
  // A collection that is not sharded exists here, or no longer does.
  void create(const std::string& ns) { created_.insert(ns); }
  void drop(const std::string& ns) { created_.erase(ns); }
  bool exists(const std::string& ns) const;
  void hear(std::uint64_t cluster_time) { heard_ = std::max(heard_, cluster_time); }
  // Called before each statement of a write: what changes here, changes in the middle of a batch.
  std::function<void(std::size_t index)> before_statement;
  // Called before each document of a write but its first.
  std::function<void()> before_document;

  std::uint64_t stale() const noexcept { return stale_; }          // commands and statements refused
  std::uint64_t versioned() const noexcept { return versioned_; }  // commands
  std::uint64_t unversioned() const noexcept { return unversioned_; }

  Task<std::optional<BsonDoc>> admit(Loop& loop, SimRequest& request) override;
  std::optional<SimRefusal> refuse_statement(SimRequest& request, std::size_t index) override;
  std::optional<SimRefusal> refuse_document(SimRequest& request) override;
  const std::vector<BsonDoc>* documents(const SimRequest&) override { return nullptr; }
  bool sees(const SimRequest& request, DocView document) override;
  void wrote(const SimRequest& request) override;
  BsonDoc finish(const SimRequest& request, BsonDoc reply) override;
  void add_to_hello(BsonWriter&) override {}

 private:
  struct Received;  // what a command says of its versions
  Received read_versions(const SimRequest& request) const;
  void refresh(const std::string& ns);
  std::optional<SimRefusal> refuse(SimRequest& request);
  std::optional<SimRefusal> refuse_database(const Received& received, const std::string& ns);
  SimRefusal stale_config(const std::string& ns, const SimVersion& received, const SimVersion* wanted);
  void append_version(BsonWriter& out, std::string_view name, const SimVersion& version) const;
  std::optional<SimRefusal> refuse_creation(const SimRequest& request);

  std::string id_;
  std::int32_t wire_version_;
  SimConfig& config_;
  // By namespace; null: it is not sharded. None: not known.
  std::map<std::string, std::shared_ptr<const SimCollection>> known_;
  std::map<std::string, std::optional<SimDatabase>> databases_;
  std::set<std::string> created_, critical_;
  std::uint64_t heard_, last_write_ = 0;
  int stays_behind_ = 0, locks_held_ = 0, snapshots_lost_ = 0;
  std::uint64_t stale_ = 0, versioned_ = 0, unversioned_ = 0;
};

}  // namespace spillway::test
