#include "proxy/exec/read/change_stages.h"

#include <utility>

#include "allocator/limits.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/shard_call.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/change_lookup.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

// $documents would say it, but is one of 5.1. A shard has at least one operation, this one.
void append_one_document(BsonWriter& pipeline, std::optional<DocView> event) {
  pipeline.begin_document_item().begin_document("$currentOp").end().end();
  pipeline.begin_document_item().append("$limit", std::int32_t{1}).end();
  pipeline.begin_document_item();
  if (event) {
    pipeline.begin_document("$replaceRoot").begin_document("newRoot").append("$literal", *event).end().end();
  } else {
    pipeline.begin_document("$match").begin_array("$nor").begin_document_item().end().end().end();
  }
  pipeline.end();
}

BsonDoc command_of(DocView stages, std::optional<DocView> event) {
  BsonWriter out;
  out.append("aggregate", std::int32_t{1});
  for (const Element& field : stages) {
    if (field.name != "pipeline") {
      out.append_element(field);
      continue;
    }
    out.begin_array("pipeline");
    append_one_document(out, event);
    for (const Element& stage : field.as_document()) out.append_item(ValueView(stage));
    out.end();
  }
  out.begin_document("cursor").end();
  out.append("$db", "admin");
  return std::move(out).finish();
}

}  // namespace

BsonDoc stages_for_shard(const AggregateArguments& aggregate, DocView stages, ValueView read_preference) {
  BsonWriter out;
  out.append_array("pipeline", stages);
  out.append("collation", aggregate.collation);
  if (!aggregate.let.empty()) out.append("let", aggregate.let);
  out.append("$readPreference", read_preference);
  return std::move(out).finish();
}

Task<Result<std::optional<BsonDoc>>> run_stages_on_shard(Context& context, const Request& request,
                                                         catalog::ShardIndex shard, DocView stages,
                                                         std::optional<DocView> event) {
  constexpr std::size_t command_room_bytes = 4096;
  if (event && event->size() + stages.size() + command_room_bytes > limits::document_bytes_max) {
    co_return Error(ErrorCode::bson_object_too_large,
                    "an event of the change stream and the stages for it are larger than 16 MB");
  }
  // For the command.
  SPILLWAY_AWAIT(room, take_reservation(context, request, context.shared.memory.replies,
                                        command_room_bytes + stages.size() + (event ? event->size() : 0),
                                        "an event for the stages behind $changeStream"));
  const BsonDoc body = command_of(stages, event);
  auto call = call_shard(context, {shard, RoutedBy::nothing(), shard::Command::of_body(body)},
                         options_for_event(context, request));
  ShardOutcome outcome = co_await call;
  if (outcome.error) co_return *std::move(outcome.error);
  SPILLWAY_CO_TRY(parsed, wire::parse_cursor_reply(outcome.body()));
  const Element first = parsed->batch.first();
  if (!first.is_document()) co_return std::optional<BsonDoc>();
  if (first.as_document().validate().has_error()) co_return malformed_reply("a document");
  co_return BsonDoc(first.as_document());
}

}  // namespace spillway::exec
