// Commands that the proxy answers by itself.
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/version.hpp>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "proxy/base/log.h"
#include "proxy/catalog/config_documents.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/admin/hello.h"
#include "proxy/exec/admin/local_parameters.h"
#include "proxy/exec/admin/status_facts.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/wire/hello.h"

namespace spillway::exec {

HandlerFunction release_memory_command, server_status_command, diagnostic_data_command, current_op_command,
    kill_op_command, configure_fail_point, wait_for_fail_point, shutdown_command;

namespace {

constexpr std::int32_t no_such_key = 4;
constexpr std::int32_t file_rename_failed = 37;

Answer ping(Context&, Client&, const Request&) { co_return ok_response(); }

// For legacy writes, which do not exist here. Unknown from the wire version of 5.1 on, as on servers.
Answer get_last_error(Context& context, Client&, const Request& request) {
  constexpr std::int32_t gone_wire_version = 14;
  if (advertised_wire_version(context.gateway) >= gone_wire_version)
    co_return Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name));
  co_return ok_response(BsonWriter().append("n", std::int32_t{0}).append_null("err"));
}

// Connections answer hello themselves; this serves callers without connection state to update.
Answer hello(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(parsed, wire::parse_hello(request.body));
  co_return Response(hello_reply(context, client, *parsed, {}));
}

Answer build_info(Context& context, Client&, const Request&) {
  const std::string_view version = emulated_version(context.gateway);
  BsonWriter reply;
  reply.append("version", version);
  reply.append("gitVersion", "spillway");
  reply.begin_array("modules").end();
  reply.append("allocator", "jemalloc");
  reply.append("javascriptEngine", "none");
  reply.append("sysInfo", "deprecated");
  reply.begin_array("versionArray");
  reply.append_item(std::int32_t{version[0] - '0'}).append_item(std::int32_t{version[2] - '0'});
  reply.append_item(std::int32_t{0}).append_item(std::int32_t{0});
  reply.end();
  reply.begin_document("openssl").append("running", "disabled").end();
  reply.begin_document("buildEnvironment").append("cxx", __VERSION__).append("target_os", "linux").end();
  reply.append("bits", std::int32_t{64});
  reply.append("debug", false);
  reply.append("maxBsonObjectSize", static_cast<std::int32_t>(limits::document_bytes_max));
  reply.append("spillwayVersion", context.shared.facts.version);
  co_return ok_response(std::move(reply));
}

std::int64_t machine_memory_mb() {
  struct sysinfo memory {};
  ::sysinfo(&memory);
  return static_cast<std::int64_t>(memory.totalram) * memory.mem_unit / (1024 * 1024);
}

Answer host_info(Context& context, Client&, const Request&) {
  utsname names{};
  ::uname(&names);
  const std::int64_t memory_mb = machine_memory_mb();
  co_return ok_response(BsonWriter().begin_document("system")
                                    .append_date("currentTime", wall_clock_ms())
                                    .append("hostname", context.shared.facts.host_name)
                                    .append("cpuAddrSize", std::int32_t{64})
                                    .append("memSizeMB", memory_mb).append("memLimitMB", memory_mb)
                                    .append("numCores", static_cast<std::int32_t>(::sysconf(_SC_NPROCESSORS_ONLN)))
                                    .append("cpuArch", static_cast<const char*>(names.machine))
                                    .append("numaEnabled", false)
                                    .end()
                                    .begin_document("os")
                                    .append("type", "Linux").append("name", static_cast<const char*>(names.sysname))
                                    .append("version", static_cast<const char*>(names.release))
                                    .end()
                                    .begin_document("extra").end());
}

Answer is_dbgrid(Context& context, Client&, const Request&) {
  BsonWriter reply;
  reply.append("isdbgrid", std::int32_t{1}).append("hostname", context.shared.facts.host_name);
  co_return ok_response(std::move(reply));
}

Answer whats_my_uri(Context&, Client& client, const Request&) {
  co_return ok_response(BsonWriter().append("you", client.peer));
}

Answer list_commands(Context& context, Client&, const Request&) {
  std::vector<const CommandSpec*> known;
  for (const CommandSpec& spec : all_commands()) {
    if (is_known(context, spec)) known.push_back(&spec);
  }
  std::sort(known.begin(), known.end(),
            [](const CommandSpec* one, const CommandSpec* other) { return one->name < other->name; });
  BsonWriter reply;
  reply.begin_document("commands");
  for (const CommandSpec* each : known) {
    const CommandSpec& spec = *each;
    reply.begin_document(spec.name);
    reply.append("help", spec.help)
        .append("requiresAuth", spec.need.of != CommandNeed::Of::no_login);
    reply.append("secondaryOk", spec.is(Trait::secondary_ok)).append("adminOnly", spec.is(Trait::admin_only));
    reply.begin_array("apiVersions");
    if (spec.is(Trait::stable)) reply.append_item("1");
    reply.end();
    reply.begin_array("deprecatedApiVersions").end();
    reply.end();
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

// --set may have contained a key's password, a connection string with a user, or credentials.
std::string without_secret(const std::string& argument) {
  const auto has = [&](const char* text) { return argument.find(text) != std::string::npos; };
  if (!has("assword") && !has("storedKey") && !(has("://") && has("@"))) return argument;
  return argument.substr(0, argument.find('=') + 1) + "<hidden>";
}

Answer get_cmd_line_opts(Context& context, Client&, const Request&) {
  BsonWriter reply;
  reply.begin_array("argv");
  for (const std::string& argument : context.shared.facts.arguments)
    reply.append_item(std::string_view(without_secret(argument)));
  reply.end();
  reply.append("parsed", context.shared.facts.parsed_options);
  co_return ok_response(std::move(reply));
}

Answer get_log(Context&, Client&, const Request& request) {
  const Element which = request.body.first();
  if (!which.is_string()) {
    co_return Error(ErrorCode::type_mismatch, "Argument to getLog must be of type String; found " +
                                                  to_json(which) + " of type " +
                                                  std::string(bson_type_name(which.type)));
  }
  BsonWriter reply;
  if (which.as_string() == "*") {
    reply.begin_array("names").append_item("global").append_item("startupWarnings").end();
    co_return ok_response(std::move(reply));
  }
  if (which.as_string() == "startupWarnings") {
    reply.append("totalLinesWritten", std::int32_t{0});
    reply.begin_array("log").end();
    co_return ok_response(std::move(reply));
  }
  if (which.as_string() != "global") {
    co_return Error(ErrorCode::operation_failed, fmt::format("no RamLog named: {}", which.as_string()));
  }
  const log::Recent recent = log::recent();
  reply.append("totalLinesWritten", static_cast<std::int64_t>(recent.total));
  reply.begin_array("log");
  for (const std::string& line : recent.lines) reply.append_item(std::string_view(line));
  reply.end();
  co_return ok_response(std::move(reply));
}

// {logRotate: "server" | "audit"}; any other type: both.
Answer log_rotate(Context& context, Client&, const Request& request) {
  const Element which = request.body.first();
  const std::string_view only = which.to_text();
  if (which.is_string() && only != "server" && only != "audit") {
    co_return Error(no_such_key,
                    fmt::format("Unknown log type for rotate: {}; it is \"server\" or \"audit\"", to_json(which)));
  }
  try {
    if (only != "audit") log::rotate();
  } catch (const std::exception& error) {
    co_return Error(file_rename_failed, error.what());
  }
  if (context.shared.audit && only != "server") context.shared.audit->rotate();
  co_return ok_response();
}

Answer list_shards(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await list_shards_of_cluster(context, request);
  }
  BsonWriter reply;
  reply.begin_array("shards");
  for (const shard::ShardState& shard : context.gateway.states()) {
    if (shard.retired) continue;
    std::string hosts;
    for (const shard::HostState& host : shard.hosts) {
      hosts += (hosts.empty() ? "" : ",") + host.address.text();
    }
    reply.begin_document_item();
    reply.append("_id", shard.name);
    reply.append("host", shard.set_name.empty() ? hosts : shard.set_name + "/" + hosts);
    reply.append("state", std::int32_t{1});
    reply.end();
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

// Connections to a host, of all workers.
struct Pooled {
  std::int64_t in_use = 0, available = 0, created = 0;

  void add(const shard::HostState& host) noexcept {
    in_use += static_cast<std::int64_t>(host.in_use);
    available += static_cast<std::int64_t>(host.available);
    created += static_cast<std::int64_t>(host.created);
  }
  void append(BsonWriter& out) const {
    out.append("inUse", in_use).append("available", available).append("created", created);
    out.append("refreshing", std::int64_t{0});
  }
};

Answer conn_pool_stats(Context& context, Client&, const Request&) {
  auto asking = ask_workers<WorkerFacts>(context, look_at_worker);
  const std::vector<WorkerFacts> workers = co_await asking;
  std::map<std::string, Pooled> pools;
  Pooled all;
  for (const WorkerFacts& worker : workers) {
    for (const shard::ShardState& shard : worker.shards) {
      for (const shard::HostState& host : shard.hosts) {
        pools[host.address.text()].add(host);
        all.add(host);
      }
    }
  }
  BsonWriter hosts, sets;
  for (const auto& [host, pooled] : pools) {
    pooled.append(hosts.begin_document(host));
    hosts.end();
  }
  for (const shard::ShardState& shard : context.gateway.states()) {
    if (shard.set_name.empty() || shard.retired) continue;
    sets.begin_document(shard.set_name).begin_array("hosts");
    for (const shard::HostState& host : shard.hosts) {
      sets.begin_document_item();
      sets.append("addr", host.address.text()).append("ok", host.known).append("ismaster", host.primary);
      sets.append("hidden", false).append("secondary", host.secondary);
      sets.append("pingTimeMillis", host.ping_ms);
      sets.end();
    }
    sets.end().end();
  }
  const BsonDoc by_host = std::move(hosts).finish();
  BsonWriter reply;
  reply.append("numClientConnections", all.in_use + all.available);
  reply.append("numAScopedConnections", std::int64_t{0});
  reply.append("totalInUse", all.in_use).append("totalAvailable", all.available).append("totalCreated", all.created);
  reply.append("totalRefreshing", std::int64_t{0});
  reply.begin_document("pools").begin_document("spillway");
  reply.append("poolInUse", all.in_use).append("poolAvailable", all.available).append("poolCreated", all.created);
  reply.append("poolRefreshing", std::int64_t{0});
  reply.append_elements(by_host).end().end();
  reply.append("hosts", by_host);
  reply.append("replicaSets", std::move(sets).finish());
  co_return ok_response(std::move(reply));
}

// Of the connections that a router to 4.4 kept for its clients.
Answer shard_conn_pool_stats(Context& context, Client& client, const Request& request) {
  constexpr std::int32_t gone_wire_version = 13;
  if (advertised_wire_version(context.gateway) >= gone_wire_version)
    co_return Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name));
  co_return co_await conn_pool_stats(context, client, request);
}

Answer echo(Context&, Client&, const Request& request) {
  co_return ok_response(BsonWriter().append("echo", request.body));
}

Answer features(Context&, Client&, const Request&) {
  co_return ok_response(BsonWriter().append("js", std::int32_t{0}));
}

// The static table has no cache to drop: the flush succeeds at once.
Answer flush_router_config(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await flush_router_config_in_cluster(context, request);
  }
  co_return ok_response(BsonWriter().append("flushed", true));
}

Answer get_shard_map(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await shard_map_of_cluster(context);
  }
  BsonWriter map, hosts, strings;
  for (const catalog::Shard& shard : request.routes->table().shards()) {
    const std::string host = catalog::host_of_uri(shard.uri);
    map.append(shard.name, std::string_view(host));
    strings.append(host, std::string_view(shard.name));
  }
  for (const shard::ShardState& shard : context.gateway.states()) {
    for (const shard::HostState& host : shard.hosts) hosts.append(host.address.text(), shard.name);
  }
  co_return ok_response(BsonWriter().append("map", std::move(map).finish())
                                    .append("hosts", std::move(hosts).finish())
                                    .append("connStrings", std::move(strings).finish()));
}

Answer get_shard_version(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await shard_version_in_cluster(context, request);
  }
  const Element which = request.body.first();
  if (!which.is_string()) co_return Error(ErrorCode::type_mismatch, "getShardVersion takes a namespace");
  const std::string_view ns = which.as_string();
  BsonWriter reply;
  if (ns.find('.') == std::string_view::npos) {
    reply.append("primaryShard", request.routes->shard(request.routes->primary_shard(ns)).name);
    reply.append("shardingEnabled", true);
    co_return ok_response(std::move(reply));
  }
  const catalog::CollectionRouting* routing = request.routes->collection(ns);
  if (routing == nullptr) {
    co_return Error(ErrorCode::namespace_not_sharded, fmt::format("Collection {} is not sharded.", ns));
  }
  reply.append_timestamp("version", std::uint64_t{1} << 32);
  if (request.body["fullMetadata"].truthy()) {
    reply.begin_array("chunks");
    for (std::size_t i = 0; i < routing->chunks.size() && reply.size() < limits::document_bytes_max; ++i) {
      reply.begin_array_item();
      reply.append_item(routing->chunks.min_bound(i)).append_item(routing->chunks.max_bound(i));
      reply.end();
    }
    reply.end();
  }
  co_return ok_response(std::move(reply));
}

Answer netstat(Context& context, Client&, const Request&) {
  BsonWriter reply;
  reply.append("configserver", context.in_cluster() ? connection_string_of(context.gateway.states().front()) : "");
  reply.append("isdbgrid", std::int32_t{1});
  co_return ok_response(std::move(reply));
}

// Tools probe this command and read its info field.
Answer repl_set_get_status(Context&, Client&, const Request&) {
  BsonWriter info;
  info.append("info", "mongos");
  const BsonDoc extra = std::move(info).finish();
  Error error(ErrorCode::command_not_found, "replSetGetStatus is not supported through mongos");
  error.extra.assign(reinterpret_cast<const char*>(extra.view().data()), extra.size());
  co_return error;
}

Answer compact(Context&, Client&, const Request&) {
  co_return Error(ErrorCode::command_not_supported, "compact not allowed through mongos");
}

Answer profile(Context& context, Client&, const Request& request) {
  const auto level = request.body.first().to_int64();
  if (!level || (*level != 0 && *level != -1)) {
    co_return Error(ErrorCode::bad_value, "Profiling is not permitted on a router: the level must be 0 or -1");
  }
  const ValueView rate = request.body["sampleRate"];
  if (request.body["filter"].exists() || (rate.exists() && rate.to_double() != 1.0)) {
    co_return Error(ErrorCode::bad_value, "filter, and a sampleRate other than 1, are not supported");
  }
  Parameters& parameters = context.shared.parameters;
  const std::int64_t before = parameters.slow_ms.load();
  if (const auto slow = request.body["slowms"].to_int64()) parameters.slow_ms = *slow;
  co_return ok_response(BsonWriter().append("was", std::int32_t{0}).append("slowms", before).append("sampleRate", 1.0));
}

Answer get_parameter(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(reply, get_parameters(context, request.body));
  co_return Response(*std::move(reply));
}

Answer set_parameter(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(reply, set_parameters(context, request.body));
  co_return Response(*std::move(reply));
}

bool may_shard_version(const Subject& subject) {
  using auth::Action;
  return subject.may_on_cluster(Action::get_shard_version) || meets(on_full_name(Action::get_shard_version), subject);
}

// The threshold holds for the whole process.
bool may_profile(const Subject& subject) {
  if (subject.may_on_cluster(auth::Action::set_parameter)) return true;
  return !subject.body["slowms"].exists() && subject.may(auth::Action::enable_profiler, {});
}

}  // namespace

std::span<const CommandSpec> local_commands() {
  using auth::Action;
  using enum RouteNeed;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"hello", "what this server is", hello, no_login, secondary_ok | stable},
      {"isMaster", "older name of hello", hello, no_login, secondary_ok},
      {"ismaster", "older name of hello", hello, no_login, secondary_ok},
      {"ping", "answers at once", ping, no_login, secondary_ok | stable},
      {"getLastError", "of legacy writes: nothing", get_last_error, any_user},
      {"getlasterror", "older name of getLastError", get_last_error, any_user},
      {"buildInfo", "version and build", build_info, no_login, secondary_ok},
      {"buildinfo", "version and build", build_info, no_login, secondary_ok},
      {"hostInfo", "the machine", host_info, on_cluster(Action::host_info), secondary_ok},
      {"isdbgrid", "is this a router?", is_dbgrid, any_user, secondary_ok},
      {"whatsmyuri", "the client's address", whats_my_uri, no_login, secondary_ok},
      {"listCommands", "all commands", list_commands, no_login, secondary_ok},
      {"getCmdLineOpts", "the command line", get_cmd_line_opts, on_cluster(Action::get_cmd_line_opts),
       admin_only | secondary_ok},
      {"getLog", "recent log lines", get_log, on_cluster(Action::get_log), admin_only | secondary_ok},
      {"getParameter", "read settings", get_parameter, on_cluster(Action::get_parameter), admin_only | secondary_ok},
      {"setParameter", "change settings", set_parameter, on_cluster(Action::set_parameter),
       admin_only | secondary_ok | audited},
      {"logRotate", "go on in a new log file", log_rotate, on_cluster(Action::log_rotate), admin_only | audited},
      {"listShards", "the shards of the table", list_shards, on_cluster(Action::list_shards),
       admin_only | secondary_ok},
      {"listshards", "older name of listShards", list_shards, on_cluster(Action::list_shards),
       admin_only | secondary_ok},
      {"connPoolStats", "shard connections of this worker", conn_pool_stats, on_cluster(Action::conn_pool_stats),
       secondary_ok},
      {"shardConnPoolStats", "older name of connPoolStats", shard_conn_pool_stats, on_cluster(Action::conn_pool_stats),
       secondary_ok},
      {"echo", "returns the request", echo, any_user, secondary_ok},
      {"features", "optional features", features, any_user, secondary_ok},
      {"flushRouterConfig", "drop cached routing", flush_router_config, on_cluster(Action::flush_router_config),
       admin_only},
      {"flushrouterconfig", "older name of flushRouterConfig", flush_router_config,
       on_cluster(Action::flush_router_config), admin_only},
      {"getShardMap", "shards and hosts", get_shard_map, on_cluster(Action::get_shard_map), admin_only},
      {"getShardVersion", "routing of a namespace", get_shard_version, by_rule(may_shard_version), admin_only,
       full_name},
      {"getshardversion", "older name of getShardVersion", get_shard_version, by_rule(may_shard_version), admin_only,
       full_name},
      {"netstat", "is this a router?", netstat, on_cluster(Action::netstat), admin_only},
      {"replSetGetStatus", "not supported on a router", repl_set_get_status, on_cluster(Action::repl_set_get_status)},
      {"compact", "not supported on a router", compact, on_collection(Action::compact)},
      {"profile", "slow operation threshold", profile, by_rule(may_profile)},
      {"releaseMemory", "give free memory back to the operating system", release_memory_command,
       on_cluster(Action::set_parameter), admin_only | audited},
      {"serverStatus", "counters and state", server_status_command, on_cluster(Action::server_status), secondary_ok},
      {"getDiagnosticData", "serverStatus, as a server's recorder has it", diagnostic_data_command,
       on_cluster(Action::server_status), admin_only | secondary_ok},
      {"currentOp", "operations under way", current_op_command, by_rule(may_current_op), admin_only},
      {"killOp", "end an operation", kill_op_command, any_user, admin_only | drains | audited},
      {"shutdown", "announce and end the router", shutdown_command, on_cluster(Action::shutdown), admin_only | audited},
      {"configureFailPoint", "make commands fail", configure_fail_point, any_user,
       admin_only | secondary_ok | test_only},
      {"waitForFailPoint", "until commands have met a fail point", wait_for_fail_point, any_user,
       admin_only | secondary_ok | test_only},
  };
  return specs;
}

}  // namespace spillway::exec
