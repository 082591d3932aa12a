// Worker: one thread, its loop, its shard connections and its clients' connections. Workers share only exec::Services
// and the state of the shards' hosts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/base/tls_transport.h"
#include "proxy/exec/access/user_feed.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/cursors/cursor_keeper.h"
#include "proxy/server/connections/client_connection.h"
#include "proxy/server/connections/socket_buffers.h"
#include "proxy/server/system/credentials.h"

namespace spillway::server {

// How often connections of a shutdown and tables of a reload are checked for their end.
inline constexpr auto look_interval = std::chrono::milliseconds(10);


struct WorkerOptions {
  shard::GatewayOptions gateway;  // with credentials, unless the gateway is to read them
  std::vector<wire::Compressor> compressors;
  SocketBuffers socket_buffers;
  TlsContext::Ptr tls;  // for clients' connections; null: none
  PlainText plain_text = PlainText::allowed;
  Credentials::Ptr credentials = nullptr;  // whose certificates are watched; null: none
  std::shared_ptr<OlderProcess> older;     // that this one replaces; null: none
  // Of all workers that are made from copies of these options; the first must be the last to end.
  std::shared_ptr<shard::SharedShards> shared_shards = std::make_shared<shard::SharedShards>();
};

class Worker {
 public:
  // `network`: null for TCP. `drive` manual: a simulation polls the loop itself.
  Worker(std::size_t index, const exec::Services& shared, const WorkerOptions& options,
         Loop::Drive drive = Loop::Drive::real_time, std::unique_ptr<Network> network = nullptr);
  ~Worker();

  // Starts housekeeping; with a thread of its own unless the drive is manual.
  void start();
  // Any thread: serves this client from now on.
  void adopt(FileDescriptor socket, std::int64_t connection_id, Entrance entrance);
  // The same for a client of another process.
  void adopt(MovedClient client);
  // The worker's thread.
  void serve(std::unique_ptr<Transport> transport, std::int64_t connection_id,
             Entrance entrance = Entrance::clients);
  void serve(std::unique_ptr<Transport> transport, const MovedClient& client);

  // The worker's thread: asks connections to end. `drain`: after the request under way.
  void close_sessions(bool drain);
  // Before start(): routes come from the cluster's table, which outlives the worker.
  void join_cluster(exec::ClusterTable& table);
  // Any thread: commands that begin from now on use this routing table. REQUIRES the same shards. `taken`, on the
  // worker's thread, gets the old table, which expires when this worker's last command with it has ended.
  using TableTaken = std::function<void(std::weak_ptr<const catalog::RoutingSnapshot> before)>;
  void use_table(std::shared_ptr<const catalog::RoutingSnapshot> table, TableTaken taken = {});
  // Any thread: connections that begin from now on use these.
  void use_credentials(Credentials::Ptr credentials);

  // Any thread: each client that can leave does so, between two requests; `take` is called on the worker's thread.
  void let_leave(std::function<void(MovedClient)> take);
  // Any thread: closes those that cannot, and whose last request came so long ago.
  void close_others(Duration idle);
  // Without relayed ones that have no request under way.
  std::int64_t own_connections() const noexcept {
    return connections() - relayed_count_.load() + environment_.relayed_requests.load();
  }

  // The following: any thread, in this order, as Shutdown calls them.
  // Answers every hello that waits for a change of the topology version.
  void wake_hellos();
  // Ends each connection after the request under way; no new ones are served.
  void begin_drain();
  // Ends clients' connections (those that still run at `cut` are interrupted, then cut), shard connections and
  // housekeeping, three seconds after `cut` at the latest, connects to shards aside. The first worker aborts
  // transactions and kills cursors of all: it waits until those `before` it are done. The manual drive polls until
  // done() afterwards.
  void begin_stop(TimePoint cut, std::vector<Worker*> before);
  // Brings `cut` forward to now.
  void hurry() noexcept { hurried_ = true; }
  bool done() const noexcept { return done_; }
  void join();

  Loop& loop() noexcept { return loop_; }
  exec::Context& context() noexcept { return context_; }
  std::int64_t connections() const noexcept { return connection_count_.load(std::memory_order_relaxed); }

 private:
  template <class Work>
  void for_each_connection(const Work& work);
  void begin_connection(std::unique_ptr<ClientConnection> connection);
  Task<void> run_connection(std::unique_ptr<ClientConnection> connection);
  Task<void> ask_to_leave();
  Task<void> housekeeping();
  void notice_clients(TimePoint now);
  void tick_memory(TimePoint now);
  void tick_certificates(TimePoint now);
  Task<void> shut_down(TimePoint cut, std::vector<Worker*> before);
  Task<void> cut_sessions();
  Task<void> end_on_shards(TimePoint told_by);

  const exec::Services shared_;
  WorkerOptions options_;
  Loop::Drive drive_;
  Loop loop_;
  Pump pump_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<shard::Gateway> gateway_;
  exec::Context context_;
  std::unique_ptr<exec::Router> cluster_router_;  // null: the table is the configuration's
  std::unique_ptr<std::uint8_t[]> scratch_;
  ConnectionEnvironment environment_;
  absl::flat_hash_set<ClientConnection*> connections_;
  std::atomic<std::int64_t> connection_count_{0};
  std::atomic<std::int64_t> relayed_count_{0};
  std::thread thread_;
  TimePoint next_pressure_release_{};
  Credentials::Ptr credentials_;
  TimePoint next_certificate_look_;
  exec::CursorKeeper cursor_keeper_;
  exec::UserFeed user_feed_;  // the first worker's
  bool stopping_ = false;
  bool housekeeping_ended_ = false;
  std::atomic<bool> hurried_{false};
  std::atomic<bool> done_{false};
};

}  // namespace spillway::server
