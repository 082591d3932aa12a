#include "proxy/server/tools/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <list>
#include <stdexcept>
#include <utility>

#include "allocator/budget.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/base/log.h"
#include "proxy/base/run_alone.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/cluster/config_client.h"
#include "proxy/config/tls.h"
#include "proxy/server/life/server.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/tools/doctor_machine.h"
#include "proxy/server/tools/doctor_servers.h"
#include "proxy/server/tools/health_check.h"

namespace spillway::server {

namespace {

constexpr auto patience_max = std::chrono::seconds(5);
constexpr std::uint64_t doctor_memory_bytes = 256ULL << 20;

Duration patience_of(const Config& config) {
  return std::min<Duration>(std::chrono::milliseconds(config.connect_timeout_ms), patience_max);
}

// The places under examination, and what their hosts said.
struct Examined {
  DoctorPlace place;
  std::vector<HostReport> hosts;
};

Task<void> examine_into(const shard::PoolSettings& settings, Duration patience, Examined& examined) {
  examined.hosts = co_await examine_place(settings, examined.place, patience);
}

Task<void> examine_all(const shard::PoolSettings& settings, Duration patience, std::list<Examined>& all) {
  TaskGroup places;
  for (Examined& examined : all) {
    if (examined.hosts.empty()) places.start(examine_into(settings, patience, examined));
  }
  co_await places.wait();
}

// config.shards, as a router reads it.
Task<Result<std::vector<catalog::ShardEntry>>> read_shards(DoctorLinks links, MemoryBudget& budget,
                                                           shard::GatewayOptions options, Duration patience) {
  shard::SharedShards shared;
  auth::LogicalClock clock;
  options.connect_timeout_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  const auto gateway =
      shard::make_gateway(links.loop, links.pump, links.network, budget, budget, std::move(options), shared);
  auto waiting = gateway->wait_until_known(Clock::now() + patience);
  static_cast<void>(co_await waiting);
  cluster::ConfigClient client(*gateway, links.pump, budget, clock, true);
  const auto identified = co_await client.cluster_id();
  Result<std::vector<catalog::ShardEntry>> shards(std::vector<catalog::ShardEntry>{});
  if (identified.has_error()) {
    shards = identified.error();
  } else {
    shards = co_await client.shards();
  }
  co_await gateway->shut_down();
  co_return shards;
}

// The shards of a cluster, behind its config servers in `all`.
Task<Findings> find_shards(DoctorLinks links, const Config& config, shard::GatewayOptions options,
                           MemoryBudget& budget, std::list<Examined>& all) {
  Findings found;
  const DoctorPlace& servers = all.front().place;
  auto reading = read_shards(links, budget, std::move(options), patience_of(config));
  const auto shards = co_await reading;
  if (shards.has_error()) {
    found.push_back({Severity::error, servers.name, "config.shards cannot be read: " + shards.error().message,
                     "on a config server's primary: rs.status(); db.getSiblingDB(\"config\").shards.find()"});
    co_return found;
  }
  const auto tls = cluster_tls(config.net.tls);
  if (shards->empty()) {
    found.push_back({Severity::error, servers.name, "the cluster has no shards", "through a mongos: sh.addShard()"});
  }
  for (const catalog::ShardEntry& entry : *shards) {
    const auto text = shard::connection_string_for(entry.host, !tls.has_error() && *tls ? &**tls : nullptr);
    auto uri = text.has_error() ? Result<shard::ConnectionString>(text.error()) : shard::parse_connection_string(*text);
    if (uri.has_error()) {
      found.push_back({Severity::error, entry.id, "its host in config.shards: " + uri.error().message, {}});
      continue;
    }
    if (entry.draining) {
      found.push_back({Severity::warning, entry.id, "it is being removed", "through a mongos: sh.status()"});
    }
    all.push_back({{DoctorPlace::Kind::cluster_shard, entry.id, *std::move(uri), servers.credentials}, {}});
  }
  co_return found;
}

// A folder that is there may be others'.
std::string make_spill_folder(const std::string& path) {
  std::error_code failed;
  const bool is_there = std::filesystem::is_directory(path, failed);
  const std::string own = path + (is_there ? "/spillway" : "");
  return fmt::format("install -d -o spillway -g spillway -m 0700 {}{}", own,
                     is_there ? fmt::format("; and memory.spill.path: {}", own) : "");
}

Findings of_start(const Config& config, const std::shared_ptr<const catalog::RoutingSnapshot>& routing) {
  Findings found;
  const StartRefusals refusals = try_to_start(config, routing);
  const bool serves = !refusals.ports.empty() && !ask_health(config.net).has_error();
  if (serves) {
    found.push_back({Severity::ok, "net.port", "a router with this configuration is serving there already", {}});
  } else if (refusals.ports.empty()) {
    found.push_back({Severity::ok, "net.port", "the ports are free", {}});
  }
  for (const std::string& why : refusals.ports) {
    if (!serves) {
      found.push_back({Severity::error, "net.port", why, remedy_for_port(config.net, why)});
    }
  }
  for (const std::string& why : refusals.memory) {
    found.push_back({Severity::error, "memory.limit", why, "raise memory.limit, or lower workers"});
  }
  for (const std::string& why : refusals.spill) {
    found.push_back({Severity::error, "memory.spill.path", why,
                     make_spill_folder(config.spill.path)});
  }
  return found;
}

Findings examine(const LoadResult& loaded) {
  Findings found;
  const Config& config = loaded.config;
  auto routing = loaded.routing;
  try {
    if (loaded.config_servers) routing = table_of_config_servers(loaded);
  } catch (const std::runtime_error& error) {
    found.push_back({Severity::error, "sharding.configDB", error.what(), {}});
    return found;
  }
  add_all(found, check_machine(config, read_machine("", read_system_limits(), raise_open_files())));
  add_all(found, check_places(config));
  if (const auto units = read_units("")) add_all(found, check_sandbox(config, *units));
  add_all(found, of_start(config, routing));
  const auto credentials = read_credentials(config, *routing);
  if (credentials.has_error()) {
    found.push_back({Severity::error, "credentials", credentials.error().message,
                     "chown root:spillway FILE; chmod 0640 FILE (a key file: chown spillway, chmod 0400)"});
    return found;
  }
  for (const std::string& warning : (*credentials)->warnings()) {
    found.push_back({Severity::warning, "certificates", warning, "renew it, then: systemctl reload spillway"});
  }
  Loop loop;
  Pump pump(loop);
  TcpNetwork network(loop, TcpOptions());
  add_all(found, run_alone(loop, examine_servers({loop, pump, network}, config, *routing, **credentials)));
  return found;
}

}  // namespace

Task<Findings> examine_servers(DoctorLinks links, const Config& config, const catalog::RoutingSnapshot& routing,
                               const Credentials& credentials) {
  MemoryBudget budget("doctor", doctor_memory_bytes);
  const shard::PoolSettings settings{.loop = links.loop,
                                     .network = links.network,
                                     .budget = budget,
                                     .link_budget = budget,
                                     .introduction = {"spillway doctor", {}},
                                     .limits = {}};
  const bool in_cluster = !config.cluster.config_db.empty();
  Findings found;
  std::list<Examined> all;
  for (const catalog::Shard& shard : routing.shards()) {
    auto uri = shard::parse_connection_string(shard.uri);  // the configuration's check has done it before
    if (uri.has_error()) continue;
    all.push_back({{in_cluster ? DoctorPlace::Kind::config_servers : DoctorPlace::Kind::table_shard,
                    in_cluster ? std::string("config servers") : shard.name, *std::move(uri),
                    credentials.shards[shard.index]},
                   {}});
  }
  co_await examine_all(settings, patience_of(config), all);
  const auto good = [](const HostReport& host) { return !host.error; };
  if (in_cluster && std::any_of(all.front().hosts.begin(), all.front().hosts.end(), good)) {
    shard::GatewayOptions options = gateway_options(config, routing);
    options.credentials = credentials.shards;
    auto finding = find_shards(links, config, std::move(options), budget, all);
    found = co_await finding;
    co_await examine_all(settings, patience_of(config), all);
  }
  Findings judged;
  std::vector<HostReport> hosts;
  for (Examined& examined : all) {
    add_all(judged, judge_place(examined.place, examined.hosts));
    for (HostReport& host : examined.hosts) hosts.push_back(std::move(host));
  }
  add_all(judged, std::move(found));
  add_all(judged, judge_versions(hosts));
  co_return judged;
}

int doctor(const LoadResult& loaded, bool json) {
  log::open({.path = "/dev/null"});
  Findings found;
  for (const std::string& error : loaded.errors) {
    found.push_back({Severity::error, "configuration", error, "spillway --print-config shows every key"});
  }
  for (const std::string& warning : loaded.warnings) {
    found.push_back({Severity::warning, "configuration", warning, "correct or remove the key"});
  }
  if (loaded.ok()) {
    if (loaded.warnings.empty()) found.push_back({Severity::ok, "configuration", "every key is right", {}});
    add_all(found, examine(loaded));
  }
  std::fputs((json ? findings_json(found) : print_findings(found)).c_str(), stdout);
  if (!loaded.ok()) return exit_config;
  return count(found, Severity::error) == 0 ? exit_ok : exit_failed;
}

}  // namespace spillway::server
