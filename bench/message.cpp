#include "bench/message.h"

namespace spillway::bench {
namespace {

template <class T>
void append_value(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The document at the front of `bytes`, or nullopt.
std::optional<std::string_view> front_document(std::string_view bytes) noexcept {
  const auto size = value_bytes(bson::document_type, bytes.data(), bytes.size());
  if (!size) return std::nullopt;
  return bytes.substr(0, *size);
}

// Counts the documents of a kind-1 section's content (after its length field).
std::optional<std::size_t> count_sequence(std::string_view content) noexcept {
  const auto name_end = content.find('\0');
  if (name_end == std::string_view::npos) return std::nullopt;
  content.remove_prefix(name_end + 1);
  std::size_t count = 0;
  while (!content.empty()) {
    const auto document = front_document(content);
    if (!document) return std::nullopt;
    content.remove_prefix(document->size());
    ++count;
  }
  return count;
}

std::optional<RequestView> read_sections(std::string_view rest, RequestView request) noexcept {
  while (!rest.empty()) {
    const char kind = rest[0];
    rest.remove_prefix(1);
    if (kind == 0) {
      const auto document = front_document(rest);
      if (!document || !request.body.empty()) return std::nullopt;
      request.body = *document;
      rest.remove_prefix(document->size());
      continue;
    }
    if (kind != 1 || rest.size() < 4) return std::nullopt;
    const auto declared = load_bytes<std::int32_t>(rest.data());
    if (declared < 5 || static_cast<std::size_t>(declared) > rest.size()) return std::nullopt;
    const auto size = static_cast<std::size_t>(declared);
    const auto count = count_sequence(rest.substr(4, size - 4));
    if (!count) return std::nullopt;
    request.sequence_documents += *count;
    rest.remove_prefix(size);
  }
  if (request.body.empty()) return std::nullopt;
  return request;
}

std::optional<RequestView> read_query(std::string_view rest) noexcept {
  if (rest.size() < 4) return std::nullopt;
  rest.remove_prefix(4);
  const auto name_end = rest.find('\0');
  if (name_end == std::string_view::npos || rest.size() < name_end + 1 + 8) return std::nullopt;
  const auto document = front_document(rest.substr(name_end + 1 + 8));
  if (!document) return std::nullopt;
  return RequestView{*document, 0, true, true};
}

}  // namespace

void append_op_msg_prefix(std::string& out, std::size_t payload_bytes, std::int32_t request_id,
                          std::int32_t response_to) {
  append_value(out, MessageHeader{static_cast<std::int32_t>(op_msg_prefix_bytes + payload_bytes),
                                  request_id, response_to, op_msg});
  out.append(5, '\0');  // flag bits, then kind 0
}

std::optional<RequestView> read_request(std::string_view message) noexcept {
  if (message.size() < header_bytes + 4) return std::nullopt;
  const auto header = load_header(message.data());
  std::string_view rest = message.substr(header_bytes);
  if (header.opcode == op_query) return read_query(rest);
  if (header.opcode != op_msg) return std::nullopt;
  const auto flags = load_bytes<std::uint32_t>(rest.data());
  rest.remove_prefix(4);
  constexpr std::uint32_t required_unknown = 0xffffU & ~(flag_checksum_present | flag_more_to_come);
  if ((flags & required_unknown) != 0) return std::nullopt;
  if ((flags & flag_checksum_present) != 0) {
    if (rest.size() < 4) return std::nullopt;
    rest.remove_suffix(4);
  }
  RequestView request;
  request.wants_reply = (flags & flag_more_to_come) == 0;
  return read_sections(rest, request);
}

}  // namespace spillway::bench
