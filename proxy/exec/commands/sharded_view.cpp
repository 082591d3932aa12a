#include "proxy/exec/commands/sharded_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "proxy/catalog/routing.h"
#include "proxy/exec/core/forward.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t invalid_pipeline_operator = 168;

// Arguments that both commands have.
constexpr std::array<std::string_view, 5> shared_arguments = {"collation", "hint", "let", "allowDiskUse",
                                                              "bypassDocumentValidation"};
constexpr std::array<std::string_view, 8> find_only = {
    "awaitData", "allowPartialResults", "max", "min", "oplogReplay", "returnKey", "showRecordId", "tailable"};

void append_stage(BsonWriter& out, std::string_view stage, ValueView value) {
  if (!value.is_document() || value.as_document().empty()) return;
  out.begin_document_item().append(stage, value.as_document()).end();
}

void append_number_stage(BsonWriter& out, std::string_view stage, ValueView value) {
  const auto number = value.to_int64();
  if (!number || *number == 0) return;
  out.begin_document_item().append(stage, *number < 0 ? -*number : *number).end();
}

Result<void> append_find_stages(BsonWriter& out, DocView find) {
  for (const std::string_view option : find_only) {
    const ValueView value = find[option];
    const bool set = value.is_document() ? !value.as_document().empty() : value.truthy();
    if (!set) continue;
    return Error(invalid_pipeline_operator, fmt::format("Option {} not supported in aggregation.", option));
  }
  append_stage(out, "$match", find["filter"]);
  append_stage(out, "$sort", find["sort"]);
  append_number_stage(out, "$skip", find["skip"]);
  append_number_stage(out, "$limit", find["limit"]);
  if (find["singleBatch"].truthy() && !find["limit"].truthy()) append_number_stage(out, "$limit", find["batchSize"]);
  append_stage(out, "$project", find["projection"]);
  return {};
}

void append_count_stages(BsonWriter& out, DocView count) {
  append_stage(out, "$match", count["query"]);
  append_number_stage(out, "$skip", count["skip"]);
  append_number_stage(out, "$limit", count["limit"]);
  out.begin_document_item().append("$count", "n").end();
}

Result<void> append_stages(BsonWriter& out, DocView command) {
  const std::string_view name = command.first().name;
  if (name == "find") return append_find_stages(out, command);
  if (name == "count") {
    append_count_stages(out, command);
    return {};
  }
  const ValueView pipeline = command["pipeline"];
  if (!pipeline.is_array()) return {};
  for (const Element& stage : pipeline.as_document()) out.append_item(ValueView(stage));
  return {};
}

void append_cursor(BsonWriter& out, DocView command) {
  const ValueView given = command["cursor"];
  if (given.is_document()) {
    out.append("cursor", given.as_document());
    return;
  }
  out.begin_document("cursor");
  const auto size = command["batchSize"].to_int64();
  if (command.first().name == "find" && size && !command["singleBatch"].truthy()) out.append("batchSize", *size);
  out.end();
}

}  // namespace

Result<BsonDoc> aggregation_over_view(DocView command, DocView view) {
  const std::string_view name = command.first().name;
  if (name != "find" && name != "count" && name != "aggregate") return BsonDoc();
  if (!view["ns"].is_string() || !view["pipeline"].is_array()) return BsonDoc();
  const catalog::Namespace below = catalog::split_namespace(view["ns"].as_string());
  BsonWriter out;
  out.append("aggregate", below.collection);
  out.begin_array("pipeline");
  for (const Element& stage : view["pipeline"].as_document()) out.append_item(ValueView(stage));
  if (auto appended = append_stages(out, command); appended.has_error()) return appended.error();
  out.end();
  append_cursor(out, command);
  for (const Element& field : command) {
    const bool both = std::find(shared_arguments.begin(), shared_arguments.end(), field.name) != shared_arguments.end();
    if (both || is_generic_argument(field.name)) out.append_element(field);
  }
  if (!command["collation"].exists() && view["collation"].is_document()) {
    out.append("collation", view["collation"].as_document());
  }
  return std::move(out).finish();
}

Response count_of_view(const Response& aggregation) {
  RecycledBytes bytes;
  for (const iovec& piece : aggregation.pieces()) {
    const auto* const from = static_cast<const std::uint8_t*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  const BsonDoc reply(std::move(bytes));
  const ValueView cursor = reply.view()["cursor"];
  const ValueView batch = cursor.is_document() ? cursor.as_document()["firstBatch"] : ValueView();
  const Element first = batch.is_array() ? batch.as_document().first() : Element();
  const std::int64_t n = first.is_document() ? first.as_document()["n"].to_int64().value_or(0) : 0;
  BsonWriter out;
  if (n <= INT32_MAX) {
    out.append("n", static_cast<std::int32_t>(n));
  } else {
    out.append("n", n);
  }
  out.append("ok", 1.0);
  return Response(std::move(out).finish());
}

}  // namespace spillway::exec
