#include "proxy/canned/canned_store.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace spillway::bench {

// What a command asks for. Views into the command.
struct Query {
  std::string_view collection;
  DocView filter, sort, projection;
  std::int64_t skip = 0;
  std::int64_t limit = 0;
  std::optional<std::int64_t> batch_size;
  bool single_batch = false;
  std::string_view count_field;  // of $count, or of $group that only counts; empty: neither
  bool count_has_id = false;
};

namespace {

constexpr int unrecognized_stage = 40324;
constexpr int wire_version_of_4_4 = 9;
constexpr std::size_t first_batch_default = 101;
constexpr std::size_t image_kinds_max = 64;  // each up to about 7 x pool_bytes

Error bad_value(std::string text) { return Error(ErrorCode::bad_value, std::move(text)); }
Error parse_failure(std::string text) { return Error(ErrorCode::failed_to_parse, std::move(text)); }
Error wrong_type(std::string text) { return Error(ErrorCode::type_mismatch, std::move(text)); }

std::string bytes_of(const BsonDoc& document) {
  return {reinterpret_cast<const char*>(document.view().data()), document.size()};
}

StoreReply succeeded(BsonWriter reply) {
  reply.append("ok", 1.0);
  return {bytes_of(std::move(reply).finish()), {}, {}};
}

StoreReply failed(const Error& error) {
  BsonWriter reply;
  reply.append("ok", 0.0).append("errmsg", error.message).append("code", error.code);
  reply.append("codeName", error_code_name(error.code));
  return {bytes_of(std::move(reply).finish()), {}, {}};
}

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

DocView document_or_empty(ValueView value) {
  return value.is_document() ? value.as_document() : DocView();
}
std::string_view text_or_empty(ValueView value) {
  return value.is_string() ? value.as_string() : std::string_view();
}
bool is_empty_array(ValueView value) { return value.is_array() && value.as_document().empty(); }

// {<anything>: const, <field>: {$sum: 1}}: the field of a $group that only counts, or nothing.
std::string_view parse_counting_group(DocView group) {
  std::string_view field;
  bool has_id = false;
  for (const Element& part : group) {
    if (part.name == "_id") {
      has_id = !part.is_document() && !part.is_string();
      continue;
    }
    if (!field.empty() || document_or_empty(part)["$sum"].to_int64() != 1) return {};
    field = part.name;
  }
  return has_id ? field : std::string_view();
}

std::string ns_of(std::string_view db, std::string_view collection) {
  return std::string(db) + "." + std::string(collection);
}

}  // namespace

CannedStore::CannedStore(StoreOptions options)
    : options_(std::move(options)),
      cursor_seed_(static_cast<std::uint64_t>(options_.index + 1) << 40) {}

std::int64_t CannedStore::local_at_least(std::int64_t number) const noexcept {
  return number <= options_.index ? 0 : (number - options_.index + options_.shard_count - 1) / options_.shard_count;
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

DocumentImages* CannedStore::images_of(std::size_t doc_bytes, DocumentImages::SortKey sort_key) {
  const auto key = std::pair(doc_bytes, sort_key);
  const auto found = images_.find(key);
  if (found != images_.end()) return found->second.get();
  if (images_.size() >= image_kinds_max) return nullptr;
  DocumentImages::Options options;
  options.doc_bytes = doc_bytes;
  options.pool_bytes = options_.pool_bytes;
  options.first_number = options_.index;
  options.number_stride = options_.shard_count;
  options.sort_key = sort_key;
  auto made = std::make_unique<DocumentImages>(options);
  return images_.emplace(key, std::move(made)).first->second.get();
}

StoreReply CannedStore::answer(DocView body, std::size_t sequence_documents) {
  if (body.empty() || !body.validate()) return failed(parse_failure("the command is no BSON document with an element"));
  auto reply = run(body, sequence_documents);
  return reply ? *std::move(reply) : failed(reply.error());
}

Result<StoreReply> CannedStore::run(DocView body, std::size_t sequence_documents) {
  const std::string_view db = text_or_empty(body["$db"]);
  if (db.empty()) return parse_failure("the command has no $db");
  const std::string_view name = body.first().name;
  if (name == "find") return find(body, db);
  if (name == "getMore") return get_more(body, db);
  if (name == "killCursors") return kill_cursors(body);
  if (name == "aggregate") return aggregate(body, db);
  if (name == "count") return count(body);
  if (name == "insert" || name == "update" || name == "delete") return write(body, sequence_documents);
  if (name == "hello" || name == "isMaster" || name == "ismaster")
    return StoreReply{bytes_of(hello_document(name)), {}, {}};
  return other(name, db);
}

BsonDoc CannedStore::hello_document(std::string_view command_name) const {
  BsonWriter reply;
  if (!options_.set_name.empty()) {
    reply.append("setName", options_.set_name).append("setVersion", 1);
    reply.begin_array("hosts").append("0", options_.address).end();
    reply.append("secondary", false).append("primary", options_.address);
    reply.append("me", options_.address);
  }
  reply.append(command_name == "hello" ? "isWritablePrimary" : "ismaster", true)
      .append("helloOk", true)
      .append("maxBsonObjectSize", 16 * 1024 * 1024)
      .append("maxMessageSizeBytes", 48'000'000)
      .append("maxWriteBatchSize", 100'000)
      .append_date("localTime", now_ms())
      .append("logicalSessionTimeoutMinutes", 30)
      .append("minWireVersion", 0)
      .append("maxWireVersion", options_.max_wire_version)
      .append("readOnly", false)
      .append("ok", 1.0);
  return std::move(reply).finish();
}

StoreReply CannedStore::server_status() const {
  BsonWriter reply;
  reply.append("process", "canned");
  reply.begin_document("metrics").begin_document("cursor").begin_document("open");
  reply.append("total", static_cast<std::int64_t>(cursors_.size()));
  reply.end().end().begin_document("document");
  reply.append("inserted", static_cast<std::int64_t>(written_documents_)).end().end();
  return succeeded(std::move(reply));
}

Result<StoreReply> CannedStore::other(std::string_view name, std::string_view db) {
  static constexpr std::string_view accepted[] = {
      "ping",    "endSessions",  "refreshSessions", "killSessions",  "killAllSessions",
      "create",  "drop",         "dropDatabase",    "createIndexes", "dropIndexes",
      "collMod", "setParameter", "getParameter",    "logout"};
  BsonWriter reply;
  if (name == "buildInfo" || name == "buildinfo") {
    reply.append("version", "7.0.0").append("gitVersion", "canned").begin_array("versionArray");
    reply.append_item(7).append_item(0).append_item(0).append_item(0).end().begin_array("modules").end();
    reply.append("bits", 64).append("maxBsonObjectSize", 16 * 1024 * 1024);
  } else if (name == "serverStatus") {
    return server_status();
  } else if (name == "listDatabases") {
    reply.begin_array("databases").end().append("totalSize", std::int64_t{0});
  } else if (name == "listCollections" || name == "listIndexes") {
    return batch("firstBatch", ns_of(db, "$cmd." + std::string(name)), 0, {}, 0);
  } else if (name == "findAndModify" || name == "findandmodify") {
    reply.begin_document("lastErrorObject").append("n", 0).append("updatedExisting", false).end();
    reply.append_null("value");
  } else if (std::find(std::begin(accepted), std::end(accepted), name) == std::end(accepted)) {
    return Error(ErrorCode::command_not_found, "no such command: '" + std::string(name) + "'");
  }
  return succeeded(std::move(reply));
}

Result<StoreReply> CannedStore::write(DocView body, std::size_t sequence_documents) {
  const std::string_view command = body.first().name;
  const std::string_view list_name = command == "insert" ? "documents" : command == "update" ? "updates" : "deletes";
  std::size_t documents = sequence_documents;
  if (const ValueView list = body[list_name]; list.exists()) {
    if (!list.is_array()) return wrong_type(std::string(list_name) + " must be an array");
    documents += list.as_document().count();
  }
  if (documents == 0) return bad_value("a write without " + std::string(list_name));
  if (command == "insert") written_documents_ += documents;
  BsonWriter reply;
  reply.append("n", static_cast<std::int32_t>(documents));
  if (command == "update") reply.append("nModified", static_cast<std::int32_t>(documents));
  return succeeded(std::move(reply));
}

namespace {

// The options that find, count and the cursor of aggregate share.
Result<void> parse_options(DocView body, Query& query) {
  for (const Element& field : body) {
    if (field.name == "filter" || field.name == "query") query.filter = document_or_empty(field);
    if (field.name == "sort") query.sort = document_or_empty(field);
    if (field.name == "projection") query.projection = document_or_empty(field);
    if (field.name == "singleBatch") query.single_batch = field.truthy();
    if (field.name != "skip" && field.name != "limit" && field.name != "batchSize") continue;
    const auto value = field.to_int64();
    if (!value || *value < 0) return bad_value(std::string(field.name) + " must be a whole number, 0 or more");
    if (field.name == "skip") query.skip = *value;
    if (field.name == "limit") query.limit = *value;
    if (field.name == "batchSize") query.batch_size = *value;
  }
  return {};
}

Result<void> parse_pipeline(DocView pipeline, Query& query) {
  for (const Element& element : pipeline) {
    const DocView stage = document_or_empty(element);
    if (stage.empty()) return wrong_type("a stage must be a document with one element");
    const Element body = stage.first();
    const bool windowed = query.skip > 0 || query.limit > 0;
    if (body.name == "$match" && query.filter.empty() && !windowed) {
      query.filter = document_or_empty(body);
      // A router asks about stages that only it runs, behind {_id: {$in: []}}.
      if (is_empty_array(document_or_empty(query.filter["_id"])["$in"])) return {};
    } else if (body.name == "$sort" && !windowed) {
      query.sort = document_or_empty(body);
    } else if (body.name == "$skip" && query.limit == 0) {
      query.skip += std::max<std::int64_t>(0, body.to_int64().value_or(0));
    } else if (body.name == "$limit" && query.limit == 0) {
      query.limit = std::max<std::int64_t>(0, body.to_int64().value_or(0));
    } else if (body.name == "$count" && body.is_string()) {
      query.count_field = body.as_string();
    } else if (body.name == "$group" && !parse_counting_group(document_or_empty(body)).empty()) {
      query.count_field = parse_counting_group(document_or_empty(body));
      query.count_has_id = true;
    } else {
      return Error(unrecognized_stage, "a canned shard does not know this stage: '" + std::string(body.name) + "'");
    }
  }
  return {};
}

}  // namespace

// Narrows a selection by a filter on _id: a number, or $eq, $gt, $gte, $lt, $lte, or an empty $in.
Result<void> CannedStore::narrow(DocView filter, Selection& selection) const {
  const auto bound = [&](std::string_view op, ValueView value) {
    if (op == "$in" && is_empty_array(value)) {
      selection.to = 0;
      return true;
    }
    const auto number = value.to_int64();
    if (!number || *number > (std::int64_t{1} << 50)) return false;
    const std::int64_t at = local_at_least(*number), behind = local_at_least(*number + 1);
    if (op == "$eq" || op == "$gte") selection.from = std::max(selection.from, at);
    if (op == "$gt") selection.from = std::max(selection.from, behind);
    if (op == "$lt") selection.to = std::min(selection.to, at);
    if (op == "$eq" || op == "$lte") selection.to = std::min(selection.to, behind);
    return op == "$eq" || op == "$gte" || op == "$gt" || op == "$lt" || op == "$lte";
  };
  for (const Element& field : filter) {
    bool good = field.name == "_id";
    if (good && field.is_document()) {
      for (const Element& op : field.as_document()) good = good && bound(op.name, op);
    } else if (good) {
      good = bound("$eq", field);
    }
    if (!good) return bad_value("a canned shard filters by numbers and ranges of _id only");
  }
  selection.to = std::max(selection.to, selection.from);
  return {};
}

Result<CannedStore::Selection> CannedStore::select(const Query& query) {
  Selection selection;
  const auto shape = parse_shape(query.collection);
  if (!shape) return selection;  // an empty collection
  selection.to = local_at_least(shape->count);
  if (const auto narrowed = narrow(query.filter, selection); !narrowed) return narrowed.error();
  if (!query.sort.empty()) {
    const Element key = query.sort.first();
    if (key.to_int64() != 1 || (key.name != "_id" && key.name != "$natural"))
      return bad_value("a canned shard sorts by {_id: 1} only");
  }
  auto sort_key = DocumentImages::SortKey::none;
  if (!query.projection.empty()) {
    const Element field = query.projection.first();
    if (field.name != "$sortKey" || text_or_empty(document_or_empty(field)["$meta"]) != "sortKey")
      return bad_value("a canned shard projects nothing but $sortKey");
    sort_key = options_.max_wire_version < wire_version_of_4_4 ? DocumentImages::SortKey::document
                                                            : DocumentImages::SortKey::array;
  }
  const auto window = [&](std::int64_t from, std::int64_t size) {
    return from + std::min(size, selection.to - from);
  };
  selection.from = window(selection.from, query.skip);
  if (query.limit > 0) selection.to = window(selection.from, query.limit);
  selection.images = images_of(shape->doc_bytes, sort_key);
  if (selection.images == nullptr)
    return Error(ErrorCode::exceeded_memory_limit, "too many document sizes for one canned shard");
  return selection;
}

StoreReply CannedStore::batch(std::string_view name, std::string_view ns, std::int64_t cursor_id,
                              const Selection& all, std::size_t count) {
  // The frame is written as if the array were empty, cut where its elements go, and grown by them.
  BsonWriter writer;
  writer.begin_document("cursor").begin_array(name).end().append("id", cursor_id).append("ns", ns).end();
  StoreReply reply = succeeded(std::move(writer));
  const std::size_t cursor_at = 4 + 1 + 7;
  const std::size_t array_at = cursor_at + 4 + 1 + name.size() + 1;
  reply.tail = reply.head.substr(array_at + 4);
  reply.head.resize(array_at + 4);
  if (count == 0) return reply;
  reply.range = {all.images, all.from, count};
  const auto grown = static_cast<std::int32_t>(all.images->elements_bytes(count));
  for (const std::size_t at : {std::size_t{0}, cursor_at, array_at}) {
    char* length = reply.head.data() + at;
    store_le(length, load_le<std::int32_t>(length) + grown);
  }
  return reply;
}

Result<StoreReply> CannedStore::first_batch(const Query& query, std::string_view db,
                                            const Selection& selection) {
  const std::string ns = ns_of(db, query.collection);
  if (selection.images == nullptr) return batch("firstBatch", ns, 0, {}, 0);
  const auto available = static_cast<std::size_t>(selection.to - selection.from);
  const auto wanted = static_cast<std::size_t>(query.batch_size.value_or(
      query.single_batch ? static_cast<std::int64_t>(available) : first_batch_default));
  const std::size_t count = selection.images->elements_within(std::min(available, wanted), batch_bytes_max);
  std::int64_t id = 0;
  if (count < available && !query.single_batch) {
    if (cursors_.size() >= options_.cursors_max)
      return Error(ErrorCode::exceeded_memory_limit, "too many open cursors");
    id = next_cursor_id();
    Selection rest = selection;
    rest.from += static_cast<std::int64_t>(count);
    cursors_.emplace(id, Cursor{ns, rest});
  }
  return batch("firstBatch", ns, id, selection, count);
}

Result<StoreReply> CannedStore::find(DocView body, std::string_view db) {
  Query query;
  query.collection = text_or_empty(body.first());
  if (query.collection.empty()) return Error(ErrorCode::invalid_namespace, "find needs a name");
  if (const auto parsed = parse_options(body, query); !parsed) return parsed.error();
  const auto selection = select(query);
  if (!selection) return selection.error();
  return first_batch(query, db, *selection);
}

Result<StoreReply> CannedStore::aggregate(DocView body, std::string_view db) {
  Query query;
  query.collection = text_or_empty(body.first());
  if (query.collection.empty())
    return Error(ErrorCode::invalid_namespace, "a canned shard aggregates collections only");
  const ValueView pipeline = body["pipeline"];
  if (!pipeline.is_array()) return wrong_type("aggregate needs a pipeline, which is an array");
  if (const auto parsed = parse_pipeline(pipeline.as_document(), query); !parsed) return parsed.error();
  if (const auto parsed = parse_options(document_or_empty(body["cursor"]), query); !parsed) return parsed.error();
  const auto selection = select(query);
  if (!selection) return selection.error();
  if (query.count_field.empty()) return first_batch(query, db, *selection);
  BsonWriter reply;
  reply.begin_document("cursor").begin_array("firstBatch");
  if (selection->to > selection->from) {
    reply.begin_document_item();
    if (query.count_has_id) reply.append("_id", 1);
    reply.append(query.count_field, selection->to - selection->from).end();
  }
  reply.end().append("id", std::int64_t{0}).append("ns", ns_of(db, query.collection)).end();
  return succeeded(std::move(reply));
}

Result<StoreReply> CannedStore::count(DocView body) {
  Query query;
  query.collection = text_or_empty(body.first());
  if (query.collection.empty()) return Error(ErrorCode::invalid_namespace, "count needs a collection's name");
  if (const auto parsed = parse_options(body, query); !parsed) return parsed.error();
  const auto selection = select(query);
  if (!selection) return selection.error();
  BsonWriter reply;
  reply.append("n", selection->to - selection->from);
  return succeeded(std::move(reply));
}

Result<StoreReply> CannedStore::get_more(DocView body, std::string_view db) {
  const auto id = body.first().to_int64();
  const std::string_view collection = text_or_empty(body["collection"]);
  if (!id || collection.empty()) return wrong_type("getMore needs a cursor id and a collection");
  Query query;
  if (const auto parsed = parse_options(body, query); !parsed) return parsed.error();
  const auto found = cursors_.find(*id);
  if (found == cursors_.end() || found->second.ns != ns_of(db, collection))
    return Error(ErrorCode::cursor_not_found, "cursor id " + std::to_string(*id) + " not found");
  const Selection rest = found->second.rest;
  const auto available = static_cast<std::size_t>(rest.to - rest.from);
  const auto wanted = static_cast<std::size_t>(query.batch_size.value_or(0));
  const auto most = wanted == 0 ? available : std::min(available, wanted);
  const std::size_t count = rest.images->elements_within(most, batch_bytes_max);
  found->second.rest.from += static_cast<std::int64_t>(count);
  if (count == available) cursors_.erase(found);
  return batch("nextBatch", ns_of(db, collection), count == available ? 0 : *id, rest, count);
}

Result<StoreReply> CannedStore::kill_cursors(DocView body) {
  const ValueView list = body["cursors"];
  if (!body.first().is_string() || !list.is_array())
    return parse_failure("killCursors needs a collection and an array of cursors");
  BsonWriter killed, not_found;
  killed.begin_array("cursorsKilled");
  not_found.begin_array("cursorsNotFound");
  for (const Element& element : list.as_document()) {
    const auto id = element.to_int64();
    if (!id) return wrong_type("a cursor id must be a number");
    (cursors_.erase(*id) == 1 ? killed : not_found).append_item(*id);
  }
  BsonWriter reply;
  reply.append_elements(std::move(killed.end()).finish()).append_elements(std::move(not_found.end()).finish());
  reply.begin_array("cursorsAlive").end().begin_array("cursorsUnknown").end();
  return succeeded(std::move(reply));
}

}  // namespace spillway::bench
