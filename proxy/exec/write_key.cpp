#include "proxy/exec/write_key.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "cursor/bson_order.h"
#include "proxy/base/clock.h"

namespace spillway::exec {

namespace {

using Field = catalog::ShardKeyPattern::Field;

bool is_below(std::string_view path, std::string_view above) noexcept {
  return path.size() > above.size() && path.starts_with(above) && path[above.size()] == '.';
}
bool is_related(std::string_view a, std::string_view b) noexcept {
  return a == b || is_below(a, b) || is_below(b, a);
}
bool is_inside_id(std::string_view path) noexcept { return path == "_id" || is_below(path, "_id"); }

ValueView or_null(ValueView value) noexcept {
  if (!value.exists()) value.type = BsonType::null;
  return value;
}

bool same_key_value(const Field& field, ValueView a, ValueView b) {
  a = or_null(a);
  b = or_null(b);
  if (a == b) return true;
  if (field.hashed) return false;  // values that compare equal may hash apart
  std::string left, right;
  append_order_key(left, a);
  append_order_key(right, b);
  return left == right;
}

// Does a path change a field of the key that is not (part of) _id? Shards look after _id.
const Field* mutable_field(const catalog::ShardKeyPattern& key, std::string_view path) noexcept {
  for (const Field& field : key.fields()) {
    if (!is_inside_id(field.path) && is_related(field.path, path)) return &field;
  }
  return nullptr;
}

Error immutable(std::string_view path, const Field& field) {
  return Error(
      ErrorCode::immutable_field,
      fmt::format(
          "Performing an update on the path '{}' would modify the shard key field '{}', which is "
          "immutable; delete the document and insert it anew",
          path, field.path));
}

Error needs_full_key(std::string_view path, const Field& field) {
  return Error(ErrorCode::invalid_options,
               fmt::format("the update sets '{}', which is the shard key field '{}' or holds it: "
                           "the query must name "
                           "the full shard key by equality, with the same value",
                           path, field.path));
}

// The value that {<path>: value} gives to a field at or below that path; nullopt when it sets
// something inside it.
std::optional<ValueView> value_given(const Field& field, std::string_view path,
                                     ValueView value) noexcept {
  if (field.path == path) return value;
  if (!is_below(field.path, path)) return std::nullopt;
  if (!value.is_document()) return std::nullopt;
  return or_null(
      value.as_document().find_path(std::string_view(field.path).substr(path.size() + 1)));
}

Result<void> check_setting(const catalog::ShardKeyPattern& key,
                           const std::optional<catalog::QueryKey>& full, const Element& setting,
                           bool on_insert_only) {
  for (const Field& field : key.fields()) {
    if (is_inside_id(field.path) || !is_related(field.path, setting.name)) continue;
    if (!full) {
      if (on_insert_only) continue;  // plan_upsert() reads it
      return needs_full_key(setting.name, field);
    }
    const auto given = value_given(field, setting.name, setting);
    if (!given || !same_key_value(field, *given, full->values.view()[field.path])) {
      return immutable(setting.name, field);
    }
  }
  return {};
}

Result<void> check_operators(const catalog::ShardKeyPattern& key, const Statement& statement,
                             const std::optional<catalog::QueryKey>& full) {
  for (const Element& op : statement.update.as_document()) {
    if (!op.is_document()) continue;  // the shard refuses it
    const bool on_insert_only = op.name == "$setOnInsert";
    if (on_insert_only && !statement.upsert) continue;
    for (const Element& setting : op.as_document()) {
      if (op.name == "$set" || on_insert_only) {
        auto checked = check_setting(key, full, setting, on_insert_only);
        if (checked.has_error()) return checked.error();
        continue;
      }
      if (const Field* field = mutable_field(key, setting.name))
        return immutable(setting.name, *field);
      if (op.name != "$rename" || !setting.is_string()) continue;
      if (const Field* field = mutable_field(key, setting.as_string()))
        return immutable(setting.as_string(), *field);
    }
  }
  return {};
}

Error possibly_changes_key(std::string_view stage) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("the pipeline update's stage {} may change the shard key", stage));
}

Result<void> check_pipeline(const catalog::ShardKeyPattern& key, DocView pipeline) {
  for (const Element& stage : pipeline) {
    if (!stage.is_document()) continue;  // the shard refuses it
    const Element operation = stage.as_document().first();
    if (operation.name == "$set" || operation.name == "$addFields") {
      if (!operation.is_document()) continue;
      for (const Element& setting : operation.as_document()) {
        if (mutable_field(key, setting.name)) return possibly_changes_key(operation.name);
      }
    } else if (operation.name == "$unset") {
      if (operation.is_string() && mutable_field(key, operation.as_string())) {
        return possibly_changes_key(operation.name);
      }
      if (!operation.is_array()) continue;
      for (const Element& path : operation.as_document()) {
        if (path.is_string() && mutable_field(key, path.as_string()))
          return possibly_changes_key(operation.name);
      }
    } else if (operation.name == "$project" || operation.name == "$replaceRoot" ||
               operation.name == "$replaceWith") {
      return possibly_changes_key(operation.name);
    }
  }
  return {};
}

// The query's equality on one path. Owns its bytes.
struct Equality {
  std::optional<catalog::QueryKey> key;
  ValueView value(std::string_view path) const noexcept {
    return key ? key->values.view()[path] : ValueView{};
  }
};

Equality equality_on(std::string_view path, DocView query) {
  BsonWriter pattern;
  pattern.append(path, std::int32_t{1});
  auto parsed = catalog::ShardKeyPattern::parse(std::move(pattern).finish());
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
    BsonWriter whole;
    whole.append("_id", id.value("_id"));
    whole.append_elements(replacement);
    const BsonDoc document = std::move(whole).finish();
    found = key.key_of_document(document);
  }
  if (found.has_error()) {
    return Error(found.error().code,
                 fmt::format("Failed to target update by replacement document :: caused by :: {}",
                             found.error().message));
  }
  return found;
}

Result<void> check_key_update(const catalog::ShardKeyPattern& key, const Statement& statement) {
  if (statement.kind != WriteKind::update || is_id_key(key)) return {};
  if (statement.style == UpdateStyle::pipeline)
    return check_pipeline(key, statement.update.as_document());
  auto full = key.query_key(statement.query);
  // What a collation takes for equal has another key.
  if (full && full->collatable && !statement.simple_collation) full.reset();
  if (statement.style == UpdateStyle::operators) return check_operators(key, statement, full);
  if (!full) return {};
  const DocView replacement = statement.update.as_document();
  for (const Field& field : key.fields()) {
    if (is_inside_id(field.path)) continue;
    if (!same_key_value(field, replacement.find_path(field.path),
                        full->values.view()[field.path])) {
      return immutable(field.path, field);
    }
  }
  return {};
}

namespace {

Error undetermined(std::string_view why) {
  return Error(
      ErrorCode::shard_key_not_found,
      fmt::format("Failed to target upsert by query :: could not extract exact shard key :: {}",
                  why));
}

void append_new_id(BsonWriter& out, const ObjectId& id) {
  std::uint8_t bytes[12];
  std::copy(id.begin(), id.end(), bytes);
  out.append_object_id("_id", bytes);
}

// What the operators give to one field of an upserted document. `value` missing: nothing touches
// it.
struct Given {
  ValueView value;
  bool known = true;
};

Given given_by_operators(DocView update, const Field& field) {
  Given given;
  for (const Element& op : update) {
    if (!op.is_document()) continue;
    for (const Element& setting : op.as_document()) {
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

// The update with {$setOnInsert: {_id: …}} in it.
BsonDoc with_id_on_insert(DocView update, ValueView id) {
  BsonWriter out;
  bool done = false;
  for (const Element& op : update) {
    if (op.name != "$setOnInsert" || !op.is_document()) {
      out.append_element(op);
      continue;
    }
    out.begin_document("$setOnInsert");
    out.append("_id", id);
    out.append_elements(op.as_document());
    out.end();
    done = true;
  }
  if (!done) {
    out.begin_document("$setOnInsert");
    out.append("_id", id);
    out.end();
  }
  return std::move(out).finish();
}

// Does a query speak of this path at all, at any depth of $and, $or and the like?
bool mentions(DocView query, std::string_view path, int depth = 0) {
  constexpr int depth_max = 100;
  if (depth > depth_max) return true;
  for (const Element& field : query) {
    if (field.name.starts_with('$')) {
      if (!field.is_array()) continue;
      for (const Element& branch : field.as_document()) {
        if (branch.is_document() && mentions(branch.as_document(), path, depth + 1)) return true;
      }
    } else if (is_related(field.name, path)) {
      return true;
    }
  }
  return false;
}

// {_id: {$in: [v]}}: a server may take v for the new document's _id.
ValueView only_id_of(DocView query) noexcept {
  const ValueView id = query["_id"];
  if (!id.is_document()) return {};
  const ValueView in = id.as_document()["$in"];
  if (!in.is_array() || in.as_document().count() != 1) return {};
  return in.as_document().first();
}

Result<UpsertPlan> plan_operators(const catalog::CollectionRouting& routing,
                                  const Statement& statement, const ObjectId& new_id) {
  const DocView update = statement.update.as_document();
  BsonWriter own;
  append_new_id(own, new_id);
  const BsonDoc generated = std::move(own).finish();
  BsonWriter filter;  // equalities on the new document's key
  ValueView imposed;
  UpsertPlan plan;
  for (const Field& field : routing.key.fields()) {
    const Given given = given_by_operators(update, field);
    if (!given.known) return undetermined(fmt::format("the update computes '{}'", field.path));
    const Equality equality = equality_on(field.path, statement.query);
    ValueView value = given.value.exists() ? given.value : equality.value(field.path);
    if (!value.exists() && field.path == "_id") {
      imposed = only_id_of(statement.query);
      if (!imposed.exists()) {
        imposed = generated.view()["_id"];
        plan.by_new_id = true;
      }
      value = imposed;
    } else if (!value.exists() &&
               (is_inside_id(field.path) || mentions(statement.query, field.path))) {
      return undetermined(fmt::format("nothing gives '{}' one value", field.path));
    }
    filter.append(field.path, or_null(value));
  }
  const BsonDoc equalities = std::move(filter).finish();
  const auto key = routing.key.key_of_query(equalities);
  if (!key) return undetermined("a value of the shard key is an array or a regular expression");
  plan.shard = routing.chunks.shard_for(*key);
  if (imposed.exists()) plan.update = with_id_on_insert(update, imposed);
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
      append_new_id(out, new_id);
      plan.by_new_id = true;
    }
    out.append_elements(replacement);
    plan.update = std::move(out).finish();
  }
  auto key = routing.key.key_of_document(plan.update ? plan.update->view() : replacement);
  if (key.has_error()) return key.error();
  plan.shard = routing.chunks.shard_for(*key);
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
