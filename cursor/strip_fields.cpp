#include "cursor/strip_fields.h"

#include <vector>

namespace spillway {

namespace {

using Paths = std::span<const std::string_view>;

void strip_document(BsonWriter& out, DocView document, Paths paths);

void strip_value(BsonWriter& out, const Element& field, Paths below) {
  if (field.is_document()) {
    out.begin_document(field.name);
    strip_document(out, field.as_document(), below);
    out.end();
  } else if (field.is_array()) {
    out.begin_array(field.name);
    for (auto at = field.as_document().begin(); !at.done(); ++at) {
      if (at->is_document() || at->is_array()) {
        strip_value(out, *at, below);
      } else {
        out.append_element(*at);
      }
    }
    out.end();
  } else {
    out.append_element(field);
  }
}

void strip_document(BsonWriter& out, DocView document, Paths paths) {
  for (auto at = document.begin(); !at.done(); ++at) {
    bool drop = false;
    std::vector<std::string_view> below;
    for (const std::string_view path : paths) {
      const std::size_t dot = path.find('.');
      if (path.substr(0, dot) != at->name) continue;
      if (dot == std::string_view::npos) {
        drop = true;
      } else {
        below.push_back(path.substr(dot + 1));
      }
    }
    if (drop) continue;
    if (below.empty()) {
      out.append_element(*at);
    } else {
      strip_value(out, *at, below);
    }
  }
}

}  // namespace

BsonDoc copy_without(DocView document, std::span<const std::string> paths) {
  const std::vector<std::string_view> views(paths.begin(), paths.end());
  BsonWriter out;
  strip_document(out, document, views);
  return std::move(out).finish();
}

std::optional<Bytes> elements_before_last(DocView document, const Element& found) noexcept {
  const std::uint8_t* const end = document.data() + document.size() - 1;
  if (!found.exists() || found.raw.data() + found.raw.size() != end) return std::nullopt;
  return Bytes(document.data() + 4, found.raw.data());
}

}  // namespace spillway
