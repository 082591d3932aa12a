// count and distinct.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/read/distinct_merge.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/query_run.h"
#include "proxy/exec/read/merge_on_shard.h"

namespace spillway::exec {

namespace {

std::int64_t whole_number(ValueView value) {
  if (!value.is_number()) return 0;
  return value.to_int64().value_or(static_cast<std::int64_t>(value.to_double().value_or(0)));
}

struct CountWindow {
  std::int64_t limit = 0, skip = 0;
  std::int64_t shard_limit = 0;  // their sum; 0: none
};

Result<CountWindow> count_window(DocView body) {
  CountWindow window;
  SPILLWAY_TRY(limit, number_argument("limit", body["limit"]));
  SPILLWAY_TRY(skip, number_argument("skip", body["skip"]));
  window.limit = limit->value_or(0);
  window.skip = skip->value_or(0);
  if (window.skip < 0) return negative_argument("skip", window.skip);
  if (window.limit == std::numeric_limits<std::int64_t>::min()) {
    return Error(ErrorCode::bad_value, "Limit value for count cannot be min long");
  }
  window.limit = std::abs(window.limit);  // as many, in one batch: the same for a count
  if (window.limit == 0) return window;
  SPILLWAY_TRY(sum, shard_limit(window.limit, window.skip));
  window.shard_limit = *sum;
  return window;
}

Response count_reply(const Routes& routes, const ShardOutcomes& outcomes, CountWindow window) {
  std::int64_t total = 0;
  BsonWriter reply;
  reply.begin_document("shards");
  for (const ShardOutcome& outcome : outcomes) {
    const std::int64_t n = whole_number(outcome.body()["n"]);
    reply.append(routes.shard(outcome.shard).name, n);
    total += n;
  }
  reply.end();
  total = std::max<std::int64_t>(0, total - window.skip);
  if (window.limit > 0) total = std::min(total, window.limit);
  append_count(reply, "n", total);
  return ok_response(std::move(reply));
}

// Has a path a number for a name? To distinct it may be an array's index, which to an aggregation's paths it is not.
bool has_index(std::string_view path) noexcept {
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string_view name = path.substr(at, dot - at);
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos) return true;
    at = dot + 1;
  }
  return false;
}

// What a shard says of a view without stages: so the command runs as an aggregation, which a shard merges. Only shards
// know which values a collation takes for equal.
Error as_view_of(const Request& request, std::string_view collection) {
  BsonWriter said;
  said.begin_document("resolvedView").append("ns", fmt::format("{}.{}", request.db, collection));
  said.begin_array("pipeline").end().end();
  const BsonDoc document = std::move(said).finish();
  Error error(command_on_sharded_view, "only shards can compare values with a collation");
  error.extra.assign(reinterpret_cast<const char*>(document.view().data()), document.size());
  return error;
}

// Is there a value that a collation compares in its own way?
Task<bool> has_collatable(Context& context, const std::vector<DocView>& arrays) {
  TimeSlice slice(context.pump);
  for (const DocView array : arrays) {
    for (auto at = array.begin(); !at.done(); ++at) {
      if (catalog::is_collatable(*at)) co_return true;
      if (slice.is_over()) co_await slice.next();
    }
  }
  co_return false;
}

// The arrays outlive the task.
Task<Result<Response>> merge_distinct(Context& context, const Request& request, std::vector<DocView> arrays) {
  std::size_t bytes = 0;
  for (const DocView array : arrays) bytes += array.size();
  bytes = std::min<std::size_t>(bytes, limits::document_bytes_max);
  // It does not wait: it holds the shards' replies.
  MemoryBudget& replies = context.shared.memory.replies;
  auto room = reserve_now(replies, bytes);
  if (!room) co_return memory_refused(replies, bytes, "the distinct values");
  DistinctMerge merge(std::move(arrays), context.shared.memory.cursors);
  TimeSlice slice(context.pump);
  for (;;) {
    SPILLWAY_CO_TRY(more, merge.step());
    if (!*more) {
      Response reply(std::move(merge).reply(request.at_cluster_time));
      reply.pay(*std::move(room));
      co_return std::move(reply);
    }
    if (!slice.is_over(DistinctMerge::values_per_step * DistinctMerge::bytes_of_value)) continue;
    co_await slice.next();
    if (auto going = goes_on(request); going.has_error()) co_return going.error();
  }
}

}  // namespace

Task<Result<Response>> count_command(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(collection, collection_argument(request.body));
  SPILLWAY_CO_TRY(query, document_argument("query", request.body["query"]));
  if (reads_own_config(request)) {
    co_return co_await config_count(context, request);
  }
  SPILLWAY_CO_TRY(targets, read_targets(request, request.db, *collection, *query, request.body["collation"]));
  // A mongos says of one shard, too, what it has counted.
  if (targets->shards.size() == 1 && !context.in_cluster()) co_return co_await forward_read(context, request, *targets);
  SPILLWAY_CO_TRY(window, count_window(request.body));
  TakeCopyRoom taking_room(context, request);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  BsonWriter body;
  copy_command(body, request, {"limit", "skip"});
  if (window->shard_limit > 0) body.append("limit", window->shard_limit);
  const BsonDoc command = std::move(body).finish();
  auto scattering = call_shards(context, targets->shards, targets->by(), shard::Command::of_body(command),
                                read_options(context, request));
  auto outcomes = co_await scattering;
  for (ShardOutcome& outcome : outcomes) {
    if (outcome.error) {
      co_return std::move(*outcome.error).with_context(
          fmt::format("failed on: {}", request.routes->shard(outcome.shard).name));
    }
  }
  co_return count_reply(*request.routes, outcomes, *window);
}

Task<Result<Response>> distinct_command(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(collection, collection_argument(request.body));
  SPILLWAY_CO_TRY(query, document_argument("query", request.body["query"]));
  if (reads_own_config(request)) {
    co_return co_await config_distinct(context, request);
  }
  SPILLWAY_CO_TRY(targets, read_targets(request, request.db, *collection, *query, request.body["collation"]));
  SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets->shards));
  // A mongos sorts one shard's values, too.
  const bool passes = !context.in_cluster() || !targets->simple_collation ||
                      !is_simple_collation(request.body["collation"]);
  if (targets->shards.size() == 1 && passes) co_return co_await forward_read(context, request, *targets);
  TakeCopyRoom taking_room(context, request);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  BsonWriter body;
  copy_command(body, request, {});
  const BsonDoc command = std::move(body).finish();
  auto scattering = call_shards(context, targets->shards, targets->by(), shard::Command::of_body(command),
                                read_options(context, request));
  auto outcomes = co_await scattering;
  std::vector<DocView> arrays;
  for (const ShardOutcome& outcome : outcomes) {
    if (outcome.error) co_return *outcome.error;
    const ValueView array = outcome.body()["values"];
    if (!array.is_array()) co_return Error(ErrorCode::internal_error, "a shard's distinct reply has no values");
    arrays.push_back(array.as_document());
  }
  if (!targets->simple_collation) {
    auto looking = has_collatable(context, arrays);
    if (co_await looking) {
      const ValueView key = request.body["key"];
      if (shards_may_merge(context) && key.is_string() && !has_index(key.as_string())) {
        co_return as_view_of(request, *collection);
      }
      co_return Error(ErrorCode::command_not_supported,
                      "distinct strings with a collation cannot be merged from several shards");
    }
  }
  auto merging = merge_distinct(context, request, std::move(arrays));
  co_return co_await merging;
}

}  // namespace spillway::exec
