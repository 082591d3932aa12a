#include "proxy/exec/read/config_database.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/container/btree_set.h"
#include "cursor/bson_order.h"
#include "proxy/catalog/config_documents.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/read/document_list_stage.h"
#include "proxy/exec/read/find.h"
#include "proxy/exec/read/query_run.h"
#include "proxy/pipeline/split/run.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t distinct_too_big = 17217;
// Made in a fraction of a millisecond.
constexpr std::size_t documents_at_once = 128;

catalog::ConfigReadParams params_of(const Context& context) {
  catalog::ConfigReadParams params;
  params.host = context.shared.facts.host_name;
  params.mongo_version = emulated_version(context.gateway);
  params.cluster_id = context.shared.facts.cluster_id;
  params.start_time_ms = context.shared.facts.start_wall_ms;
  params.now_ms = wall_clock_ms();
  return params;
}

// Gives a collection's documents to the query, one by one.
Task<Result<void>> run_over(Context& context, const Request& request, std::string_view collection,
                            Result<pipeline::DocumentQuery> query) {
  if (query.has_error()) co_return query.error();
  const catalog::ConfigReadParams params = params_of(context);
  QueryRun run(context, request, *query);
  std::vector<BsonDoc> documents;
  for (std::size_t first = 0; run.wants_more(); first += documents_at_once) {
    documents.clear();
    const auto take = [&documents](BsonDoc document) {
      documents.push_back(std::move(document));
      return documents.size() < documents_at_once;
    };
    catalog::visit_config_documents(collection, request.routes->table(), params, take, first);
    for (const BsonDoc& document : documents) {
      if (!run.wants_more()) break;
      SPILLWAY_AWAIT(pushed, run.push(document));
    }
    if (documents.size() < documents_at_once) break;
  }
  co_return co_await run.finish();
}

pipeline::DocumentQuery::Take keep_in(KeptDocuments& kept) {
  return [&kept](BsonDoc document) { return kept.add(std::move(document)); };
}

pipeline::FindQuery filter_of(const Request& request) {
  pipeline::FindQuery find;
  find.filter = request.body["query"].to_document();
  return find;
}

struct ValueOrder {
  bool operator()(const BsonDoc& a, const BsonDoc& b) const {
    return compare_values(a.view().first(), b.view().first()) < 0;
  }
};

}  // namespace

const std::vector<std::string_view>& config_collections() { return catalog::config_collection_names(); }

Task<Result<Response>> answer_documents(Context& context, Client& client, const Request& request,
                                        KeptDocuments documents, std::string_view collection, FirstBatch first) {
  const std::size_t bytes = documents.used_bytes();
  // From here on the cursor pays for all of it.
  SPILLWAY_CO_TRY(kept, reserve_kept(context, request, collection, bytes, documents.take_room()));
  ActiveCursor cursor(context, make_cursor(client, request, collection, *std::move(kept)));
  cursor->stage = std::make_unique<DocumentListStage>(documents.take_documents());
  cursor->stage_finished = true;
  auto answering = answer_first_batch(context, std::move(cursor), first, request);
  co_return co_await answering;
}

Task<Result<Response>> config_find(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(find, parse_find(request.body));
  MemoryBudget& budget = context.shared.memory.cursors;
  KeptDocuments kept(budget);
  const pipeline::FindQuery query{find->filter, find->sort, find->projection, find->skip, find->limit};
  SPILLWAY_AWAIT(ran, run_over(context, request, find->collection,
                               pipeline::DocumentQuery::of_find(query, budget, keep_in(kept))));
  auto answering = answer_documents(context, client, request, std::move(kept), find->collection, find->first);
  co_return co_await answering;
}

Task<Result<Response>> config_aggregate(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(aggregate, parse_aggregate(request.body));
  MemoryBudget& budget = context.shared.memory.cursors;
  KeptDocuments kept(budget);
  SPILLWAY_AWAIT(ran, run_over(context, request, aggregate->collection,
                               pipeline::DocumentQuery::of_pipeline(aggregate->pipeline, budget, keep_in(kept))));
  auto answering =
      answer_documents(context, client, request, std::move(kept), aggregate->collection, aggregate->first);
  co_return co_await answering;
}

Task<Result<Response>> config_count(Context& context, const Request& request) {
  std::int64_t n = 0;
  const auto count = [&n](const BsonDoc&) -> Result<void> {
    ++n;
    return {};
  };
  auto running = run_over(context, request, request.body.first().to_text(),
                          pipeline::DocumentQuery::of_find(filter_of(request), context.shared.memory.replies, count));
  SPILLWAY_CO_TRY(ran, co_await running);
  n = std::max<std::int64_t>(0, n - request.body["skip"].truncated_int64().value_or(0));
  const std::int64_t limit = std::abs(request.body["limit"].truncated_int64().value_or(0));
  if (limit > 0) n = std::min(n, limit);
  co_return ok_response(BsonWriter().append("n", static_cast<std::int32_t>(n)));
}

Task<Result<Response>> config_distinct(Context& context, const Request& request) {
  const ValueView key = request.body["key"];
  if (!key.is_string()) co_return Error(ErrorCode::type_mismatch, "distinct needs a string as its key");
  MemoryBudget& budget = context.shared.memory.replies;
  KeptDocuments paid(budget);
  absl::btree_set<BsonDoc, ValueOrder> values;
  const auto add = [&](ValueView value) -> Result<void> {
    if (!values.insert(BsonWriter().append("", value).finish()).second) return {};
    return paid.charge(2 * value.bytes.size() + 128);  // here, and in the reply
  };
  const auto take = [&](const BsonDoc& document) -> Result<void> {
    const ValueView value = document.view().find_path(key.as_string());
    if (!value.is_array()) return value.exists() ? add(value) : Result<void>();
    for (const Element& item : value.as_document()) {
      if (auto added = add(item); added.has_error()) return added;
    }
    return {};
  };
  SPILLWAY_AWAIT(ran, run_over(context, request, request.body.first().to_text(),
                               pipeline::DocumentQuery::of_find(filter_of(request), budget, take)));
  BsonWriter reply;
  reply.begin_array("values");
  for (const BsonDoc& value : values) reply.append_item(value.view().first());
  reply.end();
  reply.append("ok", 1.0);
  if (reply.size() > limits::document_bytes_max) co_return Error(distinct_too_big, "distinct too big, 16mb cap");
  co_return Response(std::move(reply).finish());
}

}  // namespace spillway::exec
