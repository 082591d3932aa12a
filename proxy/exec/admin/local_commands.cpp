// Commands that the proxy answers by itself.
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <boost/version.hpp>
#include <exception>

#include "proxy/base/log.h"
#include "proxy/catalog/config_documents.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/command_needs.h"
#include "proxy/exec/admin/hello.h"
#include "proxy/exec/admin/local_parameters.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/process_facts.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/wire/hello.h"

namespace spillway::exec {

Task<Result<Response>> release_memory_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> server_status_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> current_op_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> kill_op_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> configure_fail_point(Context& context, Client& client, const Request& request);
Task<Result<Response>> wait_for_fail_point(Context& context, Client& client, const Request& request);
Task<Result<Response>> shutdown_command(Context& context, Client& client, const Request& request);

namespace {

using Answer = Task<Result<Response>>;

constexpr std::int32_t no_such_key = 4;
constexpr std::int32_t file_rename_failed = 37;

Answer ping(Context&, Client&, const Request&) { co_return ok_response(); }

// For legacy writes, which do not exist here. Unknown from the wire version of 5.1 on, as on servers.
Answer get_last_error(Context& context, Client&, const Request& request) {
  constexpr std::int32_t gone_wire_version = 14;
  if (advertised_wire_version(context.gateway) >= gone_wire_version)
    co_return Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name));
  BsonWriter reply;
  reply.append("n", std::int32_t{0}).append_null("err");
  co_return ok_response(std::move(reply));
}

// Connections answer hello themselves; this serves callers without connection state to update.
Answer hello(Context& context, Client& client, const Request& request) {
  auto parsed = wire::parse_hello(request.body);
  if (parsed.has_error()) co_return parsed.error();
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
  BsonWriter reply;
  reply.begin_document("system");
  reply.append_date("currentTime", wall_clock_ms());
  reply.append("hostname", context.shared.facts.host_name);
  reply.append("cpuAddrSize", std::int32_t{64});
  reply.append("memSizeMB", memory_mb).append("memLimitMB", memory_mb);
  reply.append("numCores", static_cast<std::int32_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  reply.append("cpuArch", static_cast<const char*>(names.machine));
  reply.append("numaEnabled", false);
  reply.end();
  reply.begin_document("os");
  reply.append("type", "Linux").append("name", static_cast<const char*>(names.sysname));
  reply.append("version", static_cast<const char*>(names.release));
  reply.end();
  reply.begin_document("extra").end();
  co_return ok_response(std::move(reply));
}

Answer is_dbgrid(Context& context, Client&, const Request&) {
  BsonWriter reply;
  reply.append("isdbgrid", std::int32_t{1}).append("hostname", context.shared.facts.host_name);
  co_return ok_response(std::move(reply));
}

Answer whats_my_uri(Context&, Client& client, const Request&) {
  BsonWriter reply;
  reply.append("you", client.peer);
  co_return ok_response(std::move(reply));
}

Answer list_commands(Context& context, Client&, const Request&) {
  BsonWriter reply;
  reply.begin_document("commands");
  for (const CommandSpec& spec : all_commands()) {
    if (!is_known(context, spec)) continue;
    reply.begin_document(spec.name);
    reply.append("help", spec.help)
        .append("requiresAuth", spec.need == nullptr || spec.need->of != CommandNeed::Of::nobody);
    reply.append("secondaryOk", spec.secondary_ok).append("adminOnly", spec.admin_only);
    reply.begin_array("apiVersions");
    if (spec.stable_api) reply.append_item("1");
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
  const std::string_view only = which.is_string() ? which.as_string() : "";
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

void append_pool(BsonWriter& out, std::int64_t in_use, std::int64_t available, std::int64_t created) {
  out.append("inUse", in_use).append("available", available).append("created", created);
  out.append("refreshing", std::int64_t{0});
}

Answer conn_pool_stats(Context& context, Client&, const Request&) {
  std::int64_t in_use = 0, available = 0, created = 0;
  BsonWriter hosts, sets;
  for (const shard::ShardState& shard : context.gateway.states()) {
    if (!shard.set_name.empty()) sets.begin_document(shard.set_name).begin_array("hosts");
    for (const shard::HostState& host : shard.hosts) {
      in_use += static_cast<std::int64_t>(host.in_use);
      available += static_cast<std::int64_t>(host.available);
      created += static_cast<std::int64_t>(host.created);
      hosts.begin_document(host.address.text());
      append_pool(hosts, static_cast<std::int64_t>(host.in_use), static_cast<std::int64_t>(host.available),
                  static_cast<std::int64_t>(host.created));
      hosts.end();
      if (shard.set_name.empty()) continue;
      sets.begin_document_item();
      sets.append("addr", host.address.text()).append("ok", host.known).append("ismaster", host.primary);
      sets.append("hidden", false).append("secondary", host.secondary);
      sets.append("pingTimeMillis", host.ping_ms);
      sets.end();
    }
    if (!shard.set_name.empty()) sets.end().end();
  }
  BsonWriter reply;
  reply.append("numClientConnections", in_use + available);
  reply.append("numAScopedConnections", std::int64_t{0});
  reply.append("totalInUse", in_use).append("totalAvailable", available).append("totalCreated", created);
  reply.append("totalRefreshing", std::int64_t{0});
  reply.append("hosts", std::move(hosts).finish());
  reply.append("replicaSets", std::move(sets).finish());
  co_return ok_response(std::move(reply));
}

Answer echo(Context&, Client&, const Request& request) {
  BsonWriter reply;
  reply.append("echo", request.body);
  co_return ok_response(std::move(reply));
}

Answer features(Context&, Client&, const Request&) {
  BsonWriter reply;
  reply.append("js", std::int32_t{0});
  co_return ok_response(std::move(reply));
}

// The static table has no cache to drop: the flush succeeds at once.
Answer flush_router_config(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    co_return co_await flush_router_config_in_cluster(context, request);
  }
  BsonWriter reply;
  reply.append("flushed", true);
  co_return ok_response(std::move(reply));
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
  BsonWriter reply;
  reply.append("map", std::move(map).finish());
  reply.append("hosts", std::move(hosts).finish());
  reply.append("connStrings", std::move(strings).finish());
  co_return ok_response(std::move(reply));
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

Answer netstat(Context&, Client&, const Request&) {
  BsonWriter reply;
  reply.append("configserver", "").append("isdbgrid", std::int32_t{1});
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
  Parameters& parameters = context.shared.parameters;
  const std::int64_t before = parameters.slow_ms.load();
  if (const auto slow = request.body["slowms"].to_int64()) parameters.slow_ms = *slow;
  BsonWriter reply;
  reply.append("was", std::int32_t{0}).append("slowms", before).append("sampleRate", 1.0);
  co_return ok_response(std::move(reply));
}

Answer get_parameter(Context& context, Client&, const Request& request) {
  auto reply = get_parameters(context, request.body);
  if (reply.has_error()) co_return reply.error();
  co_return Response(*std::move(reply));
}

Answer set_parameter(Context& context, Client&, const Request& request) {
  auto reply = set_parameters(context, request.body);
  if (reply.has_error()) co_return reply.error();
  co_return Response(*std::move(reply));
}

}  // namespace

std::span<const CommandSpec> local_commands() {
  static constexpr CommandSpec specs[] = {
      {.name = "hello", .handler = hello, .secondary_ok = true, .help = "what this server is"},
      {.name = "isMaster", .handler = hello, .secondary_ok = true, .help = "older name of hello"},
      {.name = "ismaster", .handler = hello, .secondary_ok = true, .help = "older name of hello"},
      {.name = "ping", .handler = ping, .secondary_ok = true, .help = "answers at once"},
      {.name = "getLastError", .handler = get_last_error, .help = "of legacy writes: nothing"},
      {.name = "getlasterror", .handler = get_last_error, .help = "older name of getLastError"},
      {.name = "buildInfo", .handler = build_info, .secondary_ok = true, .help = "version and build"},
      {.name = "buildinfo", .handler = build_info, .secondary_ok = true, .help = "version and build"},
      {.name = "hostInfo", .handler = host_info, .secondary_ok = true, .help = "the machine"},
      {.name = "isdbgrid", .handler = is_dbgrid, .secondary_ok = true, .help = "is this a router?"},
      {.name = "whatsmyuri", .handler = whats_my_uri, .secondary_ok = true, .help = "the client's address"},
      {.name = "listCommands", .handler = list_commands, .secondary_ok = true, .help = "all commands"},
      {.name = "getCmdLineOpts", .handler = get_cmd_line_opts, .admin_only = true, .secondary_ok = true,
       .help = "the command line"},
      {.name = "getLog", .handler = get_log, .admin_only = true, .secondary_ok = true, .help = "recent log lines"},
      {.name = "getParameter", .handler = get_parameter, .admin_only = true, .secondary_ok = true,
       .help = "read settings"},
      {.name = "setParameter", .handler = set_parameter, .admin_only = true, .secondary_ok = true,
       .help = "change settings"},
      {.name = "logRotate", .handler = log_rotate, .admin_only = true, .help = "go on in a new log file"},
      {.name = "listShards", .handler = list_shards, .admin_only = true, .secondary_ok = true,
       .help = "the shards of the table"},
      {.name = "connPoolStats", .handler = conn_pool_stats, .secondary_ok = true,
       .help = "shard connections of this worker"},
      {.name = "echo", .handler = echo, .secondary_ok = true, .help = "returns the request"},
      {.name = "features", .handler = features, .secondary_ok = true, .help = "optional features"},
      {.name = "flushRouterConfig", .handler = flush_router_config, .admin_only = true,
       .help = "drop cached routing"},
      {.name = "getShardMap", .handler = get_shard_map, .admin_only = true, .help = "shards and hosts"},
      {.name = "getShardVersion", .handler = get_shard_version, .admin_only = true,
       .routes = RouteNeed::full_name, .help = "routing of a namespace"},
      {.name = "netstat", .handler = netstat, .admin_only = true, .help = "is this a router?"},
      {.name = "replSetGetStatus", .handler = repl_set_get_status,
       .help = "not supported on a router"},
      {.name = "compact", .handler = compact, .help = "not supported on a router"},
      {.name = "profile", .handler = profile, .help = "slow operation threshold"},
      {.name = "releaseMemory", .handler = release_memory_command, .admin_only = true,
       .help = "give free memory back to the operating system"},
      {.name = "serverStatus", .handler = server_status_command, .secondary_ok = true, .help = "counters and state"},
      {.name = "currentOp", .handler = current_op_command, .admin_only = true, .help = "operations under way"},
      {.name = "killOp", .handler = kill_op_command, .admin_only = true, .help = "end an operation"},
      {.name = "shutdown", .handler = shutdown_command, .admin_only = true, .help = "announce and end the router"},
      {.name = "configureFailPoint", .handler = configure_fail_point, .admin_only = true, .secondary_ok = true,
       .test_only = true, .help = "make commands fail"},
      {.name = "waitForFailPoint", .handler = wait_for_fail_point, .admin_only = true, .secondary_ok = true,
       .test_only = true, .help = "until commands have met a fail point"},
  };
  return specs;
}

}  // namespace spillway::exec
