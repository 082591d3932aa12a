// $project, $addFields, $set, $unset, and the projection of a find.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/pipeline/expressions/expression.h"

namespace spillway::pipeline {

// Does this value of a $project field include or exclude it, rather than compute it?
inline bool is_switch(ValueView value) noexcept {
  return value.is_number() || value.type == BsonType::boolean;
}


// The changes to the fields of one level of a document.
struct ProjectionNode {
  struct Child {
    enum class Kind { keep, drop, computed, nested };
    std::string name;
    Kind kind;
    ExpressionPtr expression;              // computed
    std::unique_ptr<ProjectionNode> node;  // nested
  };

  std::vector<Child> children;  // in the order of the specification
  bool has_computed = false;    // at any depth
  std::vector<std::size_t> computing;  // children that are, or have, computed ones; ascending

  const Child* find(std::string_view name, std::size_t* index) const;
  Child& add(std::string_view name, Child::Kind kind);

 private:
  std::map<std::string, std::size_t, std::less<>> index_;
};

// A parsed projection. Immutable; movable.
class Projection {
 public:
  enum class Mode {
    include,  // only the named fields, and _id unless it is excluded
    exclude,  // all fields except the named ones
    add,      // all fields, with the named ones set
  };

  // The specification of $project, or of a find: one without fields is an error (51272).
  static Result<Projection> parse_project(DocView spec, const ParseScope& scope);
  static Result<Projection> parse_add_fields(DocView spec, const ParseScope& scope);
  // A name or an array of names.
  static Result<Projection> parse_unset(ValueView spec, const ParseScope& scope);

  Mode mode() const noexcept { return mode_; }
  const ProjectionNode& root() const noexcept { return root_; }
  bool computes() const noexcept { return root_.has_computed; }
  // `meter` pays for what expressions build, during the call.
  Result<BsonDoc> apply(DocView doc, Meter& meter) const;

 private:
  explicit Projection(Mode mode) : mode_(mode) {}

  Mode mode_;
  ProjectionNode root_;
};

}  // namespace spillway::pipeline
