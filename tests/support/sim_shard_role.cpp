#include "tests/support/sim_shard_role.h"

#include <fmt/format.h>

#include <algorithm>

#include "cursor/error.h"

namespace spillway::test {

namespace {

std::array<std::uint8_t, 12> object_id_of(ValueView value) {
  std::array<std::uint8_t, 12> id{};
  std::copy(value.bytes.begin(), value.bytes.end(), id.begin());
  return id;
}

std::string database_of(const std::string& ns) { return ns.substr(0, ns.find('.')); }

bool writes_statements(std::string_view name) { return name == "insert" || name == "update" || name == "delete"; }

SimRefusal refusal(std::int32_t code, std::string_view message) {
  return {code, code == 343 ? "ShardCannotRefreshDueToLocksHeld" : error_code_name(code), std::string(message), {}};
}

// A version in the one form that this release takes; its last field says what is wrong.
struct ParsedVersion {
  SimVersion version;
  std::string fault;
};

ParsedVersion parse_array(DocView array, bool takes_timestamp) {
  std::vector<ValueView> items;
  for (const Element& item : array) items.push_back(item);
  if (items.size() < 2 || items[0].type != BsonType::timestamp || items[1].type != BsonType::object_id) {
    return {{}, "shardVersion must begin with a timestamp and an object id"};
  }
  ParsedVersion parsed{{timestamp_of(items[0]), object_id_of(items[1]), 0}, {}};
  for (std::size_t i = 2; takes_timestamp && i < items.size(); ++i) {
    if (items[i].type == BsonType::boolean) continue;  // a multi-write that ignores versions
    if (items[i].type != BsonType::timestamp) return {{}, "shardVersion has an unknown third item"};
    parsed.version.timestamp = timestamp_of(items[i]);
  }
  return parsed;
}

ParsedVersion parse_object(DocView object) {
  if (object["e"].type != BsonType::object_id || object["t"].type != BsonType::timestamp ||
      object["v"].type != BsonType::timestamp) {
    return {{}, "shardVersion must have e, t and v"};
  }
  return {{timestamp_of(object["v"]), object_id_of(object["e"]), timestamp_of(object["t"])}, {}};
}

ParsedVersion parse_version(ValueView value, std::int32_t wire_version) {
  if (value.is_array() && wire_version <= wire_6_0) return parse_array(value.as_document(), wire_version >= wire_5_0);
  if (value.is_document() && wire_version >= wire_6_0) return parse_object(value.as_document());
  return {{}, fmt::format("shardVersion has the type {}", bson_type_name(value.type))};
}

void append_database_version(BsonWriter& out, std::string_view name, const SimDatabase& database) {
  out.begin_document(name).append_binary("uuid", 4, database.uuid);
  if (database.timestamp != 0) out.append_timestamp("timestamp", database.timestamp);
  out.append("lastMod", database.last_mod).end();
}

// With readConcern level snapshot, outside transactions: atClusterTime. 0: none.
struct Snapshot {
  bool asked = false;
  std::uint64_t at = 0;
};

Snapshot snapshot_of(DocView body) {
  const ValueView level = body.find_path("readConcern.level");
  if (body["autocommit"].exists() || !level.is_string() || level.as_string() != "snapshot") return {};
  return {true, timestamp_of(body.find_path("readConcern.atClusterTime"))};
}

}  // namespace

struct ShardRole::Received {
  bool checked = false;  // the versions count
  bool has_version = false;
  ParsedVersion parsed;
  ValueView database;
};

ShardRole::Received ShardRole::read_versions(const SimRequest& request) const {
  Received received;
  const ValueView version = request.body["shardVersion"];
  received.database = request.body["databaseVersion"];
  const ValueView level = request.body.find_path("readConcern.level");
  const bool after = request.body.find_path("readConcern.afterClusterTime").exists();
  received.checked = (version.exists() || received.database.exists()) &&
                     (request.primary || level.exists() || after) &&
                     !(level.is_string() && level.as_string() == "available");
  if (!received.checked || !version.exists()) return received;
  received.has_version = true;
  received.parsed = parse_version(version, wire_version_);
  return received;
}

void ShardRole::refresh(const std::string& ns) {
  if (stays_behind_ > 0) {
    --stays_behind_;
    return;
  }
  learn(ns);
}

bool ShardRole::exists(const std::string& ns) const {
  if (created_.contains(ns)) return true;
  const auto collection = config_.collection(ns);
  return collection && collection->version_of(id_).lastmod != 0;
}

Task<std::optional<BsonDoc>> ShardRole::admit(Loop& loop, SimRequest& request) {
  if (cluster_time_of(request.body) != 0) hear(cluster_time_of(request.body));
  if (timestamp_of(request.body.find_path("readConcern.afterClusterTime")) > heard_) {
    co_return refusal(72, "readConcern afterClusterTime value must not be greater than the clusterTime").reply();
  }
  if (const Snapshot snapshot = snapshot_of(request.body); snapshot.asked) {
    request.at_time = snapshot.at;
    if (wire_version_ < wire_5_0) co_return refusal(72, "snapshot is only valid in transactions").reply();
    if (request.at_time == 0) co_return refusal(72, "a shard must be told the time of a snapshot").reply();
    if (request.at_time > heard_) co_return refusal(72, "atClusterTime is greater than the clusterTime").reply();
    if (snapshots_lost_ > 0) {
      --snapshots_lost_;
      co_return refusal(246, "the snapshot is not available").reply();
    }
  }
  const bool transaction = request.body["autocommit"].exists();
  if (request.name == "create" && transaction) {
    if (wire_version_ <= wire_4_2) {
      co_return refusal(263, "Cannot run 'create' in a multi-document transaction.").reply();
    }
  } else if (request.name == "create" || request.name == "_shardsvrCreateCollection") {
    create(request.ns);
    BsonWriter out;
    out.append("ok", 1.0);
    co_return std::move(out).finish();
  }
  const Received received = read_versions(request);
  ++(received.checked ? versioned_ : unversioned_);
  if (!received.checked) co_return std::nullopt;
  if (!received.parsed.fault.empty()) co_return refusal(14, received.parsed.fault).reply();
  if (locks_held_ > 0 && wire_version_ >= wire_5_0) {
    --locks_held_;
    co_return refusal(343, "the shard could not refresh").reply();
  }
  const TimePoint deadline =
      Clock::now() + std::chrono::milliseconds(request.body["maxTimeMS"].to_int64().value_or(300'000));
  const bool in_transaction = request.body["autocommit"].exists();
  if (received.has_version && critical_.contains(request.ns)) {
    request.waited = true;
    while (!in_transaction && critical_.contains(request.ns)) {
      if (Clock::now() >= deadline) co_return refusal(50, "operation exceeded time limit").reply();
      co_await loop.sleep_for(std::chrono::milliseconds(1));
    }
  }
  const bool writes = writes_statements(request.name) || request.name == "findAndModify";
  const ValueView query = request.body["query"];
  const bool counts_all = request.name == "count" && (!query.is_document() || query.as_document().empty());
  request.filtered = writes ? wire_version_ >= wire_6_0 : !counts_all;
  if (writes_statements(request.name)) co_return std::nullopt;
  if (const auto refused = refuse(request)) co_return refused->reply();
  if (request.name != "create") co_return std::nullopt;
  if (exists(request.ns)) co_return refusal(48, "Collection already exists").reply();
  create(request.ns);  // an abort does not undo it
  co_return std::nullopt;
}

std::optional<SimRefusal> ShardRole::refuse_statement(SimRequest& request, std::size_t index) {
  if (before_statement) before_statement(index);
  auto refused = refuse(request);
  if (!refused) return refuse_creation(request);
  refused->nested_63 = refused->code == 13388 && wire_version_ <= wire_6_0;
  return refused;
}

std::optional<SimRefusal> ShardRole::refuse_document(SimRequest& request) {
  if (before_document) before_document();
  auto refused = refuse(request);
  if (refused) refused->nested_63 = refused->code == 13388 && wire_version_ <= wire_6_0;
  return refused;
}

std::optional<SimRefusal> ShardRole::refuse(SimRequest& request) {
  const Received received = read_versions(request);
  if (!received.checked) return std::nullopt;
  if (auto refused = refuse_database(received, request.ns)) return refused;
  const SimVersion version = received.parsed.version;
  if (!received.has_version || version.is_ignored()) {
    // 4.2 looks for orphans all the same, and later shards do for writes.
    const bool writes = writes_statements(request.name);
    if (!received.has_version || (wire_version_ >= wire_4_4 && !writes)) request.filtered = false;
    return std::nullopt;
  }
  const auto known = known_.find(request.ns);
  // 4.2 takes what it does not know for not sharded.
  if (known == known_.end() && wire_version_ >= wire_4_4) {
    ++stale_;
    refresh(request.ns);
    return stale_config(request.ns, version, nullptr);
  }
  const SimCollection* const collection = known == known_.end() ? nullptr : known->second.get();
  const SimVersion wanted = collection != nullptr ? collection->version_of(id_) : SimVersion{};
  const bool waited = std::exchange(request.waited, false);
  if (waited || !version.fits(wanted)) {
    ++stale_;
    SimRefusal refused = stale_config(request.ns, version, waited && wire_version_ >= wire_5_0 ? nullptr : &wanted);
    refresh(request.ns);
    return refused;
  }
  if (collection == nullptr) request.filtered = false;
  return std::nullopt;
}

SimRefusal ShardRole::stale_config(const std::string& ns, const SimVersion& received, const SimVersion* wanted) {
  BsonWriter extra;
  extra.append("ns", ns);
  append_version(extra, "vReceived", received);
  if (wanted != nullptr) append_version(extra, "vWanted", *wanted);
  if (wire_version_ >= wire_4_4) extra.append("shardId", id_);
  SimRefusal refused = refusal(13388, fmt::format("version mismatch detected for {}", ns));
  refused.extra = std::move(extra).finish();
  return refused;
}

void ShardRole::append_version(BsonWriter& out, std::string_view name, const SimVersion& version) const {
  std::uint8_t epoch[12];
  std::copy(version.epoch.begin(), version.epoch.end(), epoch);
  if (wire_version_ >= wire_6_0) {
    out.begin_document(name).append_object_id("e", epoch).append_timestamp("t", version.timestamp);
    out.append_timestamp("v", version.lastmod).end();
    return;
  }
  out.append_timestamp(name, version.lastmod).append_object_id(std::string(name) + "Epoch", epoch);
  if (wire_version_ >= wire_5_0) out.append_timestamp(std::string(name) + "Timestamp", version.timestamp);
}

std::optional<SimRefusal> ShardRole::refuse_database(const Received& received, const std::string& ns) {
  if (!received.database.exists()) return std::nullopt;
  const std::string db = database_of(ns);
  const DocView said = received.database.is_document() ? received.database.as_document() : DocView();
  const auto known = databases_.find(db);
  const SimDatabase* const wanted = known == databases_.end() || !known->second ? nullptr : &*known->second;
  if (wanted != nullptr) {
    BsonWriter out;
    append_database_version(out, "v", *wanted);
    const BsonDoc document = std::move(out).finish();
    const DocView right = document.view()["v"].as_document();
    const bool equal = said["uuid"] == right["uuid"] && said["timestamp"] == right["timestamp"] &&
                       said["lastMod"].to_int64() == right["lastMod"].to_int64();
    if (equal) return std::nullopt;
  }
  ++stale_;
  BsonWriter extra;
  extra.append("db", db).append("vReceived", said);
  if (wanted != nullptr) append_database_version(extra, "vWanted", *wanted);
  SimRefusal refused = refusal(249, wanted != nullptr ? "dbVersion mismatch" : "don't know dbVersion");
  refused.extra = std::move(extra).finish();
  learn_database(db);
  return refused;
}

// To 4.4 the shard has the collection made, and refuses this once. From 8.0 the router has it made.
std::optional<SimRefusal> ShardRole::refuse_creation(const SimRequest& request) {
  if (request.name != "insert" || exists(request.ns)) return std::nullopt;
  if (wire_version_ <= wire_4_2 && request.body["autocommit"].exists()) {
    return refusal(263, "Cannot create namespace in multi-document transaction.");
  }
  const ValueView allowed = request.body["allowImplicitCollectionCreation"];
  const bool refuses = wire_version_ <= wire_4_4 ? allowed.exists() && !allowed.truthy()
                                                 : wire_version_ >= wire_8_0 && read_versions(request).has_version &&
                                                       !request.body["autocommit"].exists();
  if (!refuses) {
    create(request.ns);
    return std::nullopt;
  }
  if (wire_version_ <= wire_4_4) create(request.ns);
  BsonWriter extra;
  extra.append("ns", request.ns);
  SimRefusal refused = refusal(227, "request doesn't allow collection to be created implicitly");
  refused.extra = std::move(extra).finish();
  return refused;
}

bool ShardRole::sees(const SimRequest& request, DocView document) {
  if (request.at_time != 0 && timestamp_of(document["born"]) > request.at_time) return false;
  const auto known = known_.find(request.ns);
  return known == known_.end() || !known->second || known->second->owns(id_, document);
}

void ShardRole::wrote(const SimRequest&) {
  last_write_ = config_.tick();
  hear(last_write_);
}

BsonDoc ShardRole::finish(const SimRequest& request, BsonDoc reply) {
  BsonWriter out;
  for (const Element& field : reply.view()) {
    if (request.at_time == 0 || field.name != "cursor" || !field.is_document()) {
      out.append_element(field);
      continue;
    }
    out.begin_document("cursor").append_elements(field.as_document());
    out.append_timestamp("atClusterTime", request.at_time).end();
  }
  if (request.at_time != 0 && reply.view()["values"].exists()) out.append_timestamp("atClusterTime", request.at_time);
  if (wire_version_ <= wire_4_4) {  // to 4.4 everybody hears these
    out.append_timestamp("lastCommittedOpTime", last_write_);
    out.begin_document("$configServerState").begin_document("opTime").append_timestamp("ts", heard_);
    out.append("t", std::int64_t{1}).end().end();
  }
  append_times(out, heard_, last_write_ != 0 ? last_write_ : heard_);
  return std::move(out).finish();
}

}  // namespace spillway::test
