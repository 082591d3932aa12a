#include "cursor/sort_pattern.h"

#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <cmath>

#include "allocator/limits.h"
#include "cursor/bson_order.h"

namespace spillway {

namespace {

// Keys considered for one document; more than its 16 MiB hold unless positions multiply them.
constexpr std::size_t keys_per_document_max = 4'000'000;

// --- parsing

Result<void> check_path(std::string_view path) {
  if (path.empty()) return Error(40352, "FieldPath cannot be constructed with empty string");
  if (path.back() == '.') return Error(40353, "FieldPath must not end with a '.'.");
  const auto dots = std::ranges::count(path, '.');
  if (dots >= limits::bson_depth_max) return Error(ErrorCode::overflow, "FieldPath is too long");
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (name.empty()) return Error(15998, "FieldPath field names may not be empty strings.");
    if (name.front() == '$' && name != "$id" && name != "$ref" && name != "$db") {
      return Error(16410, "FieldPath field names may not start with '$'. Found: '" +
                              std::string(name) + "'");
    }
  }
  return {};
}

Result<SortPattern::Part> parse_part(const Element& element) {
  SortPattern::Part part;
  part.path = element.name;
  if (element.is_document()) {
    const DocView spec = element.as_document();
    const Element meta = spec.first();
    if (meta.name != "$meta" || !meta.is_string() || spec.count() != 1) {
      return Error(
          15974, "Illegal key in $sort specification: " + part.path + ": " + to_json(element, 200));
    }
    part.meta = part.descending = true;
    return part;
  }
  const std::optional<double> direction = element.to_double();
  if (!direction) {
    return Error(15974,
                 "Illegal key in $sort specification: " + part.path + ": " + to_json(element, 200));
  }
  const double whole = std::trunc(*direction);
  if (whole != 1 && whole != -1) {
    return Error(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
  }
  part.descending = whole < 0;
  if (auto checked = check_path(part.path); checked.has_error()) return checked.error();
  return part;
}

// --- keys of documents

// Follows a dotted path through documents until it ends or stands at an array; `path` becomes what
// is left of it. Missing: eoo.
Element find_or_array(DocView doc, std::string_view& path) noexcept {
  for (;;) {
    const std::size_t dot = path.find('.');
    const Element element = doc.find(path.substr(0, dot));
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
    if (path.empty() || element.is_array()) return element;
    if (!element.is_document()) return {};
    doc = element.as_document();
  }
}

constexpr ValueView null_value{BsonType::null, {}};

// Enumerates the keys of a document with arrays on its paths and keeps the least.
class ArrayKeys {
 public:
  // The unfinished rest of each part's path, or its value.
  struct Field {
    std::string_view rest;  // empty: `value` is final
    ValueView value;
    bool in_array = false;  // stands at the array that is being expanded
  };
  // What a path that goes on with a position finds in the array, looked up once for all its
  // elements.
  struct Position {
    bool given = false;
    std::string_view rest;
    ValueView value;
    bool to_array = false;
  };
  using Fields = absl::InlinedVector<Field, 4>;
  using Positions = absl::InlinedVector<Position, 4>;

  explicit ArrayKeys(const std::vector<SortPattern::Part>& parts) : parts_(parts) {}

  Result<std::string> least(DocView document) {
    Fields fields(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) fields[i].rest = parts_[i].path;
    const Positions none(parts_.size());
    if (auto expanded = expand(std::move(fields), document, none); expanded.has_error()) {
      return expanded.error();
    }
    return std::move(least_);
  }

 private:
  struct Array {
    ValueView value;      // eoo: no path met an array
    bool expands = true;  // false: an array as a positional element counts as a whole
  };

  Result<void> expand(Fields fields, DocView doc, const Positions& positions) {
    Array array;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].rest.empty()) continue;
      SPILLWAY_TRY(advanced, advance(fields[i], doc, positions[i], array));
    }
    if (!array.value.exists()) return consider(fields);
    const DocView elements = array.value.as_document();
    if (elements.begin().done()) {
      const Positions none(fields.size());
      return expand_element(fields, {BsonType::undefined, {}}, none);
    }
    const Positions inner = find_positions(fields, elements);
    for (const Element& element : elements) {
      const ValueView terminal = array.expands ? ValueView(element) : array.value;
      SPILLWAY_TRY(expanded, expand_element(fields, terminal, inner, &element));
    }
    return {};
  }

  // One step of a path: to its end, to nothing, or to an array, which all paths must share.
  static Result<void> advance(Field& field, DocView doc, const Position& position, Array& array) {
    field.in_array = false;
    const bool named = doc.find(field.rest.substr(0, field.rest.find('.'))).exists();
    ValueView found;
    bool nested = false;
    if (named) {
      if (position.given) {
        return Error(16746,
                     "Ambiguous field name found in array (do not use numeric field names in "
                     "embedded elements in an array), field: '" +
                         std::string(field.rest) + "'");
      }
      found = find_or_array(doc, field.rest);
    } else if (position.given) {
      found = position.value;
      field.rest = position.rest;
      nested = position.to_array;
    }
    if (!found.exists()) {
      field.rest = {};
      field.value = null_value;
    } else if (!found.is_array()) {
      field.value = found;
    } else {
      if (array.value.exists() && array.value.bytes.data() != found.bytes.data()) {
        return Error(ErrorCode::bad_value, "cannot sort with keys that are parallel arrays");
      }
      array.value = found;
      field.in_array = true;
      if (nested) array.expands = false;
    }
    return {};
  }

  static Positions find_positions(const Fields& fields, DocView elements) {
    Positions positions(fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::string_view rest = fields[i].rest;
      if (rest.empty() || rest.front() < '0' || rest.front() > '9') continue;
      const Element at = elements.find(rest.substr(0, rest.find('.')));
      if (!at.exists()) continue;
      positions[i] = {true, rest, {}, at.is_array()};
      positions[i].value = find_or_array(elements, positions[i].rest);
    }
    return positions;
  }

  // `terminal` is the value of the paths that end at the array; the others go on in `element`.
  Result<void> expand_element(Fields fields, ValueView terminal, const Positions& positions,
                              const Element* element = nullptr) {
    for (Field& field : fields) {
      if (field.in_array && field.rest.empty()) field.value = terminal;
      field.in_array = false;
    }
    const bool inside = element != nullptr && element->is_document();
    return expand(std::move(fields), inside ? element->as_document() : DocView(), positions);
  }

  Result<void> consider(const Fields& fields) {
    if (++considered_ > keys_per_document_max) {
      return Error(ErrorCode::operation_failed, "a document has too many keys of this sort");
    }
    candidate_.clear();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      append_order_key(candidate_, fields[i].value, parts_[i].descending);
    }
    if (considered_ == 1 || candidate_ < least_) std::swap(least_, candidate_);
    return {};
  }

  const std::vector<SortPattern::Part>& parts_;
  std::string candidate_;
  std::string least_;
  std::size_t considered_ = 0;
};

}  // namespace

Result<SortPattern> SortPattern::parse(DocView sort) {
  SortPattern pattern;
  DocIterator at = sort.begin();
  for (; !at.done(); ++at) {
    if (at->name == "$natural") {
      if (sort.count() != 1) {
        return Error(ErrorCode::bad_value, "Cannot include '$natural' in compound sort");
      }
      const std::optional<double> direction = at->to_double();
      if (!direction || (*direction != 1 && *direction != -1)) {
        return Error(ErrorCode::bad_value, "$natural sort must be 1 or -1");
      }
      continue;
    }
    SPILLWAY_TRY(part, parse_part(*at));
    pattern.parts_.push_back(*std::move(part));
  }
  if (at.malformed()) return Error(ErrorCode::invalid_bson, "Malformed sort document");
  const std::vector<Part>& parts = pattern.parts_;
  pattern.one_field_ = parts.size() == 1 && !parts[0].meta && parts[0].path.find('.') == std::string::npos;
  return pattern;
}

SortPattern SortPattern::by_distance() {
  SortPattern pattern;
  pattern.parts_.push_back({.path = "$sortKey", .descending = false, .meta = true});
  pattern.by_distance_ = true;
  return pattern;
}

bool SortPattern::has_meta() const noexcept {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.meta; });
}

Result<void> SortPattern::append_key(std::string& out, DocView document) const {
  if (has_meta()) {
    return Error(ErrorCode::command_not_supported,
                 "a sort by $meta needs shards that send their sort keys");
  }
  const std::size_t start = out.size();
  // The server takes the keys of a sort as an index with that pattern would, and its index on _id alone holds each
  // value as a whole: a stored _id is never an array. A group's, or a computed one, may be.
  if (parts_.size() == 1 && parts_[0].path == "_id") {
    const Element id = document.find("_id");
    append_order_key(out, id.exists() ? ValueView(id) : null_value, parts_[0].descending);
    return {};
  }
  for (const Part& part : parts_) {
    std::string_view path = part.path;
    const Element found = find_or_array(document, path);
    if (found.is_array()) {  // rare: begin again, with all combinations
      out.resize(start);
      SPILLWAY_TRY(least, ArrayKeys(parts_).least(document));
      out += *least;
      return {};
    }
    append_order_key(out, found.exists() ? ValueView(found) : null_value, part.descending);
  }
  return {};
}

Result<void> SortPattern::append_key_from_sort_key(std::string& out, ValueView sort_key) const {
  if (by_distance_) {
    if (!sort_key.is_number()) {
      return Error(ErrorCode::internal_error, "$sortKey is not a distance but " +
                                                  std::string(bson_type_name(sort_key.type)));
    }
    append_order_key(out, sort_key, false);
    return {};
  }
  if (!sort_key.is_array() && !sort_key.is_document()) {
    return Error(ErrorCode::internal_error, "$sortKey is not an array or object but " +
                                                std::string(bson_type_name(sort_key.type)));
  }
  const std::size_t start = out.size();
  std::size_t i = 0;
  DocIterator at = sort_key.as_document().begin();
  for (; !at.done() && i < parts_.size(); ++at, ++i) {
    append_order_key(out, *at, parts_[i].descending);
  }
  if (i == parts_.size() && at.done() && !at.malformed()) return {};
  out.resize(start);
  return Error(ErrorCode::internal_error,
               "$sortKey does not have one value for each field of the sort");
}

std::optional<KeyBeginning> SortPattern::short_key(DocView document) const noexcept {
  if (!one_field_) return std::nullopt;
  const Element found = document.find(parts_[0].path);
  return short_order_key(found.exists() ? ValueView(found) : null_value, parts_[0].descending);
}

std::optional<KeyBeginning> SortPattern::short_key_from_sort_key(ValueView sort_key) const noexcept {
  if (by_distance_) return sort_key.is_number() ? short_order_key(sort_key) : std::nullopt;
  if (parts_.size() != 1 || (!sort_key.is_array() && !sort_key.is_document())) return std::nullopt;
  const DocView values = sort_key.as_document();
  const Element value = values.first();
  return value.raw.size() + 5 == values.size() ? short_order_key(value, parts_[0].descending) : std::nullopt;
}

}  // namespace spillway
