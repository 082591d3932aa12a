// find: one shard passes through, several are merged.
#include "allocator/pressure.h"
#include "allocator/small_blocks.h"
#include "cursor/field_table.h"
#include "proxy/catalog/filter_bounds.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/compressed_batches.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/cursors/working_set.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/sort_projection.h"
#include "proxy/exec/streams/single_shard.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/pipeline/stages/projection.h"
#include "proxy/shard/topology.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

Result<std::int64_t> shard_limit(std::int64_t limit, std::int64_t skip) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(limit, skip, &sum)) {
    return Error(ErrorCode::overflow, "the sum of limit and skip does not fit into 64 bits");
  }
  return sum;
}

namespace {

// Leaves the number unchanged when the field is null.
Result<void> take_number(std::int64_t& number, const Element& field) {
  SPILLWAY_TRY(given, number_argument(field.name, field));
  if (!*given) return {};
  number = **given;
  if (number < 0) return negative_argument(field.name, number);
  return {};
}

Result<void> take_document(DocView& document, const Element& field) {
  if (!field.is_document() && !field.is_null()) return wrong_type(field.name, field, "object");
  if (field.is_document()) document = field.as_document();
  return {};
}

// In the order of the table's names.
enum class FindField : std::uint8_t {
  filter, sort, projection, limit, skip, batch_size, single_batch, tailable, await_data, no_cursor_timeout,
  allow_partial, collation, term
};
constexpr FieldTable<13> find_fields({"filter", "sort", "projection", "limit", "skip", "batchSize",
                                      "singleBatch", "tailable", "awaitData", "noCursorTimeout",
                                      "allowPartialResults", "collation", "term"});

Result<void> take_field(FindArguments& find, FindField which, const Element& field) {
  switch (which) {
    case FindField::filter:
      return take_document(find.filter, field);
    case FindField::sort:
      return take_document(find.sort, field);
    case FindField::projection:
      return take_document(find.projection, field);
    case FindField::limit:
      return take_number(find.limit, field);
    case FindField::skip:
      return take_number(find.skip, field);
    case FindField::batch_size:
      return field.is_null() ? Result<void>() : take_number(find.first.size.emplace(), field);
    case FindField::single_batch:
      find.first.single = field.truthy();
      break;
    case FindField::tailable:
      find.tailable = field.truthy();
      break;
    case FindField::await_data:
      find.await_data = field.truthy();
      break;
    case FindField::no_cursor_timeout:
      find.no_cursor_timeout = field.truthy();
      break;
    case FindField::allow_partial:
      find.allow_partial = field.truthy();
      break;
    case FindField::collation:
      find.collation = field;
      break;
    case FindField::term:  // of elections: a primary that hears of a later one steps down
      if (field.type != BsonType::int64) return wrong_type(field.name, field, "long");
      return Error(ErrorCode::unauthorized, "not authorized for query with term");
  }
  return {};
}

}  // namespace

Result<FindArguments> parse_find(DocView body, const ElementIndex* fields) {
  FindArguments find;
  IndexedIterator at(body, fields);
  // As collection_argument() does it, without reading the element twice.
  if (!at->is_string() || at->as_string().empty()) return collection_argument(body).error();
  find.collection = at->as_string();
  std::uint32_t seen = 0;  // of two fields with one name the first counts, as in every other lookup
  for (++at; !at.done(); ++at) {
    const std::size_t which = find_fields.find(at->name);
    if (which == find_fields.absent || (seen & 1u << which) != 0) continue;
    seen |= 1u << which;
    SPILLWAY_TRY(taken, take_field(find, static_cast<FindField>(which), *at));
  }
  if (find.await_data && !find.tailable) {
    return Error(ErrorCode::failed_to_parse,
                 "Cannot set 'awaitData' without also setting 'tailable'");
  }
  if (find.tailable && !find.sort.empty() && !find.sort["$natural"].exists()) {
    return Error(ErrorCode::bad_value,
                 "error processing query: tailable cursor requested with a sort");
  }
  if (!find.projection.empty() && find.projection["$sortKey"].exists()) {
    return Error(ErrorCode::bad_value,
                 "cannot use field '$sortKey' in a projection through a router");
  }
  return find;
}

namespace {

// The command for each of several shards.
Result<BsonDoc> scatter_command(const Request& request, const FindArguments& find,
                                const SortProjection& sort, std::int64_t batch_size) {
  BsonWriter out;
  copy_command(out, request,
               {"limit", "skip", "singleBatch", "projection", "showRecordId", "batchSize",
                "allowPartialResults"});
  // Shards of each release have their own error for another type.
  for (const std::string_view name : {"singleBatch", "allowPartialResults"}) {
    const ValueView value = request.body[name];
    if (value.exists() && !pipeline::is_switch(value) && !value.is_null()) out.append(name, value);
  }
  if (sort.changed) {
    if (!sort.projection.view().empty()) out.append("projection", sort.projection);
  } else if (!find.projection.empty()) {
    out.append("projection", find.projection);
  }
  if (find.limit > 0) {
    SPILLWAY_TRY(limit, shard_limit(find.limit, find.skip));
    out.append("limit", *limit);
  }
  // As of a mongos, documents that were merged have none.
  const ValueView shows = request.body["showRecordId"];
  const bool merges = !find.sort.empty() && find.sort.first().name != "$natural";
  if (shows.exists() && !(merges && pipeline::is_switch(shows))) out.append("showRecordId", shows);
  out.append("batchSize", batch_size);
  return std::move(out).finish();
}

std::optional<Error> take_outcomes(ClusterCursor& cursor, ShardOutcomes& outcomes) {
  std::optional<Error> failed;
  for (ShardOutcome& outcome : outcomes) {
    if (!outcome.ok()) {
      if (cursor.allow_partial && may_be_missing(outcome, ShardLoss::opening)) {
        cursor.partial = true;
      } else if (!failed) {
        failed = outcome.error;
      }
      continue;
    }
    RemoteCursor& remote = cursor.remotes.emplace_back();
    remote.shard = outcome.shard;
    auto taken = take_reply(cursor, remote, std::move(outcome.reply));
    if (taken.has_error() && !failed) failed = taken.error();
  }
  return failed;
}

}  // namespace

Task<std::optional<Error>> open_remotes(Context& context, const Request& request,
                                        ClusterCursor& cursor, const Targets& targets, DocView body,
                                        std::optional<FirstReplies> first) {
  std::vector<ShardCommand> commands;
  for (const catalog::ShardIndex shard : targets.shards) {
    commands.emplace_back(shard, targets.by(), shard::Command::of_body(body));
  }
  // Where the size is not known, the guess is large: it is not taken without need.
  const std::size_t bytes_each = first ? first->bytes_each : limits::reply_complete_bytes_max;
  if (first || is_scarce(context)) {
    auto taking = take_working_set(context, request, cursor, commands.size(), bytes_each);
    auto taken = co_await taking;
    if (taken.has_error()) co_return try_again(taken.error());
  }
  std::vector<shard::ReplyRoom> rooms(commands.size());
  shard::HeldReplies held{.least = first && first->documents == 1};
  const MemoryQueue::Holder holder = commands.size() > 1 ? &cursor : nullptr;
  const std::uint64_t each = cursor.working_set.bytes() / commands.size();
  for (std::size_t i = 0; i < commands.size(); ++i) {
    rooms[i] = {cursor.working_set.split(each), holder, &held};
    commands[i].room = &rooms[i];
  }
  shard::CallOptions options = read_options(context, request);
  options.budget = &context.shared.memory.cursors;
  if (bytes_each >= limits::reply_complete_bytes_max) options.use = shard::Use::bulk;
  auto outcomes = co_await call_shards(context, commands, options);
  for (shard::ReplyRoom& room : rooms) give_back(context, cursor, std::move(room.paid));
  cursor.remotes.reserve(outcomes.size());
  auto failed = take_outcomes(cursor, outcomes);
  if (failed && found_no_memory(*failed)) distrust_sizes(context, cursor);
  keep_working_set(context, cursor);
  co_return failed;
}

namespace {

// The first batch's size, but if the client compresses and named no size, no more than is worth compressing whole.
std::int64_t wanted_first_batch_size(const Context& context, const Request& request,
                                     const FindArguments& find) {
  const std::int64_t size = find.first.documents_max();
  const bool any_will_do = !find.first.size && !find.first.single && !find.tailable;
  if (!request.compressed || !any_will_do || !find.projection.empty()) return size;
  const NamespaceText ns(request.db, find.collection);
  const std::int64_t documents = compressed_batch_documents(context.document_sizes.of(ns.view()).mean_bytes);
  return documents > 0 ? std::min(size, documents) : size;
}

// The client's command for one shard.
shard::Command shard_find(const Context& context, const Request& request,
                            const FindArguments& find, BsonDoc& scratch) {
  const std::int64_t wanted = wanted_first_batch_size(context, request, find);
  const std::int64_t most =
      find.limit > 0 ? find.limit : std::int64_t{limits::first_batch_documents_default};
  if (find.first.size || wanted >= most) return forward_command(request, scratch);
  BsonWriter body;
  copy_command(body, request, {"batchSize"});
  body.append("batchSize", wanted);
  scratch = std::move(body).finish();
  return shard::Command::of_body(scratch);
}

// The first batch of a cursor that was opened on its shards without one.
Task<Result<Response>> pass_first_batch(Context& context, const Request& request,
                                        const FindArguments& find, ActiveCursor cursor) {
  if (auto refusal = charge_cursor(cursor->charge)) co_return *std::move(refusal);
  cursor.enroll();
  const std::int64_t size = wanted_first_batch_size(context, request, find);
  auto passed = co_await pass_one_batch(context, request, cursor, size, true);
  // The whole find may be tried again: its client has received nothing yet.
  if (passed.has_error()) co_return try_again(passed.error());
  if (*passed) co_return *std::move(*passed);
  auto answering = answer_first_batch(context, std::move(cursor), find.first, request);
  co_return co_await answering;
}

// The merge order, and what the shards must send for it: of a sort, else of a $near. Neither: documents in order of
// arrival.
Result<SortProjection> plan_merge(const Context& context, const FindArguments& find,
                                  const Targets& targets, ClusterCursor& cursor) {
  const bool sorted = !find.sort.empty();
  if (sorted && find.sort["$natural"].exists()) return SortProjection();
  if (!sorted && !catalog::orders_by_distance(find.filter)) return SortProjection();
  SPILLWAY_TRY(pattern, sorted ? SortPattern::parse(find.sort) : SortPattern::by_distance());
  const bool offered = all_offer_sort_key(context, targets.shards);
  SPILLWAY_TRY(plan, sorted ? plan_sort_projection(find.sort, find.projection, targets.simple_collation, offered)
                            : plan_distance_projection(find.projection, offered));
  cursor.merge.sort = *std::move(pattern);
  cursor.merge.sort_keys = plan->source;
  cursor.merge.strip_fields = plan->strip_fields;
  return plan;
}

// Of each shard, since the skip and the limit are applied here.
std::int64_t first_documents_wanted(const FindArguments& find) {
  const std::int64_t most = find.first.documents_max();
  const bool is_less = find.limit > 0 && find.limit < most && find.skip < most;
  return is_less ? std::min(most, find.limit + find.skip) : most;
}

Task<Result<Response>> find_on_many(Context& context, Client& client, const Request& request,
                                    const FindArguments& find, const Targets& targets) {
  SPILLWAY_CO_TRY(kept, reserve_kept(context, request, find.collection, kept_sort_bytes(find.sort)));
  ActiveCursor cursor(context, make_cursor(client, request, find.collection, *std::move(kept)));
  cursor->no_timeout = find.no_cursor_timeout;
  cursor->allow_partial = find.allow_partial;
  cursor->batch_size = find.first.size.value_or(0);
  cursor->merge.skip_remaining = find.skip;
  if (find.limit > 0) cursor->merge.limit_remaining = find.limit;
  SPILLWAY_CO_TRY(plan, plan_merge(context, find, targets, *cursor));
  if (find.tailable) {
    co_return Error(ErrorCode::illegal_operation,
                    "tailable cursors are not possible on a sharded collection");
  }
  cursor->whole_documents = find.projection.empty();
  if (auto valid = find.projection.validate(); valid.has_error()) co_return valid.error();
  expect_output(context, *cursor, find.projection);
  const std::int64_t wanted = first_documents_wanted(find);
  FirstReplies first = first_replies(context, *cursor, wanted, targets.shards.size());
  if (auto refused = refuse_new_merge(context, client, *cursor, first, targets.shards.size())) {
    co_return *std::move(refused);
  }
  // Less than a batch: one shard's own batch does better.
  const bool passes = first.documents < wanted && cursor->passes_through() && !find.first.single;
  if (passes) first = FirstReplies::none();
  const std::int64_t asked = first.documents < wanted ? first.documents : find.first.documents_max();
  TakeCopyRoom taking_room(context, request);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(body, scatter_command(request, find, *plan, asked));
  auto failed = co_await open_remotes(context, request, *cursor, targets, *body, first);
  if (failed) co_return *failed;
  *body = BsonDoc();
  room->release();
  // (A server that takes no batchSize of 0 has sent documents.)
  if (passes && cursor->passes_through()) {
    auto passing = pass_first_batch(context, request, find, std::move(cursor));
    co_return co_await passing;
  }
  auto answering = answer_first_batch(context, std::move(cursor), find.first, request);
  co_return co_await answering;
}

// The most documents in the first batch.
std::int64_t first_batch_documents_max(const FindArguments& find) {
  const std::int64_t size = find.first.documents_max();
  const std::int64_t most = find.limit > 0 ? std::min(find.limit, size) : size;
  if (most <= 1) return most;
  const ValueView id = find.filter["_id"];
  const bool one = id.exists() && !id.is_document() && id.type != BsonType::regex;
  return one ? 1 : most;
}

Task<Result<Response>> refused(Error why) { co_return why; }

Task<Result<Response>> find_on_one(Context& context, Client& client, const Request& request, const FindArguments& find,
                                   const Targets& targets) {
  CursorSeed seed{client, request, find.collection};
  seed.batch_size = find.first.size.value_or(0);
  seed.first_batch_documents = first_batch_documents_max(find);
  seed.whole_documents = find.projection.empty();
  seed.no_timeout = find.no_cursor_timeout;
  seed.tailable = find.tailable;
  seed.await_data = find.await_data;
  seed.allow_partial = find.allow_partial;
  BsonDoc rebuilt;
  const shard::Command command = shard_find(context, request, find, rebuilt);
  return open_on_one_shard(context, seed, {targets.shards.front(), targets.by(), command}, true, std::move(rebuilt));
}

Task<Result<Response>> find_in_steps(Context& context, Client& client, const Request& request, FindArguments find,
                                     Targets targets) {
  if (request.txn_number) {
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets.shards));
  }
  count_targets(context.shared.metrics.find, targets);
  if (targets.shards.size() > 1) co_return co_await find_on_many(context, client, request, find, targets);
  SPILLWAY_CO_TRY(room, room_for_copies(context, request.body.size()));
  auto answered = co_await find_on_one(context, client, request, find, targets);
  const bool missing = answered.has_error() ? is_unreachable(answered.error())
                                            : answered->failed && shard::is_retriable(answered->failure_code);
  if (!find.allow_partial || !missing) co_return answered;
  co_return BatchBuilder(context.shared.memory.replies)
      .finish("firstBatch", 0, NamespaceText(request.db, find.collection).view(), true, {});
}

// No coroutine: of most finds, one shard's answer is all that is waited for, and each frame costs.
Task<Result<Response>> run_find(Context& context, Client& client, const Request& request) {
  const auto find = parse_find(request.body, &request.message.fields);
  if (find.has_error()) return refused(find.error());
  if (reads_own_config(request)) {
    if (!request.in_transaction) return config_find(context, client, request);
    return refused(Error(ErrorCode::operation_not_supported_in_transaction,
                         "the config database cannot be read in a transaction"));
  }
  auto targets = read_targets(request, request.db, find->collection, find->filter, find->collation);
  if (targets.has_error()) return refused(targets.error());
  const bool is_long = request.body.size() > small_blocks::block_bytes_max;
  if (request.txn_number || targets->shards.size() > 1 || find->allow_partial || is_long) {
    return find_in_steps(context, client, request, *find, *std::move(targets));
  }
  count_targets(context.shared.metrics.find, *targets);
  return find_on_one(context, client, request, *find, *targets);
}

}  // namespace

Result<Targets> read_targets(const Request& request, std::string_view db, std::string_view collection,
                             DocView filter, ValueView collation) {
  Targets targets;
  const NamespaceText ns(db, collection);
  targets.routing = request.routes->collection(ns.view());
  if (targets.routing == nullptr) {
    targets.database = request.routes->database(db);
    targets.shards.insert(request.routes->primary_shard(db));
    return targets;
  }
  targets.simple_collation = is_simple_collation(collation, targets.routing);
  SPILLWAY_TRY(shards, targets.routing->target_filter(filter, targets.simple_collation));
  targets.shards = *std::move(shards);
  return targets;
}

HandlerFunction get_more_command, kill_cursors_command;

std::span<const CommandSpec> read_commands() {
  using auth::Action;
  using enum RouteNeed;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"find", "query for documents", run_find, on_collection(Action::find),
       in_transaction | secondary_ok | opens_cursor | stable, collection},
      {"getMore", "retrieve more results from an existing cursor", get_more_command, by_rule(may_get_more),
       in_transaction | secondary_ok | drains | stable},
      {"killCursors", "kill a list of cursor ids", kill_cursors_command, any_user,
       in_transaction | secondary_ok | drains | stable},
  };
  return specs;
}

}  // namespace spillway::exec
