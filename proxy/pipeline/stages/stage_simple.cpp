// Stages without state: one document in, none or one out.

#include <utility>

#include "proxy/pipeline/stages/match.h"
#include "proxy/pipeline/stages/projection.h"
#include "proxy/pipeline/stages/stage.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

class MatchStage final : public Stage {
 public:
  explicit MatchStage(Filter filter) : filter_(std::move(filter)) {}
  std::string_view name() const noexcept override { return "$match"; }
  Result<void> push(DocView doc, Sink& next) override {
    SPILLWAY_TRY(matched, filter_.matches(doc, meter()));
    return *matched ? next.push(doc) : Result<void>();
  }

 private:
  Filter filter_;
};

class ProjectStage final : public Stage {
 public:
  ProjectStage(std::string_view name, Projection projection)
      : name_(name), projection_(std::move(projection)) {}
  std::string_view name() const noexcept override { return name_; }
  Result<void> push(DocView doc, Sink& next) override {
    SPILLWAY_TRY(projected, projection_.apply(doc, meter()));
    return projection_.computes() ? next.push_built(projected->view()) : next.push(projected->view());
  }

 private:
  std::string_view name_;  // a literal
  Projection projection_;
};

class ReplaceRootStage final : public Stage {
 public:
  explicit ReplaceRootStage(ExpressionPtr root) : root_(std::move(root)) {}
  std::string_view name() const noexcept override { return "$replaceRoot"; }
  Result<void> push(DocView doc, Sink& next) override {
    const MeterScope scope(meter());
    EvalContext context{doc, meter(), {}};
    SPILLWAY_TRY(root, root_->evaluate(context));
    if (!root->is_document()) {
      return Error(40228, join("'newRoot' expression must evaluate to an object, but "
                               "resulting value was of type: '",
                               type_name(*root), "'"));
    }
    return next.push_built(root->as_document());
  }

 private:
  ExpressionPtr root_;
};

class LimitStage final : public Stage {
 public:
  explicit LimitStage(std::int64_t limit) : left_(limit) {}
  std::string_view name() const noexcept override { return "$limit"; }
  bool wants_more() const noexcept override { return left_ > 0; }
  Result<void> push(DocView doc, Sink& next) override {
    if (left_ <= 0) {
      return {};
    }
    --left_;
    return next.push(doc);
  }

 private:
  std::int64_t left_;
};

class SkipStage final : public Stage {
 public:
  explicit SkipStage(std::int64_t skip) : left_(skip) {}
  std::string_view name() const noexcept override { return "$skip"; }
  Result<void> push(DocView doc, Sink& next) override {
    if (left_ > 0) {
      --left_;
      return {};
    }
    return next.push(doc);
  }

 private:
  std::int64_t left_;
};

// Counts documents, or adds up the shards' counts. No input gives no output.
class CountStage final : public Stage {
 public:
  CountStage(std::string field, bool partial) : field_(std::move(field)), partial_(partial) {}
  std::string_view name() const noexcept override { return "$count"; }
  Result<void> push(DocView doc, Sink&) override {
    if (!partial_) {
      ++count_;
      return {};
    }
    const auto count = doc[field_].to_int64();
    if (!count || *count < 0 || *count > INT64_MAX - count_) {
      return Error(ErrorCode::internal_error, "a shard's $count is not a count");
    }
    count_ += *count;
    return {};
  }
  Result<bool> emit(Sink& next) override {
    if (count_ == 0) return false;
    const BsonDoc doc = BsonWriter().append(field_, Value::integer(std::exchange(count_, 0)).view()).finish();
    if (auto pushed = next.push(doc); !pushed) return pushed.error();
    return true;
  }

 private:
  std::string field_;
  bool partial_;
  std::int64_t count_ = 0;
};

Result<StagePtr> projecting(std::string_view name, Result<Projection> projection) {
  if (!projection) return projection.error();
  return std::make_unique<ProjectStage>(name, std::move(*projection));
}

}  // namespace

Result<StagePtr> parse_match_stage(ValueView spec, const ParseScope& scope) {
  if (!spec.is_document()) return Error(15959, "the match filter must be an expression in an object");
  SPILLWAY_TRY(filter, Filter::parse(spec.as_document(), scope));
  return std::make_unique<MatchStage>(std::move(*filter));
}

Result<StagePtr> parse_project_stage(ValueView spec, const ParseScope& scope) {
  if (!spec.is_document()) return Error(15969, "$project specification must be an object");
  return projecting("$project", Projection::parse_project(spec.as_document(), scope));
}

Result<StagePtr> parse_add_fields_stage(ValueView spec, const ParseScope& scope) {
  if (!spec.is_document()) {
    return Error(40272, join("$addFields specification stage must be an object, got ",
                             bson_type_name(spec.type)));
  }
  return projecting("$addFields", Projection::parse_add_fields(spec.as_document(), scope));
}

Result<StagePtr> parse_unset_stage(ValueView spec, const ParseScope& scope) {
  return projecting("$unset", Projection::parse_unset(spec, scope));
}

Result<StagePtr> parse_replace_with_stage(ValueView spec, const ParseScope& scope) {
  SPILLWAY_TRY(root, parse_expression(spec, scope));
  return std::make_unique<ReplaceRootStage>(std::move(*root));
}

Result<StagePtr> parse_replace_root_stage(ValueView spec, const ParseScope& scope) {
  if (!spec.is_document()) {
    return Error(40229, join("expected an object as specification for $replaceRoot stage, "
                             "got ",
                             bson_type_name(spec.type)));
  }
  for (const Element& element : spec.as_document()) {
    if (element.name != "newRoot") {
      return Error(40415, join("BSON field '$replaceRoot.", element.name, "' is an unknown field."));
    }
  }
  const ValueView root = spec.as_document()["newRoot"];
  if (!root.exists()) return Error(40231, "no newRoot specified for the $replaceRoot stage");
  return parse_replace_with_stage(root, scope);
}

Result<StagePtr> parse_limit_stage(ValueView spec, const ParseScope&) {
  SPILLWAY_TRY(limit, parse_limit(spec));
  return make_limit_stage(*limit);
}

Result<StagePtr> parse_skip_stage(ValueView spec, const ParseScope&) {
  SPILLWAY_TRY(skip, parse_skip(spec));
  return make_skip_stage(*skip);
}

Result<StagePtr> parse_count_stage(ValueView spec, const ParseScope&) {
  SPILLWAY_TRY(field, parse_count_field(spec));
  return std::make_unique<CountStage>(std::move(*field), false);
}

StagePtr make_count_sum_stage(std::string field) {
  return std::make_unique<CountStage>(std::move(field), true);
}
StagePtr make_limit_stage(std::int64_t limit) { return std::make_unique<LimitStage>(limit); }
StagePtr make_skip_stage(std::int64_t skip) { return std::make_unique<SkipStage>(skip); }

}  // namespace spillway::pipeline
