#include "proxy/pipeline/split/split.h"

#include <algorithm>
#include <limits>
#include <set>

#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/split/split_group.h"
#include "proxy/pipeline/stages/projection.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// An array of stage specifications.
class StageList {
 public:
  void add(DocView spec) { writer_.append(join(count_++), spec); }
  bool empty() const noexcept { return count_ == 0; }
  BsonDoc finish() && { return std::move(writer_).finish(); }

 private:
  BsonWriter writer_;
  std::size_t count_ = 0;
};

BsonDoc match_nothing() {
  return BsonWriter().begin_document("$match").begin_document("_id").begin_array("$in").end().end().end().finish();
}

bool is_memory_refusal(const Error& error) noexcept {
  return error.is(ErrorCode::ingress_request_rate_limit_exceeded) ||
         error.is(ErrorCode::exceeded_memory_limit);
}

std::string_view top_level(std::string_view path) { return path.substr(0, path.find('.')); }

// The effect of a stage that works on one document at a time on the document's fields.
struct DocumentStage {
  bool one_to_one = true;  // one document out for every one in
  bool replaces_all = false;
  bool keeps_only = false;                     // a $project that includes
  bool computes = false;                       // an expression could fail
  std::set<std::string, std::less<>> kept;     // whole top-level fields
  std::set<std::string, std::less<>> touched;  // top-level fields that change

  bool preserves(std::string_view field) const {
    return !replaces_all && !touched.contains(field) && (!keeps_only || kept.contains(field));
  }
};

// Has an operator, at any depth. Paths and literals alone always have a value.
bool can_fail(ValueView spec) noexcept {
  if (!spec.is_document() && !spec.is_array()) return false;
  for (const Element& element : spec.as_document()) {
    if (element.name.starts_with('$') || can_fail(element)) return true;
  }
  return false;
}

DocumentStage describe_project(DocView spec) {
  DocumentStage stage;
  bool includes = false;
  bool excludes = false;
  for (const Element& element : spec) {
    const std::string name(top_level(element.name));
    const bool whole = name.size() == element.name.size();
    if (is_switch(element)) {
      if (element.truthy()) {
        includes = true;
        (whole ? stage.kept : stage.touched).insert(name);
      } else {
        stage.touched.insert(name);
        excludes = excludes || name != "_id";
      }
    } else {
      stage.touched.insert(name);
      stage.computes = stage.computes || can_fail(element);
      includes = true;
    }
  }
  stage.keeps_only = includes && !excludes;
  if (!stage.touched.contains("_id")) stage.kept.insert("_id");
  return stage;
}

void touch(DocumentStage& stage, ValueView path) {
  if (path.is_string()) stage.touched.insert(std::string(top_level(path.as_string())));
}

// nullopt: not a stage of this kind.
std::optional<DocumentStage> describe(const Element& element) {
  const std::string_view name = element.name;
  DocumentStage stage;
  if (name == "$match") {
    stage.one_to_one = false;
    return stage;
  }
  if (name == "$_internalUnpackBucket") {  // of a time series: a view's first stage
    stage.one_to_one = false;
    stage.replaces_all = true;
    stage.computes = true;
    return stage;
  }
  if (name == "$unwind") {
    // One kind of shard keeps only _id and the unwound field: a sort key would be lost.
    stage.one_to_one = false;
    stage.replaces_all = true;
    return stage;
  }
  if (name == "$replaceRoot" || name == "$replaceWith") {
    stage.replaces_all = true;
    stage.computes = true;
    return stage;
  }
  if (name == "$project") return element.is_document() ? describe_project(element.as_document()) : stage;
  if (name == "$addFields" || name == "$set") {
    stage.computes = can_fail(element);
    if (element.is_document()) {
      for (const Element& field : element.as_document()) stage.touched.insert(std::string(top_level(field.name)));
    }
    return stage;
  }
  if (name == "$unset") {
    touch(stage, element);
    if (element.is_array()) {
      for (const Element& field : element.as_document()) touch(stage, field);
    }
    return stage;
  }
  return std::nullopt;
}

// Walks the stages. Three phases: first the shards do everything, perhaps with a merge in order; then only a window
// (skip and limit) is applied here; then the rest is done here.
class Splitter {
 public:
  explicit Splitter(ParseScope scope) : scope_(std::move(scope)) {}

  Result<void> add(DocView spec) {
    if (spec.count() != 1) return Error(40323, "A pipeline stage specification object must contain exactly one field.");
    const Element element = spec.first();
    if (auto charged = scope_.charge(stage_cost_bytes); !charged) return charged;
    if (scope_.refuses_partial() && (here_ || window_ || result_.merge_sort)) note_removals(element);
    if (!here_) {
      if (const auto stage = describe(element)) return add_document_stage(spec, *stage);
      if (element.name == "$sort" && !window_) return add_sort(spec, element);
      if (element.name == "$limit") return add_limit(spec, element);
      if (element.name == "$skip") return add_skip(spec, element);
      if (!window_) {
        if (element.name == "$group") return add_group(spec, element);
        if (element.name == "$count") return add_count(spec, element);
        if (element.name == "$sortByCount") return add_sort_by_count(spec, element);
      }
    }
    return add_unseen(spec);
  }

  const std::vector<StagePtr>& merge() const noexcept { return result_.merge; }

  SplitPipeline finish() && {
    result_.shard_part = std::move(shard_).finish();
    result_.merge_part = std::move(text_).finish();
    result_.window_only = !here_;
    if (!unseen_.empty()) result_.unseen = std::move(unseen_).finish();
    return std::move(result_);
  }

 private:
  // Could this stage be evaluated here?
  Result<void> try_to_parse(DocView spec) const {
    std::optional<MeterScope> trial;
    if (scope_.meter() != nullptr) trial.emplace(*scope_.meter());
    std::vector<StagePtr> stages;
    return parse_stage(spec, scope_, stages);
  }

  void note_removals(const Element& element) {
    const auto stage = describe(element);
    const bool removes = element.name == "$unset" || (element.name == "$project" && !stage->keeps_only);
    const bool keeps_documents = (stage && !stage->keeps_only) || element.name == "$limit" ||
                                 element.name == "$skip" || element.name == "$sort";
    if (!keeps_documents) removed_.clear();
    if (removes) removed_.insert(stage->touched.begin(), stage->touched.end());
  }

  // A server puts a field that one stage removes and a later one adds at its old place. Here it would stand at the
  // end, so a merging shard does both.
  Result<void> check_places(const Element& element) const {
    if (element.name != "$addFields" && element.name != "$set") return {};
    const auto stage = describe(element);
    const auto removed = std::find_if(stage->touched.begin(), stage->touched.end(),
                                      [&](const std::string& field) { return removed_.contains(field); });
    if (removed == stage->touched.end()) return {};
    return unsupported_error("to add after its removal the field", *removed);
  }

  // The rest of the pipeline is evaluated here.
  Result<void> add_here(DocView spec) {
    const std::size_t before = result_.merge.size();
    if (auto parsed = parse_stage(spec, scope_, result_.merge); !parsed) return parsed;
    here_ = here_ || result_.merge.size() > before;
    text_.add(spec);
    return {};
  }

  // A client's stage that only runs here.
  Result<void> add_unseen(DocView spec) {
    if (auto placed = check_places(spec.first()); !placed) return placed;
    if (auto added = add_here(spec); !added) return added;
    if (unseen_.empty()) unseen_.add(match_nothing());
    unseen_.add(spec);
    return {};
  }

  Result<void> add_document_stage(DocView spec, const DocumentStage& stage) {
    bool to_shards = !window_ || stage.one_to_one;
    if (result_.merge_sort) {
      for (const Element& key : result_.merge_sort->view()) {
        to_shards = to_shards && stage.preserves(top_level(key.name));
      }
    }
    if (!to_shards) return add_unseen(spec);
    if (window_ && stage.computes) {
      // The shards would evaluate it for documents outside the window, too, where it could fail: so only if it can be
      // evaluated neither here nor by a merging shard.
      auto parsed = try_to_parse(spec);
      if (parsed) return add_unseen(spec);
      const bool left_to_merger =
          scope_.refuses_partial() && parsed.error().is(ErrorCode::command_not_supported);
      if (left_to_merger || is_memory_refusal(parsed.error())) return parsed;
    }
    shard_.add(spec);
    return {};
  }

  Result<void> add_sort(DocView spec, const Element& element) {
    SPILLWAY_TRY(checked, parse_sort_stage(element, scope_));
    shard_.add(spec);
    result_.merge_sort = BsonDoc(element.as_document());
    return {};
  }

  Result<void> add_limit(DocView spec, const Element& element) {
    SPILLWAY_TRY(limit, parse_limit(element));
    result_.limit = std::min(result_.limit.value_or(*limit), *limit);
    std::int64_t reach = 0;  // no shard contributes more than this
    if (!__builtin_add_overflow(result_.skip, *result_.limit, &reach) && reach > 0) {
      shard_.add(BsonWriter().append("$limit", Value::integer(reach).view()).finish());
    }
    result_.merge.push_back(make_limit_stage(*limit));
    text_.add(spec);
    window_ = true;
    return {};
  }

  Result<void> add_skip(DocView spec, const Element& element) {
    SPILLWAY_TRY(skip, parse_skip(element));
    if (__builtin_add_overflow(result_.skip, *skip, &result_.skip)) {
      result_.skip = std::numeric_limits<std::int64_t>::max();
    }
    if (result_.limit) result_.limit = std::max<std::int64_t>(*result_.limit - *skip, 0);
    result_.merge.push_back(make_skip_stage(*skip));
    text_.add(spec);
    window_ = true;
    return {};
  }

  Result<void> add_group(DocView spec, const Element& element) {
    ValueView id;
    SPILLWAY_TRY(elements, read_group(element, &id));
    if (result_.merge_sort && group_needs_order(*elements)) return add_unseen(spec);
    for (const AccumulatorElement& each : *elements) {
      if (auto charged = scope_.charge(group_field_bytes(each)); !charged) return charged;
    }
    SPILLWAY_TRY(group, split_group(id, *elements));
    shard_.add(group->shard);
    enter_merge();
    result_.merge.push_back(make_group_stage(std::move(group->merge)));
    text_.add(group->merge_text);
    return {};
  }

  Result<void> add_count(DocView spec, const Element& element) {
    SPILLWAY_TRY(field, parse_count_field(element));
    shard_.add(spec);
    enter_merge();
    text_.add(spec);
    result_.merge.push_back(make_count_sum_stage(std::move(*field)));
    return {};
  }

  Result<void> add_sort_by_count(DocView spec, const Element&) {
    if (auto parsed = try_to_parse(spec); !parsed) {  // checks the form
      return parsed;
    }
    BsonWriter group;
    group.begin_document("$group").append("_id", "$_id").begin_document("count");
    group.append("$sum", "$count").end().end();
    BsonWriter sort;
    sort.begin_document("$sort").append("count", std::int32_t{-1}).end();
    shard_.add(spec);
    enter_merge();
    if (auto added = add_here(std::move(group).finish()); !added) return added;
    return add_here(std::move(sort).finish());
  }

  // From here on the shards send partial results; their order has no meaning.
  void enter_merge() {
    here_ = true;
    result_.merge_sort.reset();
  }

  ParseScope scope_;
  StageList shard_;
  StageList text_;
  StageList unseen_;
  SplitPipeline result_;
  std::set<std::string, std::less<>> removed_;  // top-level fields, behind the shards' part
  bool window_ = false;
  bool here_ = false;
};

Result<ParseScope> scope_of(const SplitOptions& options, Meter* meter) {
  ParseScope scope(meter);
  const ParseScope none(meter);
  for (const Element& element : options.let) {
    SPILLWAY_TRY(value, parse_expression(element, none));
    const Value* constant = (*value)->constant();
    if (constant == nullptr) return unsupported_error("the expression of the variable", join("$$", element.name));
    scope.bind_constant(element.name, *constant);
  }
  return scope;
}

}  // namespace

Result<SplitPipeline> split(DocView pipeline, const SplitOptions& options) {
  for (const DocView part : {pipeline, options.let}) {
    if (auto valid = part.validate(); !valid) return valid.error();
  }
  std::unique_ptr<Meter> parsed;
  if (options.budget != nullptr) {
    parsed = std::make_unique<Meter>(*options.budget, "the parsed pipeline", any_number_of_bytes);
  }
  SPILLWAY_TRY(scope, scope_of(options, parsed.get()));
  if (options.refuse_partial) scope->refuse_partial();
  Splitter splitter(std::move(*scope));
  for (const Element& element : pipeline) {
    if (!element.is_document()) {
      return Error(ErrorCode::type_mismatch,
                   "Each element of the 'pipeline' array must be an object");
    }
    if (auto added = splitter.add(element.as_document()); !added) return added.error();
    if (auto checked = check_stage_count(splitter.merge()); !checked) return checked.error();
  }
  SplitPipeline result = std::move(splitter).finish();
  if (parsed != nullptr) {
    parsed->trim();
    result.parsed = std::move(parsed);
  }
  return result;
}

}  // namespace spillway::pipeline
