#include "proxy/exec/read/statistics_here.h"

#include "absl/container/flat_hash_set.h"
#include "proxy/auth/crypto.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/query_run.h"
#include "proxy/pipeline/split/run.h"

namespace spillway::exec {

namespace {

// Takes the shards' documents as the stages that follow are to see them.
class Collector {
 public:
  Collector(const Routes& routes, QueryRun& into, KeptDocuments& kept, bool of_sessions)
      : routes_(routes), into_(into), kept_(kept), of_sessions_(of_sessions) {}

  Task<Result<void>> take(catalog::ShardIndex shard, DocView document) {
    if (auto valid = document.validate(); valid.has_error()) co_return valid.error();
    if (of_sessions_) co_return co_await take_session(document);
    BsonWriter named;
    named.append_elements(document);
    if (!document["shard"].exists()) named.append("shard", routes_.shard(shard).name);
    const BsonDoc made = std::move(named).finish();
    co_return co_await into_.push(made);
  }
  void renew() noexcept { into_.renew(); }

 private:
  // Several shards know a session whose client has used them.
  Task<Result<void>> take_session(DocView session) {
    const std::string_view id = auth::text_of(session["_id"].bytes);
    if (!seen_.insert(std::string(id)).second) co_return Result<void>();
    if (auto charged = kept_.charge(id.size() + seen_overhead_bytes); charged.has_error()) co_return charged;
    co_return co_await into_.push(session);
  }

  static constexpr std::size_t seen_overhead_bytes = 64;

  const Routes& routes_;
  QueryRun& into_;
  KeptDocuments& kept_;
  const bool of_sessions_;
  absl::flat_hash_set<std::string> seen_;
};

// To the end of all its cursors.
Task<Result<void>> drain(Context& context, const Request& request, ClusterCursor& cursor, Collector& into) {
  for (;;) {
    bool open = false;
    for (RemoteCursor& remote : cursor.remotes) {
      for (; remote.has_document(); remote.batches.front().pop()) {
        const DocView document = *remote.front()->peek();
        SPILLWAY_AWAIT(taken, into.take(remote.shard, document));
      }
      if (remote.damaged()) co_return malformed_reply("the batch");
      remote.batches.clear();
      open = open || remote.id != 0;
    }
    if (!open) co_return Result<void>();
    SPILLWAY_AWAIT(fetched, fetch_more(context, cursor, {request.deadline, request.interrupt, request.shard_time,
                                                         request.asks}));
    into.renew();
  }
}

BsonDoc first_stage_alone(const Request& request, DocView stage) {
  BsonWriter out;
  copy_command(out, request, {"pipeline", "cursor"});
  out.begin_array("pipeline").append_item(stage).end();
  out.begin_document("cursor").end();
  return std::move(out).finish();
}

BsonDoc others(DocView pipeline) {
  BsonWriter out;
  out.begin_array("pipeline");
  for (auto at = ++pipeline.begin(); !at.done(); ++at) out.append_item(ValueView(*at));
  out.end();
  return std::move(out).finish();
}

}  // namespace

Task<Result<Response>> statistics_here(Context& context, Client& client, const Request& request,
                                       const AggregateArguments& aggregate, const Targets& targets) {
  if (auto valid = aggregate.pipeline.validate(); valid.has_error()) co_return valid.error();
  SPILLWAY_CO_TRY(room, room_for_copies(context, request.body.size(), 2));
  const BsonDoc rest = others(aggregate.pipeline);
  const DocView stages = rest.view().first().as_document();
  if (!targets.simple_collation && stages.count() > 0) {
    co_return Error(ErrorCode::command_not_supported,
                    "stages behind statistics of several shards are not evaluated with a collation");
  }
  KeptDocuments kept(context.shared.memory.cursors);
  auto query = pipeline::DocumentQuery::of_pipeline(
      stages, context.shared.memory.cursors, [&kept](BsonDoc document) { return kept.add(std::move(document)); });
  if (query.has_error()) co_return query.error();
  const Element first = aggregate.pipeline.first();
  QueryRun run(context, request, *query);
  Collector collector(*request.routes, run, kept, first.as_document().first().name == "$listSessions");
  ActiveCursor cursor(context, make_cursor(client, request, aggregate.collection, Reservation()));
  const BsonDoc body = first_stage_alone(request, first.as_document());
  auto failed = co_await open_remotes(context, request, *cursor, targets, body);
  if (failed) co_return *std::move(failed);
  SPILLWAY_AWAIT(drained, drain(context, request, *cursor, collector));
  SPILLWAY_CO_TRY(finished, co_await run.finish());
  auto answering =
      answer_documents(context, client, request, std::move(kept), aggregate.collection, aggregate.first);
  co_return co_await answering;
}

}  // namespace spillway::exec
