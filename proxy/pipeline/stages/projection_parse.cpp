
#include <algorithm>
#include <optional>

#include "proxy/pipeline/stages/projection.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

using Child = ProjectionNode::Child;
using Mode = Projection::Mode;

bool is_expression_document(ValueView value) noexcept {
  if (!value.is_document()) return false;
  const Element first = value.as_document().first();
  return first.exists() && first.name.starts_with('$');
}

// Finds out whether a $project includes or excludes, and refuses a mixture.
class ModeFinder {
 public:
  Result<void> look(DocView spec, const std::string& prefix) {
    for (const Element& element : spec) {
      const std::string path = join(prefix, element.name);
      if (is_switch(element)) {
        if (auto seen = see(path, element.truthy() ? Mode::include : Mode::exclude); !seen) return seen;
      } else if (element.is_document() && !is_expression_document(element)) {
        if (element.as_document().empty()) {
          return Error(51270, join("An empty sub-projection is not a valid value. Found "
                                   "empty object at path ",
                                   path));
        }
        if (auto seen = look(element.as_document(), join(path, ".")); !seen) return seen;
      } else if (auto seen = see(path, Mode::include); !seen) {
        return seen;
      }
    }
    return {};
  }
  Mode mode() const noexcept { return mode_.value_or(id_.value_or(Mode::include)); }

 private:
  Result<void> see(const std::string& path, Mode mode) {
    if (path == "_id") {
      id_ = mode;
      return {};
    }
    if (mode_ && *mode_ != mode) {
      const bool include = mode == Mode::include;
      return Error(include ? 31253 : 31254,
                   join("Cannot do ", include ? "inclusion" : "exclusion", " on field ", path,
                        " in ", include ? "exclusion" : "inclusion", " projection"));
    }
    mode_ = mode;
    return {};
  }

  std::optional<Mode> mode_;
  std::optional<Mode> id_;
};

// A child, its entry in the index, and the node below it.
constexpr std::uint64_t child_bytes = 2 * sizeof(Child) + sizeof(ProjectionNode) + 128;

// Builds the tree of nodes.
class TreeBuilder {
 public:
  TreeBuilder(Mode mode, const ParseScope& scope) : mode_(mode), scope_(scope) {}

  Result<void> add_document(ProjectionNode& node, DocView spec) {
    for (const Element& element : spec) {
      if (element.name.starts_with('$')) {
        return Error(16410, join("FieldPath field names may not start with '$'. Consider "
                                 "using $getField or $setField. Got '",
                                 element.name, "'"));
      }
      SPILLWAY_TRY(path, split_field_path(element.name));
      if (auto added = add(node, *path, element); !added) return added;
    }
    return {};
  }

  Result<void> add_leaf(ProjectionNode& node, const std::vector<std::string>& path, std::size_t at,
                        Child::Kind kind, ExpressionPtr expression) {
    std::size_t index = 0;
    const Child* found = node.find(path[at], &index);
    if (found == nullptr) {
      if (auto charged = scope_.charge(child_bytes + 2 * path[at].size()); !charged) return charged;
    }
    node.has_computed = node.has_computed || kind == Child::Kind::computed;
    if (at + 1 == path.size()) {
      if (found != nullptr) return collision(found->kind == Child::Kind::nested ? 31250 : 31249, path);
      node.add(path[at], kind).expression = std::move(expression);
      if (kind == Child::Kind::computed) node.computing.push_back(node.children.size() - 1);
      return {};
    }
    if (found != nullptr && found->kind != Child::Kind::nested) return collision(31249, path);
    if (found == nullptr) {
      node.add(path[at], Child::Kind::nested).node = std::make_unique<ProjectionNode>();
      found = node.find(path[at], &index);
    }
    if (kind == Child::Kind::computed && !found->node->has_computed) {
      node.computing.insert(std::lower_bound(node.computing.begin(), node.computing.end(), index), index);
    }
    return add_leaf(*found->node, path, at + 1, kind, std::move(expression));
  }

 private:
  Error collision(int code, const std::vector<std::string>& path) const {
    std::string dotted;
    for (const std::string& part : path) dotted += join(dotted.empty() ? "" : ".", part);
    return mode_ == Mode::add
               ? Error(40176, join("specification contains two conflicting paths. Cannot "
                                   "specify both ",
                                   dotted, " and a part of it"))
               : Error(code, join("Path collision at ", dotted));
  }

  // Nested documents become paths: {a: {b: 1}} is {"a.b": 1}.
  Result<void> add(ProjectionNode& root, const std::vector<std::string>& path, ValueView value) {
    if (value.is_document() && !is_expression_document(value)) {
      if (value.as_document().empty()) {
        return Error(mode_ == Mode::add ? 40180 : 51270, "an empty object is not a valid value");
      }
      for (const Element& element : value.as_document()) {
        if (element.name.starts_with('$')) {
          return Error(16410, join("FieldPath field names may not start with '$'. Got '",
                                   element.name, "'"));
        }
        SPILLWAY_TRY(rest, split_field_path(element.name));
        std::vector<std::string> whole = path;
        whole.insert(whole.end(), rest->begin(), rest->end());
        if (whole.size() > path_parts_max) return Error(ErrorCode::overflow, "the specification is nested too deeply");
        if (auto added = add(root, whole, element); !added) return added;
      }
      return {};
    }
    if (mode_ != Mode::add && is_switch(value)) {
      const bool is_id = path.size() == 1 && path[0] == "_id";
      const bool keep = value.truthy();
      if (mode_ == Mode::exclude && keep && is_id) {
        return {};  // {a: 0, _id: 1}
      }
      return add_leaf(root, path, 0, keep ? Child::Kind::keep : Child::Kind::drop, nullptr);
    }
    SPILLWAY_TRY(expression, parse_expression(value, scope_));
    return add_leaf(root, path, 0, Child::Kind::computed, std::move(*expression));
  }

  Mode mode_;
  const ParseScope& scope_;
};

}  // namespace

Result<Projection> Projection::parse_project(DocView spec, const ParseScope& scope) {
  if (spec.empty()) {
    return Error(51272,
                 "Invalid $project :: caused by :: projection specification must have at "
                 "least one field");
  }
  ModeFinder finder;
  if (auto found = finder.look(spec, ""); !found) return found.error();
  Projection projection(finder.mode());
  SPILLWAY_TRY(built, TreeBuilder(projection.mode_, scope).add_document(projection.root_, spec));
  std::size_t index = 0;
  if (projection.mode_ == Mode::include && projection.root_.find("_id", &index) == nullptr) {
    projection.root_.add("_id", Child::Kind::keep);
  }
  return projection;
}

Result<Projection> Projection::parse_add_fields(DocView spec, const ParseScope& scope) {
  if (spec.empty()) return Error(40177, "specification must have at least one field");
  Projection projection(Mode::add);
  if (auto built = TreeBuilder(Mode::add, scope).add_document(projection.root_, spec); !built) return built.error();
  return projection;
}

Result<Projection> Projection::parse_unset(ValueView spec, const ParseScope& scope) {
  Projection projection(Mode::exclude);
  TreeBuilder builder(Mode::exclude, scope);
  const auto add = [&](ValueView name) -> Result<void> {
    if (!name.is_string()) {
      return Error(31120,
                   "$unset specification must be a string or an array containing only string "
                   "values");
    }
    SPILLWAY_TRY(path, split_field_path(name.as_string()));
    return builder.add_leaf(projection.root_, *path, 0, Child::Kind::drop, nullptr);
  };
  if (spec.is_string()) {
    if (auto added = add(spec); !added) return added.error();
    return projection;
  }
  if (!spec.is_array()) return Error(31002, "$unset specification must be a string or an array");
  if (spec.as_document().empty()) {
    return Error(31119,
                 "$unset specification must be a string or an array with at least one field");
  }
  for (const Element& element : spec.as_document()) {
    if (auto added = add(element); !added) return added.error();
  }
  return projection;
}

}  // namespace spillway::pipeline
