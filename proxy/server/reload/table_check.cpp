#include "proxy/server/reload/table_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/catalog/routing_change.h"
#include "proxy/server/reload/ask_shard.h"
#include "proxy/server/reload/ownership_check.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

using catalog::ShardIndex;

// How many of a collection's first documents are looked at.
constexpr std::int64_t looked_at_max = 10'000;

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
  const Found found = co_await find_one(context, shard, find);
  if (found.skip) co_return cannot_ask(*after, shard, *found.skip);
  if (!found.document) co_return Result<void>();
  co_return Error(ErrorCode::illegal_operation,
                  fmt::format("{} has documents on shard {}, where the new table would not look for all of them: move "
                              "or drop them first",
                              ns, after->shard(shard).name));
}

// A shard's databases, without those that no client's documents lie in.
Task<Result<std::vector<std::string>>> databases_on(exec::Context& context, Table after, ShardIndex shard) {
  BsonWriter list;
  list.append("listDatabases", std::int32_t{1}).append("nameOnly", true).append("$db", "admin");
  const BsonDoc body = std::move(list).finish();
  const Answer answer = co_await ask(context, shard, body);
  if (answer.skip) co_return cannot_ask(*after, shard, *answer.skip);
  const ValueView databases = answer.reply.body()["databases"];
  if (!databases.is_array()) co_return cannot_ask(*after, shard, Skip{"it does not list its databases"});
  std::vector<std::string> names;
  for (const Element& row : databases.as_document()) {
    if (!row.is_document()) continue;
    const ValueView name = row.as_document()["name"];
    if (!name.is_string() || name.as_string() == "config" || name.as_string() == "local" ||
        name.as_string() == catalog::fingerprint_database) {
      continue;
    }
    names.emplace_back(name.as_string());
  }
  co_return names;
}

// The collections of a database on a shard.
Task<Result<std::vector<std::string>>> collections_on(exec::Context& context, Table after, ShardIndex shard,
                                                             std::string database) {
  BsonWriter list;
  list.append("listCollections", std::int32_t{1}).append("nameOnly", true);
  list.append("$db", std::string_view(database));
  const BsonDoc body = std::move(list).finish();
  const Answer answer = co_await ask(context, shard, body);
  if (answer.skip) co_return cannot_ask(*after, shard, *answer.skip);
  const auto cursor = wire::parse_cursor_reply(answer.reply.body());
  if (cursor.has_error()) co_return cannot_ask(*after, shard, Skip{cursor.error().message});
  if (cursor->id != 0) co_return cannot_ask(*after, shard, Skip{database + " has too many collections"});
  std::vector<std::string> names;
  for (const Element& row : cursor->batch) {
    if (!row.is_document()) continue;
    const ValueView name = row.as_document()["name"];
    if (!name.is_string() || name.as_string().starts_with("system.")) continue;
    names.push_back(fmt::format("{}.{}", database, name.as_string()));
  }
  co_return names;
}

// A collection on a shard where the new table does not look for all documents.
struct Place {
  std::string ns;
  ShardIndex shard;
};

Task<Result<std::vector<Place>>> places_of(exec::Context& context, Table after, std::vector<catalog::Move> moves) {
  std::vector<Place> places;
  for (const catalog::Move& move : moves) {
    for (const ShardIndex holder : move.holders) {
      if (move.ns.find('.') != std::string::npos) {
        places.push_back({move.ns, holder});
        continue;
      }
      auto listed = co_await collections_on(context, after, holder, move.ns);
      if (listed.has_error()) co_return listed.error();
      for (std::string& ns : *listed) {
        if (after->collection(ns) == nullptr) places.push_back({std::move(ns), holder});
      }
    }
  }
  co_return places;
}

// Those of collections that no table names as well: if the defaults change, the shards are asked for them.
Task<Result<std::vector<catalog::Move>>> all_moves(exec::Context& context, Table before, Table after) {
  auto moves = catalog::moves_between(*before, *after);
  if (moves.has_error() || catalog::same_defaults(*before, *after)) co_return moves;
  for (const catalog::Shard& shard : after->shards()) {
    const auto databases = co_await databases_on(context, after, shard.index);
    if (databases.has_error()) co_return databases.error();
    for (const std::string& database : *databases) {
      auto listed = co_await collections_on(context, after, shard.index, database);
      if (listed.has_error()) co_return listed.error();
      for (const std::string& ns : *listed) {
        if (!catalog::default_move(*before, *after, ns).holders.contains(shard.index)) continue;
        moves->push_back({ns, catalog::ShardSet{shard.index}});
      }
    }
  }
  co_return moves;
}

Task<Result<void>> check_moves(exec::Context& context, Table before, Table after) {
  auto moves = co_await all_moves(context, before, after);
  if (moves.has_error()) co_return moves.error();
  auto listing = places_of(context, after, *std::move(moves));
  const auto places = co_await listing;
  if (places.has_error()) co_return places.error();
  for (const Place& place : *places) {
    auto checked = co_await check_empty(context, after, place.shard, place.ns);
    if (checked.has_error()) co_return checked.error();
  }
  co_return Result<void>();
}

// The first documents, only the fields that determine their owner.
BsonDoc first_documents(const catalog::Namespace& ns, const catalog::CollectionRouting* routing) {
  BsonWriter find;
  find.append("find", ns.collection);
  find.append("limit", routing == nullptr ? std::int64_t{1} : looked_at_max).append("singleBatch", true);
  find.begin_document("projection").append("_id", std::int32_t{1});
  if (routing != nullptr) {
    for (const auto& field : routing->key.fields()) {
      if (field.path != "_id") find.append(field.path, std::int32_t{1});
    }
  }
  find.end();
  find.append("$db", ns.db);
  return std::move(find).finish();
}

Task<Result<bool>> has_strays(exec::Context& context, Table after, Place place) {
  const catalog::Namespace ns = catalog::split_namespace(place.ns);
  const catalog::CollectionRouting* const routing = after->collection(place.ns);
  if (routing == nullptr && after->primary_shard(ns.db) == place.shard) co_return false;
  const BsonDoc find = first_documents(ns, routing);
  const Answer answer = co_await ask(context, place.shard, find);
  if (answer.skip) co_return cannot_ask(*after, place.shard, *answer.skip);
  const auto cursor = wire::parse_cursor_reply(answer.reply.body());
  if (cursor.has_error()) co_return cannot_ask(*after, place.shard, Skip{cursor.error().message});
  for (const Element& row : cursor->batch) {
    if (!row.is_document()) continue;
    if (routing == nullptr) co_return true;
    const auto owner = routing->target_document(row.as_document());
    if (owner.has_error() || *owner != place.shard) co_return true;
  }
  co_return false;
}

}  // namespace

Task<Result<void>> check_new_table(exec::Context& context, Table before, Table after) {
  auto checked = co_await check_moves(context, before, after);
  if (checked.has_error()) co_return checked.error();
  for (const bool keep : {false, true}) {
    auto guarding = check_ownership(context, after, {.keep = keep, .complete = true});
    auto guarded = co_await guarding;
    if (guarded.has_error()) co_return guarded.error();
  }
  // Clients have written meanwhile.
  auto checked_again = co_await check_moves(context, before, after);
  if (checked_again.has_error()) {
    co_return Error(checked_again.error().code,
                    checked_again.error().message + "; spillway.routing on the shards keeps the new table already");
  }
  co_return Result<void>();
}

bool may_leave_strays(const catalog::RoutingSnapshot& before, const catalog::RoutingSnapshot& after) {
  const auto moves = catalog::moves_between(before, after);
  return moves.has_error() || !moves->empty() || !catalog::same_defaults(before, after);
}

Task<std::vector<std::string>> find_strays(exec::Context& context, Table before, Table after) {
  std::vector<std::string> names;
  auto moves = co_await all_moves(context, before, after);
  Result<std::vector<Place>> places = std::vector<Place>();
  if (moves.has_error()) {
    places = moves.error();
  } else {
    auto listing = places_of(context, after, *std::move(moves));
    places = co_await listing;
  }
  if (places.has_error()) {
    log::warning("reload: documents that were written meanwhile may be out of sight: {}", places.error().message);
    co_return names;
  }
  for (const Place& place : *places) {
    const auto found = co_await has_strays(context, after, place);
    if (found.has_error()) {
      log::warning("reload: documents of {} that were written meanwhile may be out of sight: {}", place.ns,
                   found.error().message);
    } else if (*found) {
      log::error("reload: {} has documents on shard {} that clients do not find: they were written while the routing "
                 "table changed. Read on that shard those that belong elsewhere, insert them through the router, and "
                 "delete them on that shard",
                 place.ns, after->shard(place.shard).name);
      if (std::find(names.begin(), names.end(), place.ns) == names.end()) names.push_back(place.ns);
    }
  }
  co_return names;
}

}  // namespace spillway::server
