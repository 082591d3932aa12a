// Commands over OP_QUERY. Clients have not used it for them since MongoDB 3.6, but for hello;
// programs that watch servers still do (exporters made with old drivers). What those ask for is
// answered, nothing else.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

inline constexpr std::size_t query_command_bytes_max = 64UL * 1024;

// Logging in, and what programs that watch ask; reads of the database config.
bool is_answered_over_op_query(std::string_view command, std::string_view db) noexcept;

// The answer to getnonce, which old drivers ask for on every connection, for a mechanism that is gone.
BsonDoc nonce_reply();

// The command as an OP_MSG has it: what handlers, and forwarding, expect. The request points into
// `sections`.
Result<Request> parse_query_command(DocView command, std::string_view db, TimePoint now,
                                    std::vector<std::uint8_t>& sections);

}  // namespace spillway::exec
