// Removes fields that the router added: $sortKey, and fields that the sort needs but the projection leaves out.
// Pure. Not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "cursor/bson_writer.h"

namespace spillway {

// The document without these dotted paths, also inside arrays. REQUIRES a valid document.
BsonDoc copy_without(DocView document, std::span<const std::string> paths);

// If `found` is the document's last element: the encoded elements before it. nullopt if it is not the last, or does not
// exist. `found`: of document.find().
std::optional<Bytes> elements_before_last(DocView document, const Element& found) noexcept;

}  // namespace spillway
