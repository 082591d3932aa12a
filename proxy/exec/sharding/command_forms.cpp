#include "proxy/exec/sharding/command_forms.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::exec {

namespace {

using Target = CommandForm::Target;
using About = CommandForm::About;
using Value = CommandForm::Value;
using Reply = CommandForm::Reply;
using Routing = catalog::CollectionRouting;
using shard::RetryPolicy;

void copy_field(BsonWriter& out, const Request& request, std::string_view name, std::string_view as = {}) {
  out.append(as.empty() ? name : as, request.body[name]);
}

void no_fields(BsonWriter&, const Request&, const Routing*) {}

void primary_shard_field(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "primaryShard");
}

// Without it servers of 6.0 whose featureCompatibilityVersion is 5.0 turn sharding off.
void create_database_fields_5_0(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "primaryShard", "primaryShardId");
  out.append("enableSharding", true);
}

void create_database_fields(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "primaryShard", "primaryShardId");
}

void shard_collection_fields(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "key");
  out.append("unique", request.body["unique"].truthy());
  out.append("numInitialChunks", request.body["numInitialChunks"].to_int64().value_or(0));
  copy_field(out, request, "presplitHashedZones");
  copy_field(out, request, "collation");
  out.append("getUUIDfromPrimaryShard", true);
}

void create_collection_fields(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "key", "shardKey");
  for (const std::string_view name :
       {"unique", "numInitialChunks", "presplitHashedZones", "collation", "timeseries", "collectionUUID",
        "implicitlyCreateIndex", "enforceUniquenessCheck"}) {
    copy_field(out, request, name);
  }
}

void refine_fields_4_4(BsonWriter& out, const Request& request, const Routing* routing) {
  copy_field(out, request, "key");
  if (routing != nullptr && routing->cluster) out.append_object_id("epoch", routing->cluster->version.epoch);
}

void refine_fields(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "key", "newShardKey");
  copy_field(out, request, "collectionUUID");
  copy_field(out, request, "enforceUniquenessCheck");
}

// All of the collection on one shard: how a collection that is not sharded moves.
void append_move(BsonWriter& out, ValueView shard, std::string_view provenance) {
  out.begin_document("key").append("_id", std::int32_t{1}).end();
  if (shard.exists()) {
    out.begin_array("shardDistribution").begin_document_item();
    out.append("shard", shard);
    out.begin_document("min").append_min_key("_id").end();
    out.begin_document("max").append_max_key("_id").end();
    out.end().end();
  }
  out.append("forceRedistribution", true).append("numInitialChunks", std::int64_t{1});
  out.append("provenance", provenance);
}

void move_collection_fields(BsonWriter& out, const Request& request, const Routing*) {
  append_move(out, request.body["toShard"], "moveCollection");
}

void unshard_fields(BsonWriter& out, const Request& request, const Routing*) {
  append_move(out, request.body["toShard"], "unshardCollection");
}

void abort_move_fields(BsonWriter& out, const Request&, const Routing*) { out.append("provenance", "moveCollection"); }
void abort_unshard_fields(BsonWriter& out, const Request&, const Routing*) {
  out.append("provenance", "unshardCollection");
}

void to_field(BsonWriter& out, const Request& request, const Routing*) { copy_field(out, request, "to"); }

// Shards of 5.x take no lock for it unless a router says that it sends it.
void to_field_of_router(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "to");
  out.append("commandIsFromRouter", true);
}

// The router takes true or false, the config servers a number.
void move_range_fields(BsonWriter& out, const Request& request, const Routing*) {
  for (const std::string_view name : {"toShard", "min", "max", "waitForDelete"}) copy_field(out, request, name);
  if (request.body["forceJumbo"].exists()) {
    out.append("forceJumbo", std::int32_t{request.body["forceJumbo"].truthy() ? 1 : 0});
  }
  if (request.body["secondaryThrottle"].exists()) {
    out.begin_document("secondaryThrottle");
    out.append("secondaryThrottle", request.body["secondaryThrottle"].truthy());
    copy_field(out, request, "writeConcern");
    out.end();
  }
}

void options_of_collection(BsonWriter& out, const Request& request, const Routing* routing) {
  out.begin_document("options");
  own_fields(out, request, routing);
  out.end();
}

void untracked_collection_fields(BsonWriter& out, const Request& request, const Routing* routing) {
  own_fields(out, request, routing);
  out.append("unsplittable", true).begin_document("shardKey").append("_id", std::int32_t{1}).end();
}

void rename_fields_5_0(BsonWriter& out, const Request& request, const Routing*) {
  copy_field(out, request, "to");
  const ValueView drop = request.body["dropTarget"];  // may be the uuid of what may be dropped
  out.append("dropTarget", drop.exists() && drop.truthy());
  if (drop.type == BsonType::binary) out.append("expectedTargetUUID", drop);
  copy_field(out, request, "collectionUUID", "expectedSourceUUID");
  out.append("stayTemp", request.body["stayTemp"].truthy());
}

// The last one is set by the command's handler, not by clients.
void rename_fields(BsonWriter& out, const Request& request, const Routing* routing) {
  rename_fields_5_0(out, request, routing);
  copy_field(out, request, "allowEncryptedCollectionRename");
}

constexpr Target on_primary = Target::primary_shard;

// For a command the newest form first.
constexpr CommandForm forms[] = {
    // databases and collections
    {.command = "enableSharding", .from = v7_0, .name = "_configsvrCreateDatabase", .value = Value::database,
     .about = About::database, .fields = create_database_fields, .reply = Reply::only_ok},
    {.command = "enableSharding", .from = v5_0, .name = "_configsvrCreateDatabase", .value = Value::database,
     .about = About::database, .fields = create_database_fields_5_0, .reply = Reply::only_ok},
    {.command = "enableSharding", .from = v4_4, .name = "_configsvrEnableSharding", .value = Value::database,
     .about = About::database, .fields = primary_shard_field},
    {.command = "enableSharding", .name = "_configsvrEnableSharding", .value = Value::database,
     .about = About::database, .fields = no_fields},
    {.command = "movePrimary", .from = v6_0, .target = on_primary, .name = "_shardsvrMovePrimary",
     .value = Value::database, .about = About::database, .fields = to_field, .reply = Reply::only_ok},
    {.command = "movePrimary", .from = v5_1, .target = on_primary, .name = "_shardsvrMovePrimary",
     .value = Value::database, .about = About::database, .fields = to_field_of_router, .reply = Reply::only_ok},
    {.command = "movePrimary", .name = "_configsvrMovePrimary", .value = Value::database, .about = About::database,
     .fields = to_field},
    {.command = "dropDatabase", .from = v5_0, .target = on_primary, .name = "_shardsvrDropDatabase",
     .value = Value::one, .about = About::own_database, .on_own_database = true},
    {.command = "dropDatabase", .name = "_configsvrDropDatabase", .value = Value::database,
     .about = About::own_database, .fields = no_fields},
    {.command = "create", .from = v8_0, .target = on_primary, .name = "_shardsvrCreateCollection",
     .about = About::own_collection, .fields = untracked_collection_fields, .on_own_database = true,
     .makes_database = true, .reply = Reply::only_ok},
    {.command = "create", .to = v4_4 - 1, .name = "_configsvrCreateCollection", .value = Value::full_name,
     .about = About::own_collection, .fields = options_of_collection, .makes_database = true,
     .reply = Reply::only_ok},
    {.command = "convertToCapped", .from = v8_0, .target = on_primary, .name = "_shardsvrConvertToCapped",
     .about = About::own_collection, .on_own_database = true},
    {.command = "drop", .from = v5_0, .target = on_primary, .name = "_shardsvrDropCollection",
     .about = About::own_collection, .on_own_database = true},
    {.command = "drop", .name = "_configsvrDropCollection", .value = Value::full_name,
     .about = About::own_collection, .fields = no_fields},
    {.command = "collMod", .from = v5_0, .target = on_primary, .name = "_shardsvrCollMod",
     .about = About::own_collection, .on_own_database = true},
    {.command = "dropIndexes", .from = v5_0, .target = on_primary, .name = "_shardsvrDropIndexes",
     .about = About::own_collection, .on_own_database = true, .retry = RetryPolicy::not_idempotent},
    // Done twice, it would drop what it has just renamed.
    {.command = "renameCollection", .from = v6_0, .target = on_primary, .name = "_shardsvrRenameCollection",
     .value = Value::collection, .about = About::collection, .fields = rename_fields, .on_own_database = true,
     .reply = Reply::only_ok, .retry = RetryPolicy::none},
    {.command = "renameCollection", .from = v5_0, .target = on_primary, .name = "_shardsvrRenameCollection",
     .value = Value::collection, .about = About::collection, .fields = rename_fields_5_0, .on_own_database = true,
     .reply = Reply::only_ok, .retry = RetryPolicy::none},
    {.command = "compactStructuredEncryptionData", .from = v6_0, .target = on_primary,
     .name = "_shardsvrCompactStructuredEncryptionData", .about = About::own_collection, .on_own_database = true,
     .changes_table = false},
    {.command = "cleanupStructuredEncryptionData", .from = v7_0, .target = on_primary,
     .name = "_shardsvrCleanupStructuredEncryptionData", .about = About::own_collection, .on_own_database = true,
     .changes_table = false},
    // sharded collections
    {.command = "shardCollection", .from = v6_0, .target = on_primary, .name = "_shardsvrCreateCollection",
     .value = Value::collection, .about = About::collection, .fields = create_collection_fields,
     .on_own_database = true, .makes_database = true, .reply = Reply::sharded},
    {.command = "shardCollection", .from = v5_0, .target = on_primary, .name = "_shardsvrCreateCollection",
     .value = Value::collection, .about = About::collection, .fields = create_collection_fields,
     .on_own_database = true, .reply = Reply::sharded},
    {.command = "shardCollection", .name = "_configsvrShardCollection", .value = Value::full_name,
     .about = About::collection, .fields = shard_collection_fields},
    {.command = "refineCollectionShardKey", .from = v5_0, .target = on_primary,
     .name = "_shardsvrRefineCollectionShardKey", .value = Value::collection, .about = About::collection,
     .fields = refine_fields, .on_own_database = true},
    {.command = "refineCollectionShardKey", .from = v4_4, .name = "_configsvrRefineCollectionShardKey",
     .value = Value::full_name, .about = About::collection, .fields = refine_fields_4_4, .needs_table = true},
    {.command = "reshardCollection", .from = v5_0, .target = on_primary, .name = "_shardsvrReshardCollection",
     .about = About::collection},
    {.command = "commitReshardCollection", .from = v5_0, .name = "_configsvrCommitReshardCollection",
     .about = About::collection},
    {.command = "abortReshardCollection", .from = v5_0, .name = "_configsvrAbortReshardCollection",
     .about = About::collection},
    {.command = "cleanupReshardCollection", .from = v5_0, .name = "_configsvrCleanupReshardCollection",
     .about = About::collection, .majority = false},
    {.command = "moveCollection", .from = v8_0, .target = on_primary, .name = "_shardsvrReshardCollection",
     .about = About::collection, .fields = move_collection_fields},
    {.command = "unshardCollection", .from = v8_0, .target = on_primary, .name = "_shardsvrReshardCollection",
     .about = About::collection, .fields = unshard_fields},
    {.command = "abortMoveCollection", .from = v8_0, .name = "_configsvrAbortReshardCollection",
     .about = About::collection, .fields = abort_move_fields},
    {.command = "abortUnshardCollection", .from = v8_0, .name = "_configsvrAbortReshardCollection",
     .about = About::collection, .fields = abort_unshard_fields},
    {.command = "moveRange", .from = v6_0, .name = "_configsvrMoveRange", .about = About::collection,
     .fields = move_range_fields},
    {.command = "setAllowMigrations", .from = v6_0, .target = on_primary, .name = "_shardsvrSetAllowMigrations",
     .value = Value::collection, .about = About::collection, .on_own_database = true},
    {.command = "setAllowMigrations", .from = v5_0, .name = "_configsvrSetAllowMigrations",
     .about = About::collection},
    {.command = "repairShardedCollectionChunksHistory", .from = v4_4,
     .name = "_configsvrRepairShardedCollectionChunksHistory", .about = About::collection},
    // shards and zones
    {.command = "addShard", .name = "_configsvrAddShard", .changes_shards = true},
    {.command = "removeShard", .name = "_configsvrRemoveShard", .fields = no_fields, .changes_shards = true},
    {.command = "transitionFromDedicatedConfigServer", .from = v8_0,
     .name = "_configsvrTransitionFromDedicatedConfigServer", .changes_shards = true},
    {.command = "transitionToDedicatedConfigServer", .from = v8_0,
     .name = "_configsvrTransitionToDedicatedConfigServer", .changes_shards = true},
    {.command = "addShardToZone", .name = "_configsvrAddShardToZone", .reply = Reply::only_ok},
    {.command = "removeShardFromZone", .name = "_configsvrRemoveShardFromZone", .reply = Reply::only_ok},
    {.command = "updateZoneKeyRange", .name = "_configsvrUpdateZoneKeyRange", .reply = Reply::only_ok},
    // the balancer
    {.command = "balancerStart", .name = "_configsvrBalancerStart", .value = Value::one, .majority = false},
    {.command = "balancerStop", .name = "_configsvrBalancerStop", .value = Value::one, .majority = false},
    {.command = "balancerStatus", .name = "_configsvrBalancerStatus", .value = Value::one, .majority = false},
    {.command = "balancerCollectionStatus", .from = v4_4, .name = "_configsvrBalancerCollectionStatus",
     .about = About::collection, .majority = false, .changes_table = false},
    {.command = "configureCollectionBalancing", .from = v6_0, .name = "_configsvrConfigureCollectionBalancing",
     .about = About::collection, .majority = false, .reply = Reply::only_ok},
    // the cluster
    {.command = "setFeatureCompatibilityVersion", .name = "setFeatureCompatibilityVersion",
     .reply = Reply::only_ok},
    {.command = "setDefaultRWConcern", .from = v4_4, .name = "setDefaultRWConcern", .changes_concerns = true,
     .retry = RetryPolicy::not_idempotent},
    {.command = "getDefaultRWConcern", .from = v4_4, .name = "getDefaultRWConcern", .majority = false},
    {.command = "setClusterParameter", .from = v6_0, .name = "_configsvrSetClusterParameter", .majority = false,
     .reply = Reply::only_ok},
    {.command = "getClusterParameter", .from = v6_0, .name = "getClusterParameter", .majority = false},
    {.command = "setUserWriteBlockMode", .from = v6_0, .name = "_configsvrSetUserWriteBlockMode"},
};

}  // namespace

std::span<const CommandForm> command_forms() { return forms; }

void own_fields(BsonWriter& out, const Request& request, const Routing*) {
  auto at = request.body.begin();
  for (++at; !at.done(); ++at) {
    if (!is_argument_of_any_command(at->name)) out.append_element(*at);
  }
}

const CommandForm* find_form(std::string_view command, std::int32_t wire_version) {
  if (command == "deleteIndexes") command = "dropIndexes";
  for (const CommandForm& form : forms) {
    if (wire_version < form.from || wire_version > form.to || form.command.size() != command.size()) continue;
    // Shells of before have names in small letters.
    const bool same = std::equal(command.begin(), command.end(), form.command.begin(), [](char a, char b) {
      return a == b || (b >= 'A' && b <= 'Z' && a == b - 'A' + 'a');
    });
    if (same) return &form;
  }
  return nullptr;
}

Result<std::string> name_of(const CommandForm& form, const Request& request) {
  const Element first = request.body.first();
  if (form.about == About::nothing) return std::string();
  if (form.about == About::own_database) return std::string(request.db);
  if (!first.is_string()) {
    return Error(ErrorCode::invalid_namespace, fmt::format("'{}' must be of type String", request.name));
  }
  const std::string_view text = first.as_string();
  if (form.about == About::own_collection) {
    if (text.empty()) {
      return Error(ErrorCode::invalid_namespace, fmt::format("Invalid namespace specified '{}.'", request.db));
    }
    return fmt::format("{}.{}", request.db, text);
  }
  const catalog::Namespace name = catalog::split_namespace(text);
  const bool fits = form.about == About::database ? !text.empty() && text.find('.') == std::string_view::npos
                                                  : !name.db.empty() && !name.collection.empty();
  if (!fits) return Error(ErrorCode::invalid_namespace, fmt::format("Invalid namespace specified '{}'", text));
  return std::string(text);
}

void append_passed_arguments(BsonWriter& out, const Request& request, std::int32_t wire_version) {
  copy_field(out, request, "maxTimeMS");
  if (wire_version >= v4_4) copy_field(out, request, "comment");
}

void append_majority(BsonWriter& out, const Request& request) {
  const ValueView given = request.body["writeConcern"];
  if (given.is_document()) {
    const ValueView w = given.as_document()["w"];
    if (w.is_string() && w.as_string() == "majority") {
      out.append("writeConcern", given);
      return;
    }
  }
  const std::int64_t wait_ms = given.to_document()["wtimeout"].to_int64().value_or(60'000);
  out.begin_document("writeConcern").append("w", "majority");
  out.append("wtimeout", static_cast<std::int32_t>(std::clamp<std::int64_t>(wait_ms, 0, INT32_MAX))).end();
}

BsonDoc make_command(const CommandForm& form, const Request& request, std::string_view name,
                     std::int32_t wire_version, const catalog::CollectionRouting* routing) {
  const catalog::Namespace parts = catalog::split_namespace(name);
  BsonWriter out;
  switch (form.value) {
    case Value::same:
      out.append(form.name, ValueView(request.body.first()));
      break;
    case Value::one:
      out.append(form.name, std::int32_t{1});
      break;
    case Value::full_name:
      out.append(form.name, name);
      break;
    case Value::collection:
      out.append(form.name, parts.collection);
      break;
    case Value::database:
      out.append(form.name, parts.db);
      break;
  }
  (form.fields != nullptr ? form.fields : own_fields)(out, request, routing);
  append_passed_arguments(out, request, wire_version);
  if (form.majority) append_majority(out, request);
  out.append("$db", form.on_own_database ? parts.db : std::string_view("admin"));
  return std::move(out).finish();
}

}  // namespace spillway::exec
