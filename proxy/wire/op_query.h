// OP_QUERY and OP_REPLY, which live on for the first hello of a connection, and OP_KILL_CURSORS.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/wire/message.h"

namespace spillway::wire {

// Views into the message's bytes.
struct OpQuery {
  std::int32_t flags = 0;
  std::string_view collection;  // "admin.$cmd"
  std::int32_t skip = 0;
  std::int32_t to_return = 0;
  DocView query;

  // Is it a command (and not a legacy find)?
  bool is_command() const noexcept { return collection.ends_with(".$cmd"); }
  std::string_view database() const noexcept { return collection.substr(0, collection.find('.')); }
};

// The whole message, header included. Checks framing and the top level of the query.
Result<OpQuery> parse_op_query(Bytes whole_message);

// The command inside {$query: {…}, $readPreference: …}; a document without that wrapper is itself.
DocView unwrap_query(DocView query) noexcept;

// Is this the one kind of command that OP_QUERY may still carry: hello or isMaster (isMaster in any casing)?
// `command` is unwrapped.
bool is_hello_command(DocView command) noexcept;

// A complete OP_REPLY with one document (flags AwaitCapable) as the only content of `out`.
void encode_op_reply(std::vector<std::uint8_t>& out, std::int32_t request_id,
                     std::int32_t response_to, DocView document);

// The answer to a query that is no command and cannot be done: {$err, code} with the flag QueryFailure. Without the
// flag a client would take it for a result.
void encode_query_failure(std::vector<std::uint8_t>& out, std::int32_t request_id,
                          std::int32_t response_to, const Error& error);

// OP_KILL_CURSORS, which has no reply: the ids, eight bytes each. Drivers may send it where hello says less than 14.
Result<Bytes> parse_op_kill_cursors(Bytes whole_message);

}  // namespace spillway::wire
