#include "proxy/exec/read/sort_projection.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cursor/path_text.h"

namespace spillway::exec {

namespace {

enum class Kind { inclusion, exclusion };

bool is_flag(ValueView value) noexcept { return value.is_number() || value.type == BsonType::boolean; }

Kind kind_of(DocView projection) {
  std::optional<Kind> by_id;
  for (auto at = projection.begin(); !at.done(); ++at) {
    if (!is_flag(*at)) continue;
    const Kind kind = at->truthy() ? Kind::inclusion : Kind::exclusion;
    if (at->name != "_id") return kind;
    by_id = kind;
  }
  // Only computed fields: expressions make an inclusion, $slice and $elemMatch alone an exclusion.
  for (auto at = projection.begin(); !at.done(); ++at) {
    if (is_flag(*at)) continue;
    const bool array_operator =
        at->is_document() && (at->as_document().first().name == "$slice" || at->as_document().first().name == "$meta");
    return array_operator ? Kind::exclusion : Kind::inclusion;
  }
  return by_id.value_or(Kind::exclusion);
}

Error not_possible(std::string_view path) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("a sort on '{}' over several shards needs that field, which the projection computes or "
                           "cuts; sort on another field, or project it whole",
                           path));
}

// Checks one sort path against an inclusion list. Adds to `extra` the paths to request as well.
Result<void> keep_included(std::string_view path, DocView projection, std::vector<std::string>& extra,
                           std::vector<std::string>& strip, bool& id_excluded) {
  if (path == "_id" || path.starts_with("_id.")) {
    const ValueView id = projection["_id"];
    if (!id.exists() || id.truthy()) return {};
    id_excluded = false;
    strip.emplace_back("_id");
    return {};
  }
  std::string_view top = path.substr(0, path.find('.'));
  bool top_shared = false;
  for (auto at = projection.begin(); !at.done(); ++at) {
    if (at->name == "_id") continue;
    if (!is_flag(*at)) {
      if (is_related(at->name, path)) return not_possible(path);
      continue;
    }
    if (at->name == path || is_below(path, at->name)) return {};  // it is in the list
    if (is_below(at->name, path)) return not_possible(path);
    if (at->name.substr(0, at->name.find('.')) == top) top_shared = true;
  }
  extra.emplace_back(path);
  strip.emplace_back(top_shared ? path : top);
  return {};
}

Result<SortProjection> plan_inclusion(DocView sort, DocView projection) {
  SortProjection plan;
  plan.source = SortKeySource::document;
  std::vector<std::string> extra;
  bool id_excluded = projection["_id"].exists() && !projection["_id"].truthy();
  for (auto at = sort.begin(); !at.done(); ++at) {
    SPILLWAY_TRY(kept, keep_included(at->name, projection, extra, plan.strip_fields, id_excluded));
  }
  if (plan.strip_fields.empty()) return plan;
  plan.changed = true;
  BsonWriter out;
  for (auto at = projection.begin(); !at.done(); ++at) {
    if (at->name == "_id" && !at->truthy() && !id_excluded) continue;
    out.append_element(*at);
  }
  for (const std::string& path : extra) out.append(path, std::int32_t{1});
  plan.projection = std::move(out).finish();
  return plan;
}

Result<SortProjection> plan_exclusion(DocView sort, DocView projection) {
  SortProjection plan;
  plan.source = SortKeySource::document;
  BsonWriter out;
  for (auto at = projection.begin(); !at.done(); ++at) {
    bool dropped = false;
    for (auto key = sort.begin(); !key.done() && !dropped; ++key) dropped = is_related(at->name, key->name);
    if (!dropped || (is_flag(*at) && at->truthy())) {
      out.append_element(*at);
      continue;
    }
    if (!is_flag(*at)) return not_possible(at->name);
    plan.strip_fields.emplace_back(at->name);
  }
  plan.changed = !plan.strip_fields.empty();
  if (plan.changed) plan.projection = std::move(out).finish();
  return plan;
}

// `meta`: the content of $sortKey from the shards.
SortProjection ask_for_sort_key(DocView projection, std::string_view meta) {
  SortProjection plan;
  plan.source = SortKeySource::sort_key_field;
  plan.changed = true;
  plan.strip_fields.emplace_back("$sortKey");
  plan.projection = BsonWriter().append_elements(projection)
                                .begin_document("$sortKey").append("$meta", meta).end().finish();
  return plan;
}

}  // namespace

bool all_offer_sort_key(const Context& context, const catalog::ShardSet& shards) {
  return std::all_of(shards.begin(), shards.end(), [&context](catalog::ShardIndex shard) {
    const auto& known = context.gateway.capabilities(shard);
    // A cluster's shards are servers of 4.2 at least, also those that have not answered yet.
    return known.offers_sort_key || (context.in_cluster() && known.max_wire_version == 0);
  });
}

Result<SortProjection> plan_sort_projection(DocView sort, DocView projection, bool simple_collation,
                                            bool offers_sort_key) {
  if (offers_sort_key) return ask_for_sort_key(projection, "sortKey");
  if (!simple_collation) {
    return Error(ErrorCode::command_not_supported,
                 "a sort with a collation over several shards needs shards that compute sort keys");
  }
  for (auto at = sort.begin(); !at.done(); ++at) {
    if (at->is_document()) {
      return Error(ErrorCode::command_not_supported,
                   fmt::format("a sort on {{'{}': {}}} over several shards needs shards that compute sort keys",
                               at->name, to_json(*at)));
    }
  }
  if (projection.empty() || kind_of(projection) == Kind::exclusion) return plan_exclusion(sort, projection);
  return plan_inclusion(sort, projection);
}

Result<SortProjection> plan_distance_projection(DocView projection, bool offers_sort_key) {
  if (offers_sort_key) return ask_for_sort_key(projection, "geoNearDistance");
  return Error(ErrorCode::command_not_supported,
               "$near over several shards needs shards that compute sort keys, unless there is a "
               "sort; $geoWithin needs no order");
}

}  // namespace spillway::exec
