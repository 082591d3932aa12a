// Names without a meaning here: CommandNotSupported (115) for those that the server knows, else the server's error.
#pragma once

#include <string_view>

#include "cursor/error.h"

namespace spillway::pipeline {

Error no_stage(std::string_view name);
Error no_expression(std::string_view name);
Error no_accumulator(std::string_view name);
// `otherwise`: the text in front of a name that the server does not know, either.
Error no_query_operator(std::string_view name, std::string_view otherwise);

}  // namespace spillway::pipeline
