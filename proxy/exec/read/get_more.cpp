// getMore and killCursors.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "allocator/small_blocks.h"
#include "cursor/registry.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/cursors/compressed_batches.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/read_ahead.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/change_stream.h"
#include "proxy/exec/streams/single_shard.h"

namespace spillway::exec {

namespace {

struct GetMoreArguments {
  std::int64_t id = 0;
  std::string_view collection;
  std::int64_t batch_size = 0;  // 0: none given
  std::optional<std::int64_t> await_ms;
};

Result<GetMoreArguments> parse_get_more(const Context& context, const Request& request) {
  GetMoreArguments arguments;
  const Element id = request.body.first();
  if (id.type != BsonType::int64) return wrong_type("getMore.getMore", id, "long");
  arguments.id = id.as_int64();
  const ValueView collection = request.body["collection"];
  if (!collection.exists()) return missing_field("getMore.collection");
  if (!collection.is_string()) return wrong_type("getMore.collection", collection, "string");
  arguments.collection = collection.as_string();
  if (arguments.collection.empty() || arguments.collection.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  }
  SPILLWAY_TRY(batch_size, number_argument("getMore.batchSize", request.body["batchSize"]));
  arguments.batch_size = batch_size->value_or(0);
  if (arguments.batch_size < 0) return negative_argument("batchSize", arguments.batch_size);
  const bool is_zero = batch_size->has_value() && arguments.batch_size == 0;
  if (is_zero && advertised_wire_version(context.gateway) < wire_version_of_5_0) {
    return Error(ErrorCode::bad_value, "Batch size for getMore must be positive, but received: 0");
  }
  arguments.await_ms = request.max_time_ms;
  return arguments;
}

Task<Result<Response>> get_more_on_many(Context& context, const Request& request, ActiveCursor cursor,
                                        std::int64_t batch_size) {
  BatchBuilder batch(context.shared.memory.replies, batch_bytes_max(request, batch_size > 0));
  if (cursor->from_one_shard) cursor->batch_size = batch_size;  // of what is missing
  // What was read ahead with another size in mind is cut or added to.
  const bool one_batch = cursor->from_one_shard && batch_size == cursor->ahead.last_batch_size;
  const FillLimits limits{.documents_max = batch_size,
                          .deadline = request.deadline,
                          .interrupt = request.interrupt,
                          .one_batch = one_batch,
                          .time = request.shard_time,
                          .user = request.asks};
  auto filled = co_await fill_batch(context, *cursor, limits, batch);
  if (filled.has_error()) {
    Error error = filled.error();
    const bool unharmed =
        error.is(ErrorCode::ingress_request_rate_limit_exceeded) && batch.count() == 0 && !cursor->broken;
    co_return unharmed ? cursor.refuse(std::move(error)) : cursor.fail(std::move(error));
  }
  co_return cursor.answer(std::move(batch), "nextBatch", BatchOrigin::merged);
}

Task<Result<Response>> get_more_on_shards(Context& context, const Request& request, ActiveCursor cursor,
                                          std::int64_t batch_size, std::optional<std::int64_t> await_ms) {
  // A shard's last batch may be empty, and read ahead: then no shard is left to ask.
  if (cursor->from_one_shard && cursor->remotes.front().id != 0 && cursor->remotes.front().batches.empty() &&
      cursor->remotes.front().parked.empty()) {
    auto getting = get_more_on_one_shard(context, request, std::move(cursor), batch_size, await_ms);
    co_return co_await getting;
  }
  if (cursor->passes_through()) {
    // One shard's batch is the client's, as it comes; a little is merged with what the others have.
    SPILLWAY_CO_TRY(passed, co_await pass_one_batch(context, request, cursor, batch_size, false));
    if (*passed) co_return *std::move(*passed);
  }
  auto getting = get_more_on_many(context, request, std::move(cursor), batch_size);
  co_return co_await getting;
}

// While it lives, killCursors and the cursor keeper interrupt the getMore. A reply that passes in pieces goes out after
// that.
class AtWork {
 public:
  AtWork(Client& client, std::int64_t id, const ClusterCursor& cursor) noexcept : client_(client) {
    client.cursor_at_work = id;
    client.merges = cursor.remotes.size() > 1 && !cursor.await_data && !cursor.passes_through();
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  ~AtWork() {
    client_.cursor_at_work = 0;
    client_.merges = false;
  }

 private:
  Client& client_;
};

// Interrupts the getMores that work on these cursors.
Task<void> interrupt_get_mores(Context& context, std::vector<std::int64_t> ids) {
  const std::function<bool(const Context&)> interrupt = [ids = std::move(ids)](const Context& worker) {
    for (Client* client : worker.clients) {
      const std::int64_t id = client->cursor_at_work;
      if (id == 0 || std::find(ids.begin(), ids.end(), id) == ids.end()) continue;
      client->interrupt.request(Error(ErrorCode::cursor_killed, fmt::format("cursor id {} was killed", id)));
    }
    return true;
  };
  auto asking = ask_workers<bool>(context, interrupt);
  co_await asking;
}

// Within what is left of its command's maxTimeMS.
Task<Result<Response>> get_more_in_time(Context& context, const Request& request, ActiveCursor cursor,
                                        std::int64_t batch_size) {
  Request limited = request;
  limited.deadline = TimePoint(std::chrono::nanoseconds(cursor->deadline_ns));
  if (limited.deadline <= Clock::now()) co_return cursor.fail(time_limit_exceeded());
  auto getting = get_more_on_shards(context, limited, std::move(cursor), batch_size, std::nullopt);
  co_return co_await getting;
}

std::optional<Error> planned_failure(Context& context, const Client& client, const Request& request,
                                     const ClusterCursor& cursor) {
  const auto plan = context.shared.fail_get_more.meet_always(client, {request.name, request.db, request.body});
  if (!plan) return std::nullopt;
  Error error(plan->code.value_or(static_cast<std::int32_t>(ErrorCode::internal_error)),
              "Hit the 'failGetMoreAfterCursorCheckout' failpoint");
  return cursor.changes || cursor.change_stream ? error_of_stream(std::move(error)) : error;
}

}  // namespace

Task<Result<Response>> get_more_command(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(arguments, parse_get_more(context, request));
  const NamespaceText ns(request.db, arguments->collection);
  SPILLWAY_CO_TRY(taken, co_await take_cursor(context, client, request, arguments->id, ns.view()));
  ActiveCursor cursor = *std::move(taken);
  const AtWork at_work(client, arguments->id, *cursor);
  if (auto checked = check_cursor_rights(client, *cursor); checked.has_error()) {
    co_return cursor.fail(std::move(checked.error()));
  }
  if (context.shared.fail_get_more.on()) [[unlikely]] {
    if (auto failure = planned_failure(context, client, request, *cursor)) co_return cursor.fail(*std::move(failure));
  }
  if (cursor->change_stream && context.shared.life.replaced) {
    co_return cursor.fail(Error(ErrorCode::cursor_not_found,
                                "another process serves the clients of this one: open the change stream again"));
  }
  if (arguments->await_ms && !cursor->await_data) {
    co_return cursor.fail(Error(ErrorCode::bad_value,
                                "cannot set maxTimeMS on getMore command for a non-awaitData cursor"));
  }
  if (cursor->changes) {
    auto getting =
        get_more_changes(context, request, std::move(cursor), arguments->batch_size, arguments->await_ms);
    co_return co_await getting;
  }
  if (cursor->deadline_ns != 0 && !cursor->await_data) {
    auto getting = get_more_in_time(context, request, std::move(cursor), arguments->batch_size);
    co_return co_await getting;
  }
  const bool of_stream = cursor->change_stream;
  auto getting =
      get_more_on_shards(context, request, std::move(cursor), arguments->batch_size, arguments->await_ms);
  auto got = co_await getting;
  if (of_stream && got.has_error()) co_return error_of_stream(std::move(got.error()));
  co_return got;
}

namespace {

// What TimeSlice counts for a look at a cursor.
constexpr std::size_t looked_at_bytes = 256;

}  // namespace

Task<Result<Response>> kill_cursors_command(Context& context, Client& client, const Request& request) {
  const Element collection = request.body.first();
  if (!collection.is_string()) co_return no_collection(collection);
  const ValueView cursors = request.body["cursors"];
  if (!cursors.exists()) co_return missing_field("killCursors.cursors");
  if (!cursors.is_array()) co_return wrong_type("killCursors.cursors", cursors, "array");
  const std::string ns = request.ns();
  const DocView ids = cursors.as_document();
  if (ids.empty()) co_return Error(ErrorCode::bad_value, "Must specify at least one cursor id in: killCursors");
  TimeSlice slice(context.pump);
  for (auto at = ids.begin(); !at.done(); ++at) {
    if (slice.is_over_short(looked_at_bytes / 4)) co_await slice.next();
    if (at->type != BsonType::int64) co_return wrong_type(fmt::format("killCursors.cursors.{}", at->name), *at, "long");
  }
  // One that may not be killed fails them all.
  const bool may_kill_any = may_on_cluster(context, client, auth::Action::kill_any_cursor);
  const bool matters = !may_kill_any || context.shared.audit;
  bool another_users = false;
  for (auto at = ids.begin(); matters && !another_users && !at.done(); ++at) {
    if (slice.is_over_short(looked_at_bytes)) co_await slice.next();
    another_users = context.shared.cursors.is_another_users(at->as_int64(), ns, client.user);
    if (!another_users || may_kill_any) continue;
    co_return Error(ErrorCode::unauthorized,
                    fmt::format("cursor id {} was not created by the authenticated user", at->as_int64()));
  }
  RecycledVector<std::int64_t> killed, not_found;
  std::vector<std::int64_t> at_work;
  std::vector<CursorPtr> taken;
  for (auto at = ids.begin(); !at.done(); ++at) {
    if (slice.is_over_short(looked_at_bytes)) co_await slice.next();
    auto outcome = context.shared.cursors.kill(at->as_int64(), ns);
    const bool found = outcome.outcome != CursorRegistry::KillOutcome::not_found;
    (found ? killed : not_found).push_back(at->as_int64());
    if (outcome.cursor) taken.push_back(std::move(outcome.cursor));
    if (outcome.outcome == CursorRegistry::KillOutcome::marked_in_use) at_work.push_back(at->as_int64());
  }
  if (!at_work.empty()) {
    auto interrupting = interrupt_get_mores(context, std::move(at_work));
    co_await interrupting;
  }
  if (another_users) context.shared.audit->administrative(client, request, 0);
  end_cursors(context, std::move(taken), CursorEnd::killed);
  BsonWriter reply;
  for (const bool found : {true, false}) {
    reply.begin_array(found ? "cursorsKilled" : "cursorsNotFound");
    for (const std::int64_t id : found ? killed : not_found) {
      if (slice.is_over_short(looked_at_bytes / 4)) co_await slice.next();
      reply.append_item(id);
    }
    reply.end();
  }
  reply.begin_array("cursorsAlive").end();
  reply.begin_array("cursorsUnknown").end();
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
