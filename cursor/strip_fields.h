// Documents without fields that only the proxy asked for: $sortKey, or what a sort needs and a projection leaves out.
// Pure. Not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cursor/bson_writer.h"

namespace spillway {

// The document without these dotted paths; arrays on the way are followed. Element by element: REQUIRES that it is
// valid.
BsonDoc copy_without(DocView document, std::span<const std::string> paths);

// What stands before `found`, encoded, if that is the document's last element: the document without it, in one piece.
// `found` is what document.find() gave, the first of its name; nullopt, too, if there is none.
std::optional<Bytes> elements_before_last(DocView document, const Element& found) noexcept;

}  // namespace spillway
