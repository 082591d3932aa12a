#include "proxy/exec/config_reads.h"

#include <fmt/format.h>

#include <algorithm>

#include "cursor/bson_order.h"
#include "proxy/catalog/config_reads.h"
#include "proxy/exec/aggregate.h"
#include "proxy/exec/cursor_ops.h"
#include "proxy/exec/find.h"
#include "proxy/exec/hello.h"
#include "proxy/exec/listed_stage.h"
#include "proxy/exec/pipeline/run.h"

namespace spillway::exec {

namespace {

std::vector<BsonDoc> documents_of(const Context& context, std::string_view collection) {
  catalog::ConfigReadParams params;
  params.host = context.shared.facts.host_name;
  params.mongo_version = emulated_version(context);
  params.cluster_id = context.shared.facts.cluster_id;
  params.start_time_ms = context.shared.facts.start_wall_ms;
  params.now_ms = wall_clock_ms();
  return catalog::config_documents(collection, context.routing(), params).value_or(std::vector<BsonDoc>());
}

std::string_view first_string(DocView body) {
  const Element first = body.first();
  return first.is_string() ? first.as_string() : std::string_view();
}

Result<std::vector<BsonDoc>> matching(Context& context, const Request& request) {
  const std::vector<BsonDoc> all = documents_of(context, first_string(request.body));
  const ValueView query = request.body["query"];
  pipeline::FindQuery find;
  if (query.is_document()) find.filter = query.as_document();
  return pipeline::run_find(all, find, context.shared.reply_memory);
}

}  // namespace

const std::vector<std::string_view>& config_collections() { return catalog::config_collection_names(); }

Task<Result<Response>> answer_documents(Context& context, Client& client, const Request& request,
                                        std::vector<BsonDoc> documents, std::string_view collection,
                                        std::int64_t batch_size, bool batch_size_given, bool single_batch) {
  std::size_t bytes = 0;
  for (const BsonDoc& document : documents) bytes += document.size();
  auto kept = reserve_kept(context, request, collection, bytes);
  if (kept.has_error()) co_return std::move(kept.error());
  CursorPtr cursor = make_cursor(client, request, collection, *std::move(kept));
  cursor->stage = std::make_unique<ListedStage>(std::move(documents));
  cursor->stage_finished = true;
  auto answering = answer_first_batch(context, std::move(cursor), batch_size, batch_size_given, single_batch,
                                      request);
  co_return co_await answering;
}

Task<Result<Response>> config_find(Context& context, Client& client, const Request& request) {
  auto find = parse_find(request.body);
  if (find.has_error()) co_return find.error();
  const std::vector<BsonDoc> all = documents_of(context, find->collection);
  pipeline::FindQuery query{find->filter, find->sort, find->projection, find->skip, find->limit};
  auto found = pipeline::run_find(all, query, context.shared.reply_memory);
  if (found.has_error()) co_return found.error();
  auto answering = answer_documents(context, client, request, *std::move(found), find->collection,
                                    find->batch_size, find->batch_size_given, find->single_batch);
  co_return co_await answering;
}

Task<Result<Response>> config_aggregate(Context& context, Client& client, const Request& request) {
  auto aggregate = parse_aggregate(request.body);
  if (aggregate.has_error()) co_return aggregate.error();
  const std::vector<BsonDoc> all = documents_of(context, aggregate->collection);
  auto valid = aggregate->pipeline.validate();
  if (valid.has_error()) co_return valid.error();
  auto results = pipeline::run_pipeline(all, aggregate->pipeline, context.shared.reply_memory);
  if (results.has_error()) co_return results.error();
  auto answering = answer_documents(context, client, request, *std::move(results), aggregate->collection,
                                    aggregate->batch_size, aggregate->batch_size_given, false);
  co_return co_await answering;
}

Result<Response> config_count(Context& context, const Request& request) {
  auto found = matching(context, request);
  if (found.has_error()) return found.error();
  auto n = static_cast<std::int64_t>(found->size());
  n = std::max<std::int64_t>(0, n - request.body["skip"].to_int64().value_or(0));
  const std::int64_t limit = std::abs(request.body["limit"].to_int64().value_or(0));
  if (limit > 0) n = std::min(n, limit);
  BsonWriter reply;
  reply.append("n", static_cast<std::int32_t>(n)).append("ok", 1.0);
  return Response(std::move(reply).finish());
}

Result<Response> config_distinct(Context& context, const Request& request) {
  const ValueView key = request.body["key"];
  if (!key.is_string()) return Error(ErrorCode::type_mismatch, "distinct needs a string as its key");
  auto found = matching(context, request);
  if (found.has_error()) return found.error();
  std::vector<ValueView> values;
  for (const BsonDoc& document : *found) {
    const ValueView value = document.view().find_path(key.as_string());
    if (value.is_array()) {
      for (auto at = value.as_document().begin(); !at.done(); ++at) values.push_back(*at);
    } else if (value.exists()) {
      values.push_back(value);
    }
  }
  std::sort(values.begin(), values.end(), [](ValueView a, ValueView b) { return compare_values(a, b) < 0; });
  values.erase(std::unique(values.begin(), values.end(),
                           [](ValueView a, ValueView b) { return compare_values(a, b) == 0; }),
               values.end());
  BsonWriter reply;
  reply.begin_array("values");
  for (const ValueView value : values) reply.append_item(value);
  reply.end();
  reply.append("ok", 1.0);
  return Response(std::move(reply).finish());
}

}  // namespace spillway::exec
