#include "proxy/pipeline/stages/projection.h"

#include "allocator/limits.h"

namespace spillway::pipeline {
namespace {

using Child = ProjectionNode::Child;
using Mode = Projection::Mode;

// One application to one document.
class Applier {
 public:
  Applier(Mode mode, EvalContext& context) : mode_(mode), context_(context) {}

  // Writes the fields of `doc` after `node` into the open document.
  Result<void> fields(const ProjectionNode& node, DocView doc, BsonWriter& out) {
    if (out.depth() >= limits::bson_depth_max) return too_deep_error();
    // An array may hold millions of documents, and a projection thousands of fields.
    constexpr std::size_t children_per_step = 64;
    const std::size_t steps = 1 + node.children.size() / children_per_step + node.computing.size();
    if (!context_.meter.spend(steps)) return too_many_steps_error();
    std::vector<bool> seen(node.children.size());
    for (const Element& element : doc) {
      std::size_t index = 0;
      const Child* child = node.find(element.name, &index);
      if (child == nullptr) {
        if (mode_ != Mode::include) out.append_element(element);
        continue;
      }
      if (auto done = known_field(*child, element, seen, index, out); !done) return done;
      if (out.size() > value_bytes_max) return too_large_error();
    }
    return absent_fields(node, seen, out);
  }

 private:
  Result<void> known_field(const Child& child, const Element& element, std::vector<bool>& seen,
                           std::size_t index, BsonWriter& out) {
    switch (child.kind) {
      case Child::Kind::keep:
        out.append_element(element);
        return {};
      case Child::Kind::drop:
        return {};
      case Child::Kind::computed:
        if (mode_ == Mode::include) {
          return {};  // computed fields follow the kept ones
        }
        seen[index] = true;
        return computed(child, out);
      default:
        break;
    }
    if (element.is_document() || element.is_array()) {
      seen[index] = true;
      return nested(*child.node, element.name, element, out);
    }
    if (mode_ == Mode::exclude) {
      out.append_element(element);
    } else if (child.node->has_computed) {  // a scalar is replaced by the document that is set in it, in its place
      seen[index] = true;
      return empty_with_computed(child, out);
    }
    return {};
  }

  Result<void> computed(const Child& child, BsonWriter& out) {
    SPILLWAY_TRY(value, child.expression->evaluate(context_));
    if (!value->missing()) {
      if (out.size() + value->view().bytes.size() > value_bytes_max) return too_large_error();
      out.append(child.name, value->view());
    }
    return {};
  }

  Result<void> empty_with_computed(const Child& child, BsonWriter& out) {
    out.begin_document(child.name);
    auto done = fields(*child.node, DocView(), out);
    out.end();
    return done;
  }

  Result<void> nested(const ProjectionNode& node, std::string_view name, ValueView value,
                      BsonWriter& out) {
    if (value.is_document()) {
      out.begin_document(name);
      auto done = fields(node, value.as_document(), out);
      out.end();
      return done;
    }
    out.begin_array(name);
    auto done = items(node, value.as_document(), out);
    out.end();
    return done;
  }

  // The elements of an array, each projected; the array is open.
  Result<void> items(const ProjectionNode& node, DocView array, BsonWriter& out) {
    if (out.depth() >= limits::bson_depth_max) return too_deep_error();
    for (const Element& element : array) {
      Result<void> done;
      if (element.is_document()) {
        out.begin_document_item();
        done = fields(node, element.as_document(), out);
        out.end();
      } else if (element.is_array()) {
        out.begin_array_item();
        done = items(node, element.as_document(), out);
        out.end();
      } else if (mode_ == Mode::exclude) {
        out.append_item(static_cast<const ValueView&>(element));
      } else if (mode_ == Mode::add || node.has_computed) {
        out.begin_document_item();
        done = fields(node, DocView(), out);
        out.end();
      }
      if (!done) return done;
      if (out.size() > value_bytes_max) return too_large_error();
    }
    return {};
  }

  Result<void> absent_fields(const ProjectionNode& node, const std::vector<bool>& seen,
                             BsonWriter& out) {
    for (const std::size_t i : node.computing) {
      const Child& child = node.children[i];
      if (seen[i]) continue;
      Result<void> done;
      if (child.kind == Child::Kind::computed) {
        done = computed(child, out);
      } else {
        done = empty_with_computed(child, out);
      }
      if (!done) return done;
    }
    return {};
  }

  Mode mode_;
  EvalContext& context_;
};

}  // namespace

const Child* ProjectionNode::find(std::string_view name, std::size_t* index) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  *index = found->second;
  return &children[found->second];
}

Child& ProjectionNode::add(std::string_view name, Child::Kind kind) {
  index_.emplace(name, children.size());
  children.push_back({std::string(name), kind, nullptr, nullptr});
  return children.back();
}

Result<BsonDoc> Projection::apply(DocView doc, Meter& meter) const {
  const MeterScope scope(meter);
  if (auto charged = meter.charge(doc.size()); !charged) return charged.error();
  EvalContext context{doc, meter, {}};
  BsonWriter out;
  if (auto done = Applier(mode_, context).fields(root_, doc, out); !done) return done.error();
  if (out.size() >= value_bytes_max) return too_large_error();
  return std::move(out).finish();
}

}  // namespace spillway::pipeline
