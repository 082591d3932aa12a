#include "proxy/pipeline/split/split_for_merger.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cursor/field_table.h"
#include "proxy/pipeline/expressions/expression.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

constexpr FieldTable<10> per_document_stages({"$match", "$project", "$addFields", "$set", "$unset", "$unwind",
                                              "$replaceRoot", "$replaceWith", "$redact",
                                              "$_internalUnpackBucket"});
constexpr FieldTable<8> one_to_one_stages({"$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith",
                                           "$lookup", "$graphLookup"});
constexpr FieldTable<4> statistics_stages({"$collStats", "$indexStats", "$planCacheStats", "$listCatalog"});
// They make documents themselves, and what they send has an order that only they know.
constexpr FieldTable<12> source_stages({"$changeStream", "$currentOp", "$documents", "$listClusterCatalog",
                                        "$listLocalSessions", "$listSearchIndexes", "$listSessions", "$rankFusion",
                                        "$scoreFusion", "$search", "$searchMeta", "$vectorSearch"});
// Of one argument: combined by the same accumulator.
constexpr FieldTable<12> combined_accumulators({"$sum", "$avg", "$min", "$max", "$first", "$last", "$push", "$addToSet",
                                                "$mergeObjects", "$stdDevPop", "$stdDevSamp", "$count"});

BsonDoc array_of(const std::vector<BsonDoc>& stages) {
  BsonWriter out;
  for (std::size_t i = 0; i < stages.size(); ++i) out.append(join(i), stages[i].view());
  return std::move(out).finish();
}

BsonDoc limit_stage(std::int64_t limit) {
  return BsonWriter().append("$limit", limit).finish();
}

// The directions only: the keys themselves are computed by the shards. Metadata is sorted downwards.
BsonDoc directions_of(DocView sort) {
  BsonWriter out;
  for (const Element& key : sort) {
    const bool downwards = !key.is_number() || key.to_double().value_or(1) < 0;
    out.append(key.name, downwards ? std::int32_t{-1} : std::int32_t{1});
  }
  return std::move(out).finish();
}

// A script that combines values: what it has made of some, it combines with others.
bool is_script_reduce(const Element& accumulator) noexcept {
  return accumulator.name == "$_internalJsReduce" && accumulator.is_document();
}

// {$group: …} for the merger; nothing: the accumulators cannot be combined that simply.
std::optional<BsonDoc> merging_group(DocView group) {
  if (!group["_id"].exists()) return std::nullopt;
  BsonWriter out;
  out.begin_document("$group").append("_id", "$$ROOT._id");
  for (const Element& field : group) {
    if (field.name == "_id") continue;
    const Element accumulator = field.to_document().first();
    const bool simple = field.is_document() && field.as_document().count() == 1 &&
                        (combined_accumulators.contains(accumulator.name) || is_script_reduce(accumulator)) &&
                        field.name.find('.') == std::string_view::npos && !field.name.starts_with('$');
    if (!simple) return std::nullopt;
    out.begin_document(field.name);
    const std::string partial = join("$$ROOT.", field.name);
    if (is_script_reduce(accumulator)) {
      out.begin_document(accumulator.name).append("data", partial);
      out.append("eval", accumulator.as_document()["eval"]).end().end();
    } else {
      out.append(accumulator.name == "$count" ? "$sum" : accumulator.name, partial).end();
    }
  }
  out.append("$doingMerge", true).end();
  return std::move(out).finish();
}

BsonDoc counting_group(ValueView id, std::string_view name) {
  BsonWriter out;
  out.begin_document("$group");
  if (id.exists()) {
    out.append("_id", id);
  } else {
    out.append_null("_id");
  }
  out.begin_document(name).append("$sum", std::int32_t{1}).end().end();
  return std::move(out).finish();
}

bool is_count_field(ValueView name) noexcept {
  return name.is_string() && !name.as_string().empty() && !name.as_string().starts_with('$') &&
         name.as_string().find('.') == std::string_view::npos;
}

bool is_count_expression(ValueView of) noexcept {
  if (of.is_string()) return of.as_string().starts_with('$');
  return of.is_document() && of.as_document().first().name.starts_with('$');
}

bool mentions_metadata(ValueView value) noexcept {
  if (!value.is_document() && !value.is_array()) return false;
  for (const Element& element : value.as_document()) {
    if (element.name == "$meta" || mentions_metadata(element)) return true;
  }
  return false;
}

class MergerSplitter {
 public:
  void add(DocView spec) {
    const Element element = spec.first();
    const bool first = shard_.empty();
    if (divided_) {
      merge_.emplace_back(spec);
    } else if (per_document_stages.contains(element.name) || (first && is_statistics_stage(element.name))) {
      shard_.emplace_back(spec);
    } else {
      divided_ = true;
      divide(spec, element);
    }
  }

  bool empty() const noexcept { return shard_.empty() && merge_.empty(); }

  SplitForMerger finish() && {
    if (!merge_.empty() && out_.merge_sort.view().empty()) move_unwinds();
    if (!limited_) limit_shards();
    for (const BsonDoc& each : merge_) out_.needs_merge = out_.needs_merge || mentions_metadata(each.view().first());
    out_.shard_part = array_of(shard_);
    out_.merge_part = array_of(merge_);
    return std::move(out_);
  }

 private:
  void divide(DocView spec, const Element& element) {
    if (element.name == "$sort" && element.is_document() && !element.as_document().empty()) {
      merge_in_order(spec, directions_of(element.as_document()));
    } else if (element.name == "$sample" && element.is_document()) {
      BsonWriter order;
      merge_in_order(spec, std::move(order.append("$rand", std::int32_t{-1})).finish());
      limited_ = true;
      const auto size = element.as_document()["size"].truncated_int64();
      if (size.value_or(0) > 0) merge_.push_back(limit_stage(*size));
    } else if (element.name == "$geoNear" && element.is_document()) {
      const ValueView field = element.as_document()["distanceField"];
      BsonWriter order;
      merge_in_order(
          spec, std::move(order.append(field.is_string() ? field.as_string() : "$dis", std::int32_t{1})).finish());
    } else if (element.name == "$group" && element.is_document()) {
      divide_group(BsonDoc(spec));
    } else if (element.name == "$count" && is_count_field(element)) {
      divide_group(counting_group({}, element.as_string()));
      merge_.push_back(BsonWriter().begin_document("$project").append("_id", std::int32_t{0}).end().finish());
    } else if (element.name == "$sortByCount" && is_count_expression(element)) {
      divide_group(counting_group(element, "count"));
      BsonWriter sort;
      sort.begin_document("$sort").append("count", std::int32_t{-1}).end();
      merge_.push_back(std::move(sort).finish());
    } else {
      merge_.emplace_back(spec);
    }
  }

  void merge_in_order(DocView spec, BsonDoc order) {
    shard_.emplace_back(spec);
    out_.merge_sort = std::move(order);
    out_.needs_merge = true;
  }

  void divide_group(BsonDoc group) {
    auto merging = merging_group(group.view().first().as_document());
    if (!merging) {
      merge_.push_back(std::move(group));
      return;
    }
    shard_.push_back(std::move(group));
    merge_.push_back(*std::move(merging));
    out_.needs_merge = true;
  }

  // What it makes of a document is many: less travels if the merger does it.
  void move_unwinds() {
    while (!shard_.empty() && shard_.back().view().first().name == "$unwind") {
      merge_.insert(merge_.begin(), std::move(shard_.back()));
      shard_.pop_back();
    }
  }

  // No shard need send more than the merger's first $limit, and what is skipped before it.
  void limit_shards() {
    std::int64_t needed = 0;
    for (const BsonDoc& each : merge_) {
      const Element element = each.view().first();
      const bool limit = element.name == "$limit";
      if (limit || element.name == "$skip") {
        const auto number = element.to_int64();
        if (!number || *number < 0 || __builtin_add_overflow(needed, *number, &needed)) return;
        if (limit && needed > 0) shard_.push_back(limit_stage(needed));
        if (limit) return;
      } else if (!one_to_one_stages.contains(element.name)) {
        return;
      }
    }
  }

  SplitForMerger out_;
  std::vector<BsonDoc> shard_, merge_;
  bool divided_ = false;
  bool limited_ = false;  // the shards' part has its limit
};

}  // namespace

bool is_statistics_stage(std::string_view name) noexcept { return statistics_stages.contains(name); }

Result<SplitForMerger> split_for_merger(DocView pipeline) {
  MergerSplitter splitter;
  for (const Element& each : pipeline) {
    if (!each.is_document()) {
      return Error(ErrorCode::type_mismatch, "Each element of the 'pipeline' array must be an object");
    }
    if (each.as_document().count() != 1) {
      return Error(40323, "A pipeline stage specification object must contain exactly one field.");
    }
    const std::string_view name = each.as_document().first().name;
    if (splitter.empty() && source_stages.contains(name)) return unsupported_error("the stage", name);
    splitter.add(each.as_document());
  }
  return std::move(splitter).finish();
}

}  // namespace spillway::pipeline
