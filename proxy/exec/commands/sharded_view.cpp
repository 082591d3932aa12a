#include "proxy/exec/commands/sharded_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "cursor/path_text.h"
#include "proxy/catalog/routing.h"
#include "proxy/exec/core/forward.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t invalid_pipeline_operator = 168;
constexpr std::string_view unpack_stage = "$_internalUnpackBucket";

// Arguments that both commands have.
constexpr std::array<std::string_view, 5> shared_arguments = {"collation", "hint", "let", "allowDiskUse",
                                                              "bypassDocumentValidation"};
constexpr std::array<std::string_view, 9> find_only = {
    "awaitData",       "allowPartialResults", "max",          "min",     "noCursorTimeout",
    "oplogReplay",     "returnKey",           "showRecordId", "tailable"};

void append_stage(BsonWriter& out, std::string_view stage, ValueView value) {
  if (!value.is_document() || value.as_document().empty()) return;
  out.begin_document_item().append(stage, value.as_document()).end();
}

void append_number_stage(BsonWriter& out, std::string_view stage, ValueView value) {
  const auto number = value.truncated_int64();
  if (!number || *number == 0) return;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  out.begin_document_item().append(stage, *number < 0 ? -std::max(*number, -most) : *number).end();
}

// {$natural: ±1}, which is a hint in truth. Source: mongod's canonical_query.cpp.
DocView natural_sort(DocView find) {
  const ValueView sort = find["sort"];
  return sort.is_document() && sort.as_document()["$natural"].exists() ? sort.as_document() : DocView();
}

// nullopt: there is none, or a limit says how many documents it has.
std::optional<std::int64_t> size_of_single_batch(DocView find) {
  if (!find["singleBatch"].truthy() || find["limit"].truthy()) return std::nullopt;
  const auto asked = find["batchSize"].truncated_int64();
  return asked ? std::max<std::int64_t>(*asked, 0) : limits::first_batch_documents_default;
}

Result<void> append_find_stages(BsonWriter& out, DocView find) {
  for (const std::string_view option : find_only) {
    const ValueView value = find[option];
    const bool set = value.is_document() ? !value.as_document().empty() : value.truthy();
    if (!set) continue;
    return Error(invalid_pipeline_operator, fmt::format("Option {} not supported in aggregation.", option));
  }
  append_stage(out, "$match", find["filter"]);
  if (natural_sort(find).empty()) append_stage(out, "$sort", find["sort"]);
  append_number_stage(out, "$skip", find["skip"]);
  append_number_stage(out, "$limit", find["limit"]);
  if (const auto size = size_of_single_batch(find)) {
    if (*size == 0) return Error(invalid_pipeline_operator, "A single batch of 0 not supported in aggregation.");
    out.begin_document_item().append("$limit", *size).end();
  }
  append_stage(out, "$project", find["projection"]);
  return {};
}

void append_count_stages(BsonWriter& out, DocView count) {
  append_stage(out, "$match", count["query"]);
  append_number_stage(out, "$skip", count["skip"]);
  append_number_stage(out, "$limit", count["limit"]);
  out.begin_document_item().append("$count", "n").end();
}

void append_type_check(BsonWriter& out, std::string_view path, std::string_view other_than) {
  out.begin_document_item().begin_document("$match").begin_document("$expr").begin_array("$ne");
  out.begin_document_item().append("$type", path).end();
  out.append_item(other_than).end().end().end().end();
}

// Arrays on the way to the key are looked into once, as distinct does. The values are sorted within documents, where
// arrays are compared as a whole.
void append_distinct_stages(BsonWriter& out, DocView distinct) {
  const std::string key = "$" + std::string(distinct["key"].as_string());
  append_stage(out, "$match", distinct["query"]);
  for (std::size_t dot = 0; dot < key.size();) {
    dot = std::min(key.find('.', dot + 1), key.size());
    const std::string path = key.substr(0, dot);
    out.begin_document_item().begin_document("$unwind").append("path", path);
    out.append("preserveNullAndEmptyArrays", true).end().end();
    // Not into an array within an array.
    if (dot < key.size()) append_type_check(out, path, "array");
  }
  append_type_check(out, key, "missing");
  out.begin_document_item().begin_document("$group").begin_document("_id").append("v", key).end().end().end();
  out.begin_document_item().begin_document("$sort").append("_id", 1).end().end();
  out.begin_document_item().begin_document("$group").append_null("_id");
  out.begin_document("distinct").append("$push", "$_id.v").end().end().end();
}

Result<void> append_stages(BsonWriter& out, DocView command) {
  const std::string_view name = command.first().name;
  if (name == "find") return append_find_stages(out, command);
  if (name == "count") {
    append_count_stages(out, command);
  } else if (name == "distinct") {
    append_distinct_stages(out, command);
  } else {
    for (const Element& stage : command["pipeline"].to_array()) out.append_item(ValueView(stage));
  }
  return {};
}

void append_cursor(BsonWriter& out, DocView command) {
  const ValueView given = command["cursor"];
  if (given.is_document()) {
    out.append("cursor", given.as_document());
    return;
  }
  out.begin_document("cursor");
  // A single batch, which a mongos gives of a view only with a limit of 1, has all up to the limit.
  const bool single = command["singleBatch"].truthy();
  auto size = command[single ? "limit" : "batchSize"].truncated_int64();
  if (const auto of_batch = size_of_single_batch(command)) size = of_batch;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (command.first().name == "find" && size && (!single || *size != 0)) {
    // One more than $limit lets through: so the batch ends the cursor.
    out.append("batchSize", single ? std::min(std::abs(std::max(*size, -most)), most - 1) + 1 : *size);
  }
  out.end();
}

}  // namespace

namespace {

// Of a view on a time series: the stage that makes measurements of buckets; else null.
DocView unpacking_of(DocView stages) {
  const Element named = stages.first().to_document().first();
  return named.name == unpack_stage ? named.to_document() : DocView();
}

// What shards from 5.2 on know of the buckets. Without the second they take it that no bucket has a time outside of
// 1970 to 2038.
void append_unpacking(BsonWriter& out, DocView unpacking, DocView view) {
  out.begin_document_item().begin_document(unpack_stage).append_elements(unpacking);
  const ValueView mixed = view["timeseriesMayContainMixedData"], extended = view["timeseriesUsesExtendedRange"];
  if (mixed.exists()) out.append("assumeNoMixedSchemaData", !mixed.truthy());
  if (extended.exists()) out.append("usesExtendedRange", extended.truthy());
  out.end().end();
}

// Of the series itself, statistics are those of buckets, which shards make those of the series. Source: mongod's
// resolved_view.cpp.
bool append_statistics(BsonWriter& out, DocView command, DocView unpacking, bool of_series) {
  const DocView pipeline = command["pipeline"].to_array();
  const Element first = pipeline.first(), named = first.to_document().first();
  if (unpacking.empty() || !of_series || !named.is_document()) return false;
  if (named.name == "$collStats") {
    out.begin_document_item().begin_document("$collStats").append_elements(named.as_document());
    out.append("$_requestOnTimeseriesView", true).end().end();
  } else if (named.name == "$indexStats") {
    out.append_item(ValueView(first));
    out.begin_document_item().begin_document("$_internalConvertBucketIndexStats");
    for (const std::string_view field : {"timeField", "metaField"}) out.append(field, unpacking[field]);
    out.end().end();
  } else {
    return false;
  }
  for (auto at = ++pipeline.begin(); !at.done(); ++at) out.append_item(ValueView(*at));
  return true;
}

// An index's key of a time series as that of the buckets' index. Source: mongod's
// timeseries_index_schema_conversion_functions.cpp.
void append_hint(BsonWriter& out, DocView key, DocView unpacking) {
  const std::string_view first = key.first().name;
  if (unpacking.empty() || first == "$natural" || first == "$hint") {
    out.append("hint", key);
    return;
  }
  const ValueView meta = unpacking["metaField"];
  out.begin_document("hint");
  for (const Element& field : key) {
    const std::string name(field.name);
    if (meta.is_string() && (name == meta.as_string() || is_below(name, meta.as_string()))) {
      out.append("meta" + name.substr(meta.as_string().size()), ValueView(field));
    } else if (field.is_string() && field.as_string() == "2dsphere") {
      out.append("data." + name, "2dsphere_bucket");
    } else {
      const bool up = field.to_double().value_or(1) >= 0;
      for (const char* const end : {up ? "min" : "max", up ? "max" : "min"}) {
        out.append(fmt::format("control.{}.{}", end, name), ValueView(field));
      }
    }
  }
  out.end();
}

}  // namespace

Result<BsonDoc> aggregation_over_view(DocView command, DocView view, bool flags) {
  const std::string_view name = command.first().name;
  const bool distinct = name == "distinct" && command["key"].is_string();
  if (!distinct && name != "find" && name != "count" && name != "aggregate") return BsonDoc();
  if (!view["ns"].is_string() || !view["pipeline"].is_array()) return BsonDoc();
  const catalog::Namespace below = catalog::split_namespace(view["ns"].as_string());
  BsonWriter out;
  out.append("aggregate", below.collection);
  out.begin_array("pipeline");
  const DocView stages = view["pipeline"].as_document();
  const DocView unpacking = unpacking_of(stages);
  if (!append_statistics(out, command, unpacking, stages.count() == 1)) {
    auto stage = stages.begin();
    if (flags && !unpacking.empty()) {
      append_unpacking(out, unpacking, view);
      ++stage;
    }
    for (; !stage.done(); ++stage) out.append_item(ValueView(*stage));
    if (auto appended = append_stages(out, command); appended.has_error()) return appended.error();
  }
  out.end();
  append_cursor(out, command);
  for (const Element& field : command) {
    const bool both = std::find(shared_arguments.begin(), shared_arguments.end(), field.name) != shared_arguments.end();
    if (field.name == "hint" && field.is_document()) {
      append_hint(out, field.as_document(), unpacking);
      continue;
    }
    const bool explains = name == "aggregate" && field.name == "explain";
    if (both || explains || is_generic_argument(field.name)) out.append_element(field);
  }
  if (name == "find" && !natural_sort(command).empty() && !command["hint"].exists()) {
    out.append("hint", natural_sort(command));
  }
  if (!command["collation"].exists() && view["collation"].is_document()) {
    out.append("collation", view["collation"].as_document());
  }
  return std::move(out).finish();
}

BsonDoc with_bucket_span(DocView aggregation, std::int64_t span_s) {
  const DocView pipeline = aggregation["pipeline"].to_array(), unpacking = unpacking_of(pipeline);
  const ValueView span = unpacking["bucketMaxSpanSeconds"];
  if (!span.exists() || span.to_int64() == span_s) return BsonDoc();
  BsonWriter out;
  for (const Element& field : aggregation) {
    if (field.name != "pipeline") {
      out.append_element(field);
      continue;
    }
    out.begin_array("pipeline").begin_document_item().begin_document(unpack_stage);
    for (const Element& option : unpacking) {
      if (option.name == "bucketMaxSpanSeconds") {
        out.append(option.name, static_cast<std::int32_t>(span_s));
      } else {
        out.append_element(option);
      }
    }
    out.end().end();
    for (auto stage = ++pipeline.begin(); !stage.done(); ++stage) out.append_item(ValueView(*stage));
    out.end();
  }
  return std::move(out).finish();
}

Response distinct_of_view(const Response& aggregation) {
  const BsonDoc reply = aggregation.copy();
  const ValueView values = first_of_batch(reply)["distinct"];
  BsonWriter out;
  if (values.is_array()) {
    out.append("values", values);
  } else {
    out.begin_array("values").end();
  }
  out.append("atClusterTime", reply.view().find_path("cursor.atClusterTime"));
  return ok_response(std::move(out));
}

Response count_of_view(const Response& aggregation) {
  const BsonDoc reply = aggregation.copy();
  const std::int64_t n = first_of_batch(reply)["n"].to_int64().value_or(0);
  BsonWriter out;
  append_count(out, "n", n);
  return ok_response(std::move(out));
}

}  // namespace spillway::exec
