#include "proxy/exec/command_table.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proxy/base/check.h"
#include "proxy/base/log.h"
#include "proxy/exec/authorization.h"
#include "proxy/exec/command_needs.h"
#include "proxy/exec/hello.h"
#include "proxy/exec/slow_log.h"

namespace spillway::exec {

namespace {

struct Table {
  std::vector<CommandSpec> specs;
  absl::flat_hash_map<std::string_view, std::size_t> by_name;

  Table() {
    for (const auto& family : {read_commands(), aggregate_commands(), write_commands(), session_commands(),
                               catalog_commands(), local_commands(), authentication_commands(), user_commands()}) {
      for (CommandSpec spec : family) {
        spec.index = specs.size();
        spec.need = find_need(spec.name);
        SPILLWAY_CHECK(spec.index < commands_max);
        SPILLWAY_CHECK(by_name.try_emplace(spec.name, spec.index).second);
        specs.push_back(spec);
      }
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

Result<void> check_rules(const CommandSpec& spec, const Request& request) {
  if (spec.admin_only && request.db != "admin") {
    return Error(ErrorCode::unauthorized,
                 fmt::format("{} may only be run against the admin database.", spec.name));
  }
  if (request.in_transaction && !spec.in_transaction) {
    return Error(ErrorCode::operation_not_supported_in_transaction,
                 fmt::format("Cannot run '{}' in a multi-document transaction.", spec.name));
  }
  return {};
}

// opcounters: find is a query and getMore a getmore; the write commands count their own operations.
void count_operation(Metrics& metrics, std::string_view name) {
  if (name == "find") {
    metrics.op_query.add();
  } else if (name == "getMore") {
    metrics.op_getmore.add();
  } else if (name != "insert" && name != "update" && name != "delete") {
    metrics.op_command.add();
  }
}

Response help_for(const CommandSpec& spec) {
  BsonWriter reply;
  reply.append("help", fmt::format("help for: {} {}", spec.name, spec.help));
  reply.append("ok", 1.0);
  return Response(std::move(reply).finish());
}

}  // namespace

const CommandSpec* find_command(std::string_view name) {
  const auto found = table().by_name.find(name);
  return found == table().by_name.end() ? nullptr : &table().specs[found->second];
}

Response refuse(Metrics& metrics, const Error& why) {
  metrics.errors.add(why.code);
  return error_response(why);
}

std::span<const CommandSpec> all_commands() { return table().specs; }

Task<Response> run_command(Context& context, Client& client, const Request& request) {
  Metrics& metrics = context.shared.metrics;
  const CommandSpec* spec = find_command(request.name);
  if (spec == nullptr) {
    metrics.unknown_commands.add();
    co_return refuse(metrics,
                     Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name)));
  }
  Metrics::Command& counted = metrics.commands[spec->index];
  counted.total.add();
  count_operation(metrics, spec->name);
  if (auto checked = check_rules(*spec, request); checked.has_error()) {
    counted.failed.add();
    co_return refuse(metrics, checked.error());
  }
  if (context.shared.authorization) {
    if (auto allowed = check_authorized(context, client, *spec, request); allowed.has_error()) {
      counted.failed.add();
      co_return refuse(metrics, allowed.error());
    }
  }
  if (request.help) co_return help_for(*spec);
  client.running = &request;
  client.running_since = request.arrived;
  client.operation_id = context.shared.next_operation_id.fetch_add(1, std::memory_order_relaxed);
  client.interrupt.clear();
  client.busy.enter(context.shared.busy_clients);
  const auto held = context.table;  // a reload must not take it away
  auto handling = spec->handler(context, client, request);
  auto result = co_await handling;
  client.running = nullptr;
  const Duration taken = Clock::now() - request.arrived;
  context.command_times->by_command[spec->index].add(taken);
  if (result.has_error()) {
    const Error error = with_topology_version(context, result.error());
    log_if_slow(context, client, request, taken, nullptr, &error);
    counted.failed.add();
    metrics.asserts_user.add();
    co_return refuse(metrics, error);
  }
  log_if_slow(context, client, request, taken, &*result, nullptr);
  if (result->failed) {
    counted.failed.add();
    metrics.errors.add(result->failure_code);
  }
  co_return std::move(*result);
}

}  // namespace spillway::exec
