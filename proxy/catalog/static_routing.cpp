// The only file of this layer that includes YAML.
#include "proxy/catalog/static_routing.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "proxy/catalog/fingerprint.h"
#include "proxy/catalog/nearest_name.h"
#include "proxy/catalog/yaml_values.h"

namespace spillway::catalog {
namespace {

// Thrown and caught inside this file: reading a configuration is not on the data path.
struct Fault {
  int line;
  ErrorCode code;
  std::string message;
};

[[noreturn]] void fail(const YAML::Node& node, const std::string& message,
                       ErrorCode code = ErrorCode::bad_value) {
  throw Fault{node.Mark().line + 1, code, message};
}

using Names = std::vector<std::string>;

bool is_plain(const YAML::Node& scalar) { return scalar.Tag() == "?" || scalar.Tag().empty(); }

// ---- YAML nodes as Extended JSON
// ------------------------------------------------------------------

constexpr int depth_max = 50;

std::string json_of(const YAML::Node& node, int depth);

std::string unwrap(const YAML::Node& node, const Result<std::string>& json) {
  if (!json) fail(node, json.error().message);
  return *json;
}

const std::string& text_of(const std::string& key, const YAML::Node& value) {
  if (!value.IsScalar()) fail(value, key + " needs a plain value");
  return value.Scalar();
}

std::string json_of_timestamp(const YAML::Node& value) {
  std::string out = "{\"$timestamp\":{";
  for (const char* part : {"t", "i"}) {
    const YAML::Node number = value.IsMap() ? value[part] : YAML::Node();
    if (!number || !number.IsScalar() || !is_integer_text(number.Scalar())) {
      fail(value, "$timestamp needs the whole numbers t and i");
    }
    out += (*part == 'i' ? ",\"" : "\"") + std::string(part) + "\":" + number.Scalar();
  }
  return out + "}}";
}

// {$numberLong: "5"} and kin; numbers inside may be written without quotes.
std::string json_of_wrapper(const YAML::Node& map, int depth) {
  const std::string key = map.begin()->first.Scalar();
  const YAML::Node value = map.begin()->second;
  if (map.size() != 1) fail(map, key + " must stand alone in its braces");
  const std::string head = "{\"" + key + "\":";
  if (key == "$minKey" || key == "$maxKey") return head + "1}";
  if (key == "$undefined") return head + "true}";
  if (key == "$numberInt" || key == "$numberLong") {
    const std::string& text = text_of(key, value);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool fits = key == "$numberLong" || number == static_cast<std::int32_t>(number);
    if (error != std::errc() || end != text.data() + text.size() || !fits) {
      fail(value, "'" + text + "' is no " + key);
    }
    return head + json_string(text) + "}";
  }
  if (key == "$oid" || key == "$numberDouble" || key == "$numberDecimal" || key == "$symbol" ||
      key == "$code") {
    return head + json_string(text_of(key, value)) + "}";
  }
  if (key == "$uuid") return unwrap(value, json_of_uuid(text_of(key, value)));
  if (key == "$date") {
    if (!value.IsScalar()) return head + json_of(value, depth + 1) + "}";
    const bool number = is_integer_text(value.Scalar());
    const std::string text = json_string(value.Scalar());
    return head + (number ? "{\"$numberLong\":" + text + "}" : text) + "}";
  }
  if (key == "$timestamp") return json_of_timestamp(value);
  if (key == "$binary" || key == "$regularExpression") {
    std::string out;
    if (!value.IsMap()) fail(value, key + " needs a mapping");
    for (const auto& part : value) {
      out += (out.empty() ? "{" : ",") + json_string(part.first.Scalar()) + ":" +
             json_string(text_of(key, part.second));
    }
    return head + out + "}}";
  }
  static const Names known = {
      "$minKey",       "$maxKey",        "$undefined", "$numberInt", "$numberLong",
      "$numberDouble", "$numberDecimal", "$oid",       "$symbol",    "$code",
      "$uuid",         "$date",          "$timestamp", "$binary",    "$regularExpression"};
  fail(map, "unknown Extended JSON type '" + key + "'" + did_you_mean(key, known));
}

std::string json_of(const YAML::Node& node, int depth) {
  if (depth > depth_max) fail(node, "values are nested too deeply");
  std::string out;
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      if (!is_plain(node)) return json_string(node.Scalar());
      return unwrap(node, json_of_plain_scalar(node.Scalar()));
    case YAML::NodeType::Sequence:
      for (const auto& item : node) out += (out.empty() ? "" : ",") + json_of(item, depth + 1);
      return "[" + out + "]";
    case YAML::NodeType::Map:
      if (node.size() > 0 && node.begin()->first.Scalar().starts_with('$')) {
        return json_of_wrapper(node, depth);
      }
      for (const auto& field : node) {
        out += (out.empty() ? "" : ",") + json_string(field.first.Scalar()) + ":" +
               json_of(field.second, depth + 1);
      }
      return "{" + out + "}";
    default:
      return "null";
  }
}

// A document written as a YAML mapping or as a quoted string of JSON.
BsonDoc document_of(const YAML::Node& node, const std::string& what) {
  std::string json;
  if (node.IsMap()) {
    json = json_of(node, 0);
  } else if (node.IsScalar() && node.Scalar().starts_with('{')) {
    json = node.Scalar();
  } else {
    fail(node, what + " must be a mapping or a quoted JSON document");
  }
  auto doc = BsonDoc::from_json(json);
  if (!doc) fail(node, what + " " + json + " is no Extended JSON: " + doc.error().message);
  return std::move(*doc);
}

// ---- The routing key
// -----------------------------------------------------------------------------

// A mapping whose keys are all known, each once.
void expect_keys(const YAML::Node& node, const std::string& what, const Names& known) {
  if (!node.IsMap()) fail(node, what + " must be a mapping");
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) fail(entry.first, "a key of " + what + " is no plain name");
    const std::string& key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      fail(entry.first, "unknown key '" + key + "' in " + what + did_you_mean(key, known));
    }
    if (!seen.insert(key).second) fail(entry.first, "key '" + key + "' stands twice in " + what);
  }
}

YAML::Node require(const YAML::Node& node, const char* key, const std::string& what) {
  const YAML::Node value = node[key];
  if (!value || value.IsNull()) fail(node, what + " needs '" + key + "'");
  return value;
}

std::string name_of(const YAML::Node& node, const std::string& what) {
  if (!node.IsScalar() || node.Scalar().empty()) fail(node, what + " must be a name");
  return node.Scalar();
}

// The items of an optional list.
std::vector<YAML::Node> items_of(const YAML::Node& parent, const char* key) {
  const YAML::Node list = parent[key];
  if (!list || list.IsNull()) return {};
  if (!list.IsSequence()) fail(list, "'" + std::string(key) + "' must be a list");
  return {list.begin(), list.end()};
}

// A part without effect, and its place.
struct Remark {
  int line;
  std::string message;
};

class Loader {
 public:
  explicit Loader(const UriCheck& check_uri) : check_uri_(check_uri) {}

  // Null if there are faults.
  std::shared_ptr<const RoutingSnapshot> load(const YAML::Node& routing) {
    attempt([&] {
      expect_keys(
          routing, "routing",
          {"shards", "defaultPrimary", "databases", "collections", "defaultShardKey"});
    });
    for_each(routing, "shards", [&](const YAML::Node& node) { read_shard(node); });
    if (shard_names_.empty() && faults_.empty()) {
      attempt([&] { fail(routing, "routing.shards is empty: name at least one shard"); });
    }
    if (shard_names_.empty()) return nullptr;  // otherwise each name of a shard is a fault
    if (const YAML::Node primary = routing["defaultPrimary"]) {
      attempt([&] { parts_.default_primary = shard_named(primary); });
    }
    for_each(routing, "databases", [&](const YAML::Node& node) { read_database(node); });
    for_each(routing, "collections", [&](const YAML::Node& node) { read_collection(node); });
    if (const YAML::Node key = routing["defaultShardKey"]; key && !key.IsNull()) {
      attempt([&] {
        ShardKeyPattern pattern = pattern_of(key, "defaultShardKey");
        ChunkMap chunks = default_chunks(pattern, parts_.default_primary);
        parts_.default_collection = routing_of("", std::move(pattern), false, std::move(chunks));
      });
    }
    if (!faults_.empty()) return nullptr;
    return std::make_shared<const RoutingSnapshot>(std::move(parts_));
  }

  const std::vector<Fault>& faults() const { return faults_; }
  const std::vector<Remark>& remarks() const { return remarks_; }

 private:
  // Does a part of the work; a fault ends only this part.
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const Fault& fault) {
      faults_.push_back(fault);
    } catch (const YAML::Exception& e) {
      faults_.push_back({e.mark.line + 1, ErrorCode::failed_to_parse, e.msg});
    }
  }

  template <class Work>
  void for_each(const YAML::Node& parent, const char* key, const Work& work) {
    attempt([&] {
      for (const YAML::Node& node : items_of(parent, key)) attempt([&] { work(node); });
    });
  }

  // The shard is known as soon as its name is: later faults do not make its name unknown.
  void read_shard(const YAML::Node& node) {
    const std::size_t faults = faults_.size();
    attempt([&] { expect_keys(node, "a shard", {"name", "uri"}); });
    if (faults_.size() > faults && (!node.IsMap() || !node["name"])) return;
    const YAML::Node name = require(node, "name", "a shard");
    Shard shard;
    shard.name = name_of(name, "a shard's name");
    shard.index = static_cast<ShardIndex>(parts_.shards.size());
    if (shard.name == "config") fail(name, "'config' is a reserved shard name");
    if (std::find(shard_names_.begin(), shard_names_.end(), shard.name) != shard_names_.end()) {
      fail(name, "shard '" + shard.name + "' stands twice");
    }
    if (parts_.shards.size() >= std::numeric_limits<ShardIndex>::max()) {
      fail(node, "there are too many shards");
    }
    shard_names_.push_back(shard.name);
    parts_.shards.push_back(std::move(shard));
    if (faults_.size() > faults) return;
    const std::string what = "shard '" + shard_names_.back() + "'";
    const YAML::Node uri = require(node, "uri", what);
    parts_.shards.back().uri = name_of(uri, "uri of " + what);
    check_uri(uri, parts_.shards.back());
  }

  void check_uri(const YAML::Node& node, const Shard& shard) {
    constexpr std::string_view scheme = "mongodb://";
    // Its options may hold secrets, and a user may have a password.
    const bool names_user = shard.uri.find('@') != std::string::npos;
    const std::string shown = names_user ? "" : "'" + shard.uri.substr(0, shard.uri.find('?')) + "' ";
    const std::string what = "uri " + shown + "of shard '" + shard.name + "'";
    if (shard.uri.starts_with("mongodb+srv://")) {
      fail(node, what + ": mongodb+srv is not supported, name the hosts: mongodb://host:port");
    }
    if (!shard.uri.starts_with(scheme) || shard.uri.size() == scheme.size()) {
      fail(node, what + " must start with mongodb:// and name a host");
    }
    for (const Shard& other : parts_.shards) {
      if (&other != &shard && other.uri == shard.uri) {
        fail(node, "shards '" + other.name + "' and '" + shard.name + "' have the same uri");
      }
    }
    if (!check_uri_) return;
    const auto checked = check_uri_(shard.uri);
    if (!checked) fail(node, what + ": " + checked.error().message);
    for (const std::string& warning : *checked) {
      remarks_.push_back({node.Mark().line + 1, what + ": " + warning});
    }
  }

  ShardIndex shard_named(const YAML::Node& node) const {
    const std::string name = name_of(node, "a shard");
    const auto found = std::find(shard_names_.begin(), shard_names_.end(), name);
    if (found == shard_names_.end()) {
      fail(node, "unknown shard '" + name + "'" + did_you_mean(name, shard_names_));
    }
    return static_cast<ShardIndex>(found - shard_names_.begin());
  }

  ShardIndex primary_of(std::string_view db) const {
    for (const Database& known : parts_.databases) {
      if (known.name == db) return known.primary;
    }
    return parts_.default_primary;
  }

  void read_database(const YAML::Node& node) {
    expect_keys(node, "a database", {"name", "primary"});
    const YAML::Node name = require(node, "name", "a database");
    Database db{name_of(name, "a database's name"),
                shard_named(require(node, "primary", "a database"))};
    check_database_name(name, db.name);
    for (const Database& other : parts_.databases) {
      if (other.name == db.name) fail(name, "database '" + db.name + "' stands twice");
    }
    parts_.databases.push_back(std::move(db));
  }

  static void check_database_name(const YAML::Node& node, std::string_view db) {
    const std::string quoted = "'" + std::string(db) + "'";
    if (db.empty() || db.size() > 63 || db.find_first_of("/\\. \"$") != db.npos) {
      fail(node, quoted + " is no name of a database");
    }
    if (db == "admin" || db == "config" || db == "local") {
      fail(node, "database " + quoted + " cannot be routed");
    }
  }

  // `what` is the key's name in messages.
  static ShardKeyPattern pattern_of(const YAML::Node& node, const std::string& what) {
    auto pattern = ShardKeyPattern::parse(document_of(node, what));
    if (!pattern) fail(node, what + ": " + pattern.error().message);
    return std::move(*pattern);
  }

  // A hashed first field is split evenly over all shards; else everything lies on the primary.
  ChunkMap default_chunks(const ShardKeyPattern& pattern, ShardIndex primary) const {
    if (pattern.fields().front().hashed) {
      return ChunkMap::even_hashed(pattern, parts_.shards.size());
    }
    return ChunkMap::single(pattern, primary);
  }

  CollectionRouting routing_of(std::string ns, ShardKeyPattern key, bool unique, ChunkMap chunks) {
    const std::uint64_t fingerprint = fingerprint_of(key, chunks, parts_.shards);
    return {std::move(ns), std::move(key), unique, std::move(chunks), fingerprint};
  }

  void read_collection(const YAML::Node& node) {
    expect_keys(node, "a collection", {"ns", "key", "unique", "chunks"});
    const YAML::Node ns_node = require(node, "ns", "a collection");
    const std::string ns = name_of(ns_node, "a collection's ns");
    const Namespace name = split_namespace(ns);
    if (name.collection.empty() || name.collection.starts_with('.')) {
      fail(ns_node, "ns '" + ns + "' must be <database>.<collection>");
    }
    check_database_name(ns_node, name.db);
    if (name.collection.starts_with("system.")) {
      fail(ns_node, "ns '" + ns + "' is a system collection and cannot be sharded");
    }
    if (!collections_.insert(ns).second) fail(ns_node, "collection '" + ns + "' stands twice");

    const YAML::Node key_node = require(node, "key", "collection '" + ns + "'");
    ShardKeyPattern key = pattern_of(key_node, "key of '" + ns + "'");
    bool unique = false;
    if (const YAML::Node flag = node["unique"]; flag && !flag.IsNull()) {
      if (!flag.IsScalar() || (flag.Scalar() != "true" && flag.Scalar() != "false")) {
        fail(flag, "'unique' of '" + ns + "' must be true or false");
      }
      unique = flag.Scalar() == "true";
      if (unique && key.has_hashed_field()) fail(flag, "a hashed shard key cannot be unique");
    }
    ChunkMap chunks = read_chunks(node, key, ns, primary_of(name.db));
    if (!node["chunks"] && !key.fields().front().hashed && parts_.shards.size() > 1) {
      remarks_.push_back({node.Mark().line + 1, "collection '" + ns + "' has no chunks: all of its documents go to " +
                                                    parts_.shards[primary_of(name.db)].name});
    }
    parts_.collections.push_back(routing_of(ns, std::move(key), unique, std::move(chunks)));
  }

  ChunkMap read_chunks(const YAML::Node& node, const ShardKeyPattern& key, const std::string& ns,
                       ShardIndex primary) const {
    const YAML::Node list = node["chunks"];
    if (!list || list.IsNull()) return default_chunks(key, primary);
    std::vector<ChunkSpec> specs;
    std::vector<int> lines;
    for (const YAML::Node& chunk : items_of(node, "chunks")) {
      expect_keys(chunk, "a chunk", {"min", "max", "shard"});
      const std::string what = "a chunk of '" + ns + "'";
      specs.push_back({document_of(require(chunk, "min", what), "min"),
                       document_of(require(chunk, "max", what), "max"),
                       shard_named(require(chunk, "shard", what))});
      lines.push_back(chunk.Mark().line + 1);
    }
    if (specs.empty()) fail(list, "'chunks' of '" + ns + "' is empty: leave it out or fill it");
    auto built = ChunkMap::build(key, std::move(specs));
    if (!built) {
      const ChunkFault& fault = built.error();
      throw Fault{lines[std::min(fault.chunk, lines.size() - 1)], ErrorCode::bad_value,
                  "collection '" + ns + "': " + fault.message};
    }
    return std::move(*built);
  }

  const UriCheck& check_uri_;
  std::vector<Fault> faults_;
  std::vector<Remark> remarks_;
  RoutingParts parts_;
  Names shard_names_;
  std::set<std::string> collections_;
};

}  // namespace

StaticRouting read_static_routing(const YAML::Node& routing, const std::string& file_name_for_messages,
                                  const UriCheck& check_uri) {
  StaticRouting result;
  const auto place = [&](int line, const std::string& message) {
    return file_name_for_messages + ":" + std::to_string(line) + ": " + message;
  };
  try {
    Loader loader(check_uri);
    result.snapshot = loader.load(routing);
    for (const Fault& fault : loader.faults()) result.errors.emplace_back(fault.code, place(fault.line, fault.message));
    for (const Remark& remark : loader.remarks()) result.warnings.push_back(place(remark.line, remark.message));
  } catch (const YAML::Exception& e) {
    result.errors.emplace_back(ErrorCode::failed_to_parse, place(e.mark.line + 1, e.msg));
  } catch (const std::exception& e) {
    result.errors.emplace_back(ErrorCode::failed_to_parse, place(1, e.what()));
  }
  if (!result.errors.empty()) result.snapshot = nullptr;
  return result;
}

}  // namespace spillway::catalog
