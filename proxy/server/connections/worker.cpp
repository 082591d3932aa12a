#include "proxy/server/connections/worker.h"

#include <chrono>
#include <string>
#include <utility>

#include "allocator/memory_layer.h"
#include "allocator/pressure.h"
#include "cursor/registry.h"
#include "proxy/base/log.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_router.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/tables/transaction_table.h"

namespace spillway::server {

namespace {
// First reads go here; larger messages get a buffer of their own.
constexpr std::size_t scratch_bytes = 16 * limits::kib;
constexpr auto tick = std::chrono::milliseconds(250);
constexpr auto certificates_every = std::chrono::hours(24);
// For the answers of operations that a shutdown interrupted.
constexpr auto interrupted_answer_time_max = std::chrono::milliseconds(500);
// A shard that hangs must not delay a shutdown: the first time is for cursors of operations that are cut, the second
// for resources that clients leave behind.
constexpr auto cut_time_max = std::chrono::milliseconds(1'000);
constexpr auto end_time_max = std::chrono::milliseconds(1'500);
constexpr auto pressure_release_interval = std::chrono::seconds(1);
// Idle clients that leave for another process, each of which takes some 50 µs of both.
constexpr std::size_t leaving_at_once = 16;
constexpr auto leaving_pause = std::chrono::milliseconds(1);
}  // namespace

Worker::Worker(std::size_t index, const exec::Services& shared, const WorkerOptions& options, Loop::Drive drive,
               std::unique_ptr<Network> network)
    : shared_(shared),
      options_(options),
      drive_(drive),
      loop_(drive),
      pump_(loop_),
      network_(network
                   ? std::move(network)
                   : std::make_unique<TcpNetwork>(loop_, options.socket_buffers.shard_socket(&shared.memory.sockets))),
      gateway_(shard::make_gateway(loop_, pump_, *network_, shared.memory.replies, shared.memory.links,
                                   options_.gateway, *options_.shared_shards)),
      context_{loop_, pump_, *gateway_, shared, index, {}},
      scratch_(std::make_unique<std::uint8_t[]>(scratch_bytes)),
      environment_{context_,
                   {scratch_.get(), scratch_bytes},
                   options_.compressors,
                   options_.socket_buffers,
                   options_.plain_text,
                   options_.older} {
  context_.tls = options_.tls;
  credentials_ = options_.credentials;
  next_certificate_look_ = Clock::now() + certificates_every;
}

Worker::~Worker() = default;

void Worker::start() {
  loop_.post([this] { loop_.spawn(housekeeping()); });
  if (drive_ == Loop::Drive::real_time) {
    thread_ = std::thread([this] {
      log::name_thread("worker" + std::to_string(context_.worker));
      loop_.run();
    });
  }
}

void Worker::join_cluster(exec::ClusterTable& table) {
  cluster_router_ = std::make_unique<exec::ClusterRouter>(context_, table, table.shards());
  context_.router = cluster_router_.get();
}

void Worker::adopt(FileDescriptor client, std::int64_t connection_id, Entrance entrance) {
  connection_count_.fetch_add(1, std::memory_order_relaxed);
  loop_.post([this, client = std::move(client), connection_id, entrance]() mutable {
    connection_count_.fetch_sub(1, std::memory_order_relaxed);  // serve() counts it from now on
    const TcpOptions socket = options_.socket_buffers.client_socket(&shared_.memory.sockets);
    auto transport = adopt_tcp_transport(loop_, std::move(client), socket);
    if (transport) serve(std::move(transport), connection_id, entrance);
  });
}

void Worker::serve(std::unique_ptr<Transport> transport, std::int64_t connection_id, Entrance entrance) {
  if (stopping_) {
    transport->close();
    return;
  }
  begin_connection(std::make_unique<ClientConnection>(environment_, std::move(transport), connection_id, entrance));
}

void Worker::adopt(MovedClient client) {
  connection_count_.fetch_add(1, std::memory_order_relaxed);
  loop_.post([this, client = std::move(client)]() mutable {
    connection_count_.fetch_sub(1, std::memory_order_relaxed);  // begin_connection() counts it from now on
    if (stopping_) return;
    TcpOptions socket;
    if (client.relayed) {
      socket.keepalive = false;
    } else {
      socket = options_.socket_buffers.client_socket(&shared_.memory.sockets);
    }
    auto transport = adopt_tcp_transport(loop_, std::move(client.socket), socket);
    if (!transport) return;
    serve(std::move(transport), client);
  });
}

void Worker::serve(std::unique_ptr<Transport> transport, const MovedClient& client) {
  begin_connection(std::make_unique<ClientConnection>(environment_, std::move(transport), client));
}

void Worker::begin_connection(std::unique_ptr<ClientConnection> connection) {
  connection_count_.fetch_add(1, std::memory_order_relaxed);
  if (connection->relayed()) relayed_count_.fetch_add(1, std::memory_order_relaxed);
  shared_.connections.current.fetch_add(1, std::memory_order_relaxed);
  connections_.insert(connection.get());
  loop_.spawn(run_connection(std::move(connection)));
}

void Worker::let_leave(std::function<void(MovedClient)> take) {
  loop_.post([this, take = std::move(take)]() mutable {
    environment_.leave_to = std::move(take);
    context_.background.start(ask_to_leave());
  });
}

// In turns: others' requests would wait while thousands leave.
Task<void> Worker::ask_to_leave() {
  const std::vector<ClientConnection*> all(connections_.begin(), connections_.end());
  std::size_t asked = 0;
  for (ClientConnection* connection : all) {
    if (!connections_.contains(connection)) continue;
    connection->ask_to_leave();
    if (++asked % leaving_at_once == 0) co_await loop_.sleep_for(leaving_pause);
    if (stopping_) co_return;
  }
}

// `work` may end connections at once, which removes them from the set.
template <class Work>
void Worker::for_each_connection(const Work& work) {
  const std::vector<ClientConnection*> all(connections_.begin(), connections_.end());
  for (ClientConnection* connection : all) {
    if (connections_.contains(connection)) work(*connection);
  }
}

void Worker::close_others(Duration idle) {
  loop_.post([this, idle] {
    for_each_connection([idle](ClientConnection& connection) {
      if (!connection.relayed() && !connection.may_leave() && connection.idle_for(idle)) connection.close(true);
    });
  });
}

Task<void> Worker::run_connection(std::unique_ptr<ClientConnection> connection) {
  co_await connection->run();
  connections_.erase(connection.get());
  if (connection->relayed()) relayed_count_.fetch_sub(1, std::memory_order_relaxed);
  connection_count_.fetch_sub(1, std::memory_order_relaxed);
  shared_.connections.current.fetch_sub(1, std::memory_order_relaxed);
}

void Worker::close_sessions(bool drain) {
  for_each_connection([drain](ClientConnection& connection) { connection.close(drain); });
}

Task<void> Worker::housekeeping() {
  while (!stopping_) {
    co_await loop_.sleep_for(tick);
    const TimePoint now = Clock::now();
    gateway_->tick(now);
    notice_clients(now);
    if (context_.worker == 0) tick_memory(now);
    if (context_.worker == 0) tick_certificates(now);
    if (context_.worker == 0) cursor_keeper_.tick(context_, now);
    if (context_.worker == 0) user_feed_.tick(context_, now);
    if (context_.worker == 0 && shared_.cluster) shared_.cluster->tick(now);
  }
  housekeeping_ended_ = true;
}

void Worker::notice_clients(TimePoint now) {
  std::vector<std::pair<ClientConnection*, ClientConnection::Silence>> silent;
  for (ClientConnection* connection : connections_) {
    connection->notice_absent_client(now);
    const ClientConnection::Silence silence = connection->notice_silence(now);
    if (silence != ClientConnection::Silence::none) silent.emplace_back(connection, silence);
  }
  // close() may end a connection at once, which removes it from the set.
  for (const auto& [connection, silence] : silent) {
    if (connections_.contains(connection)) connection->close_silent(silence);
  }
}

void Worker::tick_memory(TimePoint now) {
  shared_.memory_layer->tick(now.time_since_epoch().count());
  // Under pressure the heaps' free memory goes first, repeatedly: the releaser limits the rate.
  if (shared_.pressure.level() == PressureLevel::normal) return;
  if (now < next_pressure_release_) return;
  next_pressure_release_ = now + pressure_release_interval;
  shared_.memory_layer->releaser().request(ReleaseReason::pressure);
}

// The start and each reload have looked, too.
void Worker::tick_certificates(TimePoint now) {
  if (!credentials_ || now < next_certificate_look_) return;
  next_certificate_look_ = now + certificates_every;
  for (const std::string& warning : credentials_->warnings()) log::warning("{}", warning);
}

void Worker::use_table(std::shared_ptr<const catalog::RoutingSnapshot> table, TableTaken taken) {
  loop_.post([this, table = std::move(table), taken = std::move(taken)]() mutable {
    const auto before = context_.static_router.replace(std::move(table));
    if (taken) taken(before);
  });
}

void Worker::use_credentials(Credentials::Ptr credentials) {
  loop_.post([this, credentials = std::move(credentials)] {
    context_.tls = credentials->clients;
    environment_.plain_text = credentials->plain_text;
    gateway_->use_credentials(credentials->shards);
    credentials_ = credentials;
    next_certificate_look_ = Clock::now() + certificates_every;
  });
}

void Worker::wake_hellos() {
  loop_.post([this] {
    for (ClientConnection* connection : connections_) connection->wake_hello();
  });
}

void Worker::begin_drain() {
  loop_.post([this] {
    stopping_ = true;
    close_sessions(true);
  });
}

// Running operations get the reason; then cursors go, since a shard may be waiting for their end; then the calls.
Task<void> Worker::cut_sessions() {
  log::info("{} requests that are still running are cut", connections_.size());
  for_each_connection([](ClientConnection& connection) {
    connection.interrupt(Error(ErrorCode::interrupted_at_shutdown, "operation was interrupted: the router shuts down"));
  });
  const TimePoint answered_by = Clock::now() + interrupted_answer_time_max;
  while (!connections_.empty() && Clock::now() < answered_by) co_await loop_.sleep_for(look_interval);
  if (connections_.empty()) co_return;
  auto killing = exec::kill_and_wait(context_, shared_.cursors.kill_all(), Clock::now() + cut_time_max);
  co_await killing;
  gateway_->abort_calls();
}

// Resources that clients leave behind on shards: open transactions and cursors, of all workers.
Task<void> Worker::end_on_shards(TimePoint told_by) {
  TaskGroup aborts;
  for (exec::OpenTransaction& open : shared_.transactions->end_all_sessions(false)) {
    aborts.start(exec::abort_on_shards(context_, std::move(open), told_by));
  }
  auto killing = exec::kill_and_wait(context_, shared_.cursors.kill_all(), told_by);
  co_await killing;
  co_await aborts.wait();
}

Task<void> Worker::shut_down(TimePoint cut, std::vector<Worker*> before) {
  stopping_ = true;
  close_sessions(true);
  const auto patient = [this, cut] { return Clock::now() < cut && !hurried_; };
  while (!connections_.empty() && patient()) co_await loop_.sleep_for(look_interval);
  const bool cuts = !connections_.empty();
  if (cuts) {
    co_await cut_sessions();
  }
  close_sessions(false);
  // A command that has been cut may still begin another call; an abortTransaction of one has time to arrive.
  constexpr auto cut_again_every = std::chrono::seconds(1);
  for (TimePoint next = Clock::now() + cut_again_every; !connections_.empty();) {
    if (cuts && Clock::now() >= next) {
      gateway_->abort_calls();
      next += cut_again_every;
    }
    co_await loop_.sleep_for(look_interval);
  }
  for (const Worker* other : before) {
    while (!other->done()) co_await loop_.sleep_for(look_interval);
  }
  const TimePoint told_by = Clock::now() + end_time_max;
  if (context_.worker == 0) {
    co_await end_on_shards(told_by);
  }
  while (!housekeeping_ended_) co_await loop_.sleep_for(look_interval);
  // Another worker's client may wait for the batch that is being fetched ahead.
  while (context_.background.running() > 0 && patient()) co_await loop_.sleep_for(look_interval);
  context_.read_ahead.request(Error(ErrorCode::host_unreachable, "the router is shutting down"));
  while (context_.background.running() > 0 && Clock::now() < told_by) co_await loop_.sleep_for(look_interval);
  gateway_->abort_calls();
  co_await gateway_->shut_down();
  co_await context_.background.wait();
  done_ = true;
  loop_.stop();
}

void Worker::begin_stop(TimePoint cut, std::vector<Worker*> before) {
  loop_.post([this, cut, before = std::move(before)]() mutable { loop_.spawn(shut_down(cut, std::move(before))); });
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace spillway::server
