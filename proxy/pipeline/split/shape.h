// The form of a pipeline without its values, to recognize one that was asked about before.
#pragma once

#include <cstdint>

#include "cursor/bson_view.h"

namespace spillway::pipeline {

// A hash of names, types, field paths and the signs of numbers, at every depth. Equal for pipelines that differ in
// other values only. Valid only inside the process. `pipeline` is valid BSON.
std::uint64_t shape_of(DocView pipeline) noexcept;

}  // namespace spillway::pipeline
