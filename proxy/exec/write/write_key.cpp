#include "proxy/exec/write/write_key.h"

#include <absl/container/inlined_vector.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "cursor/bson_hash.h"
#include "cursor/bson_order.h"
#include "cursor/path_text.h"
#include "proxy/base/check.h"
#include "proxy/base/clock.h"

namespace spillway::exec {

namespace {

using Field = catalog::ShardKeyPattern::Field;

bool is_inside_id(std::string_view path) noexcept { return path == "_id" || is_below(path, "_id"); }

ValueView or_null(ValueView value) noexcept {
  if (!value.exists()) value.type = BsonType::null;
  return value;
}

bool same_key_value(const Field& field, ValueView a, ValueView b) {
  a = or_null(a);
  b = or_null(b);
  if (a == b) return true;
  return field.hashed ? bson_hash64(a) == bson_hash64(b)
                      : std::is_eq(compare_values(a, b));
}

Error immutable(std::string_view path, const Field& field) {
  return Error(
      ErrorCode::immutable_field,
      fmt::format(
          "Performing an update on the path '{}' would modify the shard key field '{}', which is "
          "immutable; delete the document and insert it anew",
          path, field.path));
}

// The value that {<path>: value} gives to a field at or below that path; nullopt when it sets
// something inside it.
std::optional<ValueView> value_given(const Field& field, std::string_view path,
                                     ValueView value) noexcept {
  if (field.path == path) return value;
  if (!is_below(field.path, path)) return std::nullopt;
  if (value.is_array()) return value;  // no key holds one
  if (!value.is_document()) return ValueView{};
  return or_null(value.as_document().find_path(std::string_view(field.path).substr(path.size() + 1)));
}

// An update's change of a field of the key, or of a field above or inside it.
struct KeyChange {
  const Field* field = nullptr;
  std::string_view path;
  std::string_view op;     // $set, $unset or another operator
  ValueView value{};          // its argument
  std::string_view source{};  // $rename's, where `path` is its target
};
using KeyChanges = absl::InlinedVector<KeyChange, 4>;

// Shards look after _id.
void add_changes(const catalog::ShardKeyPattern& key, KeyChange change, KeyChanges& changes) {
  for (const Field& field : key.fields()) {
    if (is_inside_id(field.path) || !is_related(field.path, change.path)) continue;
    change.field = &field;
    changes.push_back(change);
  }
}

void add_operators(const catalog::ShardKeyPattern& key, DocView update, KeyChanges& changes) {
  for (const Element& op : update) {
    // $setOnInsert does not change existing documents; the shard refuses fields that are no operators.
    if (!op.is_document() || op.name == "$setOnInsert") continue;
    for (const Element& setting : op.as_document()) {
      const bool renames = op.name == "$rename";
      add_changes(key, {.path = setting.name, .op = op.name, .value = setting}, changes);
      if (!renames || !setting.is_string()) continue;
      add_changes(key, {.path = setting.as_string(), .op = op.name, .source = setting.name}, changes);
    }
  }
}

Error possibly_changes_key(std::string_view stage) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("the pipeline update's stage {} may change the shard key", stage));
}

// The value of an expression that is the same for all documents; nullopt: unknown.
std::optional<ValueView> constant(ValueView expression) noexcept {
  if (expression.is_document()) {
    const Element only = expression.as_document().first();
    if (only.name != "$literal") return std::nullopt;
    return only;
  }
  if (expression.is_array()) return std::nullopt;
  if (expression.is_string() && expression.as_string().starts_with('$')) return std::nullopt;
  return expression;
}

Result<void> add_stage(const catalog::ShardKeyPattern& key, const Element& operation, KeyChanges& changes) {
  const auto unset = [&](ValueView path) {
    if (path.is_string()) add_changes(key, {.path = path.as_string(), .op = "$unset"}, changes);
  };
  if ((operation.name == "$set" || operation.name == "$addFields") && operation.is_document()) {
    for (const Element& setting : operation.as_document()) {
      KeyChanges touched;
      add_changes(key, {.path = setting.name, .op = "$set"}, touched);
      if (touched.empty()) continue;
      const auto value = constant(setting);
      if (!value) return possibly_changes_key(operation.name);
      add_changes(key, {.path = setting.name, .op = "$set", .value = *value}, changes);
    }
  } else if (operation.name == "$unset") {
    unset(operation);
    for (const Element& path : operation.to_array()) unset(path);
  } else if (operation.name == "$project" || operation.name == "$replaceRoot" ||
             operation.name == "$replaceWith") {
    return possibly_changes_key(operation.name);
  }
  return {};
}

// All changes of an existing document's key by the update. CommandNotSupported(115).
Result<KeyChanges> key_changes(const catalog::ShardKeyPattern& key, const Statement& statement) {
  KeyChanges changes;
  if (statement.kind != WriteKind::update || is_id_key(key)) return changes;
  const DocView update = statement.update.as_document();
  if (statement.style == UpdateStyle::operators) {
    add_operators(key, update, changes);
  } else if (statement.style == UpdateStyle::pipeline) {
    for (const Element& stage : update) {
      if (!stage.is_document()) continue;  // the shard refuses it
      SPILLWAY_TRY(added, add_stage(key, stage.as_document().first(), changes));
    }
  } else {
    for (const Field& field : key.fields()) {
      if (is_inside_id(field.path)) continue;
      changes.push_back({.field = &field, .path = field.path, .op = "$set", .value = update.find_path(field.path)});
    }
  }
  return changes;
}

// The change adds nothing to a number, or multiplies it by one.
bool is_neutral(const KeyChange& change) {
  if (change.op != "$inc" && change.op != "$mul") return false;
  return change.value.is_number() && change.value.to_double() == (change.op == "$inc" ? 0 : 1);
}
// With a double, a long becomes a double.
bool spares_longs(const KeyChange& change) noexcept { return change.value.type != BsonType::double_; }

Error omits_key(const Field& field) {
  return Error(ErrorCode::shard_key_not_found,
               fmt::format("Expected replacement document to include all shard key fields, but the following were "
                           "omitted: {{ missingShardKeyFields: [ \"{}\" ] }}",
                           field.path));
}

// The field's value after the change, if it does not depend on the document; else nullopt.
std::optional<ValueView> value_after(const KeyChange& change) noexcept {
  if (change.op == "$set") return value_given(*change.field, change.path, change.value);
  if (change.op == "$unset") return value_given(*change.field, change.path, ValueView{});
  return std::nullopt;
}

// The value at its path of this document after the change; nullopt: unknown.
std::optional<ValueView> left_at_path(const KeyChange& change, DocView document, bool simple_collation) {
  const ValueView now = document.find_path(change.path);
  if (change.op == "$set") return change.value;
  if (change.op == "$unset") return ValueView{};
  if (change.op == "$rename") {
    if (change.source.empty()) return ValueView{};
    const ValueView moved = document.find_path(change.source);
    return moved.exists() ? moved : now;
  }
  if (change.op == "$inc" || change.op == "$mul") {
    if (!now.is_number() || !is_neutral(change)) return std::nullopt;
    if (spares_longs(change) || now.type != BsonType::int64) return now;
    return std::nullopt;
  }
  if (change.op == "$min" || change.op == "$max") {
    if (!now.exists()) return change.value;
    if (!simple_collation && catalog::is_collatable(now)) return std::nullopt;
    const auto order = compare_values(change.value, now);
    const bool sets = change.op == "$min" ? std::is_lt(order) : std::is_gt(order);
    return sets ? change.value : now;
  }
  return std::nullopt;
}

bool keeps_key(const KeyChange& change, DocView document, bool simple_collation) {
  const auto left = left_at_path(change, document, simple_collation);
  if (!left) return false;
  if (const auto after = value_given(*change.field, change.path, *left))
    return same_key_value(*change.field, *after, document.find_path(change.field->path));
  const ValueView now = document.find_path(change.path);
  return now.exists() == left->exists() && same_key_value(*change.field, now, *left);
}

// The query's equality on one path. Owns its bytes.
struct Equality {
  std::optional<catalog::QueryKey> key;
  ValueView value(std::string_view path) const noexcept {
    return key ? key->values.view()[path] : ValueView{};
  }
};

Equality equality_on(std::string_view path, DocView query) {
  auto parsed = catalog::ShardKeyPattern::parse(BsonWriter().append(path, std::int32_t{1}).finish());
  if (parsed.has_error()) return {};
  return {parsed->query_key(query)};
}

}  // namespace

ObjectId make_object_id() {
  // 4 bytes of time, 5 random ones of this process, a counter of 3 that starts at random.
  static const std::array<std::uint8_t, 8> process = [] {
    std::array<std::uint8_t, 8> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      store_le(bytes.data(), Clock::now().time_since_epoch().count());
    }
    return bytes;
  }();
  static std::atomic<std::uint32_t> counter{load_le<std::uint32_t>(process.data() + 4)};
  const auto seconds = static_cast<std::uint32_t>(wall_clock_ms() / 1000);
  const std::uint32_t count = counter.fetch_add(1, std::memory_order_relaxed);
  ObjectId id{};
  for (std::size_t i = 0; i < 4; ++i) id[i] = static_cast<std::uint8_t>(seconds >> (24 - 8 * i));
  std::memcpy(id.data() + 4, process.data(), 5);
  for (std::size_t i = 0; i < 3; ++i) id[9 + i] = static_cast<std::uint8_t>(count >> (16 - 8 * i));
  return id;
}

bool is_id_key(const catalog::ShardKeyPattern& key) noexcept {
  return std::all_of(key.fields().begin(), key.fields().end(),
                     [](const Field& field) { return is_inside_id(field.path); });
}

Result<std::string> key_of_replacement(const catalog::ShardKeyPattern& key,
                                       const Statement& statement) {
  const DocView replacement = statement.update.as_document();
  Result<std::string> found = key.key_of_document(replacement);
  if (key.touches("_id") && !replacement["_id"].exists()) {
    const Equality id = equality_on("_id", statement.query);
    if (!id.key) {
      return Error(ErrorCode::shard_key_not_found,
                   "Failed to target update by replacement document :: the shard key holds _id, "
                   "and neither the "
                   "query nor the replacement names it");
    }
    const BsonDoc document = BsonWriter().append("_id", id.value("_id")).append_elements(replacement).finish();
    found = key.key_of_document(document);
  }
  if (found.has_error()) {
    return Error(found.error().code,
                 fmt::format("Failed to target update by replacement document :: caused by :: {}",
                             found.error().message));
  }
  return found;
}

bool gives_whole_key(const catalog::ShardKeyPattern& key, const Statement& statement) {
  const DocView replacement = statement.update.as_document();
  return std::all_of(key.fields().begin(), key.fields().end(), [&](const Field& field) {
    return is_inside_id(field.path) || replacement.find_path(field.path).exists();
  });
}

Result<bool> may_change_key(const catalog::ShardKeyPattern& key, const Statement& statement) {
  SPILLWAY_TRY(changes, key_changes(key, statement));
  const bool inserts = statement.upsert && statement.style == UpdateStyle::operators;
  if (inserts) {
    for (const Element& setting : statement.update.as_document()["$setOnInsert"].to_document())
      add_changes(key, {.path = setting.name, .op = "$set", .value = setting}, *changes);
  }
  if (changes->empty()) return false;
  const auto full = key.query_key(statement.query);
  // Values that a collation treats as equal have different keys.
  if (!full || (full->collatable && !statement.simple_collation)) return true;
  return !std::all_of(changes->begin(), changes->end(), [&](const KeyChange& change) {
    const auto after = value_after(change);
    return after && same_key_value(*change.field, *after, full->values.view()[change.field->path]);
  });
}

Result<void> check_key_kept(const catalog::ShardKeyPattern& key, const Statement& statement,
                            DocView document) {
  SPILLWAY_TRY(changes, key_changes(key, statement));
  for (const KeyChange& change : *changes) {
    if (keeps_key(change, document, statement.simple_collation)) continue;
    const bool omitted = statement.style == UpdateStyle::replacement && !change.value.exists();
    return omitted ? omits_key(*change.field) : immutable(change.path, *change.field);
  }
  return {};
}

std::vector<std::string> paths_to_check(const catalog::ShardKeyPattern& key, const Statement& statement) {
  std::vector<std::string> paths;
  const auto changes = key_changes(key, statement);
  if (changes.has_error()) return paths;
  for (const KeyChange& change : *changes) {
    paths.emplace_back(is_below(change.field->path, change.path) ? change.path
                                                                 : std::string_view(change.field->path));
    if (!change.source.empty()) paths.emplace_back(change.source);
  }
  return paths;
}

void append_equality(BsonWriter& out, std::string_view path, ValueView value) {
  out.begin_document(path).append("$eq", or_null(value)).end();
}

BsonDoc same_key_filter(const catalog::ShardKeyPattern& key, const Statement& statement, DocView document) {
  BsonWriter out;
  const auto changes = key_changes(key, statement);
  if (changes.has_error()) return std::move(out).finish();
  for (const Field& field : key.fields()) {
    const ValueView now = document.find_path(field.path);
    const bool touched = std::any_of(changes->begin(), changes->end(),
                                     [&](const KeyChange& change) { return change.field == &field; });
    if (touched && now.type != BsonType::undefined) append_equality(out, field.path, now);
  }
  return std::move(out).finish();
}

std::optional<BsonDoc> kept_filter(const catalog::ShardKeyPattern& key, const Statement& statement) {
  const auto changes = key_changes(key, statement);
  if (changes.has_error()) return std::nullopt;
  BsonWriter out;
  for (const KeyChange& change : *changes) {
    if (is_neutral(change) && change.path == change.field->path) {
      out.begin_document(change.path);
      if (spares_longs(change)) {
        out.append("$type", "number");
      } else {
        out.begin_array("$type");
        for (const std::string_view type : {"double", "int", "decimal"}) out.append_item(type);
        out.end();
      }
      out.end();
      continue;
    }
    const auto after = value_after(change);
    if (!after || after->is_array()) return std::nullopt;
    if (!statement.simple_collation && catalog::is_collatable(*after)) return std::nullopt;
    append_equality(out, change.field->path, *after);
  }
  return std::move(out).finish();
}

Error changes_key(const catalog::ShardKeyPattern& key, const Statement& statement) {
  const auto changes = key_changes(key, statement);
  SPILLWAY_CHECK(changes.has_value() && !changes->empty());
  return immutable(changes->front().path, *changes->front().field);
}

namespace {

Error undetermined(std::string_view why) {
  return Error(
      ErrorCode::shard_key_not_found,
      fmt::format("Failed to target upsert by query :: could not extract exact shard key :: {}",
                  why));
}

// The operators' value of one field of an upserted document. `value` missing: no operator sets it.
struct Given {
  ValueView value;
  bool known = true;
};

Given given_by_operators(DocView update, const Field& field) {
  Given given;
  for (const Element& op : update) {
    for (const Element& setting : op.to_document()) {
      const bool renamed_to = op.name == "$rename" && setting.is_string() &&
                              is_related(setting.as_string(), field.path);
      if (renamed_to) given.known = false;
      if (!is_related(setting.name, field.path)) continue;
      const bool sets = op.name == "$set" || op.name == "$setOnInsert";
      const auto value = sets ? value_given(field, setting.name, setting) : std::nullopt;
      if (value && value->exists()) {
        given.value = *value;
      } else {
        given.known = false;
      }
    }
  }
  return given;
}

// The update with {$setOnInsert: {…}} in it.
BsonDoc with_on_insert(DocView update, DocView imposed) {
  BsonWriter out;
  bool done = false;
  const auto append = [&](DocView others) {
    out.begin_document("$setOnInsert").append_elements(imposed).append_elements(others).end();
    done = true;
  };
  for (const Element& op : update) {
    if (op.name != "$setOnInsert" || !op.is_document()) {
      out.append_element(op);
    } else {
      append(op.as_document());
    }
  }
  if (!done) append({});
  return out.finish();
}

// Does a query mention this path, at any depth of $and, $or and the like?
bool mentions(DocView query, std::string_view path, int depth = 0) {
  constexpr int depth_max = 100;
  if (depth > depth_max) return true;
  for (const Element& field : query) {
    if (field.name.starts_with('$')) {
      for (const Element& branch : field.to_array()) {
        if (branch.is_document() && mentions(branch.as_document(), path, depth + 1)) return true;
      }
    } else if (is_related(field.name, path)) {
      return true;
    }
  }
  return false;
}

// {<path>: {$in: [v]}}, v perhaps more than once: a server may take v for the new document.
ValueView only_value_of(DocView query, std::string_view path) {
  const DocView in = query[path].to_document()["$in"].to_array();
  ValueView only;
  for (const Element& value : in) {
    if (only.exists() && !std::is_eq(compare_values(only, value))) return {};
    only = value;
  }
  return only;
}

// Bounds, because an upsert takes equalities over into the new document.
void append_owned(BsonWriter& out, std::string_view path, ValueView value) {
  out.begin_document(path).append("$gte", or_null(value)).append("$lte", or_null(value)).end();
}

Result<UpsertPlan> plan_operators(const catalog::CollectionRouting& routing,
                                  const Statement& statement, const ObjectId& new_id) {
  const DocView update = statement.update.as_document();
  const BsonDoc generated = BsonWriter().append_object_id("_id", new_id).finish();
  BsonWriter filter, owned, imposed;  // on the new document's key
  UpsertPlan plan;
  for (const Field& field : routing.key.fields()) {
    const Given given = given_by_operators(update, field);
    if (!given.known) return undetermined(fmt::format("the update computes '{}'", field.path));
    const Equality equality = equality_on(field.path, statement.query);
    ValueView value = given.value.exists() ? given.value : equality.value(field.path);
    const bool is_id = field.path == "_id", imposes = !value.exists() && (is_id || !is_inside_id(field.path));
    if (imposes) {
      value = only_value_of(statement.query, field.path);
      if (!is_id && !statement.simple_collation && catalog::is_collatable(value)) value = {};
      if (is_id && !value.exists()) {
        value = generated.view()["_id"];
        plan.by_new_id = true;
      }
      if (value.exists()) imposed.append(field.path, value);
    }
    if (!value.exists() && (is_inside_id(field.path) || mentions(statement.query, field.path))) {
      return undetermined(fmt::format("nothing gives '{}' one value", field.path));
    }
    filter.append(field.path, or_null(value));
    append_owned(owned, field.path, value);
  }
  const BsonDoc equalities = std::move(filter).finish();
  const auto key = routing.key.key_of_query(equalities);
  if (!key) return undetermined("a value of the shard key is an array or a regular expression");
  plan.shard = routing.chunks.shard_for(*key);
  plan.owned = std::move(owned).finish();
  const BsonDoc on_insert = std::move(imposed).finish();
  if (!on_insert.view().empty()) plan.update = with_on_insert(update, on_insert.view());
  return plan;
}

Result<UpsertPlan> plan_replacement(const catalog::CollectionRouting& routing,
                                    const Statement& statement, const ObjectId& new_id) {
  const DocView replacement = statement.update.as_document();
  UpsertPlan plan;
  BsonWriter out;
  const Equality id = equality_on("_id", statement.query);
  if (!replacement["_id"].exists() && routing.key.touches("_id")) {
    if (id.key) {
      out.append("_id", id.value("_id"));
    } else {
      out.append_object_id("_id", new_id);
      plan.by_new_id = true;
    }
    out.append_elements(replacement);
    plan.update = std::move(out).finish();
  }
  const DocView document = plan.update ? plan.update->view() : replacement;
  SPILLWAY_TRY(key, routing.key.key_of_document(document));
  plan.shard = routing.chunks.shard_for(*key);
  BsonWriter owned;
  for (const Field& field : routing.key.fields()) append_owned(owned, field.path, document.find_path(field.path));
  plan.owned = std::move(owned).finish();
  return plan;
}

}  // namespace

Result<UpsertPlan> plan_upsert(const catalog::CollectionRouting& routing,
                               const Statement& statement, const ObjectId& new_id) {
  if (statement.style == UpdateStyle::pipeline)
    return undetermined("a pipeline makes the document");
  if (statement.style == UpdateStyle::replacement)
    return plan_replacement(routing, statement, new_id);
  return plan_operators(routing, statement, new_id);
}

}  // namespace spillway::exec
