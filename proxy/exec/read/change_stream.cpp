#include "proxy/exec/read/change_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "cursor/field_table.h"
#include "cursor/registry.h"
#include "cursor/resume_token.h"
#include "cursor/strip_fields.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/catalog/versions.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/batch_builder.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/parking.h"
#include "proxy/exec/cursors/pending_fetch.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/change_lookup.h"
#include "proxy/exec/read/change_stages.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/pipeline_stage.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t resume_token_not_found = 40585;   // of 4.2
constexpr std::int32_t change_stream_fatal_error = 280;  // from 4.4 on
constexpr std::int32_t change_stream_history_lost = 286;
// Copies of an event that no budget has.
constexpr std::size_t copies_free_bytes = 64 * limits::kib;
constexpr std::int32_t invalid_resume_token = 260;
constexpr std::int64_t await_ms_default = 1'000;
// A shard tells after so long what it promises, so that the others' events may leave; but not in a hurry, for clients
// that do not wait.
constexpr std::int64_t shard_await_ms_min = 100, shard_await_ms_max = 1'000;
// While a client waits, it may kill its cursor.
constexpr auto killed_check = std::chrono::seconds(1);
// An idle stream promises nothing later than what it knows of the shards.
constexpr std::uint64_t shards_known_within = std::uint64_t{10} << 32;
constexpr std::size_t stream_opening_bytes = 4096;

constexpr FieldTable<8> permitted_stages({"$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot",
                                          "$replaceWith", "$redact"});

// --- the command

// What a client asks for.
struct StreamSpec {
  DocView options;     // of $changeStream
  BsonDoc stages;      // the client's, behind it: an array
  BsonDoc pushed;      // of those, what a shard may do: a filter; {}: nothing
  BsonDoc unset;       // likewise, an $unset
  bool looks_up = false;
  ValueView token;     // of resumeAfter or startAfter
  std::uint64_t resume_time = 0;  // of the event to begin after; 0: none
  std::uint64_t begins_at = 0;    // the token's time, with which the shards begin; 0: with what the client gave
  bool after_database = false;    // behind the invalidation of a stream of a database
};

// Does a filter look at this field only through plain paths, none of which begins with `field`?
bool is_free_of(DocView filter, std::string_view field, int depth = 0) {
  if (depth > pipeline_nesting_max) return false;
  for (const Element& each : filter) {
    if (each.name == "$and" || each.name == "$or" || each.name == "$nor") {
      if (!each.is_array()) return false;
      for (const Element& clause : each.as_document()) {
        if (!clause.is_document() || !is_free_of(clause.as_document(), field, depth + 1)) return false;
      }
    } else if (each.name.starts_with('$') || each.name.substr(0, each.name.find('.')) == field) {
      return false;
    }
  }
  return true;
}

// The filter of the first $match, and the events that the router must see, whatever the client wants. Behind an
// invalidation each event tells that the database is there again.
BsonDoc pushed_filter(const StreamSpec& spec) {
  const DocView filter = leading_match(spec.stages);
  if (filter.empty() || spec.after_database || (spec.looks_up && !is_free_of(filter, "fullDocument"))) return {};
  BsonWriter out;
  out.begin_array("$or").append_item(filter);
  out.begin_document_item().append("operationType", "invalidate").end();
  if (spec.resume_time != 0) out.begin_document_item().append_timestamp("clusterTime", spec.resume_time).end();
  out.end();
  return std::move(out).finish();
}

// The fields that a stage takes away and does nothing else; empty: it does more, or is no such stage.
std::vector<std::string_view> taken_away(const Element& stage) {
  std::vector<std::string_view> fields;
  if (stage.name == "$unset" && stage.is_string()) {
    fields.push_back(stage.as_string());
  } else if (stage.name == "$unset" && stage.is_array()) {
    for (const Element& field : stage.as_document()) {
      if (!field.is_string()) return {};
      fields.push_back(field.as_string());
    }
  } else if (stage.name == "$project" && stage.is_document()) {
    for (const Element& field : stage.as_document()) {
      if (field.is_document() || field.is_string() || field.truthy()) return {};
      fields.push_back(field.name);
    }
  }
  return fields;
}

// An $unset of images of documents in front of all other stages, or behind the first $match: shards leave them out too,
// so that events stay small. The router reads none of these fields but the one that it looks up.
BsonDoc pushed_unset(const StreamSpec& spec) {
  const DocView filter = leading_match(spec.stages);
  auto stage = spec.stages.view().begin();
  if (!filter.empty()) ++stage;
  if (stage.done()) return {};
  const auto fields = taken_away(stage->as_document().first());
  BsonWriter out;
  out.begin_array("$unset");
  for (const std::string_view field : fields) {
    const std::string_view image = field.substr(0, field.find('.'));
    constexpr FieldTable<3> images({"fullDocument", "fullDocumentBeforeChange", "updateDescription"});
    if (!images.contains(image) || (spec.looks_up && image == "fullDocument")) return {};
    if (!filter.empty() && !is_free_of(filter, image)) return {};
    out.append_item(field);
  }
  out.end();
  return fields.empty() ? BsonDoc() : std::move(out).finish();
}

Result<StreamSpec> read_spec(const AggregateArguments& aggregate) {
  StreamSpec spec;
  const Element first = aggregate.pipeline.first().as_document().first();
  if (!first.is_document()) return Error(50808, "$changeStream stage expects a document as argument.");
  spec.options = first.as_document();
  if (spec.options["showMigrationEvents"].truthy()) {
    return Error(31123, "Change streams from mongos may not show migration events.");
  }
  const ValueView full = spec.options["fullDocument"];
  spec.looks_up = full.is_string() && full.as_string() == "updateLookup";
  const ValueView resume = spec.options["resumeAfter"], start = spec.options["startAfter"];
  if (resume.exists() != start.exists() && !spec.options["startAtOperationTime"].exists()) {
    spec.token = resume.exists() ? resume : start;
    const auto token = ResumeToken::parse(token_digits(spec.token));
    if (token && !token->high_water_mark) spec.resume_time = token->cluster_time;
    if (token && token->from_invalidate && resume.exists()) {
      return Error(invalid_resume_token,
                   "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate "
                   "notification.");
    }
    spec.after_database = token && token->from_invalidate && token->document_key_at == 0;
    // Shards refuse an event's token without a collection, for a collection's stream.
    const bool fits = token && (token->high_water_mark || token->document_key_at != 0 || aggregate.collection.empty());
    if (fits) spec.begins_at = token->cluster_time;
  }
  BsonWriter stages;
  std::size_t index = 0;
  for (const Element& stage : aggregate.pipeline) {
    if (index++ == 0) continue;
    const Element named = stage.to_document().first();
    if (named.name == "$changeStreamSplitLargeEvent") {
      return Error(ErrorCode::command_not_supported, "$changeStreamSplitLargeEvent over all shards is not supported");
    }
    if (!permitted_stages.contains(named.name)) {
      return Error(ErrorCode::illegal_operation,
                   fmt::format("{} is not permitted in a $changeStream pipeline", named.name));
    }
    stages.append(std::to_string(index - 2), ValueView(stage));
  }
  spec.stages = std::move(stages).finish();
  spec.pushed = pushed_filter(spec);
  spec.unset = pushed_unset(spec);
  return spec;
}

// Without a beginning, which comes in front of everything else.
void append_options(BsonWriter& out, DocView options) {
  for (const Element& option : options) {
    const bool begins =
        option.name == "resumeAfter" || option.name == "startAfter" || option.name == "startAtOperationTime";
    const bool looks_up =
        option.name == "fullDocument" && option.is_string() && option.as_string() == "updateLookup";
    if (!begins && !looks_up) out.append_element(option);
  }
}

// The command for each shard, without a beginning.
BsonDoc command_for_shards(const Context& context, const Request& request, const StreamSpec& spec) {
  BsonWriter out;
  copy_command(out, request, {"pipeline", "cursor", "readConcern", "maxTimeMS"});
  out.begin_array("pipeline");
  out.begin_document_item().begin_document("$changeStream");
  append_options(out, spec.options);
  out.end().end();
  if (!spec.pushed.view().empty()) out.begin_document_item().append("$match", spec.pushed).end();
  if (!spec.unset.view().empty()) out.append_item(spec.unset.view());
  out.end();
  out.append("fromMongos", true);
  std::int32_t oldest = config_wire_version(context), newest = oldest;
  for (const catalog::ShardIndex shard : request.routes->all_shards()) {
    const std::int32_t of_shard = context.gateway.capabilities(shard).max_wire_version;
    if (of_shard != 0) oldest = std::min(oldest, of_shard);
    newest = std::max(newest, of_shard);
  }
  // Shards from 6.0 on take it for an older router's, and leave pre- and post-images to that. Source: mongod's
  // document_source_change_stream.cpp.
  if (oldest < wire_version_of_6_0) out.append("needsMerge", true);
  if (oldest < wire_version_of_4_4) out.append("mergeByPBRT", true);
  // While shards are upgraded, all make the tokens that 6.0 makes: those of one time must have one order. From 8.0 on
  // they do not know this option; before 6.0 neither. Source: mongod's run_aggregate.cpp.
  if (oldest == wire_version_of_6_0 && newest > oldest && newest <= wire_version_of_7_0) {
    out.append("$_generateV2ResumeTokens", false);
  }
  out.begin_document("cursor").append("batchSize", 0).end();
  // Whatever the cluster's default is, and from whichever member.
  if (request.read_concern.exists()) {
    out.append("readConcern", request.read_concern);
  } else {
    out.begin_document("readConcern").append("level", "majority").end();
  }
  return std::move(out).finish();
}

// … with this beginning, as options.
BsonDoc command_beginning(DocView command, DocView beginning) {
  BsonWriter out;
  for (const Element& field : command) {
    if (field.name != "pipeline") {
      out.append_element(field);
      continue;
    }
    out.begin_array("pipeline");
    bool first = true;
    for (const Element& stage : field.as_document()) {
      if (!std::exchange(first, false)) {
        out.append_item(ValueView(stage));
        continue;
      }
      out.begin_document_item().begin_document("$changeStream").append_elements(beginning);
      out.append_elements(stage.as_document().first().as_document()).end().end();
    }
    out.end();
  }
  return std::move(out).finish();
}

BsonDoc beginning_at(std::uint64_t time) {
  return BsonWriter().append_timestamp("startAtOperationTime", time).finish();
}

// Where all shards begin: at the time of an event that only one of them may have. From 6.0 on a shard that is told its
// token looks for the event itself, fails where another shard has it, and keeps it back where it has it; and tokens of
// other releases have another form. So this router looks for it. Source: mongod's document_source_change_stream.cpp.
BsonDoc beginning_of(const Context& context, const StreamSpec& spec, ChangeStream& stream) {
  if (spec.begins_at != 0) {
    stream.began_at = spec.begins_at;
    return beginning_at(spec.begins_at);
  }
  BsonWriter out;
  for (const std::string_view name : {"resumeAfter", "startAfter", "startAtOperationTime"}) {
    const Element option = spec.options.find(name);
    if (!option.exists()) continue;
    out.append_element(option);
    if (const auto time = catalog::read_timestamp(option)) stream.began_at = *time;
  }
  BsonDoc given = std::move(out).finish();
  if (!given.view().empty()) return given;
  // The config servers have just told the time: this router's own may be that of its last command.
  stream.began_at = context.shared.clock.now() + 1;
  return beginning_at(stream.began_at);
}

// --- opening

Targets all_of(const catalog::ShardSet& shards) {
  Targets targets;
  targets.shards = shards;
  return targets;
}

Error no_room(Context& context, const ChangeStream& stream) {
  return memory_refused(context.shared.memory.cursors, stream.command.size(), "what a change stream keeps");
}

// Opens the stream on these shards, too.
Task<std::optional<Error>> open_on(Context& context, const Request& request, ClusterCursor& cursor,
                                   catalog::ShardSet shards, BsonDoc beginning) {
  const std::size_t before = cursor.remotes.size();
  const BsonDoc body = command_beginning(cursor.changes->command, beginning);
  const Targets targets = all_of(shards);
  auto failed = co_await open_remotes(context, request, cursor, targets, body,
                                       FirstReplies{0, stream_opening_bytes});
  if (failed) co_return failed;
  if (cursor.remotes.size() != before + shards.size() || !cursor.changes->is_promised(cursor.remotes.size())) {
    co_return Error(ErrorCode::command_not_supported, "a shard's change streams have no resume tokens");
  }
  if (!cursor.changes->pay(context.shared.memory.cursors)) co_return no_room(context, *cursor.changes);
  co_return std::nullopt;
}

Response empty_stream(const Request& request, std::string_view collection) {
  const NamespaceText ns(request.db, collection);
  MemoryBudget none("nothing", 0);
  return BatchBuilder(none).finish("firstBatch", 0, ns.view(), false);
}

// CommandNotSupported(115): a shard can run them.
Result<std::unique_ptr<DocumentStage>> stages_here(Context& context, const AggregateArguments& aggregate,
                                                   const StreamSpec& spec) {
  if (spec.stages.view().empty()) return nullptr;
  if (!is_simple_collation(aggregate.collation) || !aggregate.let.empty()) {
    return Error(ErrorCode::command_not_supported, "a collation or variables");
  }
  auto parsed = std::make_unique<pipeline::Meter>(context.shared.memory.cursors, "the parsed pipeline",
                                                  pipeline::any_number_of_bytes);
  pipeline::ParseScope scope(parsed.get());
  scope.refuse_partial();  // at an event it would be too late: a stream that resumes meets the same one again
  SPILLWAY_TRY(stages, pipeline::parse_stages(spec.stages, std::move(scope)));
  return std::make_unique<PipelineStage>(*std::move(stages), std::move(parsed), context.shared.memory.cursors);
}

// Errors after which a driver opens the stream again. Drivers of servers before 4.4 know them by their codes.
bool is_resumable(std::int32_t code) noexcept {
  static constexpr std::int32_t codes[] = {6,   7,   43,  63,  89,   91,    133,   150,   189,
                                           234, 262, 462, 9001, 10107, 11600, 11602, 13388, 13435, 13436};
  return std::find(std::begin(codes), std::end(codes), code) != std::end(codes);
}

}  // namespace

Error error_of_stream(Error error) {
  const auto label = [&error](const char* name) {
    if (!has_label(error, name)) error.labels.emplace_back(name);
  };
  // It has left the cluster: a stream over the others goes on.
  if (error.is(ErrorCode::shard_not_found)) error.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);
  if (is_resumable(error.code)) label("ResumableChangeStreamError");
  // Drivers for servers before 4.4 begin again after all others. Source: mongod's error_codes.err.
  if (error.code == change_stream_fatal_error || error.code == change_stream_history_lost) {
    label("NonResumableChangeStreamError");
  }
  return error;
}

Task<Result<Response>> open_change_stream(Context& context, Client& client, const Request& request,
                                          const AggregateArguments& aggregate) {
  if (request.in_transaction) {
    co_return Error(ErrorCode::operation_not_supported_in_transaction,
                    "Operation not permitted in transaction :: $changeStream");
  }
  if (auto valid = aggregate.pipeline.validate(); valid.has_error()) co_return valid.error();
  TakeCopyRoom taking_room(context, request, 4);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(spec, read_spec(aggregate));
  auto stages = stages_here(context, aggregate, *spec);
  const bool by_shard = stages.has_error() && stages.error().is(ErrorCode::command_not_supported);
  if (stages.has_error() && !by_shard) co_return std::move(stages.error());
  if (auto refused = refuse_new_cursor(context, client)) co_return *std::move(refused);
  // All shards that there are at the time at which the stream begins, which this tells, too.
  const RouteWait wait{.deadline = request.deadline, .interrupt = request.interrupt};
  const auto known = co_await know_shards(context, context.shared.clock.now() + 1, wait);
  if (known.has_error()) co_return error_of_stream(known.error());
  const auto routes = context.router->resolve({});
  Request routed = request;
  if (routes) routed.routes = &*routes;
  const std::string_view collection = aggregate.collection.empty() ? "$cmd.aggregate" : aggregate.collection;
  const catalog::ShardSet shards = routed.routes->all_shards();
  if (shards.size() == 0) co_return empty_stream(request, collection);
  BsonDoc for_shard = by_shard ? stages_for_shard(aggregate, spec->stages, request.body["$readPreference"]) : BsonDoc();
  if (by_shard) {
    SPILLWAY_AWAIT(parsed, run_stages_on_shard(context, routed, shards.front(), for_shard, std::nullopt));
  }
  SPILLWAY_CO_TRY(kept, reserve_kept(context, request, collection));
  ActiveCursor cursor(context, make_cursor(client, request, collection, *std::move(kept)));
  cursor->tailable = cursor->await_data = cursor->change_stream = true;
  cursor->batch_size = aggregate.first.size.value_or(0);
  if (!by_shard) cursor->stage = *std::move(stages);
  cursor->changes = std::make_unique<ChangeStream>();
  ChangeStream& stream = *cursor->changes;
  stream.stages = std::move(for_shard);
  stream.command = command_for_shards(context, routed, *spec);
  stream.looks_up = spec->looks_up;
  stream.waiting = std::make_shared<PendingFetch>();
  BsonDoc beginning = beginning_of(context, *spec, stream);
  stream.shards_known_at = std::max(*known, stream.began_at);
  if (spec->resume_time != 0) {
    const bool of_4_2 = config_wire_version(context) < wire_version_of_4_4;
    stream.resume_after(spec->token.as_document(), of_4_2 ? resume_token_not_found : change_stream_fatal_error);
  } else if (!token_digits(spec->token).empty()) {
    stream.begin_at(spec->token.as_document());
  }
  auto opening = open_on(context, routed, *cursor, shards, std::move(beginning));
  auto failed = co_await opening;
  if (failed) co_return error_of_stream(*std::move(failed));
  stream.settle(cursor->remotes);
  room->release();
  co_return cursor.answer(BatchBuilder(context.shared.memory.replies), "firstBatch", BatchOrigin::merged, Keep::always);
}

// --- getMore

namespace {

// A getMore under way.
struct Filling {
  Context& context;
  const Request& request;
  ClusterCursor& cursor;
  std::int64_t batch_size;  // 0: none given
  BatchBuilder batch;
  bool waits = false;  // every shard is needed for the next event

  ChangeStream& stream() const noexcept { return *cursor.changes; }
  PendingFetch& pending() const noexcept { return static_cast<PendingFetch&>(*stream().waiting); }
  bool is_full() const noexcept {
    return batch_size > 0 && static_cast<std::int64_t>(batch.count()) >= batch_size;
  }

  // The shards' replies that have come.
  Result<void> take_replies() {
    const TimePoint now = Clock::now();
    auto arrived = pending().take();
    for (PendingFetch::Arrived& each : arrived) {
      if (!each.outcome.ok()) return *std::move(each.outcome.error);
      RemoteCursor& remote = cursor.remotes[each.remote];
      if (auto taken = take_reply(cursor, remote, std::move(each.outcome.reply)); taken.has_error()) return taken;
      if (remote.has_document() || remote.damaged()) continue;
      remote.batches.clear();
      pending().note_empty(each.remote, now);
    }
    if (!arrived.empty() && !stream().pay(context.shared.memory.cursors)) return no_room(context, stream());
    return {};
  }

  // Asks those that have nothing here and are not being asked.
  void ask(TimePoint deadline) {
    const TimePoint now = Clock::now();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
    const std::int64_t await_ms = std::clamp<std::int64_t>(left, shard_await_ms_min, shard_await_ms_max);
    for (std::size_t i = 0; i < cursor.remotes.size(); ++i) {
      const RemoteCursor& remote = cursor.remotes[i];
      if (remote.id == 0 || remote.has_document() || !remote.parked.empty() || !pending().may_ask(i, now)) continue;
      pending().ask(context, cursor, i, await_ms);
    }
  }

  Task<Result<void>> unpark_all() {
    for (RemoteCursor& remote : cursor.remotes) {
      if (!remote.must_unpark()) continue;
      SPILLWAY_AWAIT(unparked, unpark(context, remote, request.interrupt));
    }
    co_return Result<void>();
  }

  // The event as the client's stages make it; nullopt: they drop it.
  Result<std::optional<BsonDoc>> staged(DocView event) {
    DocumentStage& stage = *cursor.stage;
    if (auto pushed = stage.push(event); pushed.has_error()) return std::move(pushed.error());
    do {
      SPILLWAY_TRY(next, stage.front());
      if (*next != nullptr) return std::optional(stage.pop());
    } while (stage.busy());
    return std::optional<BsonDoc>();
  }

  Result<bool> put(Bytes elements) {
    if (!batch.fits(elements.size() + 5)) return false;
    auto added = batch.append_elements(elements);
    if (added.has_value()) return true;
    if (added.error().is(ErrorCode::ingress_request_rate_limit_exceeded) && batch.count() > 0) return false;
    return std::move(added.error());
  }

  // Puts an event into the batch. False: the batch must be sent first.
  Task<Result<bool>> put_event(DocView event, catalog::ShardIndex shard) {
    static const std::vector<std::string> sort_key{"$sortKey"};
    const Element operation = event.find("operationType");
    const bool looks_up = stream().looks_up && operation.is_string() && operation.as_string() == "update";
    const bool staged_by_shard = !stream().stages.view().empty();
    if (!looks_up && !cursor.stage && !staged_by_shard) {
      const Element key = event.find("$sortKey");
      if (!key.exists()) co_return put({event.data() + 4, event.size() - 5});
      if (const auto before = elements_before_last(event, key)) co_return put(*before);
    }
    if (event.validate().has_error()) co_return malformed_reply("an event");
    std::optional<LookedUp> changed;
    if (looks_up) {
      SPILLWAY_CO_TRY(found, co_await look_up_changed(context, request, event, stream().read_preference()));
      changed = *std::move(found);
    }
    // Copies that last while a shard runs the stages are paid for; the others end before there is a wait.
    const std::size_t copied_bytes = event.size() + (changed ? changed->document.size() : 0);
    Reservation room;
    if (staged_by_shard && copied_bytes > copies_free_bytes) {
      SPILLWAY_AWAIT(taken, take_reservation(context, request, context.shared.memory.cursors, copied_bytes,
                                             "an event whose stages a shard runs"));
      room = *std::move(taken);
    }
    BsonDoc made = copy_without(event, sort_key);
    if (looks_up) {
      SPILLWAY_CO_TRY(with, with_document(made, changed));
      made = *std::move(with);
      changed.reset();
    }
    if (cursor.stage || staged_by_shard) {
      Result<std::optional<BsonDoc>> output = std::nullopt;
      if (cursor.stage) {
        output = staged(made);
      } else {
        output = co_await run_stages_on_shard(context, request, shard, stream().stages, made);
      }
      if (output.has_error()) co_return std::move(output.error());
      if (!*output) co_return true;
      if ((**output).view()["_id"] != event["_id"]) co_return changed_id(event, **output);
      made = **std::move(output);
    }
    co_return put({made.view().data() + 4, made.size() - 5});
  }

  static Result<BsonDoc> with_document(DocView event, const std::optional<LookedUp>& found) {
    if (found && event.size() + found->document.size() > limits::document_bytes_max) {
      return Error(ErrorCode::bson_object_too_large,
                   "an event of the change stream and the document that was looked up are larger than 16 MB");
    }
    BsonWriter out;
    out.append_elements(event, [](std::string_view name) { return name != "fullDocument"; });
    if (found) {
      out.append("fullDocument", found->document);
    } else {
      out.append_null("fullDocument");
    }
    return std::move(out).finish();
  }

  static Error changed_id(DocView event, DocView made) {
    return {change_stream_fatal_error,
            fmt::format("Encountered an event whose _id field, which contains the resume token, was modified by the "
                        "pipeline. Modifying the _id field of an event makes it impossible to resume the stream from "
                        "that point. Only transformations that retain the unmodified _id field are allowed. Expected: "
                        "{{ _id: {} }} but found: {}",
                        to_json(event["_id"]),
                        made["_id"].exists() ? fmt::format("{{ _id: {} }}", to_json(made["_id"])) : "{}")};
  }

  Task<Result<void>> open(catalog::ShardSet shards, std::uint64_t time) {
    Request without_await = request;
    without_await.deadline = time_point_never;
    auto opening = open_on(context, without_await, cursor, shards, beginning_at(time));
    if (auto failed = co_await opening) co_return *std::move(failed);
    co_return Result<void>();
  }

  // Looks which shards there are at this time, and opens the stream on those that are new. Their first events come
  // after the last time at which they were not there. If the config servers do not tell, the events wait.
  Task<Result<void>> look_for_shards(std::uint64_t time, TimePoint deadline) {
    const TimePoint now = Clock::now();
    const TimePoint soon = now + std::chrono::milliseconds(shard_await_ms_min);
    const RouteWait wait{.deadline = std::clamp(deadline, soon, now + killed_check), .interrupt = request.interrupt};
    const auto known = co_await know_shards(context, time, wait);
    if (known.has_error()) {
      log::debug("the shards of a change stream are not known: {}", known.error().message);
      co_return Result<void>();
    }
    const auto routes = context.router->resolve({});
    if (!routes) co_return Result<void>();
    catalog::ShardSet added;
    for (const catalog::ShardIndex shard : routes->all_shards()) {
      const bool has = std::any_of(cursor.remotes.begin(), cursor.remotes.end(),
                                   [&](const RemoteCursor& remote) { return remote.shard == shard; });
      if (!has) added.insert(shard);
    }
    if (added.size() > 0) {
      SPILLWAY_AWAIT(opened, open(added, std::max(stream().shards_known_at, stream().began_at)));
    }
    stream().shards_known_at = std::max(stream().shards_known_at, *known);
    co_return Result<void>();
  }

  // Moves events that are here into the batch, until it is full or a shard must be asked.
  Task<Result<void>> fill(TimePoint deadline) {
    TimeSlice slice(context.pump);
    std::size_t step_bytes = 0;
    waits = false;
    while (!is_full()) {
      if (slice.is_over(std::exchange(step_bytes, 0))) co_await slice.next();
      if (const Error* why = shard::requested_of(request.interrupt)) co_return *why;
      SPILLWAY_AWAIT(unparked, unpark_all());
      SPILLWAY_CO_TRY(next, stream().next(cursor.remotes));
      using Kind = ChangeStream::Next::Kind;
      switch (next->kind) {
        case Kind::skipped: continue;
        case Kind::passed: {
          // To 6.0 a shard's cursor goes on behind an invalidation, from 7.0 on it ends.
          RemoteCursor& before = cursor.remotes[next->remote];
          kill_remote(context, cursor, before);
          before.drop_documents();
          catalog::ShardSet shard;
          shard.insert(before.shard);
          SPILLWAY_AWAIT(opened, open(shard, next->time + 1));
          continue;
        }
        case Kind::unknown: {
          if (batch.count() > 0) co_return Result<void>();
          SPILLWAY_AWAIT(looked, look_for_shards(next->time, deadline));
          if (stream().shards_known_at >= next->time) continue;
          waits = true;
          co_return Result<void>();
        }
        case Kind::wait: waits = true; co_return Result<void>();
        case Kind::end: co_return Result<void>();
        case Kind::event: break;
      }
      step_bytes = next->event.size();
      SPILLWAY_CO_TRY(fitted, co_await put_event(next->event, cursor.remotes[next->remote].shard));
      if (!*fitted) co_return Result<void>();
      stream().take(cursor.remotes, *next);
    }
    co_return Result<void>();
  }
};

Task<Result<void>> fill_changes(Filling& filling, TimePoint deadline) {
  const std::uint64_t heard = filling.context.shared.clock.now();
  if (heard > filling.stream().shards_known_at + shards_known_within) {
    SPILLWAY_AWAIT(looked, filling.look_for_shards(heard, deadline));
  }
  for (;;) {
    if (auto taken = filling.take_replies(); taken.has_error()) co_return taken;
    SPILLWAY_AWAIT(moved, filling.fill(deadline));
    if (!filling.waits || filling.batch.count() > 0) co_return Result<void>();
    // Also of a client that does not wait: its next getMore finds what has come.
    filling.ask(deadline);
    const TimePoint now = Clock::now();
    if (now >= deadline) co_return Result<void>();
    if (filling.context.shared.cursors.killed(filling.cursor.id)) {
      co_return Error(ErrorCode::cursor_killed, fmt::format("cursor id {} was killed", filling.cursor.id));
    }
    const TimePoint look = std::min({deadline, now + killed_check, filling.pending().next_ask(now)});
    shard::ShardWait shards(filling.request.shard_time);
    shards.begin();
    auto waiting = filling.pending().wait(filling.context, look, filling.request.interrupt);
    co_await waiting;
  }
}

}  // namespace

Task<Result<Response>> get_more_changes(Context& context, const Request& get_more, ActiveCursor cursor,
                                        std::int64_t batch_size, std::optional<std::int64_t> await_ms) {
  Request request = get_more;  // with the stream's read preference, for lookups and for shards that join
  const ValueView preference = cursor->changes->read_preference();
  request.has_read_preference = preference.is_document();
  if (request.has_read_preference) {
    SPILLWAY_CO_TRY(parsed, shard::ReadPreference::parse(preference.as_document()));
    request.read_preference = *std::move(parsed);
  }
  Filling filling{context, request, *cursor, batch_size, BatchBuilder(context.shared.memory.replies)};
  const TimePoint deadline = request.arrived + std::chrono::milliseconds(await_ms.value_or(await_ms_default));
  auto filled = co_await fill_changes(filling, deadline);
  if (filled.has_error()) co_return error_of_stream(cursor.fail(filled.error()));
  if (filling.waits) cursor->changes->settle(cursor->remotes);
  if (!cursor->changes->pay(context.shared.memory.cursors)) {
    Error refusal = no_room(context, *cursor->changes);
    co_return error_of_stream(cursor.fail(std::move(refusal)));
  }
  co_return cursor.answer(std::move(filling.batch), "nextBatch", BatchOrigin::merged);
}

}  // namespace spillway::exec
