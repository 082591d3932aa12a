#include "tests/support/sim_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "cursor/error.h"

namespace spillway::test {

namespace {

std::string key_of(const catalog::ShardKeyPattern& pattern, DocView bound) {
  return pattern.key_of_bound(bound).value();
}

// "config.chunks" names a chunk so to 4.2.
std::string chunk_name(const std::string& ns, DocView min) {
  std::string name = ns + "-";
  for (const Element& field : min) {
    const std::string value = field.type == BsonType::min_key ? "MinKey" : to_json(static_cast<ValueView>(field));
    name += fmt::format("{}_{}", field.name, value);
  }
  return name;
}

template <std::size_t size>
void append_uuid(BsonWriter& out, std::string_view name, const std::array<std::uint8_t, size>& uuid) {
  out.append_binary(name, 4, uuid);
}

void append_id(BsonWriter& out, std::string_view name, const std::array<std::uint8_t, 12>& id) {
  std::uint8_t bytes[12];
  std::copy(id.begin(), id.end(), bytes);
  out.append_object_id(name, bytes);
}

BsonDoc error_of(std::int32_t code, std::string_view message) {
  return SimRefusal{code, error_code_name(code), std::string(message), {}}.reply();
}

}  // namespace

BsonDoc SimRefusal::reply() const {
  BsonWriter out;
  out.append("ok", 0.0).append("errmsg", message).append("code", code).append("codeName", name);
  out.append_elements(extra);
  return std::move(out).finish();
}

void SimRefusal::append_write_error(BsonWriter& errors, std::size_t index) const {
  errors.begin_document_item();
  errors.append("index", static_cast<std::int32_t>(index)).append("code", nested_63 ? 63 : code);
  if (nested_63) {
    errors.append("errInfo", extra);
  } else {
    errors.append_elements(extra);
  }
  errors.append("errmsg", message).end();
}

bool SimVersion::is_ignored() const noexcept {
  return lastmod == 0 && std::all_of(epoch.begin(), epoch.begin() + 4, [](std::uint8_t byte) { return byte == 0; }) &&
         std::all_of(epoch.begin() + 4, epoch.end(), [](std::uint8_t byte) { return byte == 0xff; });
}

SimVersion SimCollection::version() const {
  SimVersion version{0, epoch, timestamp};
  for (const SimChunk& chunk : chunks) version.lastmod = std::max(version.lastmod, chunk.lastmod);
  return version;
}

SimVersion SimCollection::version_of(const std::string& shard) const {
  SimVersion version{0, epoch, timestamp};
  for (const SimChunk& chunk : chunks) {
    if (chunk.shard == shard) version.lastmod = std::max(version.lastmod, chunk.lastmod);
  }
  return version;
}

std::size_t SimCollection::chunk_of(DocView document) const {
  const std::string wanted = key.key_of_document(document).value();
  const auto at = std::find_if(chunks.begin(), chunks.end() - 1,
                               [&](const SimChunk& chunk) { return wanted < chunk.max_key; });
  return static_cast<std::size_t>(at - chunks.begin());
}

// --- what is true

SimConfig::SimConfig(std::int32_t wire_version) : wire_version_(wire_version), cluster_id_(next_id()) {
  BsonWriter version;
  version.append("_id", 1).append("minCompatibleVersion", 5).append("currentVersion", 6);
  append_id(version, "clusterId", cluster_id_);
  others_["config.version"].push_back(std::move(version).finish());
  for (const char* name : {"settings", "tags"}) others_[std::string("config.") + name];
  others_["admin.system.keys"];
  publish();
}

std::array<std::uint8_t, 12> SimConfig::next_id() {
  std::array<std::uint8_t, 12> id{0x6b};
  ++ids_;
  for (std::size_t i = 0; i < 4; ++i) id[11 - i] = static_cast<std::uint8_t>(ids_ >> 8 * i);
  return id;
}

std::array<std::uint8_t, 16> SimConfig::next_uuid() {
  const auto id = next_id();
  std::array<std::uint8_t, 16> uuid{};
  std::copy(id.begin(), id.end(), uuid.begin() + 4);
  return uuid;
}

std::uint64_t SimConfig::tick() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count();
  time_ = std::max(time_ + 1, (static_cast<std::uint64_t>(seconds) + 1'700'000'000) << 32 | 1);
  return time_;
}

std::shared_ptr<const SimConfig::State> SimConfig::state_at(std::uint64_t time) const {
  for (auto at = states_.rbegin(); at != states_.rend(); ++at) {
    if ((*at)->time <= time) return *at;
  }
  return states_.front();
}

std::shared_ptr<const SimCollection> SimConfig::collection(const std::string& ns) const {
  const auto at = collections_.find(ns);
  return at == collections_.end() ? nullptr : at->second;
}

std::vector<std::string> SimConfig::sharded() const {
  std::vector<std::string> names;
  for (const auto& [ns, collection] : collections_) names.push_back(ns);
  return names;
}

std::vector<std::string> SimConfig::shards() const {
  std::vector<std::string> ids;
  for (const auto& [id, host] : shards_) ids.push_back(id);
  return ids;
}

std::optional<SimDatabase> SimConfig::database(const std::string& db) const {
  const auto at = databases_.find(db);
  return at == databases_.end() ? std::nullopt : std::optional(at->second);
}

void SimConfig::add_shard(const std::string& id, const std::string& host) {
  shards_[id] = {host, tick()};
  publish();
}

void SimConfig::remove_shard(const std::string& id) {
  shards_.erase(id);
  publish();
}

void SimConfig::create_database(const std::string& db, const std::string& primary) {
  const std::uint64_t now = tick();
  databases_[db] = {primary, next_uuid(), has_timestamps() ? now : 0, 1};
  publish();
}

void SimConfig::shard_collection(const std::string& ns, DocView key, const std::vector<BsonDoc>& points,
                                 const std::vector<std::string>& owners) {
  auto pattern = catalog::ShardKeyPattern::parse(key).value();
  const std::uint64_t now = tick();
  SimCollection collection{ns, pattern, next_id(), has_timestamps() ? now : 0, next_uuid(), {}};
  BsonDoc min = pattern.min_bound();
  for (std::size_t i = 0; i <= points.size(); ++i) {
    BsonDoc max = i == points.size() ? pattern.max_bound() : points[i];
    const std::string& owner = owners[i % owners.size()];
    const std::uint64_t lastmod = sim_version(1, static_cast<std::uint32_t>(i));
    collection.chunks.push_back({min, max, key_of(pattern, max), owner, lastmod, {{now, owner}}});
    min = max;
  }
  tombstones_.erase(ns);
  keep(std::move(collection));
}

void SimConfig::keep(SimCollection collection) {
  std::string ns = collection.ns;
  collections_[std::move(ns)] = std::make_shared<const SimCollection>(std::move(collection));
  publish();
}

void SimConfig::split(const std::string& ns, DocView at) {
  tick();
  SimCollection next = copy(ns);
  const std::string key = key_of(next.key, at);
  const auto chunk = std::find_if(next.chunks.begin(), next.chunks.end(),
                                  [&](const SimChunk& each) { return key < each.max_key; });
  const std::uint64_t version = next.version().lastmod;
  SimChunk low = *chunk;
  low.max = BsonDoc(at);
  low.max_key = key;
  low.lastmod = version + 1;
  chunk->min = BsonDoc(at);
  chunk->lastmod = version + 2;
  next.chunks.insert(chunk, std::move(low));
  keep(std::move(next));
}

void SimConfig::merge(const std::string& ns, std::size_t first) {
  tick();
  SimCollection next = copy(ns);
  SPILLWAY_CHECK(next.chunks.at(first).shard == next.chunks.at(first + 1).shard);
  next.chunks[first + 1].min = next.chunks[first].min;
  next.chunks[first + 1].lastmod = next.version().lastmod + 1;
  next.chunks.erase(next.chunks.begin() + static_cast<std::ptrdiff_t>(first));
  keep(std::move(next));
}

// The chunk gets the next major version, and so does one of those that stay with the donor.
void SimConfig::move(const std::string& ns, std::size_t chunk, const std::string& to) {
  const std::uint64_t now = tick();
  SimCollection next = copy(ns);
  SimChunk& moved = next.chunks.at(chunk);
  const std::string from = std::exchange(moved.shard, to);
  const std::uint32_t major = next.version().major() + 1;
  moved.lastmod = sim_version(major, 0);
  moved.history.insert(moved.history.begin(), {now, to});
  for (SimChunk& each : next.chunks) {
    if (each.shard != from) continue;
    each.lastmod = sim_version(major, 1);
    break;
  }
  keep(std::move(next));
}

void SimConfig::move_primary(const std::string& db, const std::string& to) {
  tick();
  SimDatabase& database = databases_.at(db);
  database.primary = to;
  ++database.last_mod;
  publish();
}

void SimConfig::drop(const std::string& ns) {
  tick();
  if (!has_timestamps()) {
    BsonWriter out;
    out.append("_id", ns);
    append_id(out, "lastmodEpoch", {});
    out.append_date("lastmod", 4'294'967'296).append("dropped", true);
    tombstones_[ns] = std::move(out).finish();
  }
  collections_.erase(ns);
  publish();
}

void SimConfig::drop_database(const std::string& db) {
  for (const std::string& ns : sharded()) {
    if (ns.starts_with(db + ".")) drop(ns);
  }
  tick();
  databases_.erase(db);
  publish();
}

void SimConfig::put(const std::string& ns, BsonDoc document) {
  tick();
  std::erase_if(others_[ns], [&](const BsonDoc& each) { return each.view()["_id"] == document.view()["_id"]; });
  others_[ns].push_back(std::move(document));
  publish();
}

void SimConfig::add_key(std::int64_t id, std::string_view twenty_bytes, std::uint32_t expires_at_seconds) {
  BsonWriter out;
  out.append("_id", id).append("purpose", "HMAC");
  out.append_binary("key", 0, {reinterpret_cast<const std::uint8_t*>(twenty_bytes.data()), twenty_bytes.size()});
  out.append_timestamp("expiresAt", std::uint64_t{expires_at_seconds} << 32);
  put("admin.system.keys", std::move(out).finish());
}

BsonDoc SimConfig::document_of(const SimCollection& collection) const {
  BsonWriter out;
  out.append("_id", collection.ns);
  append_id(out, "lastmodEpoch", collection.epoch);
  out.append_date("lastmod", 4'294'967'296);
  if (has_timestamps()) {
    out.append_timestamp("timestamp", collection.timestamp);
  } else {
    out.append("dropped", false);
  }
  out.append("key", collection.key.pattern()).append("unique", false);
  append_uuid(out, "uuid", collection.uuid);
  if (has_timestamps()) out.append("noBalance", false);
  return std::move(out).finish();
}

BsonDoc SimConfig::document_of(const SimCollection& collection, const SimChunk& chunk) const {
  BsonWriter out;
  if (wire_version_ <= wire_4_2) {
    out.append("_id", chunk_name(collection.ns, chunk.min));
  } else {
    std::uint8_t id[12] = {};  // one chunk's stays the same while its lower bound does
    std::copy(collection.epoch.begin() + 8, collection.epoch.end(), id);
    const std::size_t hash = std::hash<std::string>()(to_json(chunk.min.view()));
    std::memcpy(id + 4, &hash, sizeof hash);
    out.append_object_id("_id", id);
  }
  if (has_timestamps()) {
    append_uuid(out, "uuid", collection.uuid);
  } else {
    out.append("ns", collection.ns);
  }
  out.append("min", chunk.min).append("max", chunk.max).append("shard", chunk.shard);
  out.append_timestamp("lastmod", chunk.lastmod);
  if (!has_timestamps()) append_id(out, "lastmodEpoch", collection.epoch);
  if (wire_version_ >= wire_7_0) out.append_timestamp("onCurrentShardSince", chunk.history.front().first);
  out.begin_array("history");
  for (const auto& [since, shard] : chunk.history) {
    out.begin_document_item();
    out.append_timestamp("validAfter", since).append("shard", shard).end();
  }
  out.end();
  return std::move(out).finish();
}

void SimConfig::publish() {
  constexpr std::size_t states_kept = 500;
  auto state = std::make_shared<State>(State{tick(), others_});
  Collections& all = state->documents;
  auto& shards = all["config.shards"];
  for (const auto& [id, host] : shards_) {
    BsonWriter out;
    out.append("_id", id).append("host", host.first).append("state", 1);
    if (has_timestamps()) out.append_timestamp("topologyTime", host.second);
    shards.push_back(std::move(out).finish());
  }
  auto& databases = all["config.databases"];
  for (const auto& [name, database] : databases_) {
    BsonWriter out;
    out.append("_id", name).append("primary", database.primary);
    if (wire_version_ < wire_6_0) out.append("partitioned", true);
    out.begin_document("version");
    append_uuid(out, "uuid", database.uuid);
    if (database.timestamp != 0) out.append_timestamp("timestamp", database.timestamp);
    out.append("lastMod", database.last_mod).end();
    databases.push_back(std::move(out).finish());
  }
  auto& collections = all["config.collections"];
  auto& chunks = all["config.chunks"];
  for (const auto& [ns, collection] : collections_) {
    collections.push_back(document_of(*collection));
    for (const SimChunk& chunk : collection->chunks) chunks.push_back(document_of(*collection, chunk));
  }
  for (const auto& [ns, tombstone] : tombstones_) collections.push_back(tombstone);
  states_.push_back(std::move(state));
  if (states_.size() > states_kept) states_.pop_front();
}

// --- times

void append_times(BsonWriter& reply, std::uint64_t cluster_time, std::uint64_t operation_time) {
  static constexpr std::array<std::uint8_t, 20> no_hash{};
  reply.begin_document("$clusterTime").append_timestamp("clusterTime", cluster_time);
  reply.begin_document("signature").append_binary("hash", 0, no_hash).append("keyId", std::int64_t{0}).end().end();
  reply.append_timestamp("operationTime", operation_time);
}

std::uint64_t timestamp_of(ValueView value) {
  return value.type == BsonType::timestamp ? load_le<std::uint64_t>(value.bytes.data()) : 0;
}

std::uint64_t cluster_time_of(DocView body) { return timestamp_of(body.find_path("$clusterTime.clusterTime")); }

// --- a config server

Task<std::optional<BsonDoc>> ConfigRole::admit(Loop& loop, SimRequest& request) {
  const DocView body = request.body;
  heard_ = std::max({heard_, applied(), cluster_time_of(body)});
  const std::uint64_t after = timestamp_of(body.find_path("readConcern.afterClusterTime"));
  const std::uint64_t at = timestamp_of(body.find_path("readConcern.atClusterTime"));
  if (std::max(after, at) > heard_) {
    co_return error_of(72, "readConcern afterClusterTime value must not be greater than the current clusterTime");
  }
  const std::uint64_t wanted = std::max({after, at, timestamp_of(body.find_path("readConcern.afterOpTime.ts"))});
  const TimePoint deadline =
      Clock::now() + std::chrono::milliseconds(body["maxTimeMS"].to_int64().value_or(3'600'000));
  while (applied() < wanted) {
    if (!lags() && wanted <= heard_) {
      config_.tick();  // a member writes a no-op to get there
      continue;
    }
    if (Clock::now() >= deadline) co_return error_of(50, "operation exceeded time limit");
    co_await loop.sleep_for(std::chrono::milliseconds(1));
  }
  const ValueView level = body.find_path("readConcern.level");
  if (level.is_string() && level.as_string() == "snapshot") {
    if (!config_.has_timestamps()) co_return error_of(72, "readConcern level snapshot is not supported here");
    request.at_time = at != 0 ? at : applied();
  }
  if (request.name == "_getUserCacheGeneration") {
    BsonWriter out;
    append_id(out, "cacheGeneration", config_.cluster_id());
    out.append("ok", 1.0);
    co_return std::move(out).finish();
  }
  if (request.name == "_configsvrCreateDatabase") {
    const std::string db(body.first().as_string());
    if (!config_.database(db)) config_.create_database(db, config_.shards().front());
    BsonWriter out;
    out.append("ok", 1.0);
    co_return std::move(out).finish();
  }
  co_return std::nullopt;
}

const std::vector<BsonDoc>* ConfigRole::documents(const SimRequest& request) {
  shown_ = request.at_time != 0 ? config_.state_at(request.at_time) : lags_at_;
  if (!shown_) shown_ = config_.state_at(config_.time());
  const auto at = shown_->documents.find(request.ns);
  return at == shown_->documents.end() ? nullptr : &at->second;
}

BsonDoc ConfigRole::finish(const SimRequest& request, BsonDoc reply) {
  BsonWriter out;
  for (const Element& field : reply.view()) {
    if (field.name != "cursor" || request.at_time == 0) {
      out.append_element(field);
      continue;
    }
    out.begin_document("cursor").append_elements(field.as_document());
    out.append_timestamp("atClusterTime", request.at_time).end();
  }
  heard_ = std::max(heard_, applied());
  append_times(out, heard_, applied());
  return std::move(out).finish();
}

}  // namespace spillway::test
