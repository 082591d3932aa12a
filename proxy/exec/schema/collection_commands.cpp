// Databases, collections, indexes: commands that go to the primary shard, to the chunk owners, or to every shard.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "cursor/bson_order.h"
#include "cursor/field_table.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/access/command_rules.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/buckets.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/repeat.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/exec/schema/reply_merge.h"
#include "proxy/exec/sharding/router_answers.h"
#include "proxy/exec/sharding/run_by_form.h"
#include "proxy/exec/streams/single_shard.h"

namespace spillway::exec {

HandlerFunction list_collections_command, list_indexes_command;

namespace {

// A collection, and the shards that own a part of it.
struct Owners : Targets {
  Owners(const Request& request, std::string_view db, std::string name)
      : Targets(shards_with_chunks(*request.routes, db, name)), ns(std::move(name)) {}
  std::string ns;
  std::int32_t scale = 0;  // of merge_coll_stats()
};

// Of the collection that the command's first field names.
Result<Owners> owners_of(const Request& request) {
  const Element first = request.body.first();
  if (!first.is_string()) return no_collection(first);
  if (first.as_string().empty()) {
    return Error(ErrorCode::invalid_namespace, fmt::format("Invalid namespace specified '{}.'", request.db));
  }
  return Owners(request, request.db, request.ns());
}

// Of "db.collection" in its first field; $db does not matter.
Result<Owners> owners_of_full_name(const Request& request) {
  const std::string_view ns = request.body.first().to_text();
  const std::size_t dot = ns.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot + 1 == ns.size()) {
    return Error(ErrorCode::invalid_namespace,
                 fmt::format("Invalid namespace specified '{}': {} takes database.collection", ns, request.name));
  }
  return Owners(request, ns.substr(0, dot), std::string(ns));
}

Result<void> refuse_config(const Request& request) {
  if (!reads_own_config(request)) return {};
  return Error(ErrorCode::illegal_operation,
               fmt::format("{} is not possible on database config: it shows the routing table of the configuration "
                           "file, and is read-only",
                           request.name));
}

// The client's command to these shards, unchanged except for stripped fields.
struct Fanned {
  ShardOutcomes outcomes;
  std::vector<ShardAnswer> answers;  // views into outcomes
};

Task<Fanned> fan_out(Context& context, const Request& request, catalog::ShardSet shards, RoutedBy by,
                     shard::CallOptions options) {
  BsonDoc scratch;
  auto calls = call_shards(context, shards, by, forward_command(request, scratch), options);
  Fanned fanned;
  fanned.outcomes = co_await calls;
  for (const ShardOutcome& outcome : fanned.outcomes) {
    ShardAnswer& answer = fanned.answers.emplace_back();
    answer.shard = request.routes->shard(outcome.shard).name;
    answer.address = outcome.reply.host.host.empty() ? answer.shard : outcome.reply.host.text();
    if (context.in_cluster()) answer.address = connection_string_of(context.gateway.states()[outcome.shard]);
    if (outcome.answered()) answer.body = outcome.body();
    answer.error = outcome.error;
    // Drivers check the code; some servers send only the text.
    if (answer.error && is_namespace_missing(*answer.error)) {
      answer.error->code = static_cast<std::int32_t>(ErrorCode::namespace_not_found);
    }
  }
  co_return fanned;
}

// An index cannot be dropped twice. If some owners have dropped it, and others have refused for the table, only those
// that own a part now and have not done it are asked, with a newer table. What is refused still stays in `fanned`.
Task<void> ask_other_owners(Context* context, const Request* request, shard::CallOptions options, Fanned* fanned) {
  std::optional<Routes> routes;
  Request again = *request;
  for (std::size_t tries = 2; tries <= tries_max; ++tries) {
    const auto& outcomes = fanned->outcomes;
    const bool any_ok = std::any_of(outcomes.begin(), outcomes.end(), std::mem_fn(&ShardOutcome::ok));
    const bool any_stale = std::any_of(outcomes.begin(), outcomes.end(), std::mem_fn(&ShardOutcome::stale));
    if (!any_ok || !any_stale) co_return;
    if (const Duration pause = pause_before_try(tries); pause > Duration::zero()) {
      if (Clock::now() + pause >= request->deadline) co_return;
      co_await context->loop.sleep_for(pause);
      if (shard::requested_of(request->interrupt) != nullptr) co_return;
    }
    auto resolving = routes_of(*context, *request,
                               RouteNames{RouteName{request->db, request->body.first().as_string()}}, false);
    auto resolved = co_await resolving;
    if (resolved.has_error()) co_return;
    again.routes = &routes.emplace(*std::move(resolved));
    const Owners targets(again, again.db, again.ns());
    catalog::ShardSet done, left;
    Fanned kept;
    const auto keep = [&kept](Fanned& from, std::size_t i) {
      kept.outcomes.push_back(std::move(from.outcomes[i]));
      kept.answers.push_back(std::move(from.answers[i]));
    };
    for (std::size_t i = 0; i < fanned->outcomes.size(); ++i) {
      if (!fanned->outcomes[i].ok()) continue;
      done.insert(fanned->outcomes[i].shard);
      keep(*fanned, i);
    }
    for (const catalog::ShardIndex owner : targets.shards) {
      if (std::find(done.begin(), done.end(), owner) == done.end()) left.insert(owner);
    }
    auto fanning = fan_out(*context, again, left, targets.by(), options);
    Fanned more = co_await fanning;
    for (std::size_t i = 0; i < more.outcomes.size(); ++i) keep(more, i);
    *fanned = std::move(kept);
  }
}

// From 8.0 on a router shows what the one shard of a collection that is not sharded says of its indexes.
bool shows_own(const Context& context, const Request& request, const Owners& owners) {
  return request.name == "createIndexes" && !is_sharded(owners.routing) && config_wire_version(context) >= v8_0;
}

// To the chunk owners, replies merged; with one owner the reply passes through, unless it is to look as a mongos makes
// it (`raw`).
Answer to_owners(Context& context, const Request& request, Tolerate tolerate, bool raw = false) {
  if (auto refused = refuse_config(request); refused.has_error()) co_return refused.error();
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (request.in_transaction) {
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, targets->shards));
  }
  shard::CallOptions options = write_options(context, request);
  // An index build may take hours. After an interrupt the client may repeat the command: finished indexes stay.
  if (request.name == "createIndexes" && !request.in_transaction) options.interrupt = request.interrupt;
  raw = raw && context.in_cluster() && !request.in_transaction;
  // To 4.2, also shards that owned chunks before have the indexes and options that they will have if chunks come back.
  const bool all = raw && targets->routing != nullptr && config_wire_version(context) < v4_4;
  const catalog::ShardSet shards = all ? request.routes->all_shards() : targets->shards;
  const RoutedBy by = all ? RoutedBy::nothing() : targets->by();
  if (targets->shards.size() == 1 && !raw) {
    co_return co_await forward_to_shard(context, request, targets->shards.front(), targets->by(), options);
  }
  Fanned fanned = co_await fan_out(context, request, shards, by, options);
  const bool drops = request.name == "dropIndexes" || request.name == "deleteIndexes";
  if (drops && context.in_cluster()) {
    auto asking = ask_other_owners(&context, &request, options, &fanned);
    co_await asking;
  }
  const auto makes_none = [](const ShardOutcome& outcome) {
    return outcome.error && outcome.error->code == cannot_implicitly_create_collection;
  };
  const auto& outcomes = fanned.outcomes;
  const bool dropped = drops && std::any_of(outcomes.begin(), outcomes.end(), std::mem_fn(&ShardOutcome::ok));
  const bool some_make = all && !std::all_of(outcomes.begin(), outcomes.end(), makes_none);
  for (const ShardOutcome& outcome : outcomes) {
    const bool tolerated = dropped || (some_make && makes_none(outcome));
    if (context.in_cluster() && outcome.stale() && !tolerated) co_return *outcome.error;
  }
  RawMerge merged = merge_raw(fanned.answers, tolerate, raw && !shows_own(context, request, *targets));
  Response response(std::move(merged.reply));
  response.failed = !merged.ok;
  if (response.failed) response.failure_code = failure_code(DocView::trusted(response.pieces().front().iov_base));
  co_return std::move(response);
}

// Does another server of the cluster change the collection for us? Its database's primary shard, or the config servers.
bool has_form(const Context& context, const Request& request) {
  if (!context.in_cluster() || request.in_transaction) return false;
  // Those of config and admin lie on the config servers alone.
  const bool on_config_servers = request.routes->primary_shard(request.db) == cluster::config_shard;
  return !on_config_servers && find_form(request.name, config_wire_version(context)) != nullptr;
}

// By its form; as clients send it if the server does not know the form.
Answer by_form_or_to_owners(Context& context, const Request& request, Tolerate tolerate) {
  if (has_form(context, request)) {
    auto result = co_await run_by_form(context, request);
    if (!is_unknown_form(result)) co_return result;
  }
  co_return co_await to_owners(context, request, tolerate, true);
}

// The view's shard resolves the view's collections by itself and knows no other shard: all of them must be there.
Result<void> check_view(const Request& request, catalog::ShardIndex own) {
  const ValueView source = request.body["viewOn"];
  if (!source.is_string()) return {};  // none, or the shard refuses it
  std::vector<InvolvedNamespace> read{{request.db, source.as_string(), "viewOn"}};
  if (const ValueView pipeline = request.body["pipeline"]; pipeline.is_array()) {
    SPILLWAY_TRY(involved, involved_namespaces(pipeline.as_document(), request.db));
    read.insert(read.end(), involved->begin(), involved->end());
  }
  for (const InvolvedNamespace& ns : read) {
    if (lies_on(*request.routes, ns, own)) continue;
    return Error(
        ErrorCode::command_not_supported,
        fmt::format("{} names {}.{}, which does not lie wholly on the view's shard: the view would show a part of it",
                    ns.stage, ns.db, ns.collection));
  }
  return {};
}

// Does a collection of these options do for a `create` that asks for `wanted`? Sizes are rounded up; a collation is
// shown with its defaults.
bool has_options(DocView shown, DocView wanted) {
  std::size_t found = 0;
  for (auto at = ++wanted.begin(); !at.done(); ++at) {
    if (is_argument_of_any_command(at->name)) continue;
    const ValueView has = shown[at->name];
    if (!has.exists()) {
      const bool is_default = at->type == BsonType::boolean && !at->as_bool();
      if (!is_default) return false;
      continue;
    }
    ++found;
    if (at->name == "size" && has.is_number() && at->is_number()) {
      const double more = has.to_double().value_or(0) - at->to_double().value_or(0);
      if (more < 0 || more >= 256) return false;
    } else if (at->is_document() && has.is_document()) {
      for (const Element& field : at->as_document()) {
        if (compare_values(has.as_document()[field.name], field) != 0) return false;
      }
    } else if (compare_values(has, *at) != 0) {
      return false;
    }
  }
  return found == shown.count();
}

// Does the collection that `create` names exist with its options? Then it has nothing to do, as through a mongos.
Task<bool> exists_as_wanted(Context& context, const Request& request) {
  const BsonDoc body = BsonWriter().append("listCollections", std::int32_t{1})
                                   .begin_document("filter").append("name", request.body.first().as_string()).end()
                                   .append("$db", request.db).finish();
  const shard::CallOptions options = write_options(context, request);
  const catalog::Database* const database = request.routes->database(request.db);
  const ShardOutcome outcome = co_await call_shard(context, request.routes->primary_shard(request.db),
                                                   RoutedBy::database(database), body, options);
  if (!outcome.ok()) co_return false;
  const ValueView shown = first_of_batch(outcome.body())["options"];
  co_return shown.is_document() && has_options(shown.as_document(), request.body);
}

// On the primary shard, also if the collection is sharded: that shard knows. 4.2 refuses it in transactions.
Answer create_on_primary(Context& context, const Request& request) {
  constexpr std::int32_t namespace_exists = 48;
  const catalog::ShardSet primary{request.routes->primary_shard(request.db)};
  if (request.in_transaction) {
    SPILLWAY_CO_TRY(checked, co_await check_transaction(context, request, primary));
  }
  const RoutedBy by = RoutedBy::database(request.routes->database(request.db));
  auto forwarding = forward_to_shard(context, request, primary.front(), by, write_options(context, request));
  auto forwarded = co_await forwarding;
  if (forwarded.has_value() && forwarded->failed && forwarded->failure_code == namespace_exists &&
      !request.in_transaction) {
    auto looking = exists_as_wanted(context, request);
    if (co_await looking) co_return ok_response();
  }
  co_return std::move(forwarded);
}

// The command to the shard has fields of its own beside these: they are not for clients.
Result<void> check_create_fields(const Request& request) {
  constexpr FieldTable<22> known({"capped", "autoIndexId", "idIndex", "size", "max", "storageEngine", "validator",
                                  "validationLevel", "validationAction", "indexOptionDefaults", "viewOn", "pipeline",
                                  "collation", "timeseries", "clusteredIndex", "expireAfterSeconds",
                                  "changeStreamPreAndPostImages", "encryptedFields", "recordIdsReplicated", "temp",
                                  "flags", "create"});
  for (const Element& field : request.body) {
    if (known.contains(field.name) || is_argument_of_any_command(field.name)) continue;
    return unknown_field(fmt::format("create.{}", field.name));
  }
  return {};
}

Answer create(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (context.in_cluster() && config_wire_version(context) >= v6_0 && request.body["temp"].truthy()) {
    co_return Error(ErrorCode::invalid_options, "the 'temp' field is an invalid option");
  }
  if (has_form(context, request)) {
    if (auto checked = check_create_fields(request); checked.has_error()) co_return checked.error();
    if (request.body["capped"].truthy() && !request.body["size"].is_number()) {
      co_return Error(ErrorCode::invalid_options, "specify size:<n> when capped is true");
    }
    auto result = co_await run_by_form(context, request);
    if (!is_unknown_form(result)) co_return result;
  }
  // Collections of config and admin lie on the config servers.
  if (context.in_cluster()) co_return co_await create_on_primary(context, request);
  if (targets->shards.size() > 1) {
    // With a default shard key these collections would be sharded, and cannot be: they need a single shard.
    if (request.body["capped"].truthy() || request.body["viewOn"].exists() || request.body["timeseries"].exists()) {
      co_return Error(ErrorCode::invalid_options,
                      fmt::format("{} is sharded: it cannot be capped, a view or a time series", targets->ns));
    }
    // Commands without a collation would be targeted and merged in another order than the shards'.
    if (!is_simple_collation(request.body["collation"])) {
      co_return Error(
          ErrorCode::invalid_options,
          fmt::format("{} is sharded: it cannot have a collation of its own; name it in each command", targets->ns));
    }
  } else if (auto checked = check_view(request, targets->shards.front()); checked.has_error()) {
    co_return checked.error();
  }
  co_return co_await to_owners(context, request, Tolerate::nothing);
}

// A unique index needs the shard key as its prefix: elsewhere no shard could enforce it.
Result<void> check_unique_index(const catalog::CollectionRouting& routing, DocView index, std::string_view key_name) {
  if (!index["unique"].truthy() && !index["prepareUnique"].truthy()) return {};
  const ValueView key = index[key_name];
  if (!key.is_document()) {
    // collMod may name an index: only the shards know its key.
    if (!index["name"].is_string() || key_name == "key") return {};
    return Error(ErrorCode::cannot_create_index,
                 "an index of a sharded collection is made unique by its keyPattern, not by its name");
  }
  if (routing.key.has_prefix_index(key.as_document())) return {};
  if (key.as_document().count() == 1 && key.as_document().first().name == "_id") return {};
  return Error(ErrorCode::cannot_create_index,
               fmt::format("cannot create unique index over {} with shard key pattern {}",
                           to_json(key.as_document()), to_json(routing.key.pattern())));
}

Result<void> check_unique_indexes(const catalog::CollectionRouting& routing, DocView body) {
  for (const Element& index : body["indexes"].to_array()) {
    if (auto checked = check_unique_index(routing, index.to_document(), "key"); checked.has_error()) return checked;
  }
  return {};
}

Answer create_indexes(Context& context, Client& client, const Request& request) {
  if (has_sharded_buckets(request)) co_return co_await run_on_buckets(context, client, request, create_indexes);
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (targets->routing != nullptr && targets->shards.size() > 1) {
    SPILLWAY_CO_TRY(checked, check_unique_indexes(*targets->routing, request.body));
  }
  co_return co_await to_owners(context, request, Tolerate::not_made_implicitly, true);
}

Answer drop(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) {
    if (request.db == "config" || request.db == "admin") {
      co_return Error(ErrorCode::illegal_operation,
                      fmt::format("Cannot drop collection in '{}' database in sharded cluster", request.db));
    }
    auto dropped = co_await run_by_form(context, request);
    const bool missing = dropped.has_error() && dropped.error().is(ErrorCode::namespace_not_found);
    if (!missing) co_return dropped;
    if (config_wire_version(context) < v6_0) co_return Error(ErrorCode::namespace_not_found, "ns not found");
    co_return ok_response(BsonWriter().append("info", "database does not exist"));
  }
  co_return co_await to_owners(context, request, Tolerate::namespace_not_found);
}

Answer drop_indexes(Context& context, Client&, const Request& request) {
  const bool on_config_servers = request.db == "config" || request.db == "admin";
  if (on_config_servers && context.in_cluster() && config_wire_version(context) >= v5_0) {
    co_return Error(ErrorCode::illegal_operation,
                    fmt::format("Cannot drop indexes in '{}' database in sharded cluster", request.db));
  }
  co_return co_await by_form_or_to_owners(context, request, Tolerate::index_not_found);
}

Answer coll_mod(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (!context.in_cluster()) {
    if (auto checked = check_view(request, targets->shards.front()); checked.has_error()) co_return checked.error();
  }
  const ValueView index = request.body["index"];
  // In a cluster its servers know each index, and judge by all shards' documents.
  if (!context.in_cluster() && targets->shards.size() > 1 && targets->routing != nullptr && index.is_document()) {
    SPILLWAY_CO_TRY(checked, check_unique_index(*targets->routing, index.as_document(), "keyPattern"));
  }
  co_return co_await by_form_or_to_owners(context, request, Tolerate::namespace_not_found);
}

Answer drop_database(Context& context, Client&, const Request& request) {
  if (request.db == "config" || request.db == "admin") {
    co_return Error(ErrorCode::illegal_operation, fmt::format("Cannot drop the {} database", request.db));
  }
  if (context.in_cluster()) {
    const Element which = request.body.first();
    if (!which.is_number() || which.to_double() != 1.0) {
      co_return Error(ErrorCode::bad_value, "have to pass 1 as db parameter");
    }
    auto dropped = co_await run_by_form(context, request);
    const bool missing = dropped.has_error() && dropped.error().is(ErrorCode::namespace_not_found);
    if (!missing) co_return dropped;
    co_return ok_response(BsonWriter().append("info", "database does not exist"));
  }
  const shard::CallOptions options = write_options(context, request);
  auto fanning = fan_out(context, request, request.routes->all_shards(),
                         RoutedBy::database(request.routes->database(request.db)), options);
  const Fanned fanned = co_await fanning;
  for (const ShardAnswer& answer : fanned.answers) {
    if (answer.error && !is_namespace_missing(*answer.error)) co_return *answer.error;
  }
  const bool existed = std::any_of(fanned.answers.begin(), fanned.answers.end(), [](const ShardAnswer& answer) {
    return !answer.error && answer.body["dropped"].exists();
  });
  BsonWriter reply;
  if (existed) reply.append("dropped", request.db);
  co_return ok_response(std::move(reply));
}

// The database that a collection is renamed into, on the primary shard of the collection's, if there is none.
Task<Result<void>> make_database_beside(Context& context, const Request& request, std::string of, std::string made) {
  auto resolving = routes_of(context, request, RouteNames{RouteName{made, {}}}, false);
  auto resolved = co_await resolving;
  if (resolved.has_value()) co_return Result<void>();
  if (!resolved.error().is(ErrorCode::namespace_not_found)) co_return std::move(resolved.error());
  BsonWriter out;
  out.append("_configsvrCreateDatabase", made);
  out.append("primaryShardId", request.routes->shard(request.routes->primary_shard(of)).name);
  append_majority(out, request);
  out.append("$db", "admin");
  SPILLWAY_AWAIT(done, command_to(context, request, cluster::config_shard, std::move(out).finish(),
                                  shard::RetryPolicy::idempotent));
  auto forgetting = forget_everywhere(context, made, {});
  co_await forgetting;
  co_return Result<void>();
}

// What the client says of it does not count.
BsonDoc with_encrypted_allowed(const Context& context, const Client& client, const Request& request) {
  constexpr std::string_view allow = "allowEncryptedCollectionRename";
  BsonWriter out;
  copy_command(out, request, {allow});
  if (may_on_cluster(context, client, auth::Action::set_user_write_block_mode)) out.append(allow, true);
  return std::move(out).finish();
}

Answer rename_in_cluster(Context& context, Client& client, const Request& request, std::string from_db,
                         std::string to_db) {
  if (config_wire_version(context) >= v8_0 && from_db != to_db) {
    SPILLWAY_AWAIT(made, make_database_beside(context, request, from_db, to_db));
  }
  const BsonDoc body = with_encrypted_allowed(context, client, request);
  Request renaming = request;
  renaming.replace_body(body);
  co_return co_await run_by_form(context, renaming);
}

Answer rename_collection(Context& context, Client& client, const Request& request) {
  const Element source = request.body.first();
  const ValueView target = request.body["to"];
  if (!source.is_string() || !target.is_string()) {
    co_return Error(ErrorCode::type_mismatch, "renameCollection takes two namespaces");
  }
  const catalog::Namespace from = catalog::split_namespace(source.as_string());
  const catalog::Namespace to = catalog::split_namespace(target.as_string());
  if (from.db.empty() || from.collection.empty() || to.db.empty() || to.collection.empty()) {
    co_return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  }
  if (context.in_cluster() && find_form(request.name, config_wire_version(context)) != nullptr) {
    auto renaming = rename_in_cluster(context, client, request, std::string(from.db), std::string(to.db));
    auto result = co_await renaming;
    // Shards beside config servers of 8.0 know it, and the target's routes are not known here then.
    if (!is_unknown_form(result) || config_wire_version(context) >= v8_0) co_return result;
  }
  if (context.in_cluster()) {
    if (request.routes->collection(source.as_string()) != nullptr) {
      co_return Error(13138, "You can't rename a sharded collection");
    }
    if (request.routes->collection(target.as_string()) != nullptr) {
      co_return Error(13139, "You can't rename to a sharded collection");
    }
  }
  for (const std::string_view ns : {source.as_string(), target.as_string()}) {
    const std::string name(ns);
    if (request.routes->collection(name) == nullptr) continue;
    const catalog::Namespace parts = catalog::split_namespace(ns);
    if (shards_with_chunks(*request.routes, parts.db, name).shards.size() == 1) continue;
    co_return Error(ErrorCode::illegal_operation,
                    fmt::format("cannot rename: {} is sharded, and documents do not move between shards here", name));
  }
  const Targets from_on = shards_with_chunks(*request.routes, from.db, std::string(source.as_string()));
  const Targets to_on = shards_with_chunks(*request.routes, to.db, std::string(target.as_string()));
  if (!(from_on.shards == to_on.shards)) {
    co_return Error(13137, "Source and destination collections must be on the same shard");
  }
  co_return co_await forward_write(context, request, from_on);
}

Answer convert_to_capped(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (targets->shards.size() > 1 || (context.in_cluster() && is_sharded(targets->routing))) {
    co_return Error(ErrorCode::illegal_operation, "You can't convertToCapped a sharded collection");
  }
  if (has_form(context, request)) {
    auto result = co_await run_by_form(context, request);
    if (!is_unknown_form(result)) co_return result;
  }
  co_return co_await forward_write(context, request, *targets);
}

// Statistics of a collection: one shard's pass through, several are merged by `merge`.
Answer statistics(Context& context, const Request& request, Result<Owners> targets,
                  BsonDoc (*merge)(const std::vector<ShardAnswer>& answers, const Owners& targets)) {
  if (targets.has_error()) co_return targets.error();
  // A mongos merges one shard's, too.
  if (targets->shards.size() == 1 && !context.in_cluster()) co_return co_await forward_read(context, request, *targets);
  const shard::CallOptions options = read_options(context, request);
  Fanned fanned = co_await fan_out(context, request, targets->shards, targets->by(), options);
  for (const ShardOutcome& outcome : fanned.outcomes) {
    if (context.in_cluster() && outcome.stale()) co_return *outcome.error;
  }
  if (auto failed = take_failure(fanned.answers, Tolerate::namespace_not_found)) co_return *failed;
  co_return Response(merge(fanned.answers, *targets));
}

BsonDoc coll_stats_of(const std::vector<ShardAnswer>& answers, const Owners& targets) {
  const std::size_t chunks = is_sharded(targets.routing) ? targets.routing->chunks.size() : 0;
  return merge_coll_stats(answers, targets.ns, chunks, targets.scale);
}
BsonDoc validate_of(const std::vector<ShardAnswer>& answers, const Owners& targets) {
  return merge_validate(answers, targets.ns);
}
BsonDoc data_size_of(const std::vector<ShardAnswer>& answers, const Owners&) {
  BsonWriter reply;
  reply.append("size", sum_of(answers, "size")).append("numObjects", sum_of(answers, "numObjects"));
  reply.append("millis", static_cast<std::int64_t>(sum_of(answers, "millis")));
  return ok_document(std::move(reply));
}

Result<std::int32_t> scale_of(const Request& request) {
  const ValueView given = request.body["scale"];
  if (!given.is_number() && given.truthy()) return Error(4390201, "scale has to be a number >= 1");
  if (!given.is_number()) return 1;
  const std::int64_t scale = given.truncated_int64().value_or(0);
  if (scale < 1) return Error(4390200, "scale has to be >= 1");
  return static_cast<std::int32_t>(std::min<std::int64_t>(scale, std::numeric_limits<std::int32_t>::max()));
}

// Shards tell bytes: scaled ones would be rounded, each part for itself. Up to 4.2 a mongos has them scaled.
Answer scaled_coll_stats(Context& context, const Request& request, Result<Owners> targets) {
  const bool divides = targets.has_value() && (context.in_cluster() ? config_wire_version(context) >= v4_4
                                                                    : targets->shards.size() > 1);
  BsonDoc body;
  Request inner = request;
  if (divides) {
    SPILLWAY_CO_TRY(scale, scale_of(request));
    targets->scale = *scale;
    BsonWriter out;
    copy_command(out, request, {"scale"});
    body = std::move(out).finish();
    inner.replace_body(body);
  }
  auto asking = statistics(context, inner, std::move(targets), coll_stats_of);
  co_return co_await asking;
}

// Of the buckets of a sharded time series, under its own name.
Answer coll_stats_of_buckets(Context& context, const Request& request) {
  const BsonDoc body = command_on_buckets(request, false);
  Request inner = request;
  inner.replace_body(body);
  auto targets = owners_of(inner);
  if (targets.has_value()) targets->ns = request.ns();
  auto asking = scaled_coll_stats(context, inner, std::move(targets));
  co_return co_await asking;
}

Answer coll_stats(Context& context, Client&, const Request& request) {
  if (has_sharded_buckets(request)) return coll_stats_of_buckets(context, request);
  return scaled_coll_stats(context, request, owners_of(request));
}

Answer validate(Context& context, Client&, const Request& request) {
  return statistics(context, request, owners_of(request), validate_of);
}

Answer data_size(Context& context, Client&, const Request& request) {
  return statistics(context, request, owners_of_full_name(request), data_size_of);
}

Answer db_stats(Context& context, Client&, const Request& request) {
  const ValueView scale = request.body["scale"];
  if (scale.is_number() && scale.to_double().value_or(1) <= 0) {
    co_return Error(ErrorCode::bad_value, "scale has to be > 0");
  }
  const shard::CallOptions options = read_options(context, request);
  Fanned fanned = co_await fan_out(context, request, request.routes->all_shards(), RoutedBy::nothing(), options);
  if (auto failed = take_failure(fanned.answers, Tolerate::nothing)) co_return *failed;
  co_return Response(merge_db_stats(fanned.answers, request.db, context.in_cluster()));
}

// A user who may not list all databases sees those on which it has any privilege. (listDatabases'
// authorizedDatabases)
bool sees_database(const Context& context, const Client& client, const Request& request, std::string_view db) {
  if (!context.shared.authorization) return true;
  const bool all = may_on_cluster(context, client, auth::Action::list_databases);
  const ValueView wanted = request.body["authorizedDatabases"];
  if (all && !wanted.truthy()) return true;
  return client.login.user && client.login.user->privileges.touches(db);
}

Answer list_databases(Context& context, Client& client, const Request& request) {
  const ValueView own = request.body["authorizedDatabases"];
  if (own.exists() && !own.truthy() && !may_on_cluster(context, client, auth::Action::list_databases)) {
    co_return Error(ErrorCode::unauthorized, "Insufficient permissions to list all databases");
  }
  const shard::CallOptions options = read_options(context, request);
  catalog::ShardSet asked = request.routes->all_shards();
  // They may be a shard, too, and are asked once.
  std::string config = context.in_cluster() ? request.routes->shard(cluster::config_shard).name : "";
  const bool holds_data = request.routes->shard_by_name(config).has_value();
  if (context.in_cluster() && !holds_data) asked.insert(cluster::config_shard);
  Fanned fanned = co_await fan_out(context, request, asked, RoutedBy::nothing(), options);
  if (auto failed = take_failure(fanned.answers, Tolerate::nothing)) co_return *failed;
  const auto seen = [&](std::string_view db) { return sees_database(context, client, request, db); };
  const ConfigServers servers{config, holds_data};
  co_return Response(merge_list_databases(fanned.answers, request.body["nameOnly"].truthy(), seen, servers));
}

// Each owner's answer under its name, and the first one's fields as the whole's.
Answer plan_cache(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(targets, owners_of(request));
  auto fanning = fan_out(context, request, targets->shards, targets->by(), write_options(context, request));
  Fanned fanned = co_await fanning;
  if (auto failed = take_failure(fanned.answers, Tolerate::nothing)) co_return *failed;
  BsonWriter reply;
  reply.append_elements(fanned.answers.front().body,
                        [](std::string_view name) { return !is_stripped_from_reply(name) && name != "ok"; });
  for (const ShardAnswer& answer : fanned.answers) reply.append(answer.shard, answer.body);
  co_return ok_response(std::move(reply));
}

Answer set_index_commit_quorum(Context& context, Client&, const Request& request) {
  // 4.2 asks all shards, of which some build none.
  const bool of_all = context.in_cluster() && config_wire_version(context) < v4_4;
  return to_owners(context, request, of_all ? Tolerate::index_not_found : Tolerate::nothing, true);
}

// Of Queryable Encryption: the collections that belong to an encrypted one lie on its database's primary shard.
Answer structured_encryption(Context& context, Client&, const Request& request) {
  if (context.in_cluster()) co_return co_await run_by_form(context, request);
  SPILLWAY_CO_TRY(targets, owners_of(request));
  if (targets->shards.size() > 1) {
    co_return Error(ErrorCode::command_not_supported,
                    fmt::format("{} of a collection on several shards is not supported", request.name));
  }
  co_return co_await forward_write(context, request, *targets);
}

// A router asks the host that manages search indexes, and this one knows none. A static table's only owner may.
Answer search_indexes(Context& context, Client&, const Request& request) {
  std::int32_t wire_version = 0;
  if (context.in_cluster()) {
    wire_version = config_wire_version(context);
  } else {
    SPILLWAY_CO_TRY(targets, owners_of(request));
    if (targets->shards.size() == 1) co_return co_await forward_write(context, request, *targets);
    wire_version = advertised_wire_version(context.gateway);
  }
  if (wire_version < v7_0) {
    co_return Error(ErrorCode::command_not_found, fmt::format("no such command: '{}'", request.name));
  }
  co_return Error(ErrorCode::search_not_enabled,
                  fmt::format("{} is not possible through this router: manage search indexes where the servers' search "
                              "host (mongot) is configured",
                              request.name));
}

Answer split_vector(Context& context, Client&, const Request& request) {
  SPILLWAY_CO_TRY(targets, owners_of_full_name(request));
  if (catalog::split_namespace(targets->ns).db != request.db) {
    co_return Error(ErrorCode::illegal_operation, "Performing splitVector across dbs isn't supported via mongos");
  }
  if (targets->routing != nullptr) {
    co_return Error(ErrorCode::illegal_operation,
                    fmt::format("can't do command: {} on sharded collection", request.name));
  }
  co_return co_await forward_read(context, request, *targets);
}

}  // namespace

std::span<const CommandSpec> schema_commands() {
  using auth::Action;
  using enum RouteNeed;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"listDatabases", "the databases of all shards", list_databases, any_user, admin_only | secondary_ok | stable},
      {"listCollections", "the collections of a database", list_collections_command,
       by_rule(may_list_collections), secondary_ok | opens_cursor | stable, database},
      {"listIndexes", "a collection's indexes", list_indexes_command, on_collection(Action::list_indexes),
       secondary_ok | opens_cursor | stable, written},
      {"create", "create a collection", create, by_rule(may_create),
       in_transaction | makes_database | stable | audited, pipeline},
      {"createIndexes", "create indexes", create_indexes, on_collection(Action::create_index),
       in_transaction | makes_database | stable | audited, written},
      {"dropIndexes", "drop indexes", drop_indexes, on_collection(Action::drop_index), stable | audited, collection},
      {"deleteIndexes", "older name of dropIndexes", drop_indexes, on_collection(Action::drop_index),
       stable | audited, collection},
      {"drop", "drop a collection", drop, on_collection(Action::drop_collection), stable | audited},
      {"dropDatabase", "drop a database", drop_database, on_database(Action::drop_database), stable | audited},
      {"collMod", "change a collection's options", coll_mod, by_rule(may_coll_mod), stable | audited, collection},
      {"validate", "check a collection", validate, on_collection(Action::validate), secondary_ok, collection},
      {"renameCollection", "rename a collection", rename_collection, by_rule(may_rename), admin_only | audited,
       full_name},
      {"convertToCapped", "make a collection capped", convert_to_capped, on_collection(Action::convert_to_capped),
       audited, collection},
      {"collStats", "statistics of a collection", coll_stats, on_collection(Action::coll_stats), secondary_ok,
       written},
      {"collstats", "older name of collStats", coll_stats, on_collection(Action::coll_stats), secondary_ok, written},
      {"dataSize", "size of a collection's documents", data_size, on_full_name(Action::find), secondary_ok, full_name},
      {"dbStats", "statistics of a database", db_stats, on_database(Action::db_stats), secondary_ok},
      {"planCacheClear", "forget cached plans", plan_cache, on_collection(Action::plan_cache_write), {}, collection},
      {"planCacheListFilters", "index filters", plan_cache, on_collection(Action::plan_cache_index_filter),
       secondary_ok, collection},
      {"planCacheSetFilter", "set an index filter", plan_cache, on_collection(Action::plan_cache_index_filter), {},
       collection},
      {"planCacheClearFilters", "clear index filters", plan_cache, on_collection(Action::plan_cache_index_filter), {},
       collection},
      {"planCacheListQueryShapes", "of 4.2: cached query shapes", plan_cache, on_collection(Action::plan_cache_read),
       secondary_ok, collection},
      {"planCacheListPlans", "of 4.2: cached plans", plan_cache, on_collection(Action::plan_cache_read), secondary_ok,
       collection},
      {"setIndexCommitQuorum", "how many members an index build waits for", set_index_commit_quorum,
       on_collection(Action::create_index), {}, collection},
      {"compactStructuredEncryptionData", "compact the data of encrypted fields", structured_encryption,
       on_collection(Action::compact_structured_encryption_data)},
      {"cleanupStructuredEncryptionData", "remove what encrypted fields no longer need", structured_encryption,
       on_collection(Action::cleanup_structured_encryption_data)},
      {"createSearchIndexes", "create search indexes", search_indexes, on_collection(Action::create_search_indexes)},
      {"updateSearchIndex", "change a search index", search_indexes, on_collection(Action::update_search_index)},
      {"dropSearchIndex", "drop a search index", search_indexes, on_collection(Action::drop_search_index)},
      {"listSearchIndexes", "a collection's search indexes", search_indexes,
       on_collection(Action::list_search_indexes)},
      {"splitVector", "split points of a collection that is not sharded", split_vector,
       on_full_name(Action::split_vector), cluster_only, full_name},
      {"datasize", "older name of dataSize", data_size, on_full_name(Action::find), secondary_ok, full_name},
      {"dbstats", "older name of dbStats", db_stats, on_database(Action::db_stats), secondary_ok},
  };
  return specs;
}

}  // namespace spillway::exec
