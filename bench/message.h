// Message frames of MongoDB's wire protocol, as far as the benches speak it: OP_MSG both ways,
// OP_QUERY and OP_REPLY for the first hello of old-fashioned drivers.
// Source: the wire protocol's specification, "OP_MSG" and "OP_QUERY".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/bson_bytes.h"

namespace spillway::bench {

constexpr std::size_t header_bytes = 16;
constexpr std::size_t message_bytes_max = 48'000'000;
constexpr std::int32_t op_query = 2004;
constexpr std::int32_t op_msg = 2013;
constexpr std::uint32_t flag_checksum_present = 1U << 0;
constexpr std::uint32_t flag_more_to_come = 1U << 1;

struct MessageHeader {
  std::int32_t bytes = 0;
  std::int32_t request_id = 0;
  std::int32_t response_to = 0;
  std::int32_t opcode = 0;

  bool plausible() const noexcept {
    return bytes >= static_cast<std::int32_t>(header_bytes) &&
           bytes <= static_cast<std::int32_t>(message_bytes_max);
  }
};

inline MessageHeader load_header(const char* at) noexcept { return load_bytes<MessageHeader>(at); }

// Everything of an OP_MSG that comes before the first section's document.
constexpr std::size_t op_msg_prefix_bytes = header_bytes + 4 + 1;

// Appends the prefix of an OP_MSG whose body (kind 0) and other sections take `payload_bytes`.
void append_op_msg_prefix(std::string& out, std::size_t payload_bytes, std::int32_t request_id,
                          std::int32_t response_to);

// A request in its parts. Views into the message.
struct RequestView {
  std::string_view body;               // the command
  std::size_t sequence_documents = 0;  // in all kind-1 sections
  bool legacy_hello = false;           // an OP_QUERY, to be answered by OP_REPLY
  bool wants_reply = true;
};
// Reads a whole message, header included: nullopt if it is malformed or of another kind.
std::optional<RequestView> read_request(std::string_view message) noexcept;

}  // namespace spillway::bench
