#include "proxy/canned/canned_store.h"

#include <algorithm>
#include <chrono>

namespace spillway::bench {
namespace {

constexpr int bad_value = 2;
constexpr int failed_to_parse = 9;
constexpr int type_mismatch = 14;
constexpr int cursor_not_found = 43;
constexpr int command_not_found = 59;
constexpr int invalid_namespace = 73;
constexpr int exceeded_memory_limit = 146;
constexpr int unrecognized_stage = 40324;
constexpr std::size_t first_batch_default = 101;
constexpr std::size_t image_kinds_max = 64;  // each up to about 7 x pool_bytes

std::string ok_document() { return DocWriter().add_double("ok", 1).take(); }

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// The local position of the first document of shard `index` of `of` numbered `number` or more.
std::int64_t local_at_least(std::int64_t number, std::int64_t index, std::int64_t of) {
  return number <= index ? 0 : (number - index + of - 1) / of;
}

std::string_view document_or_empty(const Field& field) {
  return field.is_document() ? field.value : std::string_view();
}

bool is_empty_document(std::string_view document) { return document.size() <= 5; }

bool is_empty_array(const Field& field) { return field.is_array() && is_empty_document(field.value); }

// {_id: {$in: []}}
bool matches_nothing(std::string_view filter) {
  const auto by_id = find_field(filter, "_id");
  const auto values = by_id ? find_field(document_or_empty(*by_id), "$in") : std::nullopt;
  return values && is_empty_array(*values);
}

// {<anything>: const, <field>: {$sum: 1}} of a $group that only counts.
bool parse_counting_group(std::string_view group, std::string& field) {
  FieldWalk walk(group);
  bool has_id = false;
  while (auto part = walk.next()) {
    if (part->name == "_id") {
      has_id = !part->is_document() && part->type != bson::string_type;
      continue;
    }
    const auto sum = find_field(document_or_empty(*part), "$sum");
    if (!field.empty() || !sum || sum->integer() != 1) return false;
    field = part->name;
  }
  return has_id && !field.empty() && !walk.malformed();
}

}  // namespace

CannedStore::CannedStore(StoreOptions options)
    : options_(std::move(options)),
      cursor_seed_(static_cast<std::uint64_t>(options_.index + 1) << 40) {}

StoreReply CannedStore::error(int code, std::string_view message) {
  DocWriter reply;
  reply.add_double("ok", 0).add_text("errmsg", message).add_int32("code", code);
  switch (code) {
    case bad_value:
      reply.add_text("codeName", "BadValue");
      break;
    case failed_to_parse:
      reply.add_text("codeName", "FailedToParse");
      break;
    case type_mismatch:
      reply.add_text("codeName", "TypeMismatch");
      break;
    case cursor_not_found:
      reply.add_text("codeName", "CursorNotFound");
      break;
    case command_not_found:
      reply.add_text("codeName", "CommandNotFound");
      break;
    case invalid_namespace:
      reply.add_text("codeName", "InvalidNamespace");
      break;
    case exceeded_memory_limit:
      reply.add_text("codeName", "ExceededMemoryLimit");
      break;
    default:
      reply.add_text("codeName", "Location" + std::to_string(code));
      break;
  }
  return {reply.take(), {}, {}};
}

std::int64_t CannedStore::next_cursor_id() {
  // splitmix64 of a counter: no repetition, and ids that look like a server's.
  cursor_seed_ += 1;
  std::uint64_t value = cursor_seed_ * 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  const auto id = static_cast<std::int64_t>((value ^ (value >> 31)) >> 1);
  return id == 0 || cursors_.contains(id) ? next_cursor_id() : id;
}

DocumentImages* CannedStore::images_of(std::size_t doc_bytes, bool with_sort_key) {
  const auto key = std::pair(doc_bytes, with_sort_key);
  const auto found = images_.find(key);
  if (found != images_.end()) return found->second.get();
  if (images_.size() >= image_kinds_max) return nullptr;
  DocumentImages::Options options;
  options.doc_bytes = doc_bytes;
  options.pool_bytes = options_.pool_bytes;
  options.first_number = options_.index;
  options.number_stride = options_.shard_count;
  options.with_sort_key = with_sort_key;
  auto made = std::make_unique<DocumentImages>(options);
  return images_.emplace(key, std::move(made)).first->second.get();
}

StoreReply CannedStore::answer(const CommandInput& input) {
  FieldWalk walk(input.body);
  const auto command = walk.next();
  if (!command) return error(failed_to_parse, "the command is no BSON document with an element");
  const auto db_field = find_field(input.body, "$db");
  const auto db = db_field ? db_field->text() : std::nullopt;
  if (!db || db->empty()) return error(failed_to_parse, "the command has no $db");
  const std::string_view name = command->name;
  if (name == "find") return find(input.body, *command, *db);
  if (name == "getMore") return get_more(input.body, *command, *db);
  if (name == "killCursors") return kill_cursors(input.body, *command);
  if (name == "aggregate") return aggregate(input.body, *command, *db);
  if (name == "count") return count(input.body, *command);
  if (name == "insert" || name == "update" || name == "delete") return write(input, *command);
  if (name == "hello" || name == "isMaster" || name == "ismaster") {
    return {hello_document(name), {}, {}};
  }
  return other(name, *db);
}

std::string CannedStore::hello_document(std::string_view command_name) {
  DocWriter reply;
  const bool replica_set = !options_.set_name.empty();
  if (replica_set) {
    reply.add_text("setName", options_.set_name).add_int32("setVersion", 1);
    reply.open_array("hosts").add_text("0", options_.address).close();
    reply.add_bool("secondary", false).add_text("primary", options_.address);
    reply.add_text("me", options_.address);
  }
  reply.add_bool(command_name == "hello" ? "isWritablePrimary" : "ismaster", true)
      .add_bool("helloOk", true)
      .add_int32("maxBsonObjectSize", 16 * 1024 * 1024)
      .add_int32("maxMessageSizeBytes", 48'000'000)
      .add_int32("maxWriteBatchSize", 100'000)
      .add_date("localTime", now_ms())
      .add_int32("logicalSessionTimeoutMinutes", 30)
      .add_int32("minWireVersion", 0)
      .add_int32("maxWireVersion", options_.max_wire_version)
      .add_bool("readOnly", false)
      .add_double("ok", 1);
  return reply.take();
}

StoreReply CannedStore::server_status() const {
  DocWriter reply;
  reply.add_text("process", "canned");
  reply.open_document("metrics").open_document("cursor").open_document("open");
  reply.add_int64("total", static_cast<std::int64_t>(cursors_.size()));
  reply.close().close().open_document("document");
  reply.add_int64("inserted", static_cast<std::int64_t>(written_documents_));
  reply.close().close().add_double("ok", 1);
  return {reply.take(), {}, {}};
}

StoreReply CannedStore::other(std::string_view name, std::string_view db) {
  static constexpr std::string_view accepted[] = {
      "ping",    "endSessions",  "refreshSessions", "killSessions",  "killAllSessions",
      "create",  "drop",         "dropDatabase",    "createIndexes", "dropIndexes",
      "collMod", "setParameter", "getParameter",    "logout"};
  if (name == "buildInfo" || name == "buildinfo") {
    DocWriter reply;
    reply.add_text("version", "7.0.0").add_text("gitVersion", "canned");
    reply.open_array("versionArray").add_int32("0", 7).add_int32("1", 0).add_int32("2", 0);
    reply.add_int32("3", 0).close().open_array("modules").close();
    reply.add_int32("bits", 64).add_int32("maxBsonObjectSize", 16 * 1024 * 1024);
    return {reply.add_double("ok", 1).take(), {}, {}};
  }
  if (name == "serverStatus") return server_status();
  if (name == "listDatabases") {
    DocWriter reply;
    reply.open_array("databases").close().add_int64("totalSize", 0);
    return {reply.add_double("ok", 1).take(), {}, {}};
  }
  if (name == "listCollections" || name == "listIndexes") {
    const std::string ns = std::string(db) + ".$cmd." + std::string(name);
    return batch("firstBatch", ns, 0, {}, 0);
  }
  if (name == "findAndModify" || name == "findandmodify") {
    DocWriter reply;
    reply.open_document("lastErrorObject").add_int32("n", 0).add_bool("updatedExisting", false);
    reply.close().add_raw(0x0a, "value", {});
    return {reply.add_double("ok", 1).take(), {}, {}};
  }
  if (std::find(std::begin(accepted), std::end(accepted), name) != std::end(accepted)) {
    return {ok_document(), {}, {}};
  }
  return error(command_not_found, "no such command: '" + std::string(name) + "'");
}

StoreReply CannedStore::write(const CommandInput& input, const Field& command) {
  const std::string_view list_name = command.name == "insert"   ? "documents"
                                     : command.name == "update" ? "updates"
                                                                : "deletes";
  std::size_t documents = input.sequence_documents;
  if (const auto list = find_field(input.body, list_name)) {
    if (!list->is_array()) {
      return error(type_mismatch, std::string(list_name) + " must be an array");
    }
    FieldWalk walk(list->value);
    while (walk.next()) ++documents;
    if (walk.malformed()) return error(failed_to_parse, "malformed " + std::string(list_name));
  }
  if (documents == 0) return error(bad_value, "a write without " + std::string(list_name));
  if (command.name == "insert") written_documents_ += documents;
  DocWriter reply;
  reply.add_int32("n", static_cast<std::int32_t>(documents));
  if (command.name == "update") reply.add_int32("nModified", static_cast<std::int32_t>(documents));
  return {reply.add_double("ok", 1).take(), {}, {}};
}

std::optional<CannedStore::Failure> CannedStore::parse_find(std::string_view body,
                                                            Query& query) const {
  FieldWalk walk(body);
  while (auto field = walk.next()) {
    if (field->name == "filter" || field->name == "query") query.filter = document_or_empty(*field);
    if (field->name == "sort") query.sort = document_or_empty(*field);
    if (field->name == "projection") query.projection = document_or_empty(*field);
    if (field->name == "singleBatch") query.single_batch = field->truthy();
    std::int64_t* number = nullptr;
    std::int64_t batch_size = 0;
    if (field->name == "skip") number = &query.skip;
    if (field->name == "limit") number = &query.limit;
    if (field->name == "batchSize") number = &batch_size;
    if (number == nullptr) continue;
    const auto value = field->integer();
    if (!value || *value < 0) {
      return Failure{bad_value, std::string(field->name) + " must be a whole number, 0 or more"};
    }
    *number = *value;
    if (number == &batch_size) query.batch_size = batch_size;
  }
  if (walk.malformed()) return Failure{failed_to_parse, "the command is malformed BSON"};
  return std::nullopt;
}

std::optional<CannedStore::Failure> CannedStore::parse_pipeline(const Field& pipeline,
                                                                Query& query) const {
  if (!pipeline.is_array()) return Failure{type_mismatch, "pipeline must be an array"};
  FieldWalk stages(pipeline.value);
  while (auto stage = stages.next()) {
    const auto body = FieldWalk(document_or_empty(*stage)).next();
    if (!body) return Failure{type_mismatch, "a stage must be a document with one element"};
    const bool windowed = query.skip > 0 || query.limit > 0;
    if (body->name == "$match" && query.filter.empty() && !windowed) {
      query.filter = document_or_empty(*body);
      // A router asks about stages that only it runs, behind this filter.
      if (matches_nothing(query.filter)) return std::nullopt;
    } else if (body->name == "$sort" && !windowed) {
      query.sort = document_or_empty(*body);
    } else if (body->name == "$skip" && query.limit == 0) {
      query.skip += std::max<std::int64_t>(0, body->integer().value_or(0));
    } else if (body->name == "$limit" && query.limit == 0) {
      query.limit = std::max<std::int64_t>(0, body->integer().value_or(0));
    } else if (body->name == "$count" && body->text()) {
      query.counts = true;
      query.count_field = *body->text();
    } else if (body->name == "$group" &&
               parse_counting_group(document_or_empty(*body), query.count_field)) {
      query.counts = query.count_has_id = true;
    } else {
      return Failure{unrecognized_stage,
                     "a canned shard does not know this stage: '" + std::string(body->name) + "'"};
    }
  }
  if (stages.malformed()) return Failure{failed_to_parse, "the pipeline is malformed BSON"};
  return std::nullopt;
}

// Narrows local positions [from, to) by a filter on _id: a number, or $eq, $gt, $gte, $lt, $lte, or an empty $in.
std::optional<CannedStore::Failure> CannedStore::narrow(std::string_view filter, const Shape& shape,
                                                        std::int64_t& from,
                                                        std::int64_t& to) const {
  const std::int64_t of = options_.shard_count;
  from = 0;
  to = local_at_least(shape.count, options_.index, of);
  const auto bound = [&](std::string_view op, const Field& value) {
    if (op == "$in" && is_empty_array(value)) {
      to = 0;
      return true;
    }
    const auto number = value.integer();
    if (!number || *number > (std::int64_t{1} << 50)) return false;
    if (op == "$eq" || op == "$gte")
      from = std::max(from, local_at_least(*number, options_.index, of));
    if (op == "$gt") from = std::max(from, local_at_least(*number + 1, options_.index, of));
    if (op == "$lt") to = std::min(to, local_at_least(*number, options_.index, of));
    if (op == "$eq" || op == "$lte")
      to = std::min(to, local_at_least(*number + 1, options_.index, of));
    return op == "$eq" || op == "$gte" || op == "$gt" || op == "$lt" || op == "$lte";
  };
  FieldWalk walk(filter);
  while (auto field = walk.next()) {
    bool good = field->name == "_id";
    if (good && field->is_document()) {
      FieldWalk operators(field->value);
      while (auto op = operators.next()) good = good && bound(op->name, *op);
      good = good && !operators.malformed();
    } else if (good) {
      good = bound("$eq", *field);
    }
    if (!good) {
      return Failure{bad_value, "a canned shard filters by numbers and ranges of _id only"};
    }
  }
  to = std::max(to, from);
  return std::nullopt;
}

std::optional<CannedStore::Failure> CannedStore::select(const Query& query, Selection& selection) {
  const auto shape = parse_shape(query.collection);
  if (!shape) return std::nullopt;  // an empty collection
  if (!is_empty_document(query.filter)) {
    if (auto failure = narrow(query.filter, *shape, selection.from, selection.to)) return failure;
  } else {
    selection.to = local_at_least(shape->count, options_.index, options_.shard_count);
  }
  if (!is_empty_document(query.sort)) {
    const auto key = FieldWalk(query.sort).next();
    const bool ascending = key && key->integer() == 1;
    if (!ascending || (key->name != "_id" && key->name != "$natural")) {
      return Failure{bad_value, "a canned shard sorts by {_id: 1} only"};
    }
  }
  bool with_sort_key = false;
  if (!is_empty_document(query.projection)) {
    const auto field = FieldWalk(query.projection).next();
    const auto meta = field ? find_field(document_or_empty(*field), "$meta") : std::nullopt;
    with_sort_key = meta && meta->text() == "sortKey" && field->name == "$sortKey";
    if (!with_sort_key) return Failure{bad_value, "a canned shard projects nothing but $sortKey"};
  }
  const auto window = [&](std::int64_t from, std::int64_t size) {
    return from + std::min(size, selection.to - from);
  };
  selection.from = window(selection.from, query.skip);
  if (query.limit > 0) selection.to = window(selection.from, query.limit);
  selection.images = images_of(shape->doc_bytes, with_sort_key);
  if (selection.images == nullptr) {
    return Failure{exceeded_memory_limit, "too many document sizes for one canned shard"};
  }
  return std::nullopt;
}

StoreReply CannedStore::batch(std::string_view name, std::string_view ns, std::int64_t cursor_id,
                              const Selection& all, std::size_t count) const {
  StoreReply reply;
  // The frame is written as if the array were empty, cut where its elements go, and grown by them.
  DocWriter writer;
  writer.open_document("cursor").open_array(name);
  writer.close().add_int64("id", cursor_id).add_text("ns", ns).close().add_double("ok", 1);
  reply.head = writer.take();
  const std::size_t cursor_at = 4 + 1 + 7;
  const std::size_t array_at = cursor_at + 4 + 1 + name.size() + 1;
  reply.tail = reply.head.substr(array_at + 4);
  reply.head.resize(array_at + 4);
  if (count == 0) return reply;
  reply.range = {all.images, all.from, count};
  const auto grown = static_cast<std::int32_t>(all.images->elements_bytes(count));
  for (const std::size_t at : {std::size_t{0}, cursor_at, array_at}) {
    char* length = reply.head.data() + at;
    store_bytes(length, load_bytes<std::int32_t>(length) + grown);
  }
  return reply;
}

StoreReply CannedStore::first_batch(const Query& query, std::string_view db,
                                    const Selection& selection) {
  const std::string ns = std::string(db) + "." + std::string(query.collection);
  if (selection.images == nullptr) return batch("firstBatch", ns, 0, {}, 0);
  const auto available = static_cast<std::size_t>(selection.to - selection.from);
  const auto wanted = static_cast<std::size_t>(query.batch_size.value_or(
      query.single_batch ? static_cast<std::int64_t>(available) : first_batch_default));
  const std::size_t count =
      selection.images->elements_within(std::min(available, wanted), batch_bytes_max);
  std::int64_t id = 0;
  if (count < available && !query.single_batch) {
    if (cursors_.size() >= options_.cursors_max) {
      return error(exceeded_memory_limit, "too many open cursors");
    }
    id = next_cursor_id();
    Selection rest = selection;
    rest.from += static_cast<std::int64_t>(count);
    cursors_.emplace(id, Cursor{ns, rest});
  }
  return batch("firstBatch", ns, id, selection, count);
}

StoreReply CannedStore::find(std::string_view body, const Field& command, std::string_view db) {
  const auto collection = command.text();
  if (!collection || collection->empty()) return error(invalid_namespace, "find needs a name");
  Query query;
  query.collection = *collection;
  if (const auto failure = parse_find(body, query)) return error(*failure);
  Selection selection;
  if (const auto failure = select(query, selection)) return error(*failure);
  return first_batch(query, db, selection);
}

StoreReply CannedStore::aggregate(std::string_view body, const Field& command,
                                  std::string_view db) {
  const auto collection = command.text();
  if (!collection) return error(invalid_namespace, "a canned shard aggregates collections only");
  Query query;
  query.collection = *collection;
  const auto pipeline = find_field(body, "pipeline");
  if (!pipeline) return error(failed_to_parse, "aggregate needs a pipeline");
  if (const auto failure = parse_pipeline(*pipeline, query)) return error(*failure);
  if (const auto cursor = find_field(body, "cursor"); cursor && cursor->is_document()) {
    if (const auto failure = parse_find(cursor->value, query)) return error(*failure);
  }
  Selection selection;
  if (const auto failure = select(query, selection)) return error(*failure);
  if (!query.counts) return first_batch(query, db, selection);
  DocWriter reply;
  reply.open_document("cursor").open_array("firstBatch");
  if (selection.to > selection.from) {
    reply.open_document("0");
    if (query.count_has_id) reply.add_int32("_id", 1);
    reply.add_int64(query.count_field, selection.to - selection.from).close();
  }
  reply.close().add_int64("id", 0);
  reply.add_text("ns", std::string(db) + "." + std::string(query.collection)).close();
  return {reply.add_double("ok", 1).take(), {}, {}};
}

StoreReply CannedStore::count(std::string_view body, const Field& command) {
  const auto collection = command.text();
  if (!collection) return error(invalid_namespace, "count needs a collection's name");
  Query query;
  query.collection = *collection;
  if (const auto failure = parse_find(body, query)) return error(*failure);
  Selection selection;
  if (const auto failure = select(query, selection)) return error(*failure);
  DocWriter reply;
  reply.add_int64("n", selection.to - selection.from);
  return {reply.add_double("ok", 1).take(), {}, {}};
}

StoreReply CannedStore::get_more(std::string_view body, const Field& command, std::string_view db) {
  const auto id = command.integer();
  const auto collection = find_field(body, "collection");
  if (!id || !collection || !collection->text()) {
    return error(type_mismatch, "getMore needs a cursor id and a collection");
  }
  std::int64_t wanted = 0;
  if (const auto size = find_field(body, "batchSize")) {
    wanted = size->integer().value_or(-1);
    if (wanted < 0) return error(bad_value, "batchSize must be a whole number, 0 or more");
  }
  const auto found = cursors_.find(*id);
  if (found == cursors_.end() ||
      found->second.ns != std::string(db) + "." + std::string(*collection->text())) {
    return error(cursor_not_found, "cursor id " + std::to_string(*id) + " not found");
  }
  Selection rest = found->second.rest;
  const std::string ns = found->second.ns;
  const auto available = static_cast<std::size_t>(rest.to - rest.from);
  const auto most = wanted == 0 ? available : std::min(available, static_cast<std::size_t>(wanted));
  const std::size_t count = rest.images->elements_within(most, batch_bytes_max);
  found->second.rest.from += static_cast<std::int64_t>(count);
  if (count == available) cursors_.erase(found);
  return batch("nextBatch", ns, count == available ? 0 : *id, rest, count);
}

StoreReply CannedStore::kill_cursors(std::string_view body, const Field& command) {
  const auto list = find_field(body, "cursors");
  if (!command.text() || !list || !list->is_array()) {
    return error(failed_to_parse, "killCursors needs a collection and an array of cursors");
  }
  DocWriter killed;
  DocWriter not_found;
  std::size_t killed_count = 0;
  std::size_t not_found_count = 0;
  FieldWalk walk(list->value);
  while (auto field = walk.next()) {
    const auto id = field->integer();
    if (!id) return error(type_mismatch, "a cursor id must be a number");
    if (cursors_.erase(*id) == 1) {
      killed.add_int64(std::to_string(killed_count++), *id);
    } else {
      not_found.add_int64(std::to_string(not_found_count++), *id);
    }
  }
  if (walk.malformed()) return error(failed_to_parse, "the list of cursors is malformed");
  DocWriter reply;
  reply.add_raw(bson::array_type, "cursorsKilled", killed.take());
  reply.add_raw(bson::array_type, "cursorsNotFound", not_found.take());
  reply.open_array("cursorsAlive").close().open_array("cursorsUnknown").close();
  return {reply.add_double("ok", 1).take(), {}, {}};
}

}  // namespace spillway::bench
