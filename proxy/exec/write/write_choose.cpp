#include "proxy/exec/write/write_choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string>
#include <vector>

#include "cursor/sort_pattern.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/read/sort_projection.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

bool has_position(std::string_view path) noexcept {
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    const std::string_view part = path.substr(start, dot - start);
    if (!part.empty() &&
        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); })) {
      return true;
    }
    start = dot + 1;
  }
  return false;
}

// {_id: 1, <paths>: 1, <sort paths>: 1}; nullopt when a projection cannot carry the paths: then the whole document is
// requested.
std::optional<BsonDoc> projection_of(const SortPattern& sort, std::vector<std::string> paths) {
  paths.emplace_back("_id");
  for (const SortPattern::Part& part : sort.parts()) {
    if (!part.meta && !part.path.empty()) paths.push_back(part.path);
  }
  if (std::any_of(paths.begin(), paths.end(), has_position)) return std::nullopt;
  std::sort(paths.begin(), paths.end());
  BsonWriter out;
  std::string last;
  for (const std::string& path : paths) {
    if (!last.empty() && (path == last || path.starts_with(last + "."))) continue;
    out.append(path, std::int32_t{1});
    last = path;
  }
  return std::move(out).finish();
}

BsonDoc choosing_find(const Context& context, const Request& request, std::string_view collection,
                      const Statement& statement, DocView projection) {
  BsonWriter out;
  out.append("find", collection);
  out.append("filter", statement.query);
  if (!statement.sort.empty()) out.append("sort", statement.sort);
  if (!projection.empty()) out.append("projection", projection);
  out.append("limit", std::int64_t{1});
  out.append("singleBatch", true);
  out.append("collation", statement.collation).append("hint", statement.hint);
  for (const std::string_view field : {"let", "encryptionInformation"}) out.append(field, request.body[field]);
  // Within a transaction it sees the transaction's writes. Before the first statement is sent there are none.
  const bool within = request.in_transaction && !request.start_transaction;
  append_generic_arguments(out, request,
                           {"writeConcern", "$readPreference", "stmtId", "startTransaction", within ? "" : "txnNumber",
                            within ? "" : "autocommit", within ? "" : "readConcern"});
  // A write sees the latest documents, whatever reads see by default, and whatever the transaction will.
  const ValueView asked = request.body["readConcern"];
  if (!within && (context.in_cluster() || asked.exists())) {
    out.begin_document("readConcern").append("level", "local");
    out.append("afterClusterTime", asked.to_document()["afterClusterTime"]).end();
  }
  return std::move(out).finish();
}

}  // namespace

Task<ChoiceOutcome> choose_document(Context& context, const Request& request,
                                    std::string_view collection, const Statement& statement,
                                    const catalog::ShardSet& shards, RoutedBy by,
                                    std::vector<std::string> paths) {
  ChoiceOutcome result;
  const bool several = shards.size() > 1;
  const bool offered = all_offer_sort_key(context, shards);
  const bool by_distance = several && offered && statement.sort.empty() && catalog::orders_by_distance(statement.query);
  auto sort = by_distance ? Result<SortPattern>(SortPattern::by_distance()) : SortPattern::parse(statement.sort);
  if (sort.has_error()) {
    result.error = sort.error();
    co_return result;
  }
  BsonDoc projection = projection_of(*sort, std::move(paths)).value_or(BsonDoc());
  // Only the shards compare by a collation, and know scores and distances.
  const bool theirs = sort->has_meta() || (!sort->empty() && !statement.simple_collation);
  const bool shards_tell_keys = theirs && several;
  if (shards_tell_keys) {
    auto plan = by_distance ? plan_distance_projection(projection, offered)
                            : plan_sort_projection(statement.sort, projection, false, offered);
    if (plan.has_error()) {
      result.error = plan.error();
      co_return result;
    }
    projection = std::move(plan->projection);
  }
  const BsonDoc body = choosing_find(context, request, collection, statement, projection);
  shard::CallOptions options = read_options(context, request);
  options.read_preference = nullptr;
  auto outcomes = co_await call_shards(context, shards, by, shard::Command::of_body(body), options);
  std::string best;
  for (ShardOutcome& outcome : outcomes) {
    if (outcome.error) {
      result.error = outcome.error;
      result.lost = !outcome.answered();
      result.choice.reset();
      co_return result;
    }
    auto cursor = wire::parse_cursor_reply(outcome.body());
    if (cursor.has_error()) {
      result.error = cursor.error();
      co_return result;
    }
    if (cursor->batch.empty()) continue;
    const Element first = cursor->batch.first();
    if (!first.is_document() || cursor->batch.validate().has_error()) {
      result.error = malformed_reply("the batch");
      co_return result;
    }
    std::string key;
    const DocView document = first.as_document();
    Result<void> keyed;
    if (shards_tell_keys) {
      keyed = sort->append_key_from_sort_key(key, document["$sortKey"]);
    } else if (several) {
      keyed = sort->append_key(key, document);
    }
    if (keyed.has_error()) {
      result.error = keyed.error();
      co_return result;
    }
    if (result.choice && !(key < best)) continue;
    best = std::move(key);
    result.choice = Choice{outcome.shard, BsonDoc(document)};
  }
  co_return result;
}

BsonDoc both_filters(DocView one, DocView other) {
  return BsonWriter().begin_array("$and").append_item(one).append_item(other).end().finish();
}

BsonDoc match_nothing() {
  return BsonWriter().begin_document("_id").begin_array("$in").end().end().finish();
}

namespace {

// For the chosen document alone, as long as it matches `unchanged` and has the values that it is sorted by (those that
// are no arrays, nor within arrays). Operators that refer to array positions keep working.
BsonDoc narrow_filter(const Statement& statement, DocView chosen, DocView unchanged) {
  const DocView filter = statement.query;
  BsonWriter out;
  if (!filter.find("_id").exists() && unchanged.empty() && statement.sort.empty()) {
    out.append_elements(filter);
    out.append("_id", chosen["_id"]);
    return std::move(out).finish();
  }
  out.append("_id", chosen["_id"]);
  out.append_elements(unchanged);
  for (const Element& field : statement.sort) {
    const ValueView value = chosen.find_path(field.name);
    const bool compared = field.is_number() && field.name != "_id" && value.exists() && !value.is_array() &&
                          value.type != BsonType::undefined && !unchanged.find(field.name).exists();
    if (compared) out.begin_document(field.name).append("$eq", value).end();
  }
  const BsonDoc same = std::move(out).finish();
  return both_filters(filter, same);
}

}  // namespace

// Servers of 6.0 leave orphans out only once their featureCompatibilityVersion is 6.0, which the router does not know.
// Source: mongod's write_stage_common.cpp.
bool may_meet_orphans(const Context& context, const catalog::CollectionRouting& routing) {
  if (!context.in_cluster()) return false;
  for (const catalog::ShardIndex shard : routing.all_shards()) {
    if (context.gateway.capabilities(shard).max_wire_version < wire_version_of_7_0) return true;
  }
  return false;
}

std::optional<BsonDoc> query_of_upsert(const Context& context, const catalog::CollectionRouting& routing,
                                       const Statement& statement, const UpsertPlan& plan) {
  if (!may_meet_orphans(context, routing)) return std::nullopt;
  return both_filters(statement.query, plan.owned);
}

Choices::Choices(Context& context, std::string_view collection, const Statement& statement,
                 const catalog::CollectionRouting& routing, const WriteTarget& target)
    : context_(context), collection_(collection), statement_(statement), routing_(routing), target_(target) {}

Task<std::optional<Error>> Choices::wait(const Request& request) {
  constexpr auto time_max = std::chrono::seconds(30);
  const Duration left = std::max(request.deadline - Clock::now(), Duration::zero());
  const Duration pause = std::min(pause_before_try(made_ + 1), left);
  if (pause > Duration::zero()) co_await context_.loop.sleep_for(pause);
  if (const Error* why = shard::requested_of(request.interrupt)) co_return *why;
  if (Clock::now() < began_ + time_max) co_return std::nullopt;
  co_return Error(ErrorCode::write_conflict,
                  fmt::format("the documents that were chosen for this write had changed or were gone each time, for "
                              "{} seconds", time_max.count()));
}

Task<Choices::Next> Choices::next(const Request& request) {
  Next next;
  if (made_ > 0) {
    next.error = co_await wait(request);
    if (next.error) co_return next;
  }
  ++made_;
  auto paths = target_.check_key ? paths_to_check(routing_.key, statement_) : std::vector<std::string>{};
  auto choosing = choose_document(context_, request, collection_, statement_, target_.shards,
                                  RoutedBy::sharded(routing_), std::move(paths));
  auto chosen = co_await choosing;
  next.error = std::move(chosen.error);
  next.by_find = next.error.has_value();
  next.lost = chosen.lost;
  if (next.error || !chosen.choice) co_return next;
  const DocView met = chosen.choice->document;
  if (target_.check_key) {
    if (auto kept = check_key_kept(routing_.key, statement_, met); kept.has_error()) {
      next.error = std::move(kept.error());
      co_return next;
    }
  }
  next.found = true;
  next.shard = chosen.choice->shard;
  if (target_.check_key) {
    const BsonDoc unchanged = same_key_filter(routing_.key, statement_, met);
    next.query = narrow_filter(statement_, met, unchanged);
  } else if (!statement_.sort.empty() || may_meet_orphans(context_, routing_)) {
    next.query = narrow_filter(statement_, met, {});
  } else {
    next.query = BsonDoc(statement_.query);  // any document will do that the shard finds
  }
  co_return next;
}

}  // namespace spillway::exec
