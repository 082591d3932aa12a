#include "proxy/exec/core/cluster_fields.h"

#include <algorithm>
#include <array>
#include <span>

#include "cursor/field_table.h"
#include "proxy/auth/impersonation.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/auth/users.h"
#include "proxy/base/clock.h"
#include "proxy/cluster/config_client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/shard_time.h"
#include "proxy/shard/stale_error.h"

namespace spillway::exec {

DocView body_of(const shard::Command& command) {
  // Handlers put the body first, in a piece of its own or together with the sequences after it.
  const auto place = command.find_body();
  std::size_t offset = place ? place->offset : 0;
  for (std::size_t i = 0; place && i < command.section_count; ++i) {
    const iovec& piece = command.sections[i];
    if (offset < piece.iov_len) return DocView::trusted(static_cast<const std::uint8_t*>(piece.iov_base) + offset);
    offset -= piece.iov_len;
  }
  return {};
}

bool is_map_reduce(std::string_view name) noexcept { return name == "mapReduce" || name == "mapreduce"; }

namespace {

constexpr FieldTable<4> reads({"find", "aggregate", "count", "distinct"});
constexpr FieldTable<4> with_constants({"find", "aggregate", "update", "findAndModify"});
constexpr FieldTable<3> transaction_ends({"commitTransaction", "abortTransaction", "coordinateCommitTransaction"});
constexpr FieldTable<4> schema_commands({"createIndexes", "dropIndexes", "create", "convertToCapped"});

std::string_view name_of(DocView body) { return body.empty() ? std::string_view() : body.first().name; }

bool is_write(std::string_view name) {
  const CommandSpec* const spec = command_named(name);
  return spec != nullptr && spec->is(Trait::writes);
}

bool takes_write_concern(DocView body) {
  const std::string_view name = name_of(body);
  if (is_write(name) || schema_commands.contains(name)) return true;
  if (is_map_reduce(name)) {
    const ValueView out = body["out"];
    return out.is_string() || (out.is_document() && !out.as_document()["inline"].exists());
  }
  if (name != "aggregate" || !body["pipeline"].is_array()) return false;
  std::string_view last;
  for (auto stage = body["pipeline"].as_document().begin(); !stage.done(); ++stage) {
    const bool named = stage->is_document() && !stage->as_document().empty();
    last = named ? stage->as_document().first().name : std::string_view();
  }
  return last == "$out" || last == "$merge";
}

// Where the choice comes from is said, so that a shard's messages can tell: "customDefault", by an administrator.
void append_concern(BsonWriter& out, std::string_view field, DocView concern, std::string_view provenance) {
  out.begin_document(field).append_elements(concern).append("provenance", provenance).end();
}

// From 5.0 on the default write concern is the majority, unless an administrator has set another one.
BsonDoc default_write_concern(const catalog::ConcernDefaults* set) {
  if (set != nullptr && !set->write.view().empty()) return set->write;
  return BsonWriter().append("w", "majority").append("wtimeout", 0).finish();
}

// Shards apply no default concerns themselves.
void append_write_concern(BsonWriter& out, DocView body, const catalog::ConcernDefaults* set, std::int32_t wire) {
  if (wire < wire_version_of_4_4 || body["writeConcern"].exists()) return;
  if (body["autocommit"].exists() && !transaction_ends.contains(name_of(body))) return;
  const bool is_set = set != nullptr && !set->write.view().empty();
  if (!is_set && wire < wire_version_of_5_0) return;
  append_concern(out, "writeConcern", default_write_concern(set), is_set ? "customDefault" : "implicitDefault");
}

// A member that is not the primary looks at no version without a read concern, and shows documents that have moved.
void append_read_concern(BsonWriter& out, DocView body, const catalog::ConcernDefaults* set, std::int32_t wire,
                         bool from_any_member, bool as_router, const Participants::Contact& contact) {
  const bool has_default = set != nullptr && !set->read.view().empty() && wire >= wire_version_of_4_4;
  if (body["readConcern"].exists()) return;
  const bool in_transaction = body["autocommit"].exists() && !contact.first;
  if (has_default && reads.contains(name_of(body)) && !in_transaction) {
    append_concern(out, "readConcern", set->read.view(), "customDefault");
  } else if (from_any_member) {
    out.begin_document("readConcern").append("level", "local").end();
  } else if (as_router && !in_transaction) {
    out.begin_document("readConcern").end();
  }
}

void append_versions(BsonWriter& out, const ShardCommand& command, std::int32_t wire) {
  const RoutedBy& by = command.by;
  const auto form = catalog::version_form(wire);
  if (by.what() == RoutedBy::What::sharded) {
    catalog::append_shard_version(out, by.collection()->version_on(command.shard), form);
    const bool looks_at_both = wire < wire_version_of_4_4 && by.database() != nullptr && by.database()->version;
    if (looks_at_both) catalog::append_database_version(out, *by.database()->version);
    return;
  }
  if (by.what() == RoutedBy::What::multi_write) {
    // With the marker a shard still refuses while a chunk's critical section lasts.
    const bool marked = wire >= wire_version_of_4_4 && form != catalog::VersionForm::object;
    catalog::append_shard_version(out, catalog::ChunkVersion::ignored(), form, marked);
    return;
  }
  // Shards from 4.4 on act as routers, as they must for stages that read other collections, for a versioned command.
  const bool merging = by.what() == RoutedBy::What::merging;
  if (merging && wire >= wire_version_of_4_4) {
    catalog::append_shard_version(out, catalog::ChunkVersion::ignored(), form);
    return;
  }
  if (by.database() == nullptr || !by.database()->version) return;
  if (by.what() == RoutedBy::What::unsharded) {
    catalog::append_shard_version(out, catalog::ChunkVersion::unsharded(), form);
  }
  catalog::append_database_version(out, *by.database()->version);
}

Mentions mentions_in(const shard::Command& command) noexcept {
  constexpr std::array<std::string_view, 2> constants = {"$$NOW", "$$CLUSTER_TIME"};
  constexpr std::array<std::string_view, 5> stages = {"$lookup", "$graphLookup", "$unionWith", "$merge", "$out"};
  Mentions found;
  for (const iovec& piece : std::span(command.sections).first(command.section_count)) {
    std::string_view left(static_cast<const char*>(piece.iov_base), piece.iov_len);
    for (auto at = left.find('$'); at != left.npos && !(found.constants && found.namespaces); at = left.find('$')) {
      left.remove_prefix(at);
      const auto begins = [left](std::string_view text) { return left.starts_with(text); };
      found.constants = found.constants || std::any_of(constants.begin(), constants.end(), begins);
      found.namespaces = found.namespaces || std::any_of(stages.begin(), stages.end(), begins);
      left.remove_prefix(1);
    }
  }
  return found;
}

// All shards of an operation, the merging one too, have one time.
void append_constants(BsonWriter& out, std::uint64_t cluster_time, shard::ShardTime* operation) {
  shard::ShardTime::Constants constants{wall_clock_ms(), cluster_time};
  if (operation != nullptr) {
    if (!operation->constants) operation->constants = constants;
    constants = *operation->constants;
  }
  out.begin_document("runtimeConstants").append_date("localNow", constants.now_ms);
  out.append_timestamp("clusterTime", constants.cluster_time).end();
}

// The parts of a transaction on shards begin with these. Returns whether a readConcern is among them. A shard of 8.0 or
// later takes a time out of it for the shards that it brings in itself. `told`: the time that the command tells it; a
// later one it refuses. `otherwise`: the readConcern that is the default; {}: none.
bool append_start(BsonWriter& out, const TransactionConcern& concern, std::int32_t wire, std::uint64_t told,
                  DocView otherwise) {
  out.append("startTransaction", true);
  using Level = TransactionConcern::Level;
  std::uint64_t after = concern.after_cluster_time;
  if (wire >= wire_version_of_8_0) after = std::max(after, std::min(concern.began_at, told));
  if (concern.level == Level::none && after == 0) return false;
  out.begin_document("readConcern");
  if (concern.level != Level::none) {
    out.append("level", concern.level == Level::local      ? "local"
                        : concern.level == Level::majority ? "majority"
                                                           : "snapshot");
  } else if (!otherwise.empty()) {
    out.append_elements(otherwise).append("provenance", "customDefault");
  }
  if (concern.at_cluster_time != 0) {
    out.append_timestamp("atClusterTime", concern.at_cluster_time);
  } else if (after != 0) {
    out.append_timestamp("afterClusterTime", after);
  }
  out.end();
  return true;
}

// Has it given the command a readConcern?
bool append_transaction(BsonWriter& out, const Context& context, catalog::ShardIndex shard, DocView body,
                        const std::optional<OfTransaction>& transaction, Participants::Contact& with_shard) {
  if (!transaction || body.first().name == "abortTransaction") return false;
  const Services& shared = context.shared;
  const auto contact =
      shared.transactions->contact(transaction->lsid, transaction->txn_number, shard, shared.clock.now());
  if (!contact) return false;
  with_shard = contact->with_shard;
  bool has_concern = false;
  if (with_shard.first) {
    const auto told = shared.clock.for_server(shared.shards_trust_us);
    const catalog::ConcernDefaults* const set = context.router->concern_defaults();
    const bool has_default = set != nullptr && reads.contains(name_of(body));
    has_concern = append_start(out, contact->concern, context.gateway.capabilities(shard).max_wire_version,
                               told ? told->time : 0, has_default ? set->read.view() : DocView());
  }
  if (with_shard.coordinator) out.append("coordinator", true);
  return has_concern;
}

}  // namespace

std::int32_t config_wire_version(const Context& context) {
  return context.gateway.capabilities(cluster::config_shard).max_wire_version;
}

bool may_have_version(const Context& context, catalog::ShardIndex shard, std::int32_t wire) {
  const std::int32_t known = context.gateway.capabilities(shard).max_wire_version;
  return known == 0 || known >= wire;
}

std::optional<OfTransaction> transaction_of(DocView body) {
  if (!body["autocommit"].exists()) return std::nullopt;
  const ValueView lsid = body["lsid"];
  const auto txn_number = body["txnNumber"].to_int64();
  if (!lsid.is_document() || !txn_number) return std::nullopt;
  return OfTransaction{{reinterpret_cast<const char*>(lsid.bytes.data()), lsid.bytes.size()}, *txn_number};
}

namespace {

// The shards that a shard of 8.0 or later has brought into the transaction.
std::vector<TransactionTable::Added> added_by(const Context& context, DocView reply) {
  std::vector<TransactionTable::Added> added;
  const auto& states = context.gateway.states();
  for (const Element& each : reply["additionalParticipants"].to_array()) {
    const DocView participant = each.to_document();
    const ValueView name = participant["shardId"], read_only = participant["readOnly"];
    if (!name.is_string()) continue;
    // The config servers may be a shard, too, of the same name.
    const auto named = std::find_if(states.begin() + cluster::config_shard + 1, states.end(), [&](const auto& state) {
      return !state.retired && state.name == name.as_string();
    });
    if (named == states.end()) continue;
    // A shard that says nothing of it has only read for a getMore.
    added.push_back({static_cast<catalog::ShardIndex>(named - states.begin()),
                     !read_only.exists() || read_only.truthy()});
  }
  return added;
}

}  // namespace

void note_participant(Context& context, const OfTransaction& transaction, catalog::ShardIndex shard, DocView reply) {
  TransactionTable& table = *context.shared.transactions;
  // Only batches of reads stream.
  if (reply.empty()) return table.note_answer(transaction.lsid, transaction.txn_number, shard, true);
  const ValueView read_only = reply["readOnly"];
  if (read_only.type != BsonType::boolean) return;
  table.note_answer(transaction.lsid, transaction.txn_number, shard, read_only.as_bool(), added_by(context, reply));
}

void note_failed_participant(Context& context, const OfTransaction& transaction, catalog::ShardIndex shard,
                             const Error& error, DocView reply) {
  TransactionTable& table = *context.shared.transactions;
  const std::vector<TransactionTable::Added> added = added_by(context, reply);
  // The only error that does not end the transaction on its shard. The answer does not say readOnly.
  if (error.is(ErrorCode::would_change_owning_shard)) {
    table.note_answer(transaction.lsid, transaction.txn_number, shard, true, added);
  } else if (!added.empty()) {
    table.note_refusal(transaction.lsid, transaction.txn_number, added);
  }
}

bool needs_router(const Context& context, const ShardCommand& command, DocView body, Mentions mentions) {
  if (!context.in_cluster() || command.shard == cluster::config_shard) return false;
  if (command.by.what() == RoutedBy::What::nothing) return false;  // they get no concerns, either
  if (context.gateway.capabilities(command.shard).max_wire_version < wire_version_of_5_0) return false;
  const Element first = body.first();
  const bool explains = first.name == "explain" && first.is_document();
  const std::string_view name = explains ? name_of(first.as_document()) : first.name;
  if (is_map_reduce(name)) return true;
  if (!reads.contains(name)) return false;
  if (command.by.what() == RoutedBy::What::unsharded) return true;  // it may be a view
  if (name != "aggregate") return false;
  return mentions.namespaces;
}

Mentions mentions_of(const Context& context, const ShardCommand& command, DocView body) noexcept {
  if (command.mentions) return *command.mentions;
  if (!context.in_cluster() || command.by.what() == RoutedBy::What::nothing) return {};
  const Element first = body.first();
  const bool explains = first.name == "explain" && first.is_document();
  return explains || with_constants.contains(first.name) ? mentions_in(command.command) : Mentions();
}

void complete_write_concern(const Context& context, Request& request) {
  if (request.in_transaction && !transaction_ends.contains(request.name)) return;  // none is allowed
  if (!request.lacks_w || config_wire_version(context) < wire_version_of_5_0) {
    return;
  }
  const DocView own = request.body["writeConcern"].as_document();
  const BsonDoc defaults = default_write_concern(context.router->concern_defaults());
  BsonWriter out;
  out.append_elements(own);
  const bool says_when = own["j"].exists() || own["fsync"].exists();
  for (const Element& each : defaults.view()) {
    if (each.name == "w" || own.empty() || (each.name == "j" && !says_when)) out.append_element(each);
  }
  request.owned_write_concern = std::make_shared<const BsonDoc>(std::move(out).finish());
  request.strips_fields = true;
}

bool adds_fields(const Context& context) {
  return context.in_cluster() || (context.has_cluster_time() && context.shared.clock.now() != 0);
}

bool waits_for_version(const Context& context, const ShardCommand& command) {
  return context.in_cluster() && command.by.what() != RoutedBy::What::nothing &&
         command.shard != cluster::config_shard && command.shard != catalog::no_shard &&
         context.gateway.capabilities(command.shard).max_wire_version == 0;
}

BsonDoc fields_for_shard(const Context& context, const ShardCommand& command, const shard::CallOptions& options,
                         DocView body, Mentions mentions, const std::optional<OfTransaction>& transaction) {
  BsonWriter out;
  const Services& shared = context.shared;
  if (const auto time = shared.clock.for_server(shared.shards_trust_us)) auth::append_cluster_time(out, *time);
  if (!context.in_cluster()) return std::move(out).finish();
  const std::int32_t wire = context.gateway.capabilities(command.shard).max_wire_version;
  if (const auth::User* const user = options.user) {
    auth::append_impersonation(out, user->db, user->name, user->resolved ? user->resolved->roles : user->roles, wire);
    // A server that is not told looks at the rights of the connection, which are the router's: every right.
    if (wire >= wire_version_of_6_0) {
      out.append("mayBypassWriteBlocking", user->privileges.on_cluster().has(auth::Action::bypass_write_blocking_mode));
    }
  }
  const catalog::ConcernDefaults* const defaults = context.router->concern_defaults();
  // The config servers look at no versions. They apply no defaults to writes, either.
  if (command.shard == cluster::config_shard) {
    if (is_write(name_of(body))) append_write_concern(out, body, defaults, wire);
    return std::move(out).finish();
  }
  Participants::Contact contact;
  const bool has_concern = append_transaction(out, context, command.shard, body, transaction, contact);
  const bool indexes_make = wire < wire_version_of_4_4 && name_of(body) == "createIndexes";
  if (command.by.what() == RoutedBy::What::nothing) {  // nor do open cursors and transactions look at versions
    // One that never owned a part of the sharded collection would make it without the collection's options.
    if (indexes_make) out.append("allowImplicitCollectionCreation", false);
    if (transaction_ends.contains(name_of(body))) append_write_concern(out, body, defaults, wire);
    return std::move(out).finish();
  }
  append_versions(out, command, wire);
  const bool with_own = mentions.constants && with_constants.contains(name_of(body));
  if (with_own && !body["runtimeConstants"].exists()) append_constants(out, shared.clock.now(), options.time);
  const bool from_any_member =
      options.read_preference != nullptr && options.read_preference->mode != shard::ReadMode::primary;
  if (!has_concern) append_read_concern(out, body, defaults, wire, from_any_member, options.as_router, contact);
  // A shard that made a collection by itself, while others drop it or make it, would make one that is not the
  // cluster's. It has the config servers make it, and answers 227. From 4.4 on transactions make theirs by themselves.
  const bool makes_own = wire == wire_version_of_4_4 && transaction;
  const bool makes_collections = is_write(name_of(body)) || indexes_make;
  const bool config_makes = config_wire_version(context) < wire_version_of_5_0;  // later ones do not
  if (wire <= wire_version_of_4_4 && config_makes && !makes_own && makes_collections) {
    out.append("allowImplicitCollectionCreation", false);
  }
  if (wire >= wire_version_of_4_4 && takes_write_concern(body)) {
    append_write_concern(out, body, defaults, wire);
  } else if (options.as_router && !transaction && !body["writeConcern"].exists() &&
             (name_of(body) == "aggregate" || is_map_reduce(name_of(body)))) {
    out.begin_document("writeConcern").end();  // any of them may have one
  }
  return std::move(out).finish();
}

void hear_cluster_time(Context& context, DocView told) {
  if (told.empty()) return;
  const auto time = catalog::read_timestamp(told["clusterTime"]);
  if (!time || *time <= context.shared.clock.now()) return;
  ValueView value;
  value.type = BsonType::document;
  value.bytes = told.bytes();
  if (const auto read = auth::read_cluster_time(value); !read.has_error()) {
    context.shared.clock.hear(*read, wall_clock_ms() / 1000);
  }
}

void note_times(Context& context, const shard::Reply& reply, shard::ShardTime* time) {
  hear_cluster_time(context, reply.cluster_time());
  if (time == nullptr) return;
  if (const auto at = catalog::read_timestamp(reply.operation_time())) time->note_operation_time(*at);
}

BsonDoc times_for_client(const Context& context, auth::TimeTrust trust, std::uint64_t operation_time) {
  const auto time = context.shared.clock.for_client(trust);
  if (!time) return {};
  BsonWriter out;
  out.append_timestamp("operationTime", operation_time != 0 ? operation_time : context.shared.clock.now());
  auth::append_cluster_time(out, *time);
  return std::move(out).finish();
}

void note_refusal(Context& context, const RoutedBy& by, DocView reply) {
  const shard::StaleError error = shard::classify_error(reply);
  if (error.kind != shard::StaleKind::none) context.shared.metrics.stale_refusals.add();
  Router& router = *context.router;
  switch (error.kind) {
    case shard::StaleKind::stale_config:
    case shard::StaleKind::cannot_implicitly_create: {
      const catalog::CollectionRouting* const sent_by = by.collection();
      const std::string_view ns = error.ns.empty() && sent_by != nullptr ? std::string_view(sent_by->ns) : error.ns;
      const catalog::Namespace name = catalog::split_namespace(ns);
      if (sent_by != nullptr && sent_by->ns == ns) {
        router.note_refused(*sent_by);
      } else {
        router.note_stale({name.db, name.collection});
      }
      if (error.kind == shard::StaleKind::cannot_implicitly_create) router.note_stale({name.db, {}});
      break;
    }
    case shard::StaleKind::stale_database:
      if (const auto* sent_by = by.database(); sent_by != nullptr && (error.ns.empty() || sent_by->name == error.ns)) {
        router.note_refused(*sent_by);
      } else {
        router.note_stale({error.ns, {}});
      }
      break;
    case shard::StaleKind::cannot_refresh:
    case shard::StaleKind::view:
    case shard::StaleKind::none:
      break;
  }
}

}  // namespace spillway::exec
