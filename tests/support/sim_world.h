// The whole proxy in one thread on virtual time: workers with the real connections, exec and shard
// layers, simulated shards, simulated clients, a simulated network for each worker.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "allocator/limits.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/shared.h"
#include "proxy/server/connections/worker.h"
#include "proxy/server/life/shutdown.h"
#include "tests/support/clock_manual.h"
#include "tests/support/sim_client.h"
#include "tests/support/sim_cluster.h"
#include "tests/support/sim_log.h"
#include "tests/support/sim_shard.h"

namespace spillway::test {

// A network that is set later than the worker that uses it: connects wait until then.
class LateNetwork final : public Network {
 public:
  void bind(Network& target);
  Task<Result<std::unique_ptr<Transport>>> connect(std::string host, std::uint16_t port,
                                                   TimePoint deadline) override;

 private:
  struct Bound {
    LateNetwork& network;
    bool await_ready() const noexcept { return network.target_ != nullptr; }
    void await_suspend(std::coroutine_handle<> waiter) { network.waiting_.push_back(waiter); }
    void await_resume() const noexcept {}
  };
  Network* target_ = nullptr;
  std::vector<std::coroutine_handle<>> waiting_;
};

struct SimWorldOptions {
  std::size_t workers = 1;
  std::vector<SimShardOptions> shards = {{}};
  // Set: its servers are in the network, and its shards in the table in place of `shards`. It outlives the world.
  SimCluster* cluster = nullptr;
  // With a cluster: there is no such table, the router reads the config servers (sharding.configDB).
  bool config_db = false;
  std::string routing;  // the YAML under "routing:", without "shards"
  FaultOptions faults;
  std::uint64_t memory_limit_bytes = 0;
  // With a limit: what MemoryQueue keeps beside it.
  std::uint64_t large_reserve_bytes = 4 * limits::kib;
  std::uint64_t small_reserve_bytes = 256 * limits::kib;
  std::int64_t cursor_timeout_ms = 600'000;
  // Enabled towards clients.
  std::vector<wire::Compressor> compressors = {wire::Compressor::snappy, wire::Compressor::zstd,
                                               wire::Compressor::zlib};
  // Of TCP connections, with a memory limit; here they only count.
  server::SocketBuffers socket_buffers{};
  std::shared_ptr<server::OlderProcess> older;  // that the router replaces; null: none
  shard::GatewayOptions gateway;  // its shards are filled in
  // Set: idle cursors' documents are parked, in the file that it makes or, without one, in memory.
  std::function<std::unique_ptr<SpillFile>()> spill_file;
  std::int64_t spill_idle_ms = 10'000;
  std::int64_t orphan_grace_ms = 30'000;
  // Set: the workers run in an order that follows from it, as unscheduled threads would.
  std::uint64_t order_seed = 0;
};

class SimWorld {
 public:
  // Starts everything; the shards are known when it returns, unless faults prevent it.
  explicit SimWorld(SimWorldOptions options);
  ~SimWorld();  // shuts down if that has not been done

  // `worker`: the one that the client's connections land on.
  std::unique_ptr<SimClient> client(std::size_t worker = 0);
  // Each of its connections is one that the process before has passed, in this state; `relayed`: that the process after
  // this one has.
  std::unique_ptr<SimClient> moved_client(BsonDoc state, std::size_t worker = 0, bool relayed = false);
  // Each of its connections is this user's from the start, without a login: "ann" or "mallory", which may read and
  // write app. From the first such client on, all others have no rights.
  std::unique_ptr<SimClient> client_of(std::string user, std::size_t worker = 0);
  void log_in(exec::Client& client, std::string_view user);
  // Through the port for load balancers, with these bytes before the client's own.
  std::unique_ptr<SimClient> balanced_client(std::string header, std::size_t worker = 0);
  SimShard& shard(std::size_t index) { return *shards_[index]; }
  std::size_t shard_count() const noexcept { return shards_.size(); }
  exec::Shared& shared() noexcept { return *shared_; }
  server::Worker& worker(std::size_t index) { return *workers_[index]; }
  Loop& main_loop() noexcept { return main_loop_; }
  bool listening() const noexcept { return listening_; }
  std::size_t worker_count() const noexcept { return workers_.size(); }
  SimLog& log() noexcept { return log_; }
  // A disk that is stuck does nothing until it is told to go on.
  void set_disk_stuck(bool stuck) noexcept { disk_stuck_ = stuck; }

  void set_faults(const FaultOptions& faults);
  SimNetwork& network(std::size_t worker) { return *networks_[worker]; }
  // Called after every step of a worker.
  std::function<void()> on_step;
  // Limits that do not hold at this moment: one line each.
  std::vector<std::string> exceeded();
  // Starts a coroutine on a worker's loop.
  void spawn(Task<void> task, std::size_t worker = 0) {
    workers_[worker]->loop().spawn(std::move(task));
  }
  // Virtual time passes, timer by timer, until `done` holds or `limit` has passed. What done()
  // says.
  bool run_until(const std::function<bool()>& done, Duration limit);
  void run_for(Duration time);
  // Runs a task to its end; fails the program if that takes longer than an hour.
  template <class T>
  T run(Task<T> task) {
    std::optional<T> result;
    spawn(keep(std::move(task), &result));
    SPILLWAY_CHECK(run_until([&] { return result.has_value(); }, std::chrono::hours(1)));
    return *std::move(result);
  }

  // Resources that are still held while the proxy is idle: one line each; empty when all is well.
  std::vector<std::string> leftovers();
  // REQUIRES that clients have closed their connections, or wait on them.
  // The server's shutdown; shut_down() begins it unless it was.
  server::Shutdown& shutdown() noexcept { return *shutdown_; }
  // Ends the workers, without an announcement, then the shards. False: they did not end within `limit`.
  bool shut_down(Duration limit = std::chrono::minutes(2));

 private:
  template <class T>
  static Task<void> keep(Task<T> task, std::optional<T>* result) {
    T value = co_await task;
    result->emplace(std::move(value));
  }
  void use_static_table(const SimWorldOptions& options, server::WorkerOptions& of_workers);
  void join_cluster();
  std::size_t poll();
  std::optional<TimePoint> next_timer() const;
  std::unique_ptr<Transport> dial(std::size_t worker,
                                  server::Entrance entrance = server::Entrance::clients);

  SimLog log_;
  Loop main_loop_{Loop::Drive::manual};
  std::unique_ptr<exec::Shared> shared_;
  std::vector<std::unique_ptr<server::Worker>> workers_;
  std::unique_ptr<server::Shutdown> shutdown_;
  std::vector<std::unique_ptr<SimNetwork>> networks_;
  std::vector<std::unique_ptr<SimShard>> shards_;
  std::vector<SimShard*> servers_;  // these and the cluster's
  std::int64_t next_connection_ = 1;
  bool listening_ = true;
  bool stopped_ = false;
  bool disk_stuck_ = false;
  std::size_t pool_max_;
  std::mt19937_64 order_;
  bool shuffles_ = false;
};

}  // namespace spillway::test
