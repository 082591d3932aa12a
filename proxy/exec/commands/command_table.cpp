#include "proxy/exec/commands/command_table.h"

#include <fmt/format.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cursor/field_table.h"
#include "proxy/base/check.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/admin/hello.h"
#include "proxy/exec/commands/client_times.h"
#include "proxy/exec/commands/failing.h"
#include "proxy/exec/commands/route_names.h"
#include "proxy/exec/commands/run_in_cluster.h"
#include "proxy/exec/commands/slow_log.h"
#include "proxy/exec/commands/stable_stages.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/wire/op_msg.h"

namespace spillway::exec {

namespace {

// A client takes no longer message. Shards that are not MongoDB's may send longer ones.
constexpr std::size_t reply_bytes_max = limits::message_bytes_max - wire::op_msg_prefix_bytes - sizeof(std::uint32_t);

struct Table {
  std::vector<CommandSpec> specs;
  absl::flat_hash_map<std::string_view, std::size_t> by_name;

  Table() {
    for (const auto& family : {read_commands(), aggregate_commands(), write_commands(), bulk_commands(),
                               session_commands(), sharding_commands(), schema_commands(), local_commands(),
                               authentication_commands(), user_commands()}) {
      for (CommandSpec spec : family) {
        spec.index = specs.size();
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

// $$NOW, $$CLUSTER_TIME, and from 7.0 on $$USER_ROLES, which views may go by: shards take them from routers, not from
// clients. Codes: a mongos'.
Result<void> check_constants(DocView command) {
  constexpr FieldTable<5> constants({"NOW", "CLUSTER_TIME", "USER_ROLES", "JS_SCOPE", "IS_MR"});
  const std::string_view name = command.first().name;
  for (const Element& field : command) {
    if (field.name == "let" && field.is_document()) {
      for (const Element& variable : field.as_document()) {
        if (!constants.contains(variable.name)) continue;
        return Error(4738901, fmt::format("Attempt to set internal constant: {}", variable.name));
      }
    }
    if (field.name != "runtimeConstants") continue;
    const bool writes = name == "update" || name == "delete";
    const int code = name == "aggregate" ? 51143 : writes ? 51195 : name == "find" ? 51202 : 51196;
    return Error(code, "Cannot specify runtime constants option to a mongos");
  }
  return {};
}

// Those of an explain stand in the command that it explains.
Result<void> check_constants(const Request& request) {
  if (request.sets_variables) {
    if (auto checked = check_constants(request.body); checked.has_error()) return checked;
  }
  if (request.name != "explain") return {};
  const Element inner = request.body.first();
  return inner.is_document() ? check_constants(inner.as_document()) : Result<void>();
}

Result<void> check_rules(const Context& context, const CommandSpec& spec, const Request& request) {
  if (auto checked = check_constants(request); checked.has_error()) return checked;
  if (spec.is(Trait::admin_only) && request.db != "admin") {
    return Error(ErrorCode::unauthorized,
                 fmt::format("{} may only be run against the admin database.", spec.name));
  }
  if (request.in_transaction && !spec.is(Trait::in_transaction)) {
    return Error(ErrorCode::operation_not_supported_in_transaction,
                 fmt::format("Cannot run '{}' in a multi-document transaction.", spec.name));
  }
  if (context.in_cluster() || !context.has_cluster_time()) {
    if (auto checked = check_read_time(request, context.in_cluster()); checked.has_error()) return checked.error();
  }
  return check_api_strict(spec, request);
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

// Do the limits allow the command now? An allowed command takes no memory and no lock.
std::optional<Error> admit(Context& context, Client& client, const CommandSpec& spec, TimePoint now) {
  const Services& shared = context.shared;
  const bool limited = shared.limits.looks_at_operations() || shared.limits.looks_at_bytes();
  if (!limited || spec.is(Trait::drains) || client.limits.limits() == nullptr) return std::nullopt;
  std::optional<Error> refusal = client.limits.admit(now, spec.is(Trait::opens_cursor));
  if (refusal && spec.is(Trait::writes)) refusal = without_writes(*std::move(refusal));
  return refusal;
}

// Zero: the answer is a success.
std::int32_t code_of(const Response& response) noexcept {
  if (!response.failed) return 0;
  return response.failure_code != 0 ? response.failure_code : static_cast<std::int32_t>(ErrorCode::operation_failed);
}

void audit_refusal(Context& context, Client& client, const CommandSpec& spec, const Request& request,
                   const Error& error) {
  AuditLog* const audit = context.shared.audit.get();
  if (audit != nullptr && error.is(ErrorCode::unauthorized)) audit->refused(client, spec, request);
}

Response help_for(const CommandSpec& spec) {
  return ok_response(BsonWriter().append("help", fmt::format("help for: {} {}", spec.name, spec.help)));
}

}  // namespace

const CommandSpec* command_named(std::string_view name) {
  const auto found = table().by_name.find(name);
  return found == table().by_name.end() ? nullptr : &table().specs[found->second];
}

bool ends_with_client(const Request& request) noexcept {
  const CommandSpec* const spec = command_named(request.name);
  if (spec != nullptr && spec->is(Trait::writes)) {
    // One that waits for its shard: the client may have sent it again, over another connection.
    return !request.unacknowledged && request.shard_time != nullptr && !request.shard_time->has_sent();
  }
  if (spec == nullptr || !(spec->is(Trait::secondary_ok) || spec->name == "getMore")) return false;
  if (spec->name != "aggregate") return true;
  const ValueView pipeline = request.body["pipeline"];
  return !pipeline.is_array() || !ends_in_write(pipeline.as_document());
}

Result<void> check_api_strict(const CommandSpec& spec, const Request& request) {
  if (!request.api.is_strict()) return {};
  if (!spec.is(Trait::stable)) {
    return Error(ErrorCode::api_strict_error,
                 fmt::format("apiStrict is true, and the command {} is not in API Version 1: send it without apiStrict",
                             spec.name));
  }
  return check_stable_stages(request.body);
}

Response refuse(Metrics& metrics, const Error& why) {
  metrics.errors.add(why.code);
  return error_response(why);
}

std::span<const CommandSpec> all_commands() { return table().specs; }

bool is_known(const Context& context, const CommandSpec& spec) {
  return (!spec.is(Trait::cluster_only) || context.in_cluster()) &&
         (!spec.is(Trait::test_only) || context.shared.parameters.test_commands);
}

namespace {

// As other routers do, in a cluster before the client hears of it: its next transaction is not to meet this one.
Task<void> end_failed(Context& context, OpenTransaction open) {
  if (!context.in_cluster()) {
    context.background.start(abort_on_shards(context, std::move(open)));
    co_return;
  }
  auto aborting = abort_on_shards(context, std::move(open));
  co_await aborting;
}

Result<void> check_may_run(Context& context, Client& client, const CommandSpec& spec, const Request& request) {
  if (!context.shared.authorization) return {};
  auto allowed = check_authorized(context, client, spec, request);
  if (allowed.has_error()) audit_refusal(context, client, spec, request, allowed.error());
  return allowed;
}

std::optional<Error> refusal_of(Context& context, Client& client, const CommandSpec& spec, const Request& request) {
  if (auto checked = check_rules(context, spec, request); checked.has_error()) return std::move(checked.error());
  if (auto over_limit = admit(context, client, spec, request.arrived)) return over_limit;
  SPILLWAY_TRY(allowed, check_may_run(context, client, spec, request));
  return std::nullopt;
}

// What a command is answered before its handler runs: a refusal, its help. Counts it.
std::optional<Response> answer_at_once(Context& context, Client& client, const CommandSpec& spec,
                                       const Request& request) {
  Metrics::Command& counted = context.shared.metrics.commands[spec.index];
  counted.total.add();
  count_operation(context.shared.metrics, spec.name);
  if (auto refusal = refusal_of(context, client, spec, request)) {
    counted.failed.add();
    return refuse(context.shared.metrics, *refusal);
  }
  return request.help ? std::optional(help_for(spec)) : std::nullopt;
}

Response failed(Context& context, Client& client, const CommandSpec& spec, const Request& request, Duration taken,
                Error why) {
  Metrics& metrics = context.shared.metrics;
  const Error error = with_topology_version(context, label_failure(request, std::move(why)));
  audit_refusal(context, client, spec, request, error);
  if (spec.is(Trait::audited) && context.shared.audit && !error.is(ErrorCode::unauthorized)) {
    context.shared.audit->done(client, spec, request, error.code);
  }
  log_if_slow(context, client, request, taken, nullptr, &error);
  metrics.commands[spec.index].failed.add();
  metrics.asserts_user.add();
  return refuse(metrics, error);
}

void note_answer(Context& context, Client& client, const CommandSpec& spec, const Request& request, Duration taken,
                 const Response& response) {
  Metrics& metrics = context.shared.metrics;
  log_if_slow(context, client, request, taken, &response, nullptr);
  if (response.failed) {
    metrics.commands[spec.index].failed.add();
    metrics.errors.add(response.failure_code);
  }
  if (spec.is(Trait::audited) && context.shared.audit) {
    context.shared.audit->done(client, spec, request, code_of(response));
  }
}

Task<Result<Response>> not_run(Error why) { co_return why; }

// A long reply that was made here is paid for until the client has it. What was changed is told even without memory.
Result<Response> paid(const Context& context, const CommandSpec& spec, Response reply) {
  constexpr std::size_t paid_bytes_least = 64 * limits::kib;
  const std::size_t bytes = reply.unpaid_bytes();
  if (bytes < paid_bytes_least) return reply;
  MemoryBudget& budget = context.shared.memory.replies;
  auto room = reserve_now(budget, bytes);
  const bool changes = spec.is(Trait::writes | Trait::audited);
  if (!room && !changes) return memory_refused(budget, bytes, "the reply");
  if (room) reply.pay(*std::move(room));
  return reply;
}

// nullopt: run_in_cluster() finds them.
std::optional<Routes> routes_of(Context& context, const CommandSpec& spec, Request& request) {
  if (!context.in_cluster()) return context.router->resolve({});
  if (request.in_transaction || reads_snapshot(request) || request.encrypted) return std::nullopt;
  return context.router->resolve(route_names(context, spec, request));
}

}  // namespace

Result<void> check_may_run(Context& context, Client& client, const Request& request) {
  const CommandSpec* const spec = command_named(request.name);
  return spec == nullptr ? Result<void>() : check_may_run(context, client, *spec, request);
}

// Where there is one cluster time, every message carries it.
Task<Response> run_command(Context& context, Client& client, Request& request) {
  const bool in_cluster = context.in_cluster();
  const bool tells_time = context.has_cluster_time();
  if (tells_time) {
    auto taken = take_client_time(context, client, request);
    if (taken.has_error() && taken.error().code == key_not_found) {
      const RouteWait for_keys{.deadline = request.deadline, .interrupt = request.interrupt};
      co_await context.router->learn_keys(for_keys);
      taken = take_client_time(context, client, request);
    }
    if (taken.has_error()) co_return refuse(context.shared.metrics, taken.error());
  }
  const CommandSpec* const spec = command_named(request.name);
  std::optional<Response> response;
  if (spec == nullptr || !is_known(context, *spec)) {
    context.shared.metrics.unknown_commands.add();
    response = refuse(context.shared.metrics,
                      Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name)));
  } else {
    response = answer_at_once(context, client, *spec, request);
  }
  if (response) {
    if (tells_time) tell_times(context, client, request, *response);
    co_return *std::move(response);
  }
  if (in_cluster) {
    name_session_owner(context, client, request);
    request.asks = impersonated(context, client);
    complete_write_concern(context, request);
  }
  client.running = &request;
  client.running_since = request.arrived;
  client.operation_id = context.shared.next_operation_id.fetch_add(1, std::memory_order_relaxed);
  client.busy.enter(context.shared.connections.busy);
  if (context.shared.fail_command.on()) [[unlikely]] {
    response = co_await fail_on_purpose(context, client, request);
    if (response) {
      client.running = nullptr;
      client.interrupt.clear();
      if (!response->closes) context.shared.metrics.commands[spec->index].failed.add();
      if (tells_time) tell_times(context, client, request, *response);
      co_return *std::move(response);
    }
  }
  SessionTurns::Turn turn;
  std::optional<Error> no_turn;
  if (in_cluster && request.in_transaction) {
    auto taken = co_await take_turn(context, request);
    if (taken.has_value()) turn = *std::move(taken);
    if (taken.has_error()) no_turn = taken.error();
  }
  const std::optional<Routes> routes = routes_of(context, *spec, request);
  if (routes) request.routes = &*routes;
  auto handling = no_turn  ? not_run(*no_turn)
                  : routes ? spec->handler(context, client, request)
                           : run_in_cluster(context, client, *spec, request, std::nullopt);
  auto result = co_await handling;
  if (routes && in_cluster && begins_again(request, result)) {
    auto again = run_in_cluster(context, client, *spec, request, std::move(result));
    result = co_await again;
  }
  if (result.has_value()) result = paid(context, *spec, *std::move(result));
  client.running = nullptr;
  // Not where the next one begins: a shutdown may have come while that waited for something before.
  client.interrupt.clear();
  request.routes = nullptr;
  const Duration taken = Clock::now() - request.arrived;
  context.command_times->by_command[spec->index].add(taken);
  if (auto open = no_turn ? std::nullopt : fail_transaction(context, request, result)) {
    auto ending = end_failed(context, *std::move(open));
    co_await ending;
  }
  if (!result.has_error() && result->bytes() > reply_bytes_max) {
    result = Error(ErrorCode::bson_object_too_large,
                   fmt::format("the shard's reply has {} bytes; a client's reply may have {}", result->bytes(),
                               reply_bytes_max));
  }
  if (result.has_error()) {
    response = failed(context, client, *spec, request, taken, result.error());
  } else {
    note_answer(context, client, *spec, request, taken, *result);
    response = *std::move(result);
    tell_recovery_token(context, request, *response);
    if (context.shared.fail_command.on()) [[unlikely]]
      fail_write_concern(context, client, request, *response);
  }
  if (tells_time) tell_times(context, client, request, *response);
  co_return *std::move(response);
}

}  // namespace spillway::exec
