#include "proxy/server/table_check.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/catalog/routing_change.h"
#include "proxy/server/guards.h"
#include "proxy/server/shard_question.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

using catalog::ShardIndex;

Error cannot_ask(const catalog::RoutingSnapshot& table, ShardIndex shard, const Skip& skip) {
  return Error(ErrorCode::host_unreachable,
               fmt::format("shard {} cannot be asked: {}", table.shard(shard).name, skip.reason));
}

BsonDoc any_document(const catalog::Namespace& ns) {
  BsonWriter find;
  find.append("find", ns.collection);
  find.append("limit", std::int64_t{1}).append("singleBatch", true);
  find.begin_document("projection").append("_id", std::int32_t{1}).end();
  find.append("$db", ns.db);
  return std::move(find).finish();
}

Task<Result<void>> check_empty(exec::Context& context, Table after, ShardIndex shard, std::string ns) {
  const BsonDoc find = any_document(catalog::split_namespace(ns));
  auto finding = find_one(context, shard, find);
  const Found found = co_await finding;
  if (found.skip) co_return cannot_ask(*after, shard, *found.skip);
  if (!found.document) co_return Result<void>();
  co_return Error(ErrorCode::illegal_operation,
                  fmt::format("{} has documents on shard {}, where the new table would not look for all of them: move "
                              "or drop them first",
                              ns, after->shard(shard).name));
}

// The collections of a database on a shard that have no entry of their own.
Task<Result<std::vector<std::string>>> unsharded_collections(exec::Context& context, Table after, ShardIndex shard,
                                                             std::string database) {
  BsonWriter list;
  list.append("listCollections", std::int32_t{1}).append("nameOnly", true);
  list.append("$db", std::string_view(database));
  const BsonDoc body = std::move(list).finish();
  auto asking = ask(context, shard, body);
  const Answer answer = co_await asking;
  if (answer.skip) co_return cannot_ask(*after, shard, *answer.skip);
  const auto cursor = wire::parse_cursor_reply(answer.reply.body());
  if (cursor.has_error()) co_return cannot_ask(*after, shard, Skip{cursor.error().message});
  if (cursor->id != 0) co_return cannot_ask(*after, shard, Skip{database + " has too many collections"});
  std::vector<std::string> names;
  for (const Element& row : cursor->batch) {
    if (!row.is_document()) continue;
    const ValueView name = row.as_document()["name"];
    if (!name.is_string() || name.as_string().starts_with("system.")) continue;
    std::string ns = fmt::format("{}.{}", database, name.as_string());
    if (after->collection(ns) == nullptr) names.push_back(std::move(ns));
  }
  co_return names;
}

Task<Result<void>> check_move(exec::Context& context, Table after, catalog::Move move) {
  for (const ShardIndex holder : move.holders) {
    std::vector<std::string> names{move.ns};
    if (move.ns.find('.') == std::string::npos) {
      auto listing = unsharded_collections(context, after, holder, move.ns);
      auto listed = co_await listing;
      if (listed.has_error()) co_return listed.error();
      names = *std::move(listed);
    }
    for (const std::string& ns : names) {
      auto checking = check_empty(context, after, holder, ns);
      auto checked = co_await checking;
      if (checked.has_error()) co_return checked.error();
    }
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> check_new_table(exec::Context& context, Table before, Table after) {
  auto moves = catalog::moves_between(*before, *after);
  if (moves.has_error()) co_return moves.error();
  for (catalog::Move& move : *moves) {
    auto checking = check_move(context, after, std::move(move));
    auto checked = co_await checking;
    if (checked.has_error()) co_return checked.error();
  }
  for (const bool keep : {false, true}) {
    auto guarding = run_guards(context, after, {.keep = keep, .complete = true});
    auto guarded = co_await guarding;
    if (guarded.has_error()) co_return guarded.error();
  }
  co_return Result<void>();
}

}  // namespace spillway::server
