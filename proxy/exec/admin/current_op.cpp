#include "proxy/exec/admin/current_op.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <limits>

#include "cursor/registry.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/admin/data_distribution.h"
#include "proxy/exec/admin/local_sessions.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/read/query_run.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

Task<Result<Response>> current_op_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> collectionless_aggregate(Context& context, Client& client,
                                                const Request& request, DocView pipeline);

namespace {

// Larger commands are shown as truncated text: whole batches of writes would fill the memory.
constexpr std::size_t command_bytes_max = 16 * limits::kib;
constexpr std::size_t truncated_command_bytes_max = 1000;
// Of a shard, in one reply: all.
constexpr std::int32_t operations_max = std::numeric_limits<std::int32_t>::max();
// The most bytes of one worker's rows, and of a reply.
constexpr std::size_t rows_bytes_max = limits::document_bytes_max - 64 * limits::kib;
// FerretDB's code for unknown commands.
constexpr std::int32_t not_implemented = 238;

// One worker's rows, charged as they are made.
struct Rows {
  KeptDocuments kept;
  std::optional<Error> failed;
};

std::string_view operation_name(std::string_view command) noexcept {
  if (command == "find") return "query";
  if (command == "getMore") return "getmore";
  if (command == "delete") return "remove";
  if (command == "insert" || command == "update") return command;
  return "command";
}

std::string time_text(std::int64_t wall_ms) {
  const auto seconds = static_cast<std::time_t>(wall_ms / 1000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}+00:00", fmt::gmtime(seconds), wall_ms % 1000);
}

void append_hidden(BsonWriter& out, std::string_view field, DocView command) {
  out.begin_document(field).append(command.first().name, "<hidden>").end();
}

void append_command(BsonWriter& out, DocView command, bool truncate) {
  if (is_sensitive(command)) {
    append_hidden(out, "command", command);
    return;
  }
  const std::size_t most = truncate ? truncated_command_bytes_max : command_bytes_max;
  if (command.size() <= most) {
    out.append("command", command);
    return;
  }
  out.begin_document("command").append("$truncated", to_json(command, truncated_command_bytes_max));
  if (const Element comment = command.find("comment");
      comment.exists() && comment.raw.size() <= most) {
    out.append_element(comment);
  }
  out.end();
}

// With the uid that shards know: clients send none.
void append_session(BsonWriter& out, DocView lsid, std::string_view user) {
  out.begin_document("lsid").append_elements(lsid);
  if (!lsid["uid"].exists()) out.append_binary("uid", 0, uid_of_sessions(user).view());
  out.end();
}

void append_running(BsonWriter& out, const Client& client, const CurrentOpOptions& options) {
  const Request& request = *client.running;
  const Duration running = Clock::now() - client.running_since;
  const std::int64_t micros =
      std::chrono::duration_cast<std::chrono::microseconds>(running).count();
  append_count(out, "opid", client.operation_id);
  if (!request.lsid.empty()) append_session(out, request.lsid_document(), client.user);
  out.append("secs_running", micros / 1'000'000).append("microsecs_running", micros);
  out.append("op", operation_name(request.name)).append("ns", request.ns());
  append_command(out, request.body, options.truncate_operations);
  if (client.interrupt.requested() != nullptr) out.append("killPending", true);
  out.append("numYields", std::int32_t{0});
}

Rows local_operations(const Context& context, const CurrentOpOptions& options) {
  Rows rows{KeptDocuments(context.shared.memory.cursors), std::nullopt};
  for (const Client* client : context.clients) {
    if (client->running == nullptr && !options.idle_connections) continue;
    if (!options.only_user.empty() && client->user != options.only_user) continue;
    if (auto added = rows.kept.add(operation_document(context, *client, options)); added.has_error()) {
      rows.failed = added.error();
      break;
    }
    if (rows.kept.used_bytes() > rows_bytes_max) break;
  }
  return rows;
}

// `id`: "db.name"; empty: no user.
void append_user(BsonWriter& out, std::string_view id) {
  const std::size_t dot = id.find('.');
  if (dot == std::string_view::npos) return;
  out.begin_array("effectiveUsers").begin_document_item();
  out.append("user", id.substr(dot + 1)).append("db", id.substr(0, dot));
  out.end().end();
}

BsonDoc idle_cursor_document(const Context& context, const ClusterCursor& idle, std::int64_t last_used_ns) {
  const std::int64_t unused_ms = (steady_ns() - last_used_ns) / 1'000'000;
  BsonWriter out;
  out.append("type", "idleCursor")
      .append("host", context.shared.facts.host_name)
      .append("ns", idle.ns);
  if (idle.client && !idle.client->address.empty()) out.append("client", idle.client->address);
  if (idle.client && !idle.client->application.empty()) out.append("appName", idle.client->application);
  append_user(out, idle.owner);
  if (!idle.session.lsid.empty()) append_session(out, DocView::trusted(idle.session.lsid.data()), idle.owner);
  out.begin_document("cursor");
  out.append("cursorId", idle.id);
  out.append_date("createdDate", idle.created_ms);
  out.append_date("lastAccessDate", wall_clock_ms() - unused_ms);
  out.append("nDocsReturned", static_cast<std::int64_t>(idle.documents_returned));
  out.append("nBatchesReturned", static_cast<std::int64_t>(idle.batches_returned));
  out.append("bufferedBytes", static_cast<std::int64_t>(idle.buffered_bytes()));
  out.append("noCursorTimeout", idle.no_timeout).append("tailable", idle.tailable);
  out.append("awaitData", idle.await_data);
  if (!idle.originating_command.empty()) {
    const DocView command = DocView::trusted(idle.originating_command.data());
    if (is_sensitive(command)) {
      append_hidden(out, "originatingCommand", command);
    } else {
      out.append("originatingCommand", command);
    }
  }
  out.end();
  return std::move(out).finish();
}

// The user's own, unless all users' are requested; until they fill a reply.
Result<void> add_idle_cursors(const Context& context, const CurrentOpOptions& options, KeptDocuments& rows) {
  Result<void> added;
  const std::size_t most = rows.used_bytes() + rows_bytes_max;
  context.shared.cursors.for_each_idle([&](const ClusterCursor& idle, std::int64_t last_used_ns) {
    if (!options.only_user.empty() && idle.owner != options.only_user) return;
    if (added.has_error() || rows.used_bytes() > most) return;
    added = rows.add(idle_cursor_document(context, idle, last_used_ns));
  });
  return added;
}

// What lists a shard's operations. Servers of static tables may know the command only.
BsonDoc list_operations(const Context& context, const Request& request, const CurrentOpOptions& options) {
  BsonWriter out;
  if (context.in_cluster()) {
    out.append("aggregate", std::int32_t{1}).begin_array("pipeline").begin_document_item();
    out.begin_document("$currentOp").append("allUsers", true);
    out.append("idleConnections", options.idle_connections).append("idleSessions", options.idle_sessions);
    out.append("idleCursors", options.idle_cursors).append("truncateOps", options.truncate_operations);
    out.end().end().end().begin_document("cursor").append("batchSize", operations_max).end();
  } else {
    out.append("currentOp", std::int32_t{1}).append("$all", options.idle_connections);
  }
  out.append("$readPreference", request.body["$readPreference"]);  // members refuse the command without it
  out.append("$db", "admin");
  return std::move(out).finish();
}

// One shard's operations, at the end of `rows`. They are in one reply, or too many.
Result<void> add_operations_of(Context& context, const std::string& shard, const ShardOutcome& outcome,
                               KeptDocuments& rows) {
  ValueView operations = outcome.body()["inprog"];
  if (context.in_cluster()) {
    SPILLWAY_TRY(parsed, wire::parse_cursor_reply(outcome.body()));
    if (parsed->id != 0) {
      kill_unread(context, outcome, "admin.$cmd.aggregate", parsed->id);
      return Error(ErrorCode::bson_object_too_large,
                   fmt::format("the operations of shard {} do not fit into one reply: ask for localOps, or leave idle "
                               "connections, sessions and cursors out", shard));
    }
    operations = outcome.body().find_path("cursor.firstBatch");
  }
  for (const Element& operation : operations.to_array()) {
    if (!operation.is_document()) continue;
    SPILLWAY_TRY(added, rows.add(shard_operation_document(shard, operation.as_document())));
  }
  return {};
}

// The operations of every shard that can list them, at the end of `rows`.
Task<Result<void>> add_shard_operations(Context& context, const Request& request,
                                        const CurrentOpOptions& options, KeptDocuments& rows) {
  const BsonDoc body = list_operations(context, request, options);
  auto calls = call_shards(context, request.routes->all_shards(), RoutedBy::nothing(), shard::Command::of_body(body),
                           read_options(context, request));
  const ShardOutcomes outcomes = co_await calls;
  for (const ShardOutcome& outcome : outcomes) {
    const std::string& name = request.routes->shard(outcome.shard).name;
    if (outcome.error) {
      const bool unknown = outcome.error->is(ErrorCode::command_not_found) ||
                           outcome.error->is(ErrorCode::command_not_supported) ||
                           outcome.error->code == not_implemented;
      if (unknown) continue;
      Error error = *outcome.error;
      co_return std::move(error).with_context(fmt::format("currentOp on shard {}", name));
    }
    SPILLWAY_CO_TRY(added, add_operations_of(context, name, outcome, rows));
  }
  co_return Result<void>();
}

// All operations, filtered by the query.
Task<Result<void>> all_operations(Context& context, const Request& request, CurrentOpOptions options,
                                  QueryRun& into) {
  const std::function<Rows(const Context&)> local = [options](const Context& worker) {
    return local_operations(worker, options);
  };
  auto asking = ask_workers<Rows>(context, local);
  std::vector<Rows> answers = co_await asking;
  KeptDocuments others(context.shared.memory.cursors);
  if (options.idle_cursors) {
    if (auto added = add_idle_cursors(context, options, others); added.has_error()) co_return added.error();
  }
  // To the shards all users are one.
  if (!options.local_operations && options.only_user.empty()) {
    SPILLWAY_CO_TRY(added, co_await add_shard_operations(context, request, options, others));
  }
  answers.push_back({std::move(others), std::nullopt});
  for (const Rows& rows : answers) {
    if (rows.failed) co_return *rows.failed;
    for (const BsonDoc& row : rows.kept.documents()) {
      SPILLWAY_AWAIT(pushed, into.push(row));
    }
  }
  co_return co_await into.finish();
}

// The command's other fields filter the operations.
BsonDoc filter_pipeline(DocView command) {
  BsonWriter stage;
  stage.begin_document("$match");
  bool first = true;
  for (const Element& field : command) {
    const bool is_name = std::exchange(first, false);
    const bool is_ours =
        field.name == "$all" || field.name == "$ownOps" || field.name == "$truncateOps";
    if (is_name || is_ours || is_argument_of_any_command(field.name)) continue;
    stage.append_element(field);
  }
  stage.end();
  return BsonWriter().append("0", std::move(stage).finish()).finish();
}

// All stages but the first, as an array.
BsonDoc rest_of(DocView pipeline) {
  BsonWriter out;
  std::size_t index = 0;
  for (const Element& stage : pipeline) {
    if (index > 0) out.append(std::to_string(index - 1), static_cast<const ValueView&>(stage));
    ++index;
  }
  return std::move(out).finish();
}

bool generates_documents(std::string_view stage) noexcept {
  for (const std::string_view name :
       {"$currentOp", "$documents", "$changeStream", "$listSessions", "$listSampledQueries", "$queryStats",
        "$shardedDataDistribution", "$querySettings", "$listCatalog", "$listClusterCatalog"}) {
    if (stage == name) return true;
  }
  return false;
}

// The options of $currentOp, or the reason why this first stage cannot run.
Result<CurrentOpOptions> first_stage(const Context& context, const Client& client, const Request& request,
                                     Element stage) {
  if (stage.name != "$currentOp") {
    if (generates_documents(stage.name)) {
      return Error(ErrorCode::command_not_supported, fmt::format("{} is not supported", stage.name));
    }
    return Error(ErrorCode::invalid_namespace,
                 fmt::format("{{aggregate: 1}} is not valid for '{}'; a collection is required.", stage.name));
  }
  if (request.db != "admin") {
    return Error(ErrorCode::invalid_namespace,
                 "$currentOp must be run against the 'admin' database with {aggregate: 1}");
  }
  SPILLWAY_TRY(options, parse_current_op(stage));
  if (context.shared.authorization && !options->all_users) options->only_user = client.user;
  return options;
}

}  // namespace

Result<CurrentOpOptions> parse_current_op(ValueView stage) {
  if (!stage.is_document()) {
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("$currentOp options must be specified in an object, but found: {}",
                             bson_type_name(stage.type)));
  }
  CurrentOpOptions options;
  bool ignored = false;
  const std::pair<std::string_view, bool*> known[] = {
      {"allUsers", &options.all_users},
      {"idleSessions", &options.idle_sessions},
      {"backtrace", &ignored},
      {"targetAllNodes", &ignored},
      {"idleConnections", &options.idle_connections},
      {"idleCursors", &options.idle_cursors},
      {"localOps", &options.local_operations},
      {"truncateOps", &options.truncate_operations},
  };
  for (const Element& field : stage.as_document()) {
    bool* flag = nullptr;
    for (const auto& [name, target] : known) {
      if (name == field.name) flag = target;
    }
    if (flag == nullptr) {
      return Error(ErrorCode::failed_to_parse,
                   fmt::format("Unrecognized option '{}' in $currentOp stage.", field.name));
    }
    if (field.type != BsonType::boolean) {
      return Error(
          ErrorCode::failed_to_parse,
          fmt::format(
              "The '{}' parameter of the $currentOp stage must be a boolean value, but found: {}",
              field.name, bson_type_name(field.type)));
    }
    *flag = field.as_bool();
  }
  return options;
}

BsonDoc operation_document(const Context& context, const Client& client,
                           const CurrentOpOptions& options) {
  BsonWriter out;
  out.append("type", "op").append("host", context.shared.facts.host_name);
  out.append("desc", fmt::format("conn{}", client.connection_id));
  out.append("connectionId", client.connection_id).append("client", client.peer);
  if (!client.application_name.empty()) out.append("appName", client.application_name);
  if (!client.metadata.empty())
    out.append("clientMetadata", DocView::trusted(client.metadata.data()));
  out.append("active", client.running != nullptr);
  out.append("currentOpTime", time_text(wall_clock_ms()));
  append_user(out, client.user);
  if (client.running != nullptr) append_running(out, client, options);
  return std::move(out).finish();
}

BsonDoc shard_operation_document(std::string_view shard, DocView operation) {
  BsonWriter out;
  out.append("shard", shard);
  for (const Element& field : operation) {
    if (field.name == "opid") {
      const auto number = field.to_int64();
      out.append("opid", number ? fmt::format("{}:{}", shard, *number)
                                : fmt::format("{}:{}", shard, to_json(field)));
    } else if (field.name == "client") {
      out.append("client_s", static_cast<const ValueView&>(field));
    } else if (field.name != "shard") {
      out.append_element(field);
    }
  }
  return std::move(out).finish();
}

Task<Result<Response>> current_op_command(Context& context, Client& client, const Request& request) {
  CurrentOpOptions options;
  options.idle_connections = request.body["$all"].truthy();
  options.truncate_operations = true;
  if (context.shared.authorization && request.body["$ownOps"].truthy()) options.only_user = client.user;
  KeptDocuments kept(context.shared.memory.cursors);
  const BsonDoc pipeline = filter_pipeline(request.body);
  auto matching = pipeline::DocumentQuery::of_pipeline(
      pipeline, context.shared.memory.cursors, [&kept](BsonDoc row) { return kept.add(std::move(row)); });
  if (matching.has_error()) co_return matching.error();
  QueryRun run(context, request, *matching);
  SPILLWAY_CO_TRY(listed, co_await all_operations(context, request, options, run));
  BsonWriter reply;
  reply.begin_array("inprog");
  for (const BsonDoc& row : kept.documents()) {
    if (reply.size() + row.size() > rows_bytes_max) break;
    reply.append_item(row);
  }
  reply.end();
  co_return ok_response(std::move(reply));
}

Task<Result<Response>> collectionless_aggregate(Context& context, Client& client,
                                                const Request& request, DocView pipeline) {
  if (auto valid = pipeline.validate(); valid.has_error()) co_return valid.error();
  const Element head = pipeline.first();
  if (!head.exists()) {
    co_return Error(ErrorCode::invalid_namespace,
                    "{aggregate: 1} is not valid for an empty pipeline.");
  }
  if (!head.is_document() || head.as_document().count() != 1) {
    co_return Error(40323, "A pipeline stage specification object must contain exactly one field.");
  }
  const Element stage = head.as_document().first();
  const bool of_sessions = stage.name == "$listLocalSessions";
  const bool of_data = context.in_cluster() && stage.name == distribution_stage;
  SPILLWAY_CO_TRY(checked, of_data ? check_distribution(request, stage) : Result<void>());
  SPILLWAY_CO_TRY(sessions, of_sessions ? parse_listed_sessions(client, stage) : ListedSessions());
  SPILLWAY_CO_TRY(options, of_sessions || of_data ? CurrentOpOptions() : first_stage(context, client, request, stage));
  const BsonDoc rest = rest_of(pipeline);
  KeptDocuments kept(context.shared.memory.cursors);
  auto output = pipeline::DocumentQuery::of_pipeline(
      rest, context.shared.memory.cursors, [&kept](BsonDoc row) { return kept.add(std::move(row)); });
  if (output.has_error()) co_return output.error();
  QueryRun run(context, request, *output);
  SPILLWAY_AWAIT(listed, of_sessions ? list_local_sessions(context, *std::move(sessions), run)
                         : of_data   ? list_data_distribution(context, request, run)
                                     : all_operations(context, request, *options, run));
  SPILLWAY_CO_TRY(arguments, parse_aggregate(request.body));
  auto answering = answer_documents(context, client, request, std::move(kept), "$cmd.aggregate", arguments->first);
  co_return co_await answering;
}

}  // namespace spillway::exec
