#include "proxy/exec/write/bulk_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "allocator/limits.h"
#include "cursor/field_table.h"
#include "proxy/catalog/routing.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/forward.h"

namespace spillway::exec {

namespace {

constexpr FieldTable<10> command_fields({"bulkWrite", "ops", "nsInfo", "ordered", "errorsOnly",
                                         "bypassDocumentValidation", "let", "cursor", "stmtIds", "maxTimeMS"});
constexpr FieldTable<2> insert_fields({"insert", "document"});
constexpr FieldTable<10> update_fields({"update", "filter", "updateMods", "multi", "upsert", "arrayFilters", "hint",
                                        "constants", "collation", "sort"});
constexpr FieldTable<5> delete_fields({"delete", "filter", "multi", "hint", "collation"});

Error wrong_bulk_type(std::string_view field, ValueView value, std::string_view expected) {
  return wrong_type(fmt::format("bulkWrite.{}", field), value, expected);
}

Error bulk_field_missing(std::string_view field) { return missing_field(fmt::format("bulkWrite.{}", field)); }

Error unknown(std::string_view field) { return unknown_field(fmt::format("bulkWrite.{}", field)); }

// The documents of a list, from a sequence or an array of the body.
Result<std::vector<DocView>> documents_of(const Request& request, std::string_view name) {
  std::vector<DocView> documents;
  constexpr auto most = static_cast<std::size_t>(limits::write_batch_size_max);
  const auto length_is_wrong = [&](std::size_t count) {
    return Error(ErrorCode::invalid_length,
                 fmt::format("Write batch sizes must be between 1 and {}. Got {}{} {}.", most,
                             count > most ? "more than " : "", std::min(count, most), name));
  };
  if (const wire::DocSequence* sequence = request.message.sequence(name)) {
    if (sequence->count == 0 || sequence->count > most) return length_is_wrong(sequence->count);
    documents.reserve(sequence->count);
    for (const DocView document : *sequence) documents.push_back(document);
    return documents;
  }
  const ValueView list = request.body[name];
  if (!list.exists()) return bulk_field_missing(name);
  if (!list.is_array()) return wrong_bulk_type(name, list, "array");
  for (const Element& item : list.as_document()) {
    if (!item.is_document()) return wrong_bulk_type(fmt::format("{}.{}", name, item.name), item, "object");
    if (documents.size() == most) return length_is_wrong(most + 1);
    documents.push_back(item.as_document());
  }
  if (documents.empty()) return length_is_wrong(0);
  return documents;
}

Result<bool> flag_of(const Request& request, std::string_view name, bool otherwise) {
  const ValueView value = request.body[name];
  if (!value.exists()) return otherwise;
  if (value.type != BsonType::boolean && !value.is_number()) return wrong_bulk_type(name, value, "bool");
  return value.truthy();
}

std::string_view renamed(WriteKind kind, std::string_view field) noexcept {
  if (field == "filter") return "q";
  if (field == "updateMods") return "u";
  if (field == "constants") return "c";
  return kind == WriteKind::remove && field == "multi" ? "limit" : field;
}

Result<void> check_fields(const BulkCommand::Operation& operation) {
  const bool inserts = operation.kind == WriteKind::insert, updates = operation.kind == WriteKind::update;
  for (const Element& field : operation.fields) {
    const bool known = inserts   ? insert_fields.contains(field.name)
                       : updates ? update_fields.contains(field.name)
                                 : delete_fields.contains(field.name);
    if (!known) return unknown(fmt::format("ops.{}", field.name));
  }
  const std::string_view required = inserts ? "document" : "filter";
  const ValueView document = operation.fields[required];
  if (!document.exists()) return bulk_field_missing(fmt::format("ops.{}", required));
  if (!document.is_document()) return wrong_bulk_type(fmt::format("ops.{}", required), document, "object");
  if (updates && !operation.fields["updateMods"].exists()) return bulk_field_missing("ops.updateMods");
  return {};
}

}  // namespace

Result<void> BulkParser::add_namespace(DocView entry) {
  // Shards get all of them as their commands' own.
  constexpr FieldTable<4> fields({"ns", "collectionUUID", "encryptionInformation", "isTimeseriesNamespace"});
  std::uint32_t seen = 0;
  for (const Element& field : entry) {
    const std::size_t which = fields.find(field.name);
    if (which == fields.absent) return unknown(fmt::format("nsInfo.{}", field.name));
    if ((seen & 1u << which) != 0)
      return Error(40413, fmt::format("BSON field 'nsInfo.{}' is a duplicate field", field.name));
    seen |= 1u << which;
  }
  const ValueView name = entry["ns"];
  if (!name.exists()) return bulk_field_missing("nsInfo.ns");
  if (!name.is_string()) return wrong_bulk_type("nsInfo.ns", name, "string");
  const auto parts = catalog::split_namespace(name.as_string());
  if (parts.db.empty() || parts.collection.empty()) {
    return Error(ErrorCode::invalid_namespace,
                 fmt::format("Invalid namespace specified for bulkWrite: '{}'", name.as_string()));
  }
  if (parts.db == "local") {
    return Error(ErrorCode::illegal_operation, "a router does not write to the database local");
  }
  command_.namespaces.push_back({parts.db, parts.collection, entry});
  return {};
}

Result<void> BulkParser::add_operation(DocView fields) {
  const Element first = fields.first();
  BulkCommand::Operation operation;
  operation.fields = fields;
  if (first.name == "update") {
    operation.kind = WriteKind::update;
  } else if (first.name == "delete") {
    operation.kind = WriteKind::remove;
  } else if (first.name != "insert") {
    return Error(ErrorCode::failed_to_parse,
                 "each of bulkWrite's operations begins with insert, update or delete, and the index of its nsInfo");
  }
  if (!first.is_number()) return wrong_bulk_type(fmt::format("ops.{}", first.name), first, "int");
  const std::int64_t index = first.to_int64().value_or(-1);
  if (index < 0 || index >= static_cast<std::int64_t>(command_.namespaces.size())) {
    return Error(ErrorCode::bad_value,
                 fmt::format("BulkWrite ops entry {} has an invalid nsInfo index.", command_.operations.size()));
  }
  operation.ns = static_cast<std::uint32_t>(index);
  if (auto checked = check_fields(operation); checked.has_error()) return checked;
  command_.operations.push_back(operation);
  return {};
}

Result<void> BulkParser::begin() {
  for (const Element& field : request_.body) {
    const bool known = command_fields.contains(field.name) || is_argument_of_any_command(field.name);
    if (!known) return unknown(field.name);
  }
  for (const auto& [name, target] : {std::pair("ordered", &command_.ordered),
                                     std::pair("errorsOnly", &command_.errors_only)}) {
    SPILLWAY_TRY(flag, flag_of(request_, name, *target));
    *target = *flag;
  }
  SPILLWAY_TRY(namespaces, documents_of(request_, "nsInfo"));
  for (const DocView entry : *namespaces) {
    if (auto added = add_namespace(entry); added.has_error()) return added;
  }
  SPILLWAY_TRY(operations, documents_of(request_, "ops"));
  left_ = *std::move(operations);
  std::reverse(left_.begin(), left_.end());
  command_.operations.reserve(left_.size());
  return {};
}

Result<void> BulkParser::finish() {
  if (const ValueView first = request_.body["stmtId"]; first.exists()) {
    if (first.type != BsonType::int32) return wrong_bulk_type("stmtId", first, "int");
    SPILLWAY_TRY(checked, check_stmt_ids(first.as_int32(), command_.operations.size()));
    command_.first_stmt_id = first.as_int32();
  }
  const ValueView ids = request_.body["stmtIds"];
  if (!ids.exists()) return {};
  if (!ids.is_array()) return wrong_bulk_type("stmtIds", ids, "array");
  for (const Element& id : ids.as_document()) {
    if (id.type != BsonType::int32) return wrong_bulk_type("stmtIds", id, "int");
    if (auto checked = check_stmt_ids(id.as_int32(), 1); checked.has_error()) return checked;
    command_.stmt_ids.push_back(id.as_int32());
    if (command_.stmt_ids.size() > command_.operations.size()) break;
  }
  if (command_.stmt_ids.size() == command_.operations.size()) return {};
  return Error(ErrorCode::invalid_length, "There must be one statement id for each write");
}

Result<bool> BulkParser::step(std::size_t operations) {
  if (!begun_) {
    begun_ = true;
    if (auto read = begin(); read.has_error()) return std::move(read.error());
  }
  for (; operations > 0 && !left_.empty(); --operations, left_.pop_back()) {
    if (auto added = add_operation(left_.back()); added.has_error()) return std::move(added.error());
  }
  if (!left_.empty()) return false;
  if (auto read = finish(); read.has_error()) return std::move(read.error());
  return true;
}

Task<std::vector<BulkGroup>> bulk_groups(TimeSlice& slice, const BulkCommand& command) {
  std::vector<BulkGroup> groups;
  absl::flat_hash_map<std::uint64_t, std::size_t> open;  // by kind and collection
  for (std::uint32_t i = 0; i < command.operations.size(); ++i) {
    if (slice.is_over_short(sizeof(BulkGroup))) co_await slice.next();
    const BulkCommand::Operation& operation = command.operations[i];
    const bool together = command.errors_only || operation.kind == WriteKind::insert;
    const std::uint64_t key = std::uint64_t{operation.ns} << 2U | static_cast<std::uint64_t>(operation.kind);
    const auto found = open.find(key);
    const bool joins =
        together && found != open.end() && (!command.ordered || found->second + 1 == groups.size());
    if (joins) {
      groups[found->second].operations.push_back(i);
      continue;
    }
    open[key] = groups.size();
    groups.push_back({operation.kind, operation.ns, {i}});
  }
  co_return groups;
}

BsonDoc bulk_body(const Request& request, const BulkCommand& command, const BulkGroup& group, bool begins) {
  const BulkCommand::Namespace& ns = command.namespaces[group.ns];
  BsonWriter out;
  out.append(command_name(group.kind), ns.collection).append("ordered", command.ordered);
  // collectionUUID, encryptionInformation
  out.append_elements(ns.options, [](std::string_view name) { return name != "ns"; });
  // `delete` has no such field.
  if (group.kind != WriteKind::remove) {
    out.append("bypassDocumentValidation", request.body["bypassDocumentValidation"]);
  }
  if (group.kind != WriteKind::insert) out.append("let", request.body["let"]);
  if (request.retryable_write()) {
    out.begin_array("stmtIds");
    for (const std::uint32_t operation : group.operations) out.append_item(command.stmt_id(operation));
    out.end();
  }
  append_generic_arguments(out, request, {"$db", "stmtId", "startTransaction", "readConcern", "$readPreference"});
  if (begins && request.start_transaction) out.append("startTransaction", true);
  if (begins) out.append("readConcern", request.read_concern);
  out.append("$db", ns.db);
  return std::move(out).finish();
}

void append_bulk_operation(std::vector<std::uint8_t>& out, const BulkCommand::Operation& operation) {
  const auto append = [&](DocView document) {
    out.insert(out.end(), document.data(), document.data() + document.size());
  };
  if (operation.kind == WriteKind::insert) return append(operation.fields["document"].as_document());
  BsonWriter made;
  bool limited = operation.kind == WriteKind::remove;
  auto field = operation.fields.begin();
  for (++field; !field.done(); ++field) {
    const std::string_view name = renamed(operation.kind, field->name);
    if (name == "limit") {
      made.append("limit", field->truthy() ? 0 : 1);
      limited = false;
    } else {
      made.append(name, ValueView(*field));
    }
  }
  if (limited) made.append("limit", 1);
  append(std::move(made).finish());
}

BsonDoc BulkTotals::elements() const {
  BsonWriter out;
  const auto append = [&](std::string_view name, std::int64_t value) {
    out.append(name, static_cast<std::int32_t>(value));  // of multi-updates there may be more: servers cut it, too
  };
  append("nErrors", errors);
  append("nInserted", inserted);
  append("nMatched", matched);
  append("nModified", modified);
  append("nUpserted", upserted);
  append("nDeleted", deleted);
  if (!write_concern_error.view().empty()) out.append("writeConcernError", write_concern_error);
  return std::move(out).finish();
}

BulkAnswer::BulkAnswer(const BulkCommand& command, const BulkGroup& group, DocView reply, BulkTotals& totals)
    : command_(command), group_(group), reply_(reply), totals_(totals), end_(group.operations.size()) {
  if (const ValueView errors = reply["writeErrors"]; errors.is_array()) {
    failures_.resize(end_);
    errors_ = errors.as_document().begin();
  }
  const std::int64_t n = reply["n"].to_int64().value_or(0);
  if (group.kind == WriteKind::insert) {
    totals.inserted += n;
  } else if (group.kind == WriteKind::remove) {
    totals.deleted += n;
  } else {
    const auto upserts = static_cast<std::int64_t>(reply["upserted"].to_array().count());
    totals.upserted += upserts;
    totals.matched += n - upserts;
    totals.modified += reply["nModified"].to_int64().value_or(0);
  }
  if (const ValueView error = reply["writeConcernError"]; error.is_document()) {
    totals.write_concern_error = BsonDoc(error.as_document());
  }
}

bool BulkAnswer::read(std::size_t errors) {
  for (; !errors_.done(); ++errors_) {
    if (errors-- == 0) return false;
    const DocView error = errors_->to_document();
    const auto index = error["index"].to_int64();
    if (!index || *index < 0 || *index >= static_cast<std::int64_t>(failures_.size())) continue;
    DocView& failure = failures_[static_cast<std::size_t>(*index)];
    if (failure.empty()) ++totals_.errors;
    failure = error;
    failed_ = true;
    if (command_.ordered) end_ = std::min(end_, static_cast<std::size_t>(*index) + 1);
  }
  return true;
}

bool BulkAnswer::next(BsonDoc& result) {
  for (; at_ < end_; ++at_) {
    const std::uint32_t operation = group_.operations[at_];
    if (!failures_.empty() && !failures_[at_].empty()) {
      result = bulk_failure(operation, group_.kind, failures_[at_++]);
      return true;
    }
    if (command_.errors_only) continue;
    BsonWriter out;
    out.append("ok", 1.0).append("idx", static_cast<std::int32_t>(operation));
    if (group_.kind == WriteKind::insert) {
      out.append("n", 1);
    } else {  // alone in its group
      out.append("n", static_cast<std::int32_t>(reply_["n"].to_int64().value_or(0)));
    }
    if (group_.kind == WriteKind::update) {
      out.append("nModified", static_cast<std::int32_t>(reply_["nModified"].to_int64().value_or(0)));
      const Element first = reply_["upserted"].to_array().first();
      if (first.is_document()) out.begin_document("upserted").append("_id", first.as_document()["_id"]).end();
    }
    ++at_;
    result = std::move(out).finish();
    return true;
  }
  return false;
}

BsonDoc bulk_failure(std::uint32_t operation, WriteKind kind, DocView error) {
  BsonWriter out;
  out.append("ok", 0.0).append("idx", static_cast<std::int32_t>(operation));
  constexpr FieldTable<4> others({"index", "ok", "n", "errorLabels"});
  out.append_elements(error, [&](std::string_view name) { return !others.contains(name); });
  out.append("n", 0);
  if (kind == WriteKind::update) out.append("nModified", 0);
  return std::move(out).finish();
}

}  // namespace spillway::exec
