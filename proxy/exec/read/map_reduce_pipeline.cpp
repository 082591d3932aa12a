#include "proxy/exec/read/map_reduce_pipeline.h"

#include <fmt/format.h>

#include "cursor/field_table.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

namespace {

// jsMode and verbose change nothing from 4.4 on.
constexpr FieldTable<13> arguments({"map", "reduce", "finalize", "query", "sort", "limit", "out", "scope", "collation",
                                    "jsMode", "verbose", "bypassDocumentValidation", "let"});

Result<void> check_script(DocView command, std::string_view name, bool required) {
  const ValueView script = command[name];
  if (!script.exists() && required) return missing_field(fmt::format("mapReduce.{}", name));
  const bool known = !script.exists() || script.is_null() || script.is_string() || script.type == BsonType::code ||
                     script.type == BsonType::code_with_scope;
  if (!known) {
    return Error(ErrorCode::type_mismatch, fmt::format("'{}' must be of string or code type", name));
  }
  return {};
}

Result<void> check(DocView command) {
  for (auto at = ++command.begin(); !at.done(); ++at) {
    if (arguments.contains(at->name) || is_argument_of_any_command(at->name)) continue;
    return unknown_field(fmt::format("mapReduce.{}", at->name));
  }
  for (const std::string_view name : {"query", "sort", "scope"}) {
    SPILLWAY_TRY(checked, document_argument(fmt::format("mapReduce.{}", name), command[name]));
  }
  if (const ValueView limit = command["limit"]; limit.exists() && !limit.is_null() && !limit.is_number()) {
    return wrong_type("mapReduce.limit", limit, "[long, int, decimal, double]");
  }
  for (const std::string_view name : {"map", "reduce"}) {
    if (auto checked = check_script(command, name, true); checked.has_error()) return checked;
  }
  return check_script(command, "finalize", false);
}

bool has_script(ValueView script) noexcept { return script.exists() && !script.is_null(); }

// {$project: {value: {$function: …}}}, of the key and these values.
void append_function(BsonWriter& out, ValueView script, std::span<const std::string_view> values) {
  out.begin_document_item().begin_document("$project").begin_document("value").begin_document("$function");
  out.append("body", script).begin_array("args").append_item("$_id");
  if (values.size() == 1) {
    out.append_item(values.front());
  } else {
    out.begin_array_item();
    for (const std::string_view value : values) out.append_item(value);
    out.end();
  }
  out.end().append("lang", "js").end().end().end().end();
}

void append_finalize(BsonWriter& out, DocView command) {
  static constexpr std::string_view value[] = {"$value"};
  if (has_script(command["finalize"])) append_function(out, command["finalize"], value);
}

void append_input(BsonWriter& out, DocView command) {
  if (const ValueView query = command["query"]; query.is_document())
    out.begin_document_item().append("$match", query).end();
  if (const ValueView sort = command["sort"]; sort.is_document() && !sort.as_document().empty())
    out.begin_document_item().append("$sort", sort).end();
  if (const auto limit = command["limit"].truncated_int64(); limit && *limit != 0)
    out.begin_document_item().append("$limit", *limit).end();
}

void append_map_and_reduce(BsonWriter& out, DocView command) {
  out.begin_document_item().begin_document("$project");
  out.begin_document("emits").begin_document("$_internalJsEmit");
  out.append("this", "$$ROOT").append("eval", command["map"]).end().end();
  out.append("_id", false).end().end();
  out.begin_document_item().append("$unwind", "$emits").end();
  out.begin_document_item().begin_document("$group").append("_id", "$emits.k");
  out.begin_document("value").begin_document("$_internalJsReduce");
  out.append("data", "$emits").append("eval", command["reduce"]).end().end().end().end();
}

void append_output(BsonWriter& out, DocView command, std::string_view db, std::string_view collection) {
  const ValueView form = command["out"];
  const DocView modes = form.to_document();
  const bool reduces = modes["reduce"].exists();
  if (!reduces && !modes["merge"].exists()) {
    out.begin_document_item().begin_document("$out").append("db", db).append("coll", collection).end().end();
    return;
  }
  out.begin_document_item().begin_document("$merge");
  out.begin_document("into").append("db", db).append("coll", collection).end().append("on", "_id");
  if (reduces) {
    static constexpr std::string_view both[] = {"$value", "$$new.value"};
    out.begin_array("whenMatched");
    append_function(out, command["reduce"], both);
    append_finalize(out, command);
    out.end();
  } else {
    out.append("whenMatched", "replace");
  }
  out.append("whenNotMatched", "insert").end().end();
}

}  // namespace

bool names_map_reduce_output(std::string_view field) noexcept {
  return field == "replace" || field == "normal" || field == "merge" || field == "reduce";
}

Result<BsonDoc> aggregation_of_map_reduce(DocView command, std::string_view output_db, std::string_view output,
                                          std::int64_t now_ms, std::uint64_t cluster_time) {
  if (auto checked = check(command); checked.has_error()) return checked.error();
  BsonWriter out;
  out.append("aggregate", command.first().as_string());
  out.begin_array("pipeline");
  append_input(out, command);
  append_map_and_reduce(out, command);
  append_finalize(out, command);
  if (!output.empty()) {
    append_output(out, command, output_db, output);
  } else {
    // As one document, whose size servers limit.
    out.begin_document_item().begin_document("$group").append_null("_id");
    out.begin_document("results").append("$push", "$$ROOT").end().end().end();
  }
  out.end().begin_document("cursor").end().append("allowDiskUse", true);
  // What routers tell shards of scripts: their variables, and that they may call the functions of system.js.
  out.begin_document("runtimeConstants").append_date("localNow", now_ms);
  out.append_timestamp("clusterTime", cluster_time);
  if (const ValueView scope = command["scope"]; scope.is_document()) out.append("jsScope", scope);
  out.append("isMapReduce", true).end();
  out.append_elements(command, [](std::string_view name) {
    return name == "collation" || name == "bypassDocumentValidation" || name == "let" || is_generic_argument(name);
  });
  return std::move(out).finish();
}

}  // namespace spillway::exec
