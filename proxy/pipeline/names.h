// The names that the server knows: separates unsupported names (115) from mistakes.
#pragma once

#include <string_view>

namespace spillway::pipeline {

bool is_known_stage(std::string_view name) noexcept;
bool is_known_expression(std::string_view name) noexcept;
bool is_known_accumulator(std::string_view name) noexcept;
bool is_known_query_operator(std::string_view name) noexcept;

}  // namespace spillway::pipeline
