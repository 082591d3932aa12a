#include "proxy/catalog/shard_key.h"

#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <array>

#include "cursor/bson_hash.h"
#include "cursor/bson_order.h"

namespace spillway::catalog {
namespace {

constexpr int query_depth_max = 100;

// `above` is `path` itself or one of its ancestors: "a" and "a.b" are above "a.b".
bool is_path_prefix(std::string_view above, std::string_view path) noexcept {
  return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '.');
}

struct Walked {
  ValueView value;  // eoo when missing
  bool array = false;
};

// Follows a dotted path through documents; numeric components are plain names.
Walked walk(ValueView value, std::string_view path) noexcept {
  while (true) {
    if (value.is_array()) return {{}, true};
    if (path.empty()) return {value, false};
    if (!value.is_document()) return {};
    const std::size_t dot = path.find('.');
    value = value.as_document()[path.substr(0, dot)];
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
}

Walked walk(DocView doc, std::string_view path) noexcept {
  return walk(ValueView{BsonType::document, doc.bytes()}, path);
}

bool valid_path(std::string_view path) noexcept {
  if (path.empty() || path.front() == '.' || path.back() == '.' || path.front() == '$')
    return false;
  return path.find("..") == std::string_view::npos;
}

Error bad_pattern(DocView pattern, std::string_view why) {
  return {ErrorCode::bad_value,
          "Unsupported shard key pattern " + to_json(pattern) + ". " + std::string(why)};
}

// Only such values of a query determine one shard key: a regex matches other strings, too, and an object with
// $-fields is not a value.
bool valid_in_query_key(ValueView value) noexcept {
  switch (value.type) {
    case BsonType::eoo:
    case BsonType::undefined:
    case BsonType::array:
    case BsonType::regex:
      return false;
    case BsonType::document:
      return !value.as_document().first().name.starts_with('$');
    default:
      return true;
  }
}

// The equalities of a filter on paths at or above the shard key's. Two on the same path, or one above the other,
// determine no key.
class EqualityCollector {
 public:
  struct Equality {
    std::string_view path;
    ValueView value;
  };

  explicit EqualityCollector(const std::vector<ShardKeyPattern::Field>& fields) : fields_(fields) {}

  void collect(DocView filter, int depth = 0) {
    if (depth > query_depth_max) return;
    for (const Element& e : filter) {
      if (conflict_) return;
      if (e.name == "$and") {
        collect_array(e, depth);
      } else if (e.name == "$or" && e.is_array() && e.as_document().count() == 1) {
        collect_array(e, depth);
      } else if (relevant(e.name)) {
        collect_field(e);
      }
    }
  }

  // The equality at or above `path`, if there is one.
  const Equality* above(std::string_view path) const noexcept {
    if (conflict_) return nullptr;
    for (const Equality& equality : equalities_) {
      if (is_path_prefix(equality.path, path)) return &equality;
    }
    return nullptr;
  }

 private:
  bool relevant(std::string_view path) const noexcept {
    if (path.empty()) return false;
    for (const auto& field : fields_) {
      if (is_path_prefix(path, field.path)) return true;
    }
    return false;
  }

  void collect_array(const Element& array, int depth) {
    if (!array.is_array()) return;
    for (const Element& branch : array.as_document()) {
      if (branch.is_document()) collect(branch.as_document(), depth + 1);
    }
  }

  void collect_field(const Element& e) {
    if (e.type == BsonType::regex) return;
    if (!is_operator_document(e)) return add(e.name, e);
    for (const Element& op : e.as_document()) {
      if (op.name == "$eq") {
        add(e.name, op);
      } else if (op.name == "$all" && op.is_array()) {
        for (const Element& item : op.as_document()) {
          if (conflict_) return;
          add(e.name, item);
        }
      }
    }
  }

  void add(std::string_view path, ValueView value) {
    for (const Equality& other : equalities_) {
      if (is_path_prefix(other.path, path) || is_path_prefix(path, other.path)) conflict_ = true;
    }
    if (!conflict_) equalities_.push_back({path, value});
  }

  const std::vector<ShardKeyPattern::Field>& fields_;
  absl::InlinedVector<Equality, 4> equalities_;
  bool conflict_ = false;
};

void append_hash_key(std::string& key, std::int64_t hash) {
  std::uint8_t bytes[8];
  store_le(bytes, hash);
  append_order_key(key, ValueView{BsonType::int64, Bytes(bytes)});
}

// Appends the encoding of a field's value, hashed if the field is.
void append_field_key(std::string& key, const ShardKeyPattern::Field& field, ValueView value) {
  if (field.hashed) {
    append_hash_key(key, bson_hash64(value));
  } else if (!value.exists()) {
    append_order_key(key, ValueView{BsonType::null, {}});
  } else {
    append_order_key(key, value);
  }
}

void append_field_value(BsonWriter& out, const ShardKeyPattern::Field& field, ValueView value) {
  if (field.hashed) {
    out.append(field.path, bson_hash64(value));
  } else if (!value.exists()) {
    out.append_null(field.path);
  } else {
    out.append(field.path, value);
  }
}

Error array_in_key() {
  return {ErrorCode::shard_key_not_found,
          "Shard key cannot contain array values or array descendants."};
}

}  // namespace

bool is_collatable(ValueView value) noexcept {
  return value.type == BsonType::string || value.type == BsonType::symbol ||
         value.type == BsonType::document || value.type == BsonType::array;
}

bool is_operator_document(ValueView value) noexcept {
  if (!value.is_document()) return false;
  const std::string_view name = value.as_document().first().name;
  return name.starts_with('$') && name != "$ref" && name != "$id" && name != "$db";
}

Result<ShardKeyPattern> ShardKeyPattern::parse(DocView pattern) {
  ShardKeyPattern out;
  bool hashed_seen = false;
  auto it = pattern.begin();
  for (; !it.done(); ++it) {
    const Element& e = *it;
    if (!valid_path(e.name)) {
      return bad_pattern(pattern,
                         "Field names must not be empty, start with '$', or start or end "
                         "with a dot or hold two in a row");
    }
    for (const Field& field : out.fields_) {
      if (field.path == e.name) return bad_pattern(pattern, "A field stands in it twice");
    }
    const bool hashed = e.is_string() && e.as_string() == "hashed";
    if (!hashed && e.to_double() != 1.0) {
      return bad_pattern(pattern, "Every field must be 1 or \"hashed\"");
    }
    if (hashed && hashed_seen) return bad_pattern(pattern, "At most one field may be hashed");
    hashed_seen = hashed_seen || hashed;
    out.fields_.push_back({std::string(e.name), hashed});
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "Malformed shard key pattern");
  if (out.fields_.empty()) return bad_pattern(pattern, "It must name at least one field");
  out.pattern_ = BsonDoc(pattern);
  return out;
}

bool ShardKeyPattern::has_hashed_field() const noexcept {
  for (const Field& field : fields_) {
    if (field.hashed) return true;
  }
  return false;
}

bool ShardKeyPattern::operator==(const ShardKeyPattern& other) const noexcept {
  if (fields_.size() != other.fields_.size()) return false;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].path != other.fields_[i].path || fields_[i].hashed != other.fields_[i].hashed) {
      return false;
    }
  }
  return true;
}

Result<std::string> ShardKeyPattern::key_of_document(DocView doc) const {
  std::string key;
  if (auto appended = append_key_of_document(key, doc); appended.has_error()) {
    return appended.error();
  }
  return key;
}

Result<void> ShardKeyPattern::append_key_of_document(std::string& key, DocView doc, const Hashed* hashed) const {
  for (const Field& field : fields_) {
    if (field.hashed && hashed != nullptr) {
      if (hashed->array) return array_in_key();
      append_hash_key(key, hashed->hash);
      continue;
    }
    const Walked found = walk(doc, field.path);
    if (found.array) return array_in_key();
    append_field_key(key, field, found.value);
  }
  return {};
}

bool ShardKeyPattern::lacks_field(DocView doc, bool gets_id) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) {
    return !walk(doc, field.path).value.exists() && !(gets_id && field.path == "_id");
  });
}

void ShardKeyPattern::hash_documents(std::span<const DocView> docs, std::span<Hashed> into) const {
  constexpr std::size_t ahead = 4;  // documents of a large batch have left the caches
  const auto hashed = std::find_if(fields_.begin(), fields_.end(), [](const Field& field) { return field.hashed; });
  std::array<ValueView, documents_at_once> values;
  std::array<std::int64_t, documents_at_once> hashes;
  for (std::size_t i = 0; i < docs.size(); ++i) {
    if (i + ahead < docs.size()) __builtin_prefetch(docs[i + ahead].data());
    const Walked found = walk(docs[i], hashed->path);
    values[i] = found.value;
    into[i].missing = !found.value.exists();
    into[i].array = found.array;
  }
  bson_hash64(std::span(values).first(docs.size()), std::span(hashes).first(docs.size()));
  for (std::size_t i = 0; i < docs.size(); ++i) into[i].hash = hashes[i];
}

bool ShardKeyPattern::hashes_id() const noexcept {
  return std::any_of(fields_.begin(), fields_.end(),
                     [](const Field& field) { return field.hashed && field.path == "_id"; });
}

Result<BsonDoc> ShardKeyPattern::key_values_of_document(DocView doc) const {
  BsonWriter out;
  for (const Field& field : fields_) {
    const Walked found = walk(doc, field.path);
    if (found.array) return array_in_key();
    append_field_value(out, field, found.value);
  }
  return std::move(out).finish();
}

template <class Take>
bool ShardKeyPattern::take_query_values(DocView filter, Take&& take) const {
  EqualityCollector equalities(fields_);
  equalities.collect(filter);
  for (const Field& field : fields_) {
    const auto* equality = equalities.above(field.path);
    if (equality == nullptr) return false;
    const std::size_t above = equality->path.size();
    const std::string_view path(field.path);
    const Walked found =
        walk(equality->value, above == path.size() ? std::string_view() : path.substr(above + 1));
    if (found.array || !valid_in_query_key(found.value)) return false;
    take(field, found.value);
  }
  return true;
}

std::optional<std::string> ShardKeyPattern::key_of_query(DocView filter, bool* collatable) const {
  std::string key;
  if (!append_key_of_query(key, filter, collatable)) return std::nullopt;
  return key;
}

bool ShardKeyPattern::append_key_of_query(std::string& key, DocView filter,
                                          bool* collatable) const {
  bool any_collatable = false;
  const bool whole = take_query_values(filter, [&](const Field& field, ValueView value) {
    append_field_key(key, field, value);
    any_collatable = any_collatable || is_collatable(value);
  });
  if (whole && collatable != nullptr) *collatable = any_collatable;
  return whole;
}

std::optional<std::int64_t> ShardKeyPattern::hash_of_query(DocView filter, bool* collatable) const {
  std::int64_t hash = 0;
  const bool whole = take_query_values(filter, [&](const Field&, ValueView value) {
    hash = bson_hash64(value);
    *collatable = is_collatable(value);
  });
  if (!whole) return std::nullopt;
  return hash;
}

std::optional<QueryKey> ShardKeyPattern::query_key(DocView filter) const {
  QueryKey out;
  BsonWriter values;
  const bool whole = take_query_values(filter, [&](const Field& field, ValueView value) {
    append_field_key(out.key, field, value);
    values.append(field.path, value);
    out.collatable = out.collatable || is_collatable(value);
  });
  if (!whole) return std::nullopt;
  out.values = std::move(values).finish();
  return out;
}

Result<std::string> ShardKeyPattern::key_of_bound(DocView bound) const {
  const auto bad = [&](const std::string& why) {
    return Error(ErrorCode::bad_value, "Bound " + to_json(bound) + " does not fit the shard key " +
                                           to_json(pattern()) + ": " + why);
  };
  std::string key;
  auto it = bound.begin();
  for (const Field& field : fields_) {
    if (it.done()) return bad("field '" + field.path + "' is missing");
    if (it->name != field.path) {
      return bad("field '" + field.path + "' is due where '" + std::string(it->name) + "' stands");
    }
    if (field.hashed && it->type != BsonType::int64 && it->type != BsonType::int32 &&
        it->type != BsonType::min_key && it->type != BsonType::max_key) {
      return bad("hashed field '" + field.path + "' needs an integer, $minKey or $maxKey");
    }
    if (it->is_array()) return bad("field '" + field.path + "' is an array");
    append_order_key(key, *it);
    ++it;
  }
  if (!it.done()) return bad("there is no field '" + std::string(it->name) + "' in the key");
  return key;
}

BsonDoc ShardKeyPattern::min_bound() const {
  BsonWriter out;
  for (const Field& field : fields_) out.append_min_key(field.path);
  return std::move(out).finish();
}

BsonDoc ShardKeyPattern::max_bound() const {
  BsonWriter out;
  for (const Field& field : fields_) out.append_max_key(field.path);
  return std::move(out).finish();
}

bool ShardKeyPattern::has_prefix_index(DocView index_key) const {
  auto it = index_key.begin();
  if (!it.done() && it->name == "_id") return true;
  for (const Field& field : fields_) {
    if (it.done() || it->name != field.path) return false;
    ++it;
  }
  return true;
}

bool ShardKeyPattern::touches(std::string_view path) const noexcept {
  for (const Field& field : fields_) {
    if (is_path_prefix(path, field.path) || is_path_prefix(field.path, path)) return true;
  }
  return false;
}

bool exact_id_equality(DocView filter, bool* collatable) {
  static const ShardKeyPattern id = [] {
    return ShardKeyPattern::parse(BsonWriter().append("_id", 1).finish()).value();
  }();
  return id.key_of_query(filter, collatable).has_value();
}

}  // namespace spillway::catalog
