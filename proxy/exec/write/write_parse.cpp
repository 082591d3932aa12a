#include "proxy/exec/write/write_parse.h"

#include <fmt/format.h>

#include <limits>

#include "allocator/limits.h"
#include "cursor/field_table.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/buckets.h"
#include "proxy/exec/core/forward.h"

namespace spillway::exec {

namespace {

Result<bool> optional_flag(DocView document, std::string_view field, std::string_view shown,
                           bool otherwise) {
  const ValueView value = document[field];
  if (!value.exists() || value.is_null()) return otherwise;
  if (value.type != BsonType::boolean) return wrong_type(shown, value, "bool");
  return value.truthy();
}

// Those of all versions to 8.0.
constexpr FieldTable<13> update_statement_fields(
    {"q", "u", "c", "arrayFilters", "hint", "multi", "upsert", "upsertSupplied", "collation", "sort", "sampleId",
     "includeQueryStatsMetrics", "allowShardKeyUpdatesWithoutFullShardKeyInQuery"});
constexpr FieldTable<6> delete_statement_fields({"q", "limit", "hint", "collation", "sampleId",
                                                 "includeQueryStatsMetrics"});

constexpr std::size_t counted_max = 2 * static_cast<std::size_t>(limits::write_batch_size_max);

Result<void> check_count(std::size_t count) {
  if (count >= 1 && count <= static_cast<std::size_t>(limits::write_batch_size_max)) return {};
  return Error(ErrorCode::invalid_length,
               fmt::format("Write batch sizes must be between 1 and {}. Got {}{} operations.",
                           limits::write_batch_size_max, count >= counted_max ? "at least " : "", count));
}

Result<void> parse_statement_ids(DocView body, WriteCommand& command) {
  const ValueView ids = body["stmtIds"];
  if (ids.exists()) {
    if (!ids.is_array()) return wrong_type("stmtIds", ids, "array");
    for (const Element& id : ids.as_document()) {
      if (id.type != BsonType::int32) return wrong_type("stmtIds", id, "int");
      if (auto checked = check_stmt_ids(id.as_int32(), 1); checked.has_error()) return checked;
      command.stmt_ids.push_back(id.as_int32());
      if (command.stmt_ids.size() > command.ops.size()) break;
    }
    if (command.stmt_ids.size() != command.ops.size()) {
      return Error(ErrorCode::invalid_length, "There must be one statement id for each write");
    }
    return {};
  }
  const ValueView first = body["stmtId"];
  if (!first.exists()) return {};
  if (first.type != BsonType::int32) return wrong_type("stmtId", first, "int");
  if (auto checked = check_stmt_ids(first.as_int32(), command.ops.size()); checked.has_error()) return checked;
  for (std::size_t i = 0; i < command.ops.size(); ++i) {
    command.stmt_ids.push_back(first.as_int32() + static_cast<std::int32_t>(i));
  }
  return {};
}

}  // namespace

Result<void> check_stmt_ids(std::int32_t first, std::size_t count) {
  const std::int64_t last = std::int64_t{first} + static_cast<std::int64_t>(count) - 1;
  if (first >= 0 && last <= std::numeric_limits<std::int32_t>::max()) return {};
  return Error(ErrorCode::bad_value, "statement ids must be between 0 and 2147483647");
}

std::string_view command_name(WriteKind kind) noexcept {
  return kind == WriteKind::insert ? "insert" : kind == WriteKind::update ? "update" : "delete";
}

std::string_view list_name_of(WriteKind kind) noexcept {
  return kind == WriteKind::insert   ? "documents"
         : kind == WriteKind::update ? "updates"
                                     : "deletes";
}

Result<std::size_t> count_operations(const Request& request, std::string_view list_name) {
  std::size_t count = 0;
  if (const wire::DocSequence* sequence = request.message.sequence(list_name)) {
    count = sequence->count;
  } else {
    const ValueView list = request.body[list_name];
    if (!list.exists()) return missing_field(fmt::format("{}.{}", request.name, list_name));
    if (!list.is_array())
      return wrong_type(fmt::format("{}.{}", request.name, list_name), list, "array");
    // Beyond the number that is refused the exact count does not matter.
    for (auto at = list.as_document().begin(); !at.done() && count < counted_max; ++at) ++count;
  }
  if (auto checked = check_count(count); checked.has_error()) return checked.error();
  return count;
}

Result<void> WriteParser::begin() {
  command_.list_name = list_name_of(command_.kind);
  SPILLWAY_TRY(collection, collection_argument(request_.body));
  command_.collection = *collection;
  SPILLWAY_TRY(count, count_operations(request_, command_.list_name));
  count_ = *count;
  command_.ops.reserve(count_);
  if (const wire::DocSequence* sequence = request_.message.sequence(command_.list_name)) {
    command_.contiguous = true;
    in_sequence_ = sequence->begin();
  } else {
    in_array_ = request_.body[command_.list_name].as_document().begin();
  }
  return {};
}

Result<bool> WriteParser::step(std::size_t operations) {
  if (!std::exchange(begun_, true)) {
    if (auto begun = begin(); begun.has_error()) return begun.error();
  }
  for (; operations > 0 && command_.ops.size() < count_; --operations) {
    if (command_.contiguous) {
      command_.ops.push_back(*in_sequence_);
      ++in_sequence_;
      continue;
    }
    if (in_array_.done()) return Error(ErrorCode::invalid_bson, "the list of operations is malformed");
    if (!in_array_->is_document()) {
      const std::string name = fmt::format("{}.{}.{}", request_.name, command_.list_name, in_array_->name);
      return wrong_type(name, *in_array_, "object");
    }
    command_.ops.push_back(in_array_->as_document());
    ++in_array_;
  }
  if (command_.ops.size() < count_) return false;
  if (auto finished = finish(); finished.has_error()) return finished.error();
  return true;
}

Result<void> WriteParser::finish() {
  SPILLWAY_TRY(ordered, optional_flag(request_.body, "ordered", "ordered", true));
  command_.ordered = *ordered;
  command_.retryable = request_.retryable_write();
  command_.numbered = request_.txn_number.has_value();
  command_.measurements = is_on_buckets(request_);
  return parse_statement_ids(request_.body, command_);
}

UpdateStyle style_of(ValueView update) noexcept {
  if (update.is_array()) return UpdateStyle::pipeline;
  return update.as_document().first().name.starts_with('$') ? UpdateStyle::operators
                                                            : UpdateStyle::replacement;
}

namespace {

Result<void> parse_limit(DocView op, Statement& statement) {
  const ValueView limit = op["limit"];
  if (!limit.exists()) return missing_field("delete.deletes.limit");
  if (!limit.is_number()) return wrong_type("delete.deletes.limit", limit, "int");
  const double number = limit.to_double().value_or(-1);
  if (number != 0 && number != 1) {
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("The limit field in delete objects must be 0 or 1. Got {}", number));
  }
  statement.multi = number == 0;
  return {};
}

Result<void> parse_update(DocView op, Statement& statement) {
  statement.update = op["u"];
  if (!statement.update.exists()) return missing_field("update.updates.u");
  if (!statement.update.is_document() && !statement.update.is_array()) {
    return Error(ErrorCode::failed_to_parse,
                 "Update argument must be either an object or an array");
  }
  statement.style = style_of(statement.update);
  SPILLWAY_TRY(multi, optional_flag(op, "multi", "update.updates.multi", false));
  SPILLWAY_TRY(upsert, optional_flag(op, "upsert", "update.updates.upsert", false));
  statement.multi = *multi;
  statement.upsert = *upsert;
  if (const ValueView sort = op["sort"]; sort.is_document()) statement.sort = sort.as_document();
  return {};
}

}  // namespace

Result<Statement> parse_statement(DocView op, WriteKind kind, const catalog::CollectionRouting* routing) {
  Statement statement;
  statement.kind = kind;
  const std::string prefix = fmt::format("{}.{}", command_name(kind), list_name_of(kind));
  // Here, since a shard would refuse its part when other parts have been written.
  for (const Element& field : op) {
    const bool known = kind == WriteKind::remove ? delete_statement_fields.contains(field.name)
                                                 : update_statement_fields.contains(field.name);
    if (!known) return unknown_field(fmt::format("{}.{}", prefix, field.name));
  }
  const ValueView query = op["q"];
  if (!query.exists()) return missing_field(prefix + ".q");
  if (!query.is_document()) return wrong_type(prefix + ".q", query, "object");
  statement.query = query.as_document();
  SPILLWAY_TRY(rest, kind == WriteKind::remove ? parse_limit(op, statement) : parse_update(op, statement));
  statement.collation = op["collation"];
  if (statement.collation.is_null()) statement.collation = {};
  if (statement.collation.exists() && !statement.collation.is_document()) {
    return wrong_type(prefix + ".collation", statement.collation, "object");
  }
  statement.simple_collation = is_simple_collation(statement.collation, routing);
  statement.hint = op["hint"];
  return statement;
}

Result<Statement> parse_statement(const WriteCommand& command, std::size_t op,
                                  const catalog::CollectionRouting* routing) {
  auto statement = parse_statement(command.ops[op], command.kind, routing);
  if (statement.has_value()) statement->of_measurements = command.measurements;
  return statement;
}

}  // namespace spillway::exec
