// Converts the scalars of a YAML file to BSON values, written as Extended JSON v2; text in, text out. Plain scalars
// follow YAML 1.2's core schema: `no` and `off` are strings.
#pragma once

#include <string>
#include <string_view>

#include "cursor/error.h"

namespace spillway::catalog {

// A JSON string literal.
std::string json_string(std::string_view text);

// The canonical Extended JSON of a plain (unquoted) YAML scalar. BadValue(2) for an integer that
// does not fit 64 bits.
Result<std::string> json_of_plain_scalar(std::string_view text);

// [-+]?[0-9]+
bool is_integer_text(std::string_view text) noexcept;

// Extended JSON of {$uuid: text}, which old parsers do not know.
Result<std::string> json_of_uuid(std::string_view text);

}  // namespace spillway::catalog
