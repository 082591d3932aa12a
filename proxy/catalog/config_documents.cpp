#include "proxy/catalog/config_documents.h"

#include <algorithm>

#include "proxy/catalog/fingerprint.h"

namespace spillway::catalog {
namespace {

using Visit = absl::FunctionRef<bool(BsonDoc)>;

// A static table has no history: everything in it was created at this cluster time.
constexpr std::uint64_t created_timestamp = (std::uint64_t{1} << 32) | 1;

// Identifiers are made of names, so that they stay the same over restarts.
void append_derived_uuid(BsonWriter& out, std::string_view name, std::string_view of) {
  std::uint8_t uuid[16];
  store_le(uuid, stable_hash64(of, 1));
  store_le(uuid + 8, stable_hash64(of, 2));
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x40);
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);
  out.append_binary(name, 4, uuid);
}

void append_derived_object_id(BsonWriter& out, std::string_view name, std::string_view of,
                              std::uint32_t number) {
  std::uint8_t id[12];
  store_le(id, stable_hash64(of, 3));
  for (int i = 0; i < 4; ++i) id[8 + i] = static_cast<std::uint8_t>(number >> (8 * (3 - i)));
  out.append_object_id(name, id);
}

bool visit_shards(const RoutingSnapshot& snapshot, Visit visit) {
  for (const Shard& shard : snapshot.shards()) {
    BsonWriter out;
    out.append("_id", std::string_view(shard.name));
    out.append("host", std::string_view(host_of_uri(shard.uri)));
    out.append("state", 1);
    out.append_timestamp("topologyTime", created_timestamp);
    if (!visit(std::move(out).finish())) return true;
  }
  return true;
}

bool visit_databases(const RoutingSnapshot& snapshot, Visit visit) {
  for (const Database& db : snapshot.databases()) {
    BsonWriter out;
    out.append("_id", std::string_view(db.name));
    out.append("primary", std::string_view(snapshot.shard(db.primary).name));
    out.append("partitioned", true);
    out.begin_document("version");
    append_derived_uuid(out, "uuid", db.name);
    out.append_timestamp("timestamp", created_timestamp);
    out.append("lastMod", 1);
    out.end();
    if (!visit(std::move(out).finish())) return true;
  }
  return true;
}

bool visit_collections(const RoutingSnapshot& snapshot, const ConfigReadParams& params,
                       Visit visit) {
  for (const CollectionRouting& collection : snapshot.collections()) {
    BsonWriter out;
    out.append("_id", std::string_view(collection.ns));
    append_derived_object_id(out, "lastmodEpoch", collection.ns, 0);
    out.append_date("lastmod", params.start_time_ms);
    out.append_timestamp("timestamp", created_timestamp);
    append_derived_uuid(out, "uuid", collection.ns);
    out.append("dropped", false);
    out.append("key", collection.key.pattern());
    out.append("unique", collection.unique);
    out.append("noBalance", true);
    if (!visit(std::move(out).finish())) return true;
  }
  return true;
}

BsonDoc chunk_document(const RoutingSnapshot& snapshot, const CollectionRouting& collection,
                       std::size_t chunk) {
  const auto number = static_cast<std::uint32_t>(chunk);
  const std::string_view shard = snapshot.shard(collection.chunks.owner(chunk)).name;
  BsonWriter out;
  append_derived_object_id(out, "_id", collection.ns, number + 1);
  out.append("ns", std::string_view(collection.ns));
  append_derived_uuid(out, "uuid", collection.ns);
  out.append("min", collection.chunks.min_bound(chunk));
  out.append("max", collection.chunks.max_bound(chunk));
  out.append("shard", shard);
  out.append_timestamp("lastmod", (std::uint64_t{1} << 32) | number);
  append_derived_object_id(out, "lastmodEpoch", collection.ns, 0);
  out.begin_array("history");
  out.begin_document_item();
  out.append_timestamp("validAfter", created_timestamp);
  out.append("shard", shard);
  out.end();
  out.end();
  return std::move(out).finish();
}

bool visit_chunks(const RoutingSnapshot& snapshot, Visit visit, std::size_t first) {
  for (const CollectionRouting& collection : snapshot.collections()) {
    const std::size_t count = collection.chunks.size();
    for (std::size_t i = std::min(first, count); i < count; ++i) {
      if (!visit(chunk_document(snapshot, collection, i))) return true;
    }
    first -= std::min(first, count);
  }
  return true;
}

bool visit_version(const ConfigReadParams& params, Visit visit) {
  visit(BsonWriter().append("_id", 1).append("minCompatibleVersion", 5).append("currentVersion", 6)
            .append_object_id("clusterId", params.cluster_id).finish());
  return true;
}

// A static table has no balancer and no splits.
bool visit_settings(Visit visit) {
  const bool goes_on = visit(BsonWriter().append("_id", "autosplit").append("enabled", false).finish());
  if (goes_on) visit(BsonWriter().append("_id", "balancer").append("mode", "off").append("stopped", true).finish());
  return true;
}

bool visit_mongos(const ConfigReadParams& params, Visit visit) {
  BsonWriter out;
  out.append("_id", std::string_view(params.host));
  out.begin_array("advisoryHostFQDNs");
  out.end();
  out.append_date("created", params.start_time_ms);
  out.append("mongoVersion", std::string_view(params.mongo_version));
  out.append_date("ping", params.now_ms);
  out.append("up", (params.now_ms - params.start_time_ms) / 1000);
  out.append("waiting", true);
  visit(std::move(out).finish());
  return true;
}

}  // namespace

const std::vector<std::string_view>& config_collection_names() {
  static const std::vector<std::string_view> names = {
      "chunks", "collections", "databases", "mongos", "settings", "shards", "tags", "version"};
  return names;
}

bool visit_config_documents(std::string_view collection, const RoutingSnapshot& snapshot,
                            const ConfigReadParams& params, Visit visit, std::size_t first) {
  if (collection == "chunks") return visit_chunks(snapshot, visit, first);
  // There are few of the others.
  const auto from_first = [&](BsonDoc document) {
    if (first > 0) {
      --first;
      return true;
    }
    return visit(std::move(document));
  };
  if (collection == "shards") return visit_shards(snapshot, from_first);
  if (collection == "databases") return visit_databases(snapshot, from_first);
  if (collection == "collections") return visit_collections(snapshot, params, from_first);
  if (collection == "version") return visit_version(params, from_first);
  if (collection == "settings") return visit_settings(from_first);
  if (collection == "mongos") return visit_mongos(params, from_first);
  if (collection == "tags") return true;  // a static table has no zones
  return false;
}

std::string host_of_uri(std::string_view uri) {
  const std::size_t scheme = uri.find("://");
  if (scheme != std::string_view::npos) uri.remove_prefix(scheme + 3);
  const std::size_t slash = uri.find_first_of("/?");
  std::string_view hosts = uri.substr(0, slash);
  if (const auto at = hosts.rfind('@'); at != std::string_view::npos) hosts.remove_prefix(at + 1);
  std::string out;
  const std::size_t query = uri.find('?');
  std::string_view options = query == std::string_view::npos ? "" : uri.substr(query + 1);
  while (!options.empty()) {
    const std::string_view option = options.substr(0, options.find('&'));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    constexpr std::string_view set = "replicaSet=";
    if (option.starts_with(set)) out = std::string(option.substr(set.size())) + "/";
  }
  while (!hosts.empty()) {
    const std::string_view host = hosts.substr(0, hosts.find(','));
    hosts.remove_prefix(std::min(hosts.size(), host.size() + 1));
    if (!out.empty() && out.back() != '/') out += ',';
    out += host;
    if (host.substr(host.rfind(']') + 1).find(':') == std::string_view::npos) out += ":27017";
  }
  return out;
}

}  // namespace spillway::catalog
