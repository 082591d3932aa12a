#include "proxy/server/life/server.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "allocator/limits.h"
#include "allocator/memory_layer.h"
#include "allocator/mutex.h"
#include "allocator/release.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log.h"
#include "proxy/base/log_pace.h"
#include "proxy/config/cluster.h"
#include "proxy/config/http_endpoint.h"
#include "proxy/config/system_limits.h"
#include "proxy/config/tls.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/user_feed.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/shared.h"
#include "proxy/exec/core/tracer.h"
#include "proxy/exec/tables/failed_logins.h"
#include "proxy/server/admin/admin.h"
#include "proxy/server/life/handover.h"
#include "proxy/server/life/predecessor.h"
#include "proxy/server/life/shutdown.h"
#include "proxy/server/life/signals.h"
#include "proxy/server/reload/ownership_check.h"
#include "proxy/server/reload/reload.h"
#include "proxy/server/system/audit_sink.h"
#include "proxy/server/system/pressure_monitor.h"
#include "proxy/server/system/service_manager.h"
#include "proxy/server/system/watchdog.h"
#include "proxy/server/traces/trace_exporter.h"
#include "proxy/shard/connection_string.h"

namespace spillway::server {

namespace {

// How long start-up waits for shards that do not answer before it serves without them.
constexpr auto start_wait_max = std::chrono::seconds(5);
constexpr auto config_servers_retry = std::chrono::seconds(1);
constexpr auto config_servers_word = std::chrono::seconds(20);  // to the log and the service manager, while it waits
constexpr auto users_retry = std::chrono::seconds(1);
constexpr Duration users_wait_max = std::chrono::seconds(20);  // and the last read: within Handover's ready_max

ListenerOptions listener_options(const NetConfig& net, const SocketBuffers& sockets) {
  ListenerOptions options;
  options.addresses = listen_addresses(net);
  options.port = net.port;
  options.load_balancer_port = net.load_balancer_port;
  options.connections_max = net.max_incoming_connections;
  options.sockets = sockets;
  return options;
}

void fill_random(void* to, std::size_t bytes) {
  if (::getrandom(to, bytes, 0) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("the system gave no random bytes");
  }
}

void fill_facts(exec::Shared& shared, const ServerOptions& options, std::size_t workers, const Listener& listener) {
  exec::ProcessFacts& facts = shared.facts;
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  facts.host_name = fmt::format("{}:{}", host, listener.port());
  facts.arguments = options.arguments;
  fill_random(facts.process_id.data(), facts.process_id.size());
  fill_random(facts.cluster_id.data(), facts.cluster_id.size());
  facts.start_wall_ms = wall_clock_ms();
  facts.start_time = Clock::now();
  facts.workers = workers;
  BsonWriter parsed;
  parsed.begin_document("net").append("bindIp", options.config.net.bind_ip);
  parsed.append("port", std::int32_t{listener.port()});
  if (const auto port = listener.load_balancer_port()) {
    parsed.append("loadBalancerPort", std::int32_t{*port});
  }
  parsed.end();
  // Monitoring programs take what has this key for a router. As written: it has no password.
  parsed.begin_document("sharding").append("configDB", options.config.cluster.config_db).end();
  facts.parsed_options = std::move(parsed).finish();
  shared.parameters = options.config.parameters;
  shared.failed_logins->allowed = options.config.failed_logins_allowed;
  shared.limits.configure(options.config.limits);
}

// Throws std::runtime_error when memory.spill.path is unusable.
std::unique_ptr<SpillStore> open_spill_store(const SpillConfig& config, MemoryBudget& budget) {
  SpillOptions options;
  if (config.path.empty()) return std::make_unique<SpillStore>(options, budget, nullptr);
  OpenedSpillFile opened = open_spill_file(config.path);
  if (!opened.file) throw std::runtime_error("memory.spill.path: " + opened.error);
  options.limit_bytes = spill_limit_bytes(config.limit, opened.free_bytes);
  if (opened.file->on_tmpfs()) {
    log::warning("memory.spill.path: {} is a tmpfs: its bytes stay in memory, only compression gains", config.path);
  }
  if (options.limit_bytes > opened.free_bytes) {
    log::warning("memory.spill.limit: {} has only {} MiB free", config.path, opened.free_bytes >> 20);
  }
  log::info("idle cursors' documents are spilled to {}, at most {} MiB", config.path, options.limit_bytes >> 20);
  return std::make_unique<SpillStore>(options, budget, std::move(opened.file));
}

// Runs the start-up checks on a worker and waits for their outcome on the main thread.
class StartCheck {
 public:
  // `replaces`: a process that has users already.
  StartCheck(Worker& worker, bool guards, bool replaces) : worker_(worker), guards_(guards), replaces_(replaces) {}

  // Throws std::runtime_error when a guard refuses. False: end() was called. `admin`: null if there is none.
  bool run_and_wait(Loop& main_loop, const ServiceManager& service, AdminServer* admin) {
    worker_.loop().post([this] { worker_.loop().spawn(check()); });
    for (TimePoint next_word{}; !done_.load();) {
      main_loop.io().restart();
      main_loop.io().run_for(std::chrono::milliseconds(20));
      const std::string why = waits_for();
      if (why.empty()) continue;
      if (admin != nullptr) admin->set_waiting(why);
      if (Clock::now() < next_word) continue;
      next_word = Clock::now() + config_servers_word;
      service.starting("waiting for the config servers", 3 * config_servers_word);
    }
    if (!refusal_.empty()) throw std::runtime_error(refusal_);
    return !ended_.load();
  }
  // It ends after what it waits for now. Any thread.
  void end() { ended_.store(true); }
  bool ended() const noexcept { return ended_.load(); }

 private:
  Task<void> check() {
    const bool known = co_await worker_.context().gateway.wait_until_known(Clock::now() + start_wait_max);
    exec::Context& context = worker_.context();
    // In a cluster these are the config servers, and join() tells of them.
    if (!known && !context.shared.cluster) {
      log::warning("not every shard has answered yet; serving without those that have not");
    }
    if (context.shared.cluster) {
      co_await join(context);
    }
    if (context.shared.users_from && !ended_.load()) {
      const bool read = co_await read_users(context);
      // Clients that are logged in would lose their connections.
      if (!read && replaces_) refusal_ = "without its users it does not replace a process that has them";
    }
    if (guards_ && refusal_.empty() && !ended_.load()) {
      auto guarded = co_await check_ownership_at_start(worker_.context());
      if (guarded.has_error()) refusal_ = guarded.error().message;
    }
    done_.store(true);
  }

  // The config servers must answer first: nothing can be routed without them.
  Task<void> join(exec::Context& context) {
    for (log::LogPace pace; !ended_.load();) {
      const auto started = co_await context.shared.cluster->start();
      if (!started.has_error()) co_return;
      const std::string why = "waiting for the config servers: " + started.error().message;
      {
        const MutexLock lock(waits_mutex_);
        waits_for_ = why;
      }
      if (pace.due(Clock::now(), config_servers_word)) log::warning("no client is served yet: {}", why);
      co_await context.loop.sleep_for(config_servers_retry);
    }
  }

  // The process before serves meanwhile: their shard, or the config servers, may be electing a primary.
  Task<bool> read_users(exec::Context& context) {
    const TimePoint last_try = Clock::now() + (replaces_ ? users_wait_max : Duration::zero());
    for (;;) {
      const auto read = co_await exec::read_stored_users(context);
      if (!read.has_error()) co_return true;
      log::warning("users cannot be read from their shard yet: {}", read.error().message);
      if (Clock::now() >= last_try || ended_.load()) co_return false;
      co_await context.loop.sleep_for(users_retry);
    }
  }

  // Empty: for nothing that takes long.
  std::string waits_for() {
    const MutexLock lock(waits_mutex_);
    return waits_for_;
  }

  Worker& worker_;
  bool guards_, replaces_;
  std::atomic<bool> done_{false}, ended_{false};
  Mutex waits_mutex_;
  std::string waits_for_ ABSL_GUARDED_BY(waits_mutex_);
  std::string refusal_;
};

// Can it be written? Its content stays.
void try_pid_file(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return;
  throw std::runtime_error(fmt::format("cannot write the pid file {}", path));
}

void write_pid_file(const std::string& path) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  file << ::getpid() << '\n';
  if (!file) throw std::runtime_error(fmt::format("cannot write the pid file {}", path));
}

// Only our own: a refused start must not remove the file of the running process.
void remove_pid_file(const std::string& path) {
  if (path.empty()) return;
  std::ifstream file(path);
  ::pid_t pid = 0;
  if (file >> pid && pid == ::getpid()) ::unlink(path.c_str());
}

// "[::1]" for "::1", and an address to connect to if it listens on all.
std::string shown_address(const std::string& address) {
  if (address == "0.0.0.0" || address == "::") return "127.0.0.1";
  return address.find(':') != std::string::npos ? "[" + address + "]" : address;
}

void print_admin_ready(const AdminServer& admin) {
  std::printf("spillway ready for administration: http://%s:%u/\n", shown_address(admin.address()).c_str(),
              unsigned{admin.port()});
  std::fflush(stdout);
}

void print_ready(const Listener& listener) {
  const std::string host = shown_address(listener.addresses().front());
  if (const auto port = listener.load_balancer_port()) {
    std::printf("spillway ready for load balancers: mongodb://%s:%u/?loadBalanced=true\n", host.c_str(),
                unsigned{*port});
  }
  std::printf("spillway ready: mongodb://%s:%u/\n", host.c_str(), unsigned{listener.port()});
  std::fflush(stdout);
}

std::shared_ptr<CacheFlush> flush_workers(const exec::Shared& shared) {
  auto round = std::make_shared<CacheFlush>(shared.workers.size());
  for (exec::Context* worker : shared.workers) {
    worker->loop.post([round] { round->flush_here(); });
  }
  return round;
}

void start_memory_layer(exec::Shared& shared, const Config& config, std::uint64_t limit_bytes) {
  MemoryLayerSettings settings;
  settings.choice = config.parameters.allocator;
  settings.limit_bytes = limit_bytes;
  const auto on_switch = [](const PolicyDecision& decision) {
    log::info("buffers come from {} now: {}", decision.heap, decision.reason);
  };
  const auto error = shared.memory_layer->start(settings, on_switch, [&shared] { return flush_workers(shared); });
  if (error) throw std::runtime_error("memory.allocator: " + *error);
}

// Bounds the memory that clients may use: the limit without the proxy's own memory, a tenth for rounding and free
// memory of heaps, and an eighth for the kernel's socket buffers. Returns the line for the log.
std::string divide_memory(exec::Shared& shared, const Config& config, std::uint64_t limit_bytes, std::size_t workers) {
  constexpr std::uint64_t heap_share = 10;
  constexpr std::uint64_t socket_share = 8;
  constexpr std::uint64_t worker_bytes = 512 * limits::kib;  // stack, loop, scratch: about to be made
  const std::size_t shards =
      config.cluster.config_db.empty() ? shared.routing->shards().size() : exec::Shared::cluster_shards_expected;
  const std::uint64_t admin_bytes = config.net.admin.port ? admin_memory_bytes(shards) : 0;
  const std::uint64_t trace_bytes = config.trace_endpoint.empty() ? 0 : trace_memory_bytes;
  shared.memory.admin.set_limit(admin_bytes);
  shared.memory.traces.set_limit(trace_bytes);
  const std::uint64_t base = process_resident_bytes() + workers * worker_bytes;
  shared.facts.base_bytes = base;
  shared.facts.memory_limit_bytes = limit_bytes;
  if (limit_bytes == 0) return "no memory limit";
  const std::uint64_t heap = limit_bytes / heap_share;
  const std::uint64_t sockets = limit_bytes / socket_share;
  const std::uint64_t aside = base + heap + sockets + admin_bytes + trace_bytes;
  const std::uint64_t payload = limit_bytes > aside ? limit_bytes - aside : 1;
  if (const auto refusal = shared.divide_memory(payload, workers)) {
    throw std::runtime_error(fmt::format("memory.limit of {} MiB is too small: without {} MiB that the proxy takes by "
                                         "itself, {} MiB for its heaps and {} MiB for sockets, {}; raise the limit, or "
                                         "lower workers",
                                         limit_bytes / limits::mib, base / limits::mib, heap / limits::mib,
                                         sockets / limits::mib, *refusal));
  }
  return fmt::format(
      "of memory.limit, {} MiB are for what clients send and ask for ({} MiB base, {} MiB for the heaps, {} for "
      "sockets); messages may have {} MiB",
      payload / limits::mib, base / limits::mib, heap / limits::mib, sockets / limits::mib,
      shared.memory.message_bytes_max / limits::mib);
}

// All parts of a serving process, in the order in which they begin.
class Server {
 public:
  // Listens, and starts workers; no client is served yet. Throws std::runtime_error.
  explicit Server(ServerOptions options);
  // Serves until the shutdown's end. Returns the exit code.
  int run();

 private:
  void make_parts();
  void make_workers();
  void join_cluster();
  void listen();
  bool start();  // false: it was asked to end before it serves
  void finish();
  void begin_to_be_watched();
  void begin_reload_hooks(Reload::Options& hooks);
  Handover::Options handover_options();
  void begin_shutdown(std::chrono::milliseconds announce);
  void stop_listening();
  // Else the process before is, and this one has not taken over.
  bool is_the_service() const noexcept { return !predecessor_ || serves_; }

  ServerOptions options_;
  const SystemLimits limits_ = read_system_limits();
  const std::int64_t files_max_ = raise_open_files();
  const std::size_t worker_total_;
  const std::uint64_t memory_bytes_;  // 0: no limit
  ServiceManager manager_ = ServiceManager::from_environment();
  Loop loop_;
  std::unique_ptr<AuditSink> audit_sink_;  // null: there is no audit log
  std::atomic<bool> audit_renames_{true};  // systemLog.logRotate
  exec::Shared shared_{0};
  std::unique_ptr<TraceExporter> trace_exporter_;  // null: no command is traced
  WorkerOptions worker_options_;
  std::optional<Predecessor> predecessor_;
  bool serves_ = false;  // or has
  std::optional<Listener> listener_;
  std::string divided_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> worker_list_;
  std::optional<PressureMonitor> pressure_;
  std::optional<Watchdog> watchdog_;
  std::optional<Shutdown> shutdown_;
  std::optional<Reload> reload_;
  std::optional<Handover> handover_;
  std::optional<Signals> signals_;
  std::optional<AdminServer> admin_;  // before what it looks at goes
};

// The configuration's check has validated these keys. `rename`, a reference, is for the code that reopens the log.
// Throws std::runtime_error for a file that cannot be opened.
void open_audit(exec::Shared& shared, const Config& config, std::unique_ptr<AuditSink>& sink,
                const std::atomic<bool>& rename) {
  if (!config.audit.destination) return;
  sink = std::make_unique<AuditSink>(config.audit);
  AuditSink* const to = sink.get();
  shared.audit = std::make_unique<exec::AuditLog>(
      exec::AuditLog::Options{.sink = [to](std::string line) { return to->offer(std::move(line)); },
                              .reopen = [to, &rename] { to->reopen(rename); },
                              .failed = [to] { return to->failed(); }});
}

// Throws std::runtime_error.
void open_traces(exec::Shared& shared, const Config& config, std::unique_ptr<TraceExporter>& exporter) {
  if (config.trace_endpoint.empty()) return;
  HttpEndpoint to = trace_endpoint(config.trace_endpoint).value();  // checked
  TlsContext::Ptr tls;
  if (to.tls) {
    auto made = TlsContext::make_client({});
    if (made.has_error()) throw std::runtime_error("setParameter.opentelemetryHttpEndpoint: " + made.error().message);
    tls = *std::move(made);
  }
  exporter = std::make_unique<TraceExporter>(std::move(to), std::move(tls),
                                             TraceSource{shared.facts.version, shared.facts.host_name},
                                             shared.memory.traces, shared.metrics);
  shared.tracer = std::make_unique<exec::Tracer>(
      shared.memory.traces, shared.metrics,
      [exporter = exporter.get()](auto command) { return exporter->offer(std::move(command)); });
}

void use_users(exec::Shared& shared, const Config& config) {
  shared.users.configure(config.users);
}

// Warns an operator of open access.
void warn_of_strangers(const Config& config) {
  if (config.authorization != Authorization::enabled) return;
  if (config.users.empty() && config.users_from.empty() && config.cluster.config_db.empty()) {
    log::warning("security.authorization is enabled, and there are no users, so no client can log in; spillway "
                 "--hash-password NAME makes an entry of security.users");
  }
  const auto addresses = listen_addresses(config.net);
  const bool outside = std::any_of(addresses.begin(), addresses.end(),
                                   [](const std::string& address) { return !is_loopback(address); });
  if (outside && config.net.tls.mode != TlsMode::require) {
    log::warning("net.tls.mode is not requireTLS: what clients send and get after logging in may be read, and "
                 "changed, on the network");
  }
}

// Throws std::runtime_error: a file has changed since the configuration was checked.
Credentials::Ptr take_credentials(const Config& config, const catalog::RoutingSnapshot& routing) {
  auto read = read_credentials(config, routing);
  if (read.has_error()) throw std::runtime_error(read.error().message);
  for (const std::string& warning : (*read)->warnings()) log::warning("{}", warning);
  return *std::move(read);
}

std::uint64_t memory_of(const Config& config, const SystemLimits& limits) {
  const std::uint64_t bytes = memory_limit_bytes(config.memory_limit, limits);
  return bytes == UINT64_MAX ? 0 : bytes;
}

void tell(const std::exception& error) {
  log::error("{}", error.what());
  std::fprintf(stderr, "spillway: %s\n", error.what());
}

// Workers end by a shutdown, for which all parts must be there. Until then there is nothing that it would save.
[[noreturn]] void fail(const std::exception& error) {
  tell(error);
  ::_exit(1);
}

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      worker_total_(static_cast<std::size_t>(worker_count(options_.config, limits_))),
      memory_bytes_(memory_of(options_.config, limits_)) {
  shared_.routing = options_.routing;
  shared_.authorization = options_.config.authorization == Authorization::enabled;
  use_users(shared_, options_.config);
  audit_renames_ = options_.config.system_log.rotation == LogRotation::rename;
  open_audit(shared_, options_.config, audit_sink_, audit_renames_);
  if (const std::string& from = options_.config.users_from; !from.empty()) {
    shared_.users_from = options_.routing->shard_by_name(from);
    if (!shared_.users_from) throw std::runtime_error(fmt::format("security.usersFrom: there is no shard {}", from));
  }
  // The config servers keep a cluster's users. These may log in even where no login is needed.
  if (options_.in_cluster) {
    shared_.users_from = cluster::config_shard;
    shared_.users_of_cluster = true;
  }
  shared_.spill = open_spill_store(options_.config.spill, shared_.memory.spill);
  worker_options_.gateway = gateway_options(options_.config, *options_.routing);
  const Credentials::Ptr credentials = take_credentials(options_.config, *options_.routing);
  worker_options_.gateway.credentials = credentials->shards;
  worker_options_.tls = credentials->clients;
  worker_options_.plain_text = credentials->plain_text;
  worker_options_.credentials = credentials;
  worker_options_.socket_buffers = socket_buffers(memory_bytes_);
  worker_options_.compressors = wire::parse_list(options_.config.net.compressors);
  if (options_.predecessor) {
    predecessor_.emplace(loop_, shared_, std::move(options_.predecessor));
    worker_options_.older = predecessor_->older();
  }
  listen();
  divided_ = divide_memory(shared_, options_.config, memory_bytes_, worker_total_);
  const SocketBuffers& buffers = worker_options_.socket_buffers;
  shared_.memory.sockets.set_limits(buffers.growth_bytes_max, buffers.borrowed_bytes_max);
  try {
    make_parts();
  } catch (const std::exception& error) {
    fail(error);
  }
}

// All that needs workers, and them.
void Server::make_parts() {
  make_workers();
  pressure_.emplace(loop_, shared_.memory.process, shared_.pressure, open_pressure_source());
  shutdown_.emplace(loop_, shared_, worker_list_,
                    Shutdown::Options{.drain = std::chrono::seconds(options_.config.drain_seconds),
                                      .began =
                                          [this](std::chrono::seconds at_most) {
                                            if (is_the_service()) manager_.stopping(at_most);
                                          },
                                      .stop_listening = [this] { stop_listening(); },
                                      .ended = [this] { loop_.stop(); }});
  Reload::Options reload{
      .load = options_.load, .check_shards = options_.check_shards, .in_cluster = options_.in_cluster};
  begin_reload_hooks(reload);
  reload_.emplace(loop_, shared_, worker_list_, options_.config, options_.routing, std::move(reload));
  handover_.emplace(loop_, shared_, worker_list_, *listener_, *shutdown_, handover_options());
  signals_.emplace(loop_, shared_, *shutdown_, *reload_, *handover_);
  shared_.life.request_shutdown = [this](std::chrono::milliseconds announce) {
    loop_.post([this, announce] { begin_shutdown(announce); });
  };
}

// Before there are workers to end: an address in use is the most frequent reason for a failed start.
void Server::listen() {
  const NetConfig& net = options_.config.net;
  OfferedSockets offered = predecessor_ ? predecessor_->take_sockets() : OfferedSockets();
  if (net.admin.port) {
    admin_.emplace(shared_, loop_,
                   AdminOptions{.addresses = admin_addresses(net), .port = *net.admin.port, .offered = &offered});
  }
  std::vector<FileDescriptor> sockets =
      predecessor_ ? offered.take_service_managers() : manager_.take_sockets();
  ListenerOptions listening = listener_options(net, worker_options_.socket_buffers);
  listening.offered = &offered;
  listening.clients = sockets.empty();
  listening.files_max = files_max_;
  listener_.emplace(loop_, shared_, listening);
  for (FileDescriptor& socket : sockets) {
    const std::string address = listener_->adopt(std::move(socket), worker_options_.socket_buffers);
    if (is_loopback(address) || options_.config.authorization.has_value()) continue;
    throw std::runtime_error(fmt::format("the service manager's socket listens on {}, which is not loopback, and "
                                         "clients are not authenticated: write security.authorization: "
                                         "enabled and security.users; or disabled, if that is meant",
                                         address));
  }
}

void Server::make_workers() {
  std::vector<Loop*> loops;
  for (std::size_t i = 0; i < worker_total_; ++i) {
    workers_.push_back(std::make_unique<Worker>(i, shared_, worker_options_));
    worker_list_.push_back(workers_.back().get());
    shared_.workers.push_back(&workers_.back()->context());
    loops.push_back(&workers_.back()->loop());
  }
  if (options_.in_cluster) join_cluster();
  if (const auto interval = manager_.watchdog()) {
    watchdog_.emplace(loop_, std::move(loops), *interval, [this] { manager_.notify("WATCHDOG=1"); });
  }
  fill_facts(shared_, options_, worker_total_, *listener_);
  open_traces(shared_, options_.config, trace_exporter_);
  start_memory_layer(shared_, options_.config, memory_bytes_);
  for (auto& worker : workers_) worker->start();
}

void Server::join_cluster() {
  exec::ClusterLinks links;
  auto tls = cluster_tls(options_.config.net.tls);
  if (tls.has_error()) throw std::runtime_error(tls.error().message);
  links.tls = *std::move(tls);
  links.credentials = worker_options_.gateway.credentials.front();
  const ClusterConfig& cluster = options_.config.cluster;
  shared_.clock.set_drift_secs_max(cluster.clock_drift_secs_max);
  shared_.shards_trust_us = servers_trust(options_.config);
  shared_.cluster =
      std::make_unique<exec::ClusterTable>(workers_.front()->context(), options_.routing, std::move(links));
  for (auto& worker : workers_) worker->join_cluster(*shared_.cluster);
}

void Server::begin_reload_hooks(Reload::Options& hooks) {
  hooks.apply = [this](const Config& config) {
    use_users(shared_, config);
    audit_renames_ = config.system_log.rotation == LogRotation::rename;
    listener_->set_connections_max(config.net.max_incoming_connections);
    shutdown_->set_drain(std::chrono::seconds(config.drain_seconds));
  };
  hooks.replace = [this] { return handover_->request(true); };
  hooks.began = [this] { manager_.reloading("Reloading the configuration"); };
  hooks.ended = [this](const std::string& outcome) {
    if (shared_.audit) shared_.audit->reloaded(outcome, outcome.starts_with("reloaded"));
    manager_.ready(outcome);
  };
}

Handover::Options Server::handover_options() {
  return {.program = Program(options_.arguments.front()),
          .arguments = options_.arguments,
          .offer =
              [this] {
                auto sockets = listener_->offer();
                if (!admin_) return sockets;
                for (OfferedSocket& socket : admin_->offer()) sockets.push_back(std::move(socket));
                return sockets;
              },
          .must_wait = [this] { return predecessor_ && predecessor_->lives(); },
          .began = [this] { manager_.reloading("Being replaced"); },
          .goes_on = [this](const std::string& status) { manager_.ready(status); },
          .reload = [this] { reload_->request_here(); },
          .replaced =
              [this](::pid_t by) {
                manager_.replaced_by(by);
                reload_->stop();
                if (watchdog_) watchdog_->stop();
                if (admin_) admin_->stop_listening();
              }};
}

void Server::begin_shutdown(std::chrono::milliseconds announce) {
  handover_->stop();
  reload_->stop();
  shutdown_->begin(announce);
}

void Server::stop_listening() {
  listener_->stop();
  pressure_->stop();
  if (watchdog_) watchdog_->forget_loops();
  shared_.memory_layer->stop();
}

void Server::begin_to_be_watched() {
  if (watchdog_) watchdog_->start();
  if (!admin_) return;
  admin_->answer_requests();
  print_admin_ready(*admin_);
}

bool Server::start() {
  if (admin_) admin_->start(worker_list_);  // it may fail, which must not be after the process before has let go
  if (!predecessor_) begin_to_be_watched();
  const bool guards = options_.check_shards && !options_.in_cluster;
  const auto check = std::make_shared<StartCheck>(*workers_.front(), guards, predecessor_.has_value());
  signals_->wait_for_stop([check] {
    log::info("asked to end before it serves");
    check->end();
  });
  if (!check->run_and_wait(loop_, manager_, admin_ ? &*admin_ : nullptr)) return false;
  const auto listen = [this] { listener_->start(worker_list_); };
  if (predecessor_) {
    try_pid_file(options_.config.pid_file_path);
    const auto retry = [this] { handover_->retry(); };
    if (!predecessor_->take_over(*listener_, listen, retry, [check] { return check->ended(); })) return false;
    begin_to_be_watched();
    serves_ = true;
    if (check->ended()) return false;  // asked to end when it was the service already
  }
  try {
    write_pid_file(options_.config.pid_file_path);
  } catch (const std::runtime_error& error) {
    if (!predecessor_) throw;
    log::error("{}", error.what());  // the older process does not serve any more
  }
  loop_.io().restart();
  pressure_->start();
  if (!predecessor_) listen();
  serves_ = true;
  if (shared_.audit) shared_.audit->started(shared_.facts);
  const auto& shards = shared_.cluster ? *shared_.cluster->shards() : *options_.routing;
  log::info("listening on port {} with {} workers, {} shards, memory limit {}; {}", listener_->port(), worker_total_,
            shards.all_shards().size(), describe_memory_limit(options_.config.memory_limit, limits_),
            shared_.memory_layer->description());
  log::info("{}", divided_);
  if (const auto warning = memory_beyond_cgroup(options_.config.memory_limit, limits_)) {
    log::warning("memory.limit: {}", *warning);
  }
  if (admin_) {
    admin_->set_serving();
    log::info("the admin port is {}, on {}", admin_->port(), fmt::join(admin_addresses(options_.config.net), ", "));
  }
  warn_of_strangers(options_.config);
  print_ready(*listener_);
  manager_.ready(fmt::format("Serving on port {}", listener_->port()));
  signals_->start();
  if (predecessor_ && predecessor_->asked_again()) handover_->request();
  return true;
}

// Also after a start that failed: workers are there.
void Server::finish() {
  if (!shutdown_->done()) {
    begin_shutdown(std::chrono::milliseconds(0));
    loop_.io().restart();
    loop_.run();
  }
  if (watchdog_) watchdog_->stop();
  for (auto& worker : workers_) worker->join();
  if (trace_exporter_) trace_exporter_->stop();
  if (admin_) admin_->stop();
  shared_.spill->stop();  // before the loops end that it answers on
  if (shared_.audit && is_the_service()) shared_.audit->shut_down();
  if (audit_sink_) audit_sink_->stop();
  // What is known of a cluster goes with the process.
  log::info("stopped; {} bytes are still reserved",
            shared_.memory.process.usage().used_bytes - shared_.memory.routing.usage().used_bytes);
  remove_pid_file(options_.config.pid_file_path);
}

int Server::run() {
  int exit_code = 0;
  try {
    if (start()) loop_.run();
  } catch (const std::runtime_error& error) {
    tell(error);
    exit_code = 1;
  }
  finish();
  return exit_code;
}

}  // namespace

std::shared_ptr<const catalog::RoutingSnapshot> table_of_config_servers(const LoadResult& loaded) {
  const auto tls = cluster_tls(loaded.config.net.tls);
  if (tls.has_error()) throw std::runtime_error(tls.error().message);
  std::string seeds = loaded.config_servers->set_name + "/";
  for (const shard::HostAddress& host : loaded.config_servers->hosts) {
    seeds += (seeds.back() == '/' ? "" : ",") + host.text();
  }
  auto uri = shard::connection_string_for(seeds, *tls ? &**tls : nullptr);
  if (uri.has_error()) throw std::runtime_error("sharding.configDB: " + uri.error().message);
  return exec::table_of_config_servers(*std::move(uri));
}

std::optional<std::string> refuse_memory(const Config& config,
                                         const std::shared_ptr<const catalog::RoutingSnapshot>& routing) {
  const SystemLimits limits = read_system_limits();
  exec::Shared shared{0};
  shared.routing = routing;
  shared.authorization = config.authorization == Authorization::enabled;
  try {
    const auto workers = static_cast<std::size_t>(worker_count(config, limits));
    static_cast<void>(divide_memory(shared, config, memory_of(config, limits), workers));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return std::nullopt;
}

StartRefusals try_to_start(const Config& config, const std::shared_ptr<const catalog::RoutingSnapshot>& routing) {
  StartRefusals refusals;
  const auto attempt = [](std::vector<std::string>& refused, const auto& what) {
    try {
      what();
    } catch (const std::runtime_error& error) {
      refused.emplace_back(error.what());
    }
  };
  const SystemLimits limits = read_system_limits();
  const std::uint64_t memory_bytes = memory_of(config, limits);
  exec::Shared shared{0};
  shared.routing = routing;
  Loop loop;
  attempt(refusals.ports, [&] { Listener(loop, shared, listener_options(config.net, socket_buffers(memory_bytes))); });
  if (const auto port = config.net.admin.port) {
    attempt(refusals.ports, [&] {
      AdminServer(shared, loop, AdminOptions{.addresses = admin_addresses(config.net), .port = *port});
    });
  }
  attempt(refusals.spill, [&] { shared.spill = open_spill_store(config.spill, shared.memory.spill); });
  if (auto refusal = refuse_memory(config, routing)) refusals.memory.push_back(*std::move(refusal));
  if (shared.spill) shared.spill->stop();
  return refusals;
}

int run_server(ServerOptions options) { return Server(std::move(options)).run(); }

}  // namespace spillway::server
