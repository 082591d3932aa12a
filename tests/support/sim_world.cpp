#include "tests/support/sim_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "proxy/auth/users.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/shard/connection_string.h"
#include "tests/support/routing_text.h"
#include "tests/support/seeded_ids.h"

namespace spillway::test {

void LateNetwork::bind(Network& target) {
  target_ = &target;
  for (const std::coroutine_handle<> waiter : std::exchange(waiting_, {})) waiter.resume();
}

Task<Result<std::unique_ptr<Transport>>> LateNetwork::connect(std::string host, std::uint16_t port,
                                                              TimePoint deadline) {
  co_await Bound{*this};
  auto connecting = target_->connect(std::move(host), port, deadline);
  co_return co_await connecting;
}

SimWorld::SimWorld(SimWorldOptions options)
    : shared_(std::make_unique<exec::Shared>(options.memory_limit_bytes)),
      pool_max_(options.gateway.pool_max),
      order_(options.order_seed),
      shuffles_(options.order_seed != 0) {
  seed_cursor_ids(options.order_seed);
  if (options.memory_limit_bytes != 0) {
    for (MemoryQueue* queue : {&shared_->memory.request_queue, &shared_->memory.work_queue}) {
      queue->set_reserves(options.large_reserve_bytes, options.small_reserve_bytes);
    }
  }
  server::WorkerOptions worker_options;
  worker_options.gateway = options.gateway;
  worker_options.compressors = options.compressors;
  worker_options.socket_buffers = options.socket_buffers;
  worker_options.older = options.older;
  shared_->memory.sockets.set_limits(options.socket_buffers.growth_bytes_max, 0);
  if (options.cluster != nullptr) servers_ = options.cluster->servers();
  if (options.config_db) {
    const std::string uri = shard::connection_string_for(options.cluster->config_db()).value();
    worker_options.gateway.shards.push_back({"config", uri});
    shared_->routing = exec::table_of_config_servers(uri);
  } else {
    use_static_table(options, worker_options);
  }
  shared_->facts.host_name = "router:27017";
  shared_->facts.start_time = Clock::now();
  shared_->facts.workers = options.workers;
  shared_->parameters.cursor_timeout_ms = options.cursor_timeout_ms;
  shared_->parameters.spill_idle_ms = options.spill_idle_ms;
  shared_->parameters.orphan_grace_ms = options.orphan_grace_ms;
  // A choice by the thread's CPU time would not repeat itself.
  shared_->parameters.splice_replies = SpliceReplies::always;
  if (options.spill_file) {
    SpillOptions spill;
    spill.limit_bytes = 64 * limits::mib;
    spill.piece_bytes = 4 * limits::kib;
    shared_->spill = std::make_unique<SpillStore>(spill, shared_->memory.spill, options.spill_file(),
                                                  SpillStore::Drive::manual);
  }
  for (std::size_t i = 0; i < options.workers; ++i) {
    auto late = std::make_unique<LateNetwork>();
    LateNetwork& binding = *late;
    workers_.push_back(std::make_unique<server::Worker>(i, *shared_, worker_options,
                                                        Loop::Drive::manual, std::move(late)));
    FaultOptions faults = options.faults;
    faults.seed += i;
    networks_.push_back(std::make_unique<SimNetwork>(workers_.back()->loop(), faults));
    for (SimShard* const server : servers_) server->attach(*networks_.back());
    binding.bind(*networks_.back());
    shared_->workers.push_back(&workers_.back()->context());
  }
  std::vector<server::Worker*> workers;
  for (const auto& worker : workers_) workers.push_back(worker.get());
  shutdown_ = std::make_unique<server::Shutdown>(
      main_loop_, *shared_, std::move(workers),
      server::Shutdown::Options{.drain = std::chrono::seconds(10), .stop_listening = [this] { listening_ = false; }});
  if (options.config_db) join_cluster();
  for (const auto& worker : workers_) worker->start();
  const auto known = [this] {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
      const auto& states = worker->context().gateway.states();
      return std::all_of(states.begin(), states.end(),
                         [](const auto& state) { return state.max_wire_version > 0; });
    });
  };
  run_until(known, std::chrono::seconds(5));
  if (!options.config_db) return;
  for (int tries = 0; tries < 60; ++tries, run_for(std::chrono::seconds(1))) {
    if (!run(shared_->cluster->start()).has_error()) break;
  }
  run_until(known, std::chrono::seconds(5));
}

void SimWorld::use_static_table(const SimWorldOptions& options, server::WorkerOptions& of_workers) {
  std::vector<SimShardOptions> shards = options.shards;
  if (options.cluster != nullptr) {
    shards.clear();
    for (std::size_t i = 0; i < options.cluster->shard_count(); ++i) {
      shards.push_back(options.cluster->shard(i).options());
    }
  }
  std::string yaml = "routing:\n  shards:\n";
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const SimShardOptions& shard = shards[i];
    const std::string uri =
        fmt::format("mongodb://{}:{}/{}", shard.host, shard.port,
                    shard.set_name.empty() ? "" : "?replicaSet=" + shard.set_name);
    yaml += fmt::format("    - {{name: shard{}, uri: \"{}\"}}\n", i, uri);
    of_workers.gateway.shards.push_back({fmt::format("shard{}", i), uri});
    if (options.cluster != nullptr) continue;
    shards_.push_back(std::make_unique<SimShard>(shard, log_));
    servers_.push_back(shards_.back().get());
  }
  auto routing = test::load_routing(yaml + options.routing, "simulation");
  if (routing.has_error()) throw std::runtime_error(routing.error().message);
  shared_->routing = *routing;
}

// As the server does.
void SimWorld::join_cluster() {
  shared_->cluster =
      std::make_unique<exec::ClusterTable>(workers_.front()->context(), shared_->routing, exec::ClusterLinks{});
  for (const auto& worker : workers_) worker->join_cluster(*shared_->cluster);
}

SimWorld::~SimWorld() {
  if (!stopped_) SPILLWAY_CHECK(shut_down());
}

void SimWorld::set_faults(const FaultOptions& faults) {
  for (const auto& network : networks_) network->set_faults(faults);
}

std::unique_ptr<Transport> SimWorld::dial(std::size_t worker, server::Entrance entrance) {
  auto [near, far] = networks_[worker]->pair();
  workers_[worker]->serve(std::move(far), next_connection_++, entrance);
  return std::move(near);
}

std::unique_ptr<SimClient> SimWorld::balanced_client(std::string header, std::size_t worker) {
  return std::make_unique<SimClient>([this, header = std::move(header), worker] {
    auto transport = dial(worker, server::Entrance::load_balancers);
    if (!header.empty()) {
      const iovec piece{const_cast<char*>(header.data()), header.size()};
      SPILLWAY_CHECK(transport->try_write({&piece, 1}).bytes == header.size());
    }
    return transport;
  });
}

std::unique_ptr<SimClient> SimWorld::client(std::size_t worker) {
  return std::make_unique<SimClient>([this, worker] { return dial(worker); });
}

std::unique_ptr<SimClient> SimWorld::moved_client(BsonDoc state, std::size_t worker, bool relayed) {
  return std::make_unique<SimClient>([this, state = std::move(state), worker, relayed] {
    auto [near, far] = networks_[worker]->pair();
    workers_[worker]->serve(std::move(far), server::MovedClient{state, {}, {}, relayed});
    return std::move(near);
  });
}

std::unique_ptr<SimClient> SimWorld::client_of(std::string user, std::size_t worker) {
  return std::make_unique<SimClient>([this, user = std::move(user), worker] {
    const std::int64_t number = next_connection_;
    auto transport = dial(worker);
    for (exec::Client* client : workers_[worker]->context().clients) {
      if (client->connection_id == number) log_in(*client, user);
    }
    return transport;
  });
}

void SimWorld::log_in(exec::Client& client, std::string_view user) {
  shared_->authorization = true;
  if (shared_->users.table()->empty()) {
    const auto password = auth::scram_password(auth::Hash::sha256, "ann", "pencil");
    std::vector<auth::UserSpec> users;
    for (const char* each : {"ann", "mallory"}) {
      auth::UserSpec spec{each, "admin", {{"readWrite", "app"}}, {}, {}};
      spec.sha256 =
          auth::make_credentials(auth::Hash::sha256, **password, auth::bytes_of("a salt of some bytes"), 4096);
      users.push_back(std::move(spec));
    }
    shared_->users.configure(std::move(users));
  }
  client.user = fmt::format("admin.{}", user);
  client.login.user = shared_->users.table()->find("admin", user);
  client.login.generation = shared_->users.generation();
  client.presence.set_user(client.user);
}

std::size_t SimWorld::poll() {
  std::size_t ran = 0;
  for (;;) {
    std::size_t now_ran = 0;
    now_ran += main_loop_.poll_until_idle();
    const std::size_t first = shuffles_ ? order_() % workers_.size() : 0;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      now_ran += workers_[(first + i) % workers_.size()]->loop().poll_until_idle();
      if (on_step) on_step();
    }
    if (shared_->spill && !disk_stuck_ && shared_->spill->run_one()) ++now_ran;
    if (now_ran == 0) return ran;
    ran += now_ran;
  }
}

std::optional<TimePoint> SimWorld::next_timer() const {
  std::optional<TimePoint> next = main_loop_.next_timer();
  for (const auto& worker : workers_) {
    const auto of_worker = worker->loop().next_timer();
    if (of_worker && (!next || *of_worker < *next)) next = of_worker;
  }
  return next;
}

bool SimWorld::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = Clock::now() + limit;
  for (;;) {
    poll();
    if (done()) return true;
    if (Clock::now() >= end) return false;
    const auto next = next_timer();
    set_time(next && *next < end ? std::max(*next, Clock::now()) : end);
  }
}

void SimWorld::run_for(Duration time) {
  run_until([] { return false; }, time);
}

std::vector<std::string> SimWorld::exceeded() {
  std::vector<std::string> found;
  for (const MemoryBudget* budget :
       {&shared_->memory.requests, &shared_->memory.writes, &shared_->memory.replies,
        &shared_->memory.cursors, &shared_->memory.spill, &shared_->memory.process}) {
    const BudgetUsage usage = budget->usage();
    const std::uint64_t limit = budget->ceiling_bytes();
    if (limit != 0 && usage.used_bytes > limit) {
      found.push_back(fmt::format("{} bytes of {} are reserved for {}", usage.used_bytes, limit, budget->name()));
    }
  }
  for (const MemoryQueue* queue : {&shared_->memory.request_queue, &shared_->memory.work_queue}) {
    const MemoryQueueUsage usage = queue->usage();
    if (usage.large.used_bytes > usage.large.limit_bytes || usage.small.used_bytes > usage.small.limit_bytes) {
      found.push_back("a reserve is overdrawn");
    }
  }
  std::size_t idle = 0;
  shared_->cursors.for_each_idle([&](const ClusterCursor&, std::int64_t) { ++idle; });
  const CursorCounts cursors = shared_->cursors.counts();
  if (idle + cursors.pinned > cursors.open_total) found.push_back("a killed cursor is kept");
  constexpr std::size_t monitors = 2;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    for (const SimShard* const shard : servers_) {
      const SimShardOptions& options = shard->options();
      const std::size_t dialled = networks_[i]->dialled_connections(options.host, options.port);
      if (dialled > pool_max_ + monitors) {
        found.push_back(fmt::format("worker {} has {} connections to {}, and may have {}", i, dialled,
                                    options.host, pool_max_));
      }
    }
    for (const shard::ShardState& shard : workers_[i]->context().gateway.states()) {
      for (const shard::HostState& host : shard.hosts) {
        if (host.in_use + host.available > pool_max_) {
          found.push_back(fmt::format("{} of {} connections to {} are lent or idle",
                                      host.in_use + host.available, pool_max_, shard.name));
        }
      }
    }
  }
  return found;
}

std::vector<std::string> SimWorld::leftovers() {
  std::vector<std::string> found;
  const CursorCounts cursors = shared_->cursors.counts();
  if (cursors.open_total != 0)
    found.push_back(fmt::format("{} cursors are registered", cursors.open_total));
  if (cursors.pinned != 0)
    found.push_back(fmt::format("{} cursors are checked out", cursors.pinned));
  for (const MemoryBudget* budget : {&shared_->memory.requests, &shared_->memory.writes, &shared_->memory.replies,
                                     &shared_->memory.cursors, &shared_->memory.spill,
                                     &shared_->memory.strangers, &shared_->memory.process}) {
    std::uint64_t used = budget->usage().used_bytes;
    if (budget == &shared_->memory.process)
      used -= shared_->memory.routing.usage().used_bytes;  // what is known is kept
    if (used != 0)
      found.push_back(fmt::format("{} bytes are reserved for {}", used, budget->name()));
  }
  for (const MemoryQueue* queue : {&shared_->memory.request_queue, &shared_->memory.work_queue}) {
    const MemoryQueueUsage usage = queue->usage();
    if (usage.large.used_bytes + usage.small.used_bytes != 0)
      found.push_back(fmt::format("{} bytes of {} are held", usage.large.used_bytes + usage.small.used_bytes,
                                  usage.large.limit_bytes + usage.small.limit_bytes));
    if (usage.waiting != 0) found.push_back("somebody waits for memory");
  }
  for (const auto& worker : workers_) {
    if (worker->connections() != 0)
      found.push_back(fmt::format("{} connections are open", worker->connections()));
    for (const shard::ShardState& shard : worker->context().gateway.states()) {
      for (const shard::HostState& host : shard.hosts) {
        if (host.in_use != 0)
          found.push_back(fmt::format("{} connections to {} are lent", host.in_use, shard.name));
      }
    }
    if (worker->context().background.running() != 0)
      found.push_back("work in the background goes on");
  }
  return found;
}

bool SimWorld::shut_down(Duration limit) {
  stopped_ = true;
  shutdown_->begin(Duration::zero());
  if (!run_until([&] { return shutdown_->done(); }, limit)) return false;
  // The workers' loops have stopped; shards and clients end on them.
  for (const auto& worker : workers_) worker->loop().io().restart();
  for (SimShard* const server : servers_) {
    server->thaw();
    server->die();
  }
  const auto ended = [this] {
    return std::all_of(servers_.begin(), servers_.end(), [](const SimShard* server) { return server->serving() == 0; });
  };
  if (!run_until(ended, limit)) return false;
  run_for(std::chrono::seconds(30));
  if (shared_->spill) shared_->spill->stop();
  networks_.clear();
  shutdown_.reset();
  workers_.clear();
  return true;
}

}  // namespace spillway::test
