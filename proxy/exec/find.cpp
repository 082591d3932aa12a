// find: one shard passes through, several are merged.
#include <fmt/format.h>

#include "proxy/exec/command_table.h"
#include "proxy/exec/config_reads.h"
#include "proxy/exec/cursor_ops.h"
#include "proxy/exec/find.h"
#include "proxy/exec/forward.h"
#include "proxy/exec/single_shard.h"
#include "proxy/exec/sort_projection.h"
#include "proxy/exec/transactions.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

Error negative(std::string_view field, std::int64_t value) {
  return Error(51024, fmt::format("BSON field '{}' value must be >= 0, actual value '{}'", field, value));
}

Result<std::int64_t> non_negative(DocView body, std::string_view field, bool* given = nullptr) {
  const ValueView value = body[field];
  if (given != nullptr) *given = value.exists() && !value.is_null();
  if (!value.exists() || value.is_null()) return std::int64_t{0};
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch,
                 fmt::format("BSON field '{}' is the wrong type '{}', expected types '[long, int, decimal, double]'",
                             field, bson_type_name(value.type)));
  }
  const auto number = value.to_double();
  const std::int64_t whole = value.to_int64().value_or(static_cast<std::int64_t>(number.value_or(0)));
  if (whole < 0) return negative(field, whole);
  return whole;
}

Result<DocView> optional_document(DocView body, std::string_view field) {
  const ValueView value = body[field];
  if (!value.exists() || value.is_null()) return DocView();
  if (!value.is_document()) {
    return Error(ErrorCode::type_mismatch,
                 fmt::format("BSON field '{}' is the wrong type '{}', expected type 'object'", field,
                             bson_type_name(value.type)));
  }
  return value.as_document();
}

}  // namespace

Result<FindArguments> parse_find(DocView body) {
  FindArguments find;
  const Element collection = body.first();
  if (!collection.is_string()) {
    return Error(ErrorCode::invalid_namespace,
                 fmt::format("collection name has invalid type {}", bson_type_name(collection.type)));
  }
  find.collection = collection.as_string();
  if (find.collection.empty()) return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  auto filter = optional_document(body, "filter");
  if (filter.has_error()) return filter.error();
  auto sort = optional_document(body, "sort");
  if (sort.has_error()) return sort.error();
  auto projection = optional_document(body, "projection");
  if (projection.has_error()) return projection.error();
  find.filter = *filter;
  find.sort = *sort;
  find.projection = *projection;
  auto limit = non_negative(body, "limit");
  if (limit.has_error()) return limit.error();
  auto skip = non_negative(body, "skip");
  if (skip.has_error()) return skip.error();
  auto batch_size = non_negative(body, "batchSize", &find.batch_size_given);
  if (batch_size.has_error()) return batch_size.error();
  find.limit = *limit;
  find.skip = *skip;
  find.batch_size = *batch_size;
  find.single_batch = body["singleBatch"].truthy();
  find.tailable = body["tailable"].truthy();
  find.await_data = body["awaitData"].truthy();
  find.no_cursor_timeout = body["noCursorTimeout"].truthy();
  find.allow_partial = body["allowPartialResults"].truthy();
  find.simple_collation = is_simple_collation(body["collation"]);
  if (find.await_data && !find.tailable) {
    return Error(ErrorCode::failed_to_parse, "Cannot set 'awaitData' without also setting 'tailable'");
  }
  if (find.tailable && !find.sort.empty() && !find.sort["$natural"].exists()) {
    return Error(ErrorCode::bad_value, "error processing query: tailable cursor requested with a sort");
  }
  if (find.projection["$sortKey"].exists()) {
    return Error(ErrorCode::bad_value, "cannot use field '$sortKey' in a projection through a router");
  }
  return find;
}

namespace {

// The command for each of several shards. (mongos behaviour reference, section 5.2)
Result<BsonDoc> scatter_command(const Request& request, const FindArguments& find, const SortProjection& sort) {
  BsonWriter out;
  copy_command(out, request, {"limit", "skip", "singleBatch", "projection", "showRecordId", "batchSize",
                              "allowPartialResults"});
  if (sort.changed) {
    if (!sort.projection.view().empty()) out.append("projection", sort.projection);
  } else if (!find.projection.empty()) {
    out.append("projection", find.projection);
  }
  if (find.limit > 0) {
    std::int64_t limit = 0;
    if (__builtin_add_overflow(find.limit, find.skip, &limit)) {
      return Error(ErrorCode::overflow, "the sum of limit and skip does not fit into 64 bits");
    }
    out.append("limit", limit);
  }
  const std::int64_t batch =
      find.batch_size_given ? find.batch_size : std::int64_t{limits::first_batch_documents_default};
  out.append("batchSize", batch);
  return std::move(out).finish();
}

// Errors that allowPartialResults tolerates while a shard's cursor is being opened.
bool tolerated(const Error& error) noexcept {
  return error.is(ErrorCode::host_unreachable) || error.is(ErrorCode::host_not_found) ||
         error.is(ErrorCode::network_timeout) || error.is(ErrorCode::failed_to_satisfy_read_preference);
}

struct OpenedRemotes {
  std::optional<Error> failed;
};

OpenedRemotes take_outcomes(Context&, ClusterCursor& cursor, std::vector<ShardOutcome>& outcomes) {
  OpenedRemotes opened;
  for (ShardOutcome& outcome : outcomes) {
    if (!outcome.ok()) {
      if (cursor.allow_partial && tolerated(*outcome.error)) {
        cursor.partial = true;
      } else if (!opened.failed) {
        opened.failed = outcome.error;
      }
      continue;
    }
    RemoteCursor& remote = cursor.remotes.emplace_back();
    remote.shard = outcome.shard;
    auto taken = take_reply(cursor, remote, std::move(outcome.reply));
    if (taken.has_error() && !opened.failed) opened.failed = taken.error();
  }
  return opened;
}

}  // namespace

Task<std::optional<Error>> open_remotes(Context& context, const Request& request, ClusterCursor& cursor,
                                        const catalog::ShardSet& shards, DocView body) {
  std::vector<ShardCommand> commands;
  for (const catalog::ShardIndex shard : shards) {
    commands.push_back({shard, shard::Command::of_body(body), {}});
  }
  shard::CallOptions options = read_options(context, request);
  options.budget = &context.shared.cursor_memory;
  auto calls = call_shards(context, commands, options);
  auto outcomes = co_await calls;
  cursor.remotes.reserve(outcomes.size());
  OpenedRemotes opened = take_outcomes(context, cursor, outcomes);
  if (opened.failed) kill_remotes(context, cursor);
  co_return opened.failed;
}

namespace {

bool all_offer_sort_key(const Context& context, const catalog::ShardSet& shards) {
  for (const catalog::ShardIndex shard : shards) {
    if (!context.gateway.states()[shard].offers_sort_key) return false;
  }
  return true;
}

Task<Result<Response>> find_on_many(Context& context, Client& client, const Request& request,
                                    const FindArguments& find, const catalog::ShardSet& shards) {
  CursorPtr cursor = make_cursor(client, request, find.collection);
  cursor->no_timeout = find.no_cursor_timeout;
  cursor->allow_partial = find.allow_partial;
  cursor->batch_size = find.batch_size;
  cursor->skip_remaining = find.skip;
  if (find.limit > 0) cursor->limit_remaining = find.limit;
  SortProjection plan;
  if (!find.sort.empty() && !find.sort["$natural"].exists()) {
    auto pattern = SortPattern::parse(find.sort);
    if (pattern.has_error()) co_return pattern.error();
    auto planned = plan_sort_projection(find.sort, find.projection, find.simple_collation,
                                        all_offer_sort_key(context, shards));
    if (planned.has_error()) co_return planned.error();
    plan = *std::move(planned);
    cursor->sort = *std::move(pattern);
    cursor->sort_keys = plan.source;
    cursor->strip_fields = plan.strip_fields;
  }
  if (find.tailable) {
    co_return Error(ErrorCode::illegal_operation, "tailable cursors are not possible on a sharded collection");
  }
  auto body = scatter_command(request, find, plan);
  if (body.has_error()) co_return body.error();
  auto opening = open_remotes(context, request, *cursor, shards, *body);
  auto failed = co_await opening;
  if (failed) co_return *failed;
  auto answering = answer_first_batch(context, std::move(cursor), find.batch_size, find.batch_size_given,
                                      find.single_batch, request);
  co_return co_await answering;
}

void count_targets(HostsTargeted& metric, const Targets& targets) {
  if (targets.routing == nullptr) {
    metric.unsharded.add();
  } else if (targets.shards.size() == 1) {
    metric.one_shard.add();
  } else if (targets.shards.size() == targets.routing->all_shards().size()) {
    metric.all_shards.add();
  } else {
    metric.many_shards.add();
  }
}

Task<Result<Response>> run_find(Context& context, Client& client, const Request& request) {
  auto parsed = parse_find(request.body);
  if (parsed.has_error()) co_return parsed.error();
  const FindArguments& find = *parsed;
  if (request.db == "config" && request.in_transaction) {
    co_return Error(ErrorCode::operation_not_supported_in_transaction,
                    "the config database cannot be read in a transaction");
  }
  if (request.db == "config") {
    auto reading = config_find(context, client, request);
    co_return co_await reading;
  }
  auto targets = read_targets(context, request.db, find.collection, find.filter, find.simple_collation);
  if (targets.has_error()) co_return targets.error();
  if (request.txn_number) {
    auto checking = check_transaction(context, request, targets->shards);
    auto checked = co_await checking;
    if (checked.has_error()) co_return checked.error();
  }
  count_targets(context.shared.metrics.find, *targets);
  if (targets->shards.size() > 1) {
    auto finding = find_on_many(context, client, request, find, targets->shards);
    co_return co_await finding;
  }
  CursorPtr seed = make_cursor(client, request, find.collection);
  seed->no_timeout = find.no_cursor_timeout;
  seed->tailable = find.tailable;
  seed->await_data = find.await_data;
  seed->batch_size = find.batch_size;
  BsonDoc scratch;
  const shard::Command command = forward_command(request, scratch);
  auto opening = open_on_one_shard(context, request, targets->shards.front(), command, std::move(seed), true);
  co_return co_await opening;
}

}  // namespace

Result<Targets> read_targets(Context& context, std::string_view db, std::string_view collection, DocView filter,
                             bool simple_collation) {
  Targets targets;
  targets.routing = context.routing().collection(fmt::format("{}.{}", db, collection));
  if (targets.routing == nullptr) {
    targets.shards.insert(context.routing().primary_shard(db));
    return targets;
  }
  auto shards = targets.routing->target_filter(filter, simple_collation);
  if (shards.has_error()) return shards.error();
  targets.shards = *std::move(shards);
  return targets;
}

Task<Result<Response>> get_more_command(Context& context, Client& client, const Request& request);
Task<Result<Response>> kill_cursors_command(Context& context, Client& client, const Request& request);

std::span<const CommandSpec> read_commands() {
  static constexpr CommandSpec specs[] = {
      {.name = "find", .handler = run_find, .in_transaction = true, .secondary_ok = true,
       .help = "query for documents"},
      {.name = "getMore", .handler = get_more_command, .in_transaction = true, .secondary_ok = true,
       .help = "retrieve more results from an existing cursor"},
      {.name = "killCursors", .handler = kill_cursors_command, .in_transaction = true, .secondary_ok = true,
       .help = "kill a list of cursor ids"},
  };
  return specs;
}

}  // namespace spillway::exec
