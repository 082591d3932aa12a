// listCollections and listIndexes: cursors over the shards' listings, each name once.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "proxy/base/time_slice.h"
#include "proxy/auth/users.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/buckets.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/config_database.h"
#include "proxy/exec/schema/reply_merge.h"
#include "proxy/exec/streams/single_shard.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

// The shards that may hold a collection of this database: its primary, and the owners of its sharded ones.
catalog::ShardSet shards_of_database(const Routes& routes, std::string_view db) {
  // In a cluster the primary shard knows all collections of the database.
  if (routes.in_cluster()) return {routes.primary_shard(db)};
  const catalog::RoutingSnapshot& routing = routes.table();
  catalog::ShardSet shards;
  shards.insert(routing.primary_shard(db));
  if (const auto* by_default = routing.default_collection(); by_default != nullptr && db != "admin") {
    for (const catalog::ShardIndex shard : by_default->all_shards()) shards.insert(shard);
  }
  for (const catalog::CollectionRouting& collection : routing.collections()) {
    if (catalog::split_namespace(collection.ns).db != db) continue;
    for (const catalog::ShardIndex shard : collection.all_shards()) shards.insert(shard);
  }
  return shards;
}

FirstBatch first_batch_of(DocView body) {
  const ValueView size = body["cursor"].to_document()["batchSize"];
  if (!size.is_number()) return {};
  return {.size = size.to_int64().value_or(0)};
}

// What a shard is asked for first; after that its documents' size is known, and how many of them to ask for.
constexpr std::int64_t first_documents = limits::first_batch_documents_default;

// The shards' entries, each name once. Shards have many names in common: only one document of each is kept.
struct Listing {
  struct Named {
    std::size_t of;  // the position of its shard among those asked
    BsonDoc document;
  };
  std::map<std::string_view, Named> by_name;  // the names are in the documents
  KeptDocuments paid;

  // Of several documents with a name the first shard's is kept.
  Result<void> add(std::size_t of, std::string_view name, DocView document) {
    if (const auto found = by_name.find(name); found != by_name.end()) {
      if (found->second.of < of) return {};
      paid.give_back(found->second.document.size() + named_overhead_bytes);
      by_name.erase(found);
    }
    if (auto charged = paid.charge(document.size() + named_overhead_bytes); charged.has_error()) return charged;
    BsonDoc kept(document);
    const std::string_view kept_name = kept.view()["name"].as_string();
    by_name.emplace(kept_name, Named{of, std::move(kept)});
    return {};
  }
  static constexpr std::size_t named_overhead_bytes = 192;  // of two blocks, and of places in lists
};

// Every document of one shard's cursor: its first batch and all that follow.
Task<std::optional<Error>> drain_shard(Context& context, const Request& request, catalog::ShardIndex shard,
                                       DocView body, std::size_t of, Listing& into) {
  const bool primary = shard == request.routes->primary_shard(request.db);
  ActiveCursor cursor(context, std::make_unique<ClusterCursor>());
  // A shard takes no getMore of another session than its cursor's.
  cursor->session.lsid = request.lsid;
  cursor->session.api = request.api;
  catalog::ShardSet one{shard};
  shard::CallOptions options = read_options(context, request);
  options.budget = &context.shared.memory.cursors;
  ShardOutcome outcome = co_await call_shard(context, shard,
                                             RoutedBy::database(request.routes->database(request.db)), body, options);
  if (outcome.error) co_return outcome.error;
  SPILLWAY_CO_TRY(parsed, wire::parse_cursor_reply(outcome.body()));
  cursor->ns = fmt::format("{}.{}", request.db, catalog::split_namespace(parsed->ns).collection);
  RemoteCursor& remote = cursor->remotes.emplace_back();
  remote.shard = shard;
  if (auto taken = take_reply(*cursor, remote, std::move(outcome.reply)); taken.has_error()) co_return taken.error();
  TimeSlice slice(context.pump);
  for (;;) {
    bool damaged = false;
    for (; remote.has_document() && !damaged; remote.batches.front().pop()) {
      const DocView document = *remote.front()->peek();
      if (slice.is_over(document.size())) co_await slice.next();
      damaged = document.validate().has_error();
      const ValueView name = damaged ? ValueView() : document["name"];
      if (!name.is_string()) continue;
      // Unsharded collections live on the primary: entries of other shards are not listed.
      const std::string ns = fmt::format("{}.{}", request.db, name.as_string());
      if (!primary && request.routes->collection(ns) == nullptr) continue;
      if (auto added = into.add(of, name.as_string(), document); added.has_error()) co_return added.error();
    }
    if (damaged || remote.damaged()) co_return malformed_reply("the batch");
    remote.batches.clear();
    if (remote.id == 0) co_return std::nullopt;
    SPILLWAY_AWAIT(fetched, fetch_more(context, *cursor,
                                       {request.deadline, request.interrupt, request.shard_time, request.asks}));
    slice.renew();
  }
}

Task<void> drain_into(Context* context, const Request* request, catalog::ShardIndex shard, DocView body,
                      std::size_t of, Listing* into, std::optional<Error>* failed) {
  *failed = co_await drain_shard(*context, *request, shard, body, of, *into);
}

// authorizedCollections: the names that the user has any privilege for. Shards take the router for the user.
void append_authorized(BsonWriter& out, const Request& request, const auth::Privileges& privileges) {
  out.begin_document("filter").begin_array("$and");
  out.begin_document_item().begin_array("$or");
  if (!privileges.on(request.db, {}).empty()) {
    out.begin_document_item().begin_document("name").append("$regex", "^(?!system\\.)").end().end();
  }
  out.begin_document_item().begin_document("name").begin_array("$in");
  for (const std::string_view name : privileges.named_collections(request.db)) out.append_item(name);
  out.end().end().end().end().end();
  if (const ValueView filter = request.body["filter"]; filter.is_document()) out.append_item(filter.as_document());
  out.end().end();
  out.append("nameOnly", true);
}

// The user, if it may list those collections alone that its privileges name; null: it may list all.
const auth::User* limited_user(const Context& context, const Client& client, const Request& request) {
  const auth::User* const user = context.shared.authorization ? client.login.user.get() : nullptr;
  const bool all = user == nullptr || user->privileges.allows(auth::Action::list_collections, request.db, {});
  return all ? nullptr : user;
}

// The command for each shard, without `cursor`.
BsonWriter listing_for_shard(const Context& context, const Client& client, const Request& request) {
  BsonWriter out;
  const auth::User* const user = limited_user(context, client, request);
  if (user == nullptr) {
    copy_command(out, request, {"cursor"});
    return out;
  }
  copy_command(out, request, {"cursor", "authorizedCollections", "filter", "nameOnly"});
  append_authorized(out, request, user->privileges);
  return out;
}

Task<Result<KeptDocuments>> union_by_name(Context& context, Client& client, const Request& request,
                                          const catalog::ShardSet& shards) {
  TakeCopyRoom taking_room(context, request);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  BsonWriter out = listing_for_shard(context, client, request);
  out.begin_document("cursor").append("batchSize", first_documents).end();
  const BsonDoc body = std::move(out).finish();
  Listing listing{{}, KeptDocuments(context.shared.memory.cursors)};
  std::vector<std::optional<Error>> failures(shards.size());
  TaskGroup group;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    group.start(drain_into(&context, &request, shards[i], body, i, &listing, &failures[i]));
  }
  co_await group.wait();
  for (const std::optional<Error>& failed : failures) {
    if (failed && !is_namespace_missing(*failed)) co_return *failed;
  }
  KeptDocuments all = std::move(listing.paid);
  TimeSlice slice(context.pump);
  for (auto at = listing.by_name.begin(); at != listing.by_name.end(); at = listing.by_name.erase(at)) {
    all.add_paid(std::move(at->second.document));
    if (slice.is_over()) co_await slice.next();
  }
  co_return std::move(all);
}

Task<Result<Response>> answer_list(Context& context, Client& client, const Request& request,
                                   KeptDocuments documents) {
  return answer_documents(context, client, request, std::move(documents), "$cmd.listCollections",
                          first_batch_of(request.body));
}

}  // namespace

Task<Result<Response>> list_collections_command(Context& context, Client& client, const Request& request) {
  if (reads_own_config(request)) {
    KeptDocuments names(context.shared.memory.cursors);
    for (const std::string_view name : config_collections()) {
      BsonWriter row;
      row.append("name", name).append("type", "collection");
      row.begin_document("options").end();
      row.begin_document("info").append("readOnly", true).end();
      if (auto added = names.add(std::move(row).finish()); added.has_error()) co_return added.error();
    }
    auto answering = answer_list(context, client, request, std::move(names));
    co_return co_await answering;
  }
  const catalog::ShardSet shards = shards_of_database(*request.routes, request.db);
  if (shards.size() == 1) {
    BsonDoc scratch;
    shard::Command command = forward_command(request, scratch);
    if (limited_user(context, client, request) != nullptr) {
      BsonWriter out = listing_for_shard(context, client, request);
      if (const ValueView cursor = request.body["cursor"]; cursor.exists()) out.append("cursor", cursor);
      scratch = std::move(out).finish();
      command = shard::Command::of_body(scratch);
    }
    const CursorSeed seed{client, request, "$cmd.listCollections"};
    auto opening = open_on_one_shard(
        context, seed, {shards.front(), RoutedBy::database(request.routes->database(request.db)), command}, false);
    co_return co_await opening;
  }
  SPILLWAY_CO_TRY(listed, co_await union_by_name(context, client, request, shards));
  auto answering = answer_list(context, client, request, *std::move(listed));
  co_return co_await answering;
}

Task<Result<Response>> list_indexes_command(Context& context, Client& client, const Request& request) {
  const Element collection = request.body.first();
  if (!collection.is_string()) co_return no_collection(collection);
  // The indexes of a sharded time series are its buckets'; the shard's cursor has the series' name.
  const bool of_buckets = has_sharded_buckets(request);
  const std::string ns = of_buckets ? fmt::format("{}.{}", request.db, request.buckets) : request.ns();
  const Targets targets = shards_with_chunks(*request.routes, request.db, ns);
  BsonDoc scratch = of_buckets ? command_on_buckets(request, true) : BsonDoc();
  const shard::Command command = of_buckets ? shard::Command::of_body(scratch) : forward_command(request, scratch);
  // The owner of the lowest chunk first; a collection that inserts created may be missing there.
  std::vector<catalog::ShardIndex> order;
  if (targets.routing != nullptr) order.push_back(targets.routing->chunks.first_shard());
  for (const catalog::ShardIndex shard : targets.shards) {
    if (std::find(order.begin(), order.end(), shard) == order.end()) order.push_back(shard);
  }
  std::optional<Result<Response>> last;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const CursorSeed seed{client, request, collection.as_string()};
    auto opening = open_on_one_shard(context, seed, {order[i], targets.by(), command}, false);
    last = co_await opening;
    if (last->has_error() || !(*last)->failed || i + 1 == order.size()) break;
    const auto pieces = (*last)->pieces();
    const DocView body = DocView::trusted(pieces.front().iov_base);
    if (!is_namespace_missing(wire::error_from_reply(body))) break;
  }
  co_return *std::move(last);
}

}  // namespace spillway::exec
