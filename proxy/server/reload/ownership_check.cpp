#include "proxy/server/reload/ownership_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/base/log.h"
#include "proxy/catalog/fingerprint.h"
#include "proxy/server/reload/ask_shard.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

using catalog::CollectionRouting;
using catalog::ShardIndex;

// Another process may write the same fingerprint between our read and our write.
constexpr int write_attempts_max = 3;

// The default key's collections have no name of their own.
std::string fingerprint_id(const CollectionRouting& collection) {
  return collection.ns.empty() ? "*" : collection.ns;
}

// The stored document. Bounds hold MinKey, MaxKey and fields with dots, which not every shard can store: they are
// stored as bytes; the other fields are for people.
BsonDoc kept_document(const CollectionRouting& collection,
                      const catalog::RoutingSnapshot& routing) {
  const BsonDoc table = catalog::fingerprint_document(collection, routing);
  BsonWriter kept;
  kept.append("_id", std::string_view(fingerprint_id(collection)));
  kept.append("key", std::string_view(to_json(collection.key.pattern())));
  kept.append_element(table.view().find("fingerprint"));
  kept.append_element(table.view().find("shards"));
  kept.append_binary("table", 0, table.view().bytes());
  return std::move(kept).finish();
}

Result<void> compare_kept(DocView kept, const CollectionRouting& collection,
                          const catalog::RoutingSnapshot& routing) {
  const ValueView table = kept["table"];
  if (table.type == BsonType::binary) {
    const auto document = DocView::parse(table.as_binary().data);
    if (document.has_value()) return catalog::compare_fingerprint(*document, collection, routing);
  }
  return Error(ErrorCode::failed_to_parse,
               fmt::format("The stored fingerprint of {} cannot be read: it has no table",
                           fingerprint_id(collection)));
}

// A routing that differs from the stored one is refused until an operator declares the stored one obsolete.
Error with_remedy(Error error, const CollectionRouting& collection, std::string_view shard) {
  if (!error.is(ErrorCode::illegal_operation)) return error;
  error.message += fmt::format(
      ". If this is meant: once no router uses the kept routing any more, and all documents lie where the new one "
      "looks "
      "for them (or there are none), delete {{_id: \"{}\"}} from spillway.routing on shard {}",
      fingerprint_id(collection), shard);
  return error;
}

BsonDoc insert_command(DocView fingerprint) {
  BsonWriter insert;
  insert.append("insert", "routing");
  insert.begin_array("documents").append_item(fingerprint).end();
  insert.append("$db", catalog::fingerprint_database);
  return std::move(insert).finish();
}

// Replaces the document only if it is still the one that was compared.
BsonDoc replace_command(DocView stored, DocView fingerprint) {
  BsonWriter update;
  update.append("update", "routing");
  update.begin_array("updates").begin_document_item();
  update.begin_document("q");
  update.append_element(stored.find("_id")).append_element(stored.find("fingerprint"));
  update.end();
  update.append("u", fingerprint);
  update.end().end();
  update.append("$db", catalog::fingerprint_database);
  return std::move(update).finish();
}

// Has a write changed exactly one document?
bool wrote_one(DocView reply) {
  return reply["n"].to_int64() == std::int64_t{1} && !reply["writeErrors"].exists();
}

// One collection's fingerprint. A Skip means that its shard cannot say.
Task<Result<std::optional<Skip>>> guard_collection(exec::Context& context,
                                                   const catalog::RoutingSnapshot& routing,
                                                   ShardIndex primary,
                                                   const CollectionRouting& collection, bool keep) {
  const BsonDoc wanted = kept_document(collection, routing);
  const BsonDoc find = find_by_id("routing", catalog::fingerprint_database, fingerprint_id(collection));
  std::string refusal = "another router keeps writing it";
  for (int attempt = 0; attempt < write_attempts_max; ++attempt) {
    const Found found = co_await find_one(context, primary, find);
    if (found.skip) co_return found.skip;
    BsonDoc write = insert_command(wanted);
    if (found.document) {
      const DocView stored = *found.document;
      auto compared = compare_kept(stored, collection, routing);
      if (compared.has_error()) {
        co_return with_remedy(compared.error(), collection, routing.shard(primary).name);
      }
      const bool same = stored["fingerprint"].to_int64() == wanted.view()["fingerprint"].to_int64();
      if (same) co_return std::optional<Skip>();
      write = replace_command(stored, wanted);
    }
    if (!keep) co_return std::optional<Skip>();
    const Answer written = co_await ask(context, primary, write);
    if (written.skip) co_return written.skip;
    if (wrote_one(written.reply.body())) {
      log::info("kept the routing of {} on shard {}", fingerprint_id(collection),
                routing.shard(primary).name);
      co_return std::optional<Skip>();
    }
    const ValueView errors = written.reply.body()["writeErrors"];
    if (errors.is_array()) refusal = to_json(errors);
  }
  co_return std::optional(Skip{fmt::format("the fingerprint of {} cannot be kept: {}",
                                           fingerprint_id(collection), refusal)});
}

Task<Result<std::optional<Skip>>> guard_identity(exec::Context& context,
                                                 const catalog::RoutingSnapshot& routing,
                                                 ShardIndex shard) {
  const BsonDoc find = find_by_id("system.version", "admin", "shardIdentity");
  const Found found = co_await find_one(context, shard, find);
  if (found.skip) co_return found.skip;
  if (found.document) {
    co_return Error(
        ErrorCode::illegal_operation,
        fmt::format(
            "Shard '{}' belongs to the MongoDB cluster {} already (admin.system.version has a "
            "shardIdentity): its balancer would move documents unseen",
            routing.shard(shard).name, to_json(found.document->view()["clusterId"])));
  }
  co_return std::optional<Skip>();
}

// The collections whose fingerprints this shard keeps.
std::vector<const CollectionRouting*> kept_on(const catalog::RoutingSnapshot& routing,
                                              ShardIndex shard) {
  std::vector<const CollectionRouting*> kept;
  const CollectionRouting* by_default = routing.default_collection();
  if (by_default != nullptr && routing.default_primary() == shard) kept.push_back(by_default);
  for (const CollectionRouting& collection : routing.collections()) {
    if (routing.primary_shard(catalog::split_namespace(collection.ns).db) == shard)
      kept.push_back(&collection);
  }
  return kept;
}

// A fingerprint of a collection that the table does not have: its documents may lie on shards that get no queries any
// more.
Task<void> warn_of_forgotten(exec::Context& context, const catalog::RoutingSnapshot& routing,
                             ShardIndex shard) {
  BsonWriter find;
  find.append("find", "routing");
  find.begin_document("filter").end();
  find.begin_document("projection").append("_id", std::int32_t{1}).end();
  find.append("batchSize", std::int32_t{10'000}).append("singleBatch", true);
  find.append("$db", catalog::fingerprint_database);
  const BsonDoc body = std::move(find).finish();
  const Answer answer = co_await ask(context, shard, body);
  if (answer.skip) co_return;
  const auto cursor = wire::parse_cursor_reply(answer.reply.body());
  if (cursor.has_error()) co_return;
  for (const Element& row : cursor->batch) {
    if (!row.is_document()) continue;
    const ValueView id = row.as_document()["_id"];
    if (!id.is_string()) continue;
    const std::string_view ns = id.as_string();
    const CollectionRouting* known =
        ns == "*" ? routing.default_collection() : routing.collection(ns);
    // Falling back to the default key is a change, too.
    if (known != nullptr && fingerprint_id(*known) == ns) continue;
    log::warning(
        "shard {} keeps a routing of {} that the configuration no longer has: documents of it on "
        "other "
        "shards are not found; delete {{_id: \"{}\"}} from spillway.routing there if it was "
        "dropped",
        routing.shard(shard).name, ns, ns);
  }
}

using Guarded = Result<std::optional<Skip>>;

// Twice: first whether the table may be used, which writes nothing; then, if `keep`, what is to be kept.
Task<Guarded> guard_shard(exec::Context& context, const catalog::RoutingSnapshot& routing, ShardIndex shard,
                          bool keep) {
  const auto& hosts = context.gateway.states()[shard].hosts;
  const auto writable = [](const shard::HostState& host) { return host.primary; };
  if (std::none_of(hosts.begin(), hosts.end(), writable)) {
    co_return std::optional(Skip{"no primary has been found"});
  }
  if (!keep) {
    auto identified = co_await guard_identity(context, routing, shard);
    if (identified.has_error()) co_return identified.error();
    if (*identified && (*identified)->unreachable) co_return identified;
    // A user without the right to read admin may still be allowed to read and write elsewhere.
    if (*identified) {
      log::warning("shard {} does not say whether it belongs to a cluster: {}", routing.shard(shard).name,
                   (*identified)->reason);
    }
  }
  for (const CollectionRouting* collection : kept_on(routing, shard)) {
    auto guarded = co_await guard_collection(context, routing, shard, *collection, keep);
    if (guarded.has_error() || *guarded) co_return guarded;
  }
  if (keep) {
    co_await warn_of_forgotten(context, routing, shard);
  }
  co_return std::optional<Skip>();
}

Task<void> guard_into(exec::Context* context, const catalog::RoutingSnapshot* routing, ShardIndex shard, bool keep,
                      Guarded* guarded) {
  *guarded = co_await guard_shard(*context, *routing, shard, keep);
}

// A thousand shards that are asked one after the other would take seconds.
constexpr std::size_t shards_at_once = 64;

// A shard that cannot say is named once.
Task<Result<void>> guard_all(exec::Context& context, const catalog::RoutingSnapshot& routing, OwnershipRules rules,
                             bool keep, std::vector<bool>& skipped) {
  const std::vector<catalog::Shard>& shards = routing.shards();
  for (std::size_t first = 0; first < shards.size(); first += shards_at_once) {
    std::vector<Guarded> guarded(std::min(shards_at_once, shards.size() - first));
    TaskGroup group;
    for (std::size_t i = 0; i < guarded.size(); ++i) {
      if (skipped[first + i]) continue;
      group.start(guard_into(&context, &routing, shards[first + i].index, keep, &guarded[i]));
    }
    co_await group.wait();
    for (std::size_t i = 0; i < guarded.size(); ++i) {
      if (guarded[i].has_error()) co_return guarded[i].error();
      if (!*guarded[i]) continue;
      const std::string& name = shards[first + i].name;
      const std::string& reason = (*guarded[i])->reason;
      if (rules.complete) {
        co_return Error(ErrorCode::host_unreachable,
                        fmt::format("the checks of shard {} are incomplete: {}", name, reason));
      }
      log::warning("the start-up checks of shard {} are incomplete: {}", name, reason);
      skipped[first + i] = true;
    }
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> check_ownership(exec::Context& context,
                              std::shared_ptr<const catalog::RoutingSnapshot> routing,
                              OwnershipRules rules) {
  std::vector<bool> skipped(routing->shards().size());
  auto guarded = co_await guard_all(context, *routing, rules, false, skipped);
  if (guarded.has_error() || !rules.keep) co_return guarded;
  co_return co_await guard_all(context, *routing, rules, true, skipped);
}

Task<Result<void>> check_ownership_at_start(exec::Context& context) {
  return check_ownership(context, context.static_router.table(), {});
}

}  // namespace spillway::server
