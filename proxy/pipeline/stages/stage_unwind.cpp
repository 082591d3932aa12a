// $unwind: a document per element of an array.

#include "proxy/pipeline/stages/stage.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

struct UnwindSpec {
  std::vector<std::string> path;
  std::vector<std::string> index_path;  // includeArrayIndex; empty: none
  bool preserve = false;
};

using PathAt = std::pair<const std::string*, const std::string*>;  // the rest of a path

// Writes `doc` with the value at `path` replaced, appended if it is absent, or removed if `value`
// is missing. Never goes through arrays: a non-document on the way is replaced.
void write_with(DocView doc, PathAt path, ValueView value, BsonWriter& out) {
  const auto [at, end] = path;
  const bool last = at + 1 == end;
  bool found = false;
  const auto write_inner = [&](DocView inner) {
    out.begin_document(*at);
    write_with(inner, {at + 1, end}, value, out);
    out.end();
  };
  for (const Element& element : doc) {
    if (found || element.name != *at) {
      out.append_element(element);
      continue;
    }
    found = true;
    if (last) {
      if (value.exists()) out.append(*at, value);
    } else if (element.is_document()) {
      write_inner(element.as_document());
    } else if (value.exists()) {
      write_inner(DocView());
    } else {
      out.append_element(element);
    }
  }
  if (!found && value.exists()) {
    if (last) {
      out.append(*at, value);
    } else {
      write_inner(DocView());
    }
  }
}

class UnwindStage final : public Stage {
 public:
  explicit UnwindStage(UnwindSpec spec) : spec_(std::move(spec)) {}
  std::string_view name() const noexcept override { return "$unwind"; }

  Result<void> push(DocView doc, Sink& next) override {
    ValueView value{BsonType::document, doc.bytes()};
    for (const std::string& part : spec_.path) {  // documents only
      value = value.is_document() ? value.as_document()[part] : ValueView();
    }
    if (value.is_array() && !value.as_document().empty()) {
      if (auto charged = meter().charge(doc.size()); !charged) return charged;
      const std::ptrdiff_t array = value.bytes.data() - doc.data();
      doc_ = BsonDoc(doc);
      at_ = DocView::trusted(doc_.view().data() + array).begin();
      index_ = 0;
      return {};
    }
    const bool nothing =
        !value.exists() || value.is_null() || value.is_array() || value.type == BsonType::undefined;
    if (nothing && !spec_.preserve) {
      return {};
    }
    if (value.is_array()) {  // empty: the field is removed
      return push_one(doc, ValueView(), Value::null(), next);
    }
    if (spec_.index_path.empty()) return next.push(doc);
    return push_one(doc, value, Value::null(), next);
  }

  bool is_full() const noexcept override { return !at_.done(); }
  Result<bool> emit(Sink& next) override {
    if (at_.done()) return false;
    if (auto pushed = push_one(doc_, *at_, Value::of(index_++), next); !pushed) return pushed.error();
    if ((++at_).done()) {
      meter().credit(doc_.size());
      doc_ = BsonDoc();
    }
    return true;
  }

 private:
  Result<void> push_one(DocView doc, ValueView value, const Value& index, Sink& next) {
    const MeterScope scope(meter());
    if (auto charged = meter().charge(doc.size()); !charged) return charged;
    BsonWriter writer;
    write_with(doc, {spec_.path.data(), spec_.path.data() + spec_.path.size()}, value, writer);
    BsonDoc out = std::move(writer).finish();
    if (!spec_.index_path.empty()) {
      BsonWriter indexed;
      write_with(out, {spec_.index_path.data(), spec_.index_path.data() + spec_.index_path.size()},
                 index.view(), indexed);
      out = std::move(indexed).finish();
    }
    return spec_.index_path.empty() ? next.push(out) : next.push_built(out);
  }

  UnwindSpec spec_;
  // The document that is being unwound, and the position in it.
  BsonDoc doc_;
  DocIterator at_;
  std::int64_t index_ = 0;
};

Result<std::vector<std::string>> parse_path(ValueView value) {
  if (!value.is_string()) {
    return Error(28808, join("expected a string as the path for $unwind stage, got ",
                             bson_type_name(value.type)));
  }
  const std::string_view path = value.as_string();
  if (path.empty()) return Error(28812, "no path specified to $unwind stage");
  if (!path.starts_with('$')) {
    return Error(28818, join("path option to $unwind stage should be prefixed with a '$': ", path));
  }
  return split_field_path(path.substr(1));
}

Result<UnwindSpec> parse_short(ValueView value) {
  auto path = parse_path(value);
  return path ? Result<UnwindSpec>(UnwindSpec{std::move(*path), {}, false}) : path.error();
}

Result<UnwindSpec> parse_object(DocView doc) {
  UnwindSpec spec;
  for (const Element& element : doc) {
    if (element.name == "path") {
      SPILLWAY_TRY(path, parse_path(element));
      spec.path = std::move(*path);
    } else if (element.name == "preserveNullAndEmptyArrays") {
      if (element.type != BsonType::boolean) {
        return Error(28809, join("expected a boolean for the preserveNullAndEmptyArrays "
                                 "option to $unwind stage, got ",
                                 bson_type_name(element.type)));
      }
      spec.preserve = element.as_bool();
    } else if (element.name == "includeArrayIndex") {
      if (!element.is_string() || element.as_string().empty()) {
        return Error(28810, join("expected a non-empty string for the includeArrayIndex "
                                 " option to $unwind stage, got ",
                                 bson_type_name(element.type)));
      }
      if (element.as_string().starts_with('$')) {
        return Error(28822, join("includeArrayIndex option to $unwind stage should not be "
                                 "prefixed with a '$': ",
                                 element.as_string()));
      }
      SPILLWAY_TRY(path, split_field_path(element.as_string()));
      spec.index_path = std::move(*path);
    } else {
      return Error(28811, join("unrecognized option to $unwind stage: ", element.name));
    }
  }
  if (spec.path.empty()) return Error(28812, "no path specified to $unwind stage");
  return spec;
}

}  // namespace

Result<StagePtr> parse_unwind_stage(ValueView value, const ParseScope&) {
  if (!value.is_document() && !value.is_string()) {
    return Error(15981, join("expected either a string or an object as specification for "
                             "$unwind stage, got ",
                             bson_type_name(value.type)));
  }
  SPILLWAY_TRY(spec, value.is_document() ? parse_object(value.as_document()) : parse_short(value));
  return std::make_unique<UnwindStage>(std::move(*spec));
}

}  // namespace spillway::pipeline
