// The client's side of OP_QUERY, for hellos of old drivers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "proxy/wire/message.h"

namespace spillway::wire {

inline void encode_op_query(std::vector<std::uint8_t>& out, std::int32_t request_id, std::string_view collection,
                            DocView query) {
  constexpr std::int32_t slave_ok = 4;
  constexpr std::int32_t one_document = -1;
  out.assign(limits::message_header_bytes + 4, 0);
  store_le(out.data() + limits::message_header_bytes, slave_ok);
  out.insert(out.end(), collection.begin(), collection.end());
  out.push_back(0);
  const std::size_t counts_at = out.size();
  out.resize(counts_at + 8);
  store_le(out.data() + counts_at, std::int32_t{0});
  store_le(out.data() + counts_at + 4, one_document);
  out.insert(out.end(), query.data(), query.data() + query.size());
  write_header(out.data(), {static_cast<std::int32_t>(out.size()), request_id, 0,
                            static_cast<std::int32_t>(OpCode::query)});
}

// The first document of an OP_REPLY.
inline Result<DocView> parse_op_reply(Bytes whole_message) {
  constexpr std::size_t envelope_bytes = limits::message_header_bytes + 20;
  if (whole_message.size() < envelope_bytes || load_le<std::uint32_t>(whole_message.data()) != whole_message.size()) {
    return Error(ErrorCode::protocol_error, "OP_REPLY with a wrong length");
  }
  if (load_le<std::int32_t>(whole_message.data() + 32) < 1) {
    return Error(ErrorCode::protocol_error, "OP_REPLY without a document");
  }
  return DocView::parse(whole_message.subspan(envelope_bytes));
}

}  // namespace spillway::wire
