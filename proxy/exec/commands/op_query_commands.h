// Commands over OP_QUERY. Since MongoDB 3.6 clients use it only for hello; monitoring programs still use it for more
// (exporters with old drivers). Only their commands are answered.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

inline constexpr std::size_t query_command_bytes_max = 64UL * 1024;

// Logins, commands of monitoring programs, and reads of the database config.
bool is_answered_over_op_query(std::string_view command, std::string_view db) noexcept;

// The command as in an OP_MSG, for handlers and forwarding. The request points into `sections`.
Result<Request> parse_query_command(DocView command, std::string_view db, TimePoint now,
                                    std::vector<std::uint8_t>& sections);

}  // namespace spillway::exec
