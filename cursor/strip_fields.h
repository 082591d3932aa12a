// Documents without fields that only the proxy asked for: $sortKey, or what a sort needs and a projection leaves out.
// Pure. Not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cursor/bson_writer.h"

namespace spillway {

// The document without these dotted paths; arrays on the way are followed. Element by element: REQUIRES that it is valid.
BsonDoc copy_without(DocView document, std::span<const std::string> paths);

// What stands before the last element, encoded, if that element is the only one of this name at its level: the document
// without it, in one piece. nullopt: it is not there, not the last, not the only one, or an element before it is damaged.
std::optional<Bytes> elements_before_last(DocView document, std::string_view name) noexcept;

}  // namespace spillway
