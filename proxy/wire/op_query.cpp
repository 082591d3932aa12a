#include "proxy/wire/op_query.h"

#include <algorithm>
#include <utility>

#include "cursor/bson_writer.h"

namespace spillway::wire {
namespace {

constexpr std::int32_t reply_flag_query_failure = 2;
constexpr std::int32_t reply_flag_await_capable = 8;
constexpr std::size_t reply_envelope_bytes = limits::message_header_bytes + 20;

Error bad_query(const char* what) { return Error(ErrorCode::protocol_error, what); }

Result<DocView> parse_checked_document(Bytes bytes) {
  Result<DocView> document = DocView::parse(bytes);
  if (!document) return document;
  if (document->size() > limits::internal_document_bytes_max) {
    return Error(ErrorCode::bson_object_too_large, "BSON document is too large");
  }
  DocIterator it = document->begin();
  while (!it.done()) ++it;
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the document of the message is not valid BSON");
  return document;
}

bool length_matches(Bytes message) {
  return message.size() >= limits::message_header_bytes &&
         static_cast<std::size_t>(load_le<std::uint32_t>(message.data())) == message.size();
}

void append_query_bytes(std::vector<std::uint8_t>& out, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  out.insert(out.end(), bytes, bytes + size);
}

void encode_reply(std::vector<std::uint8_t>& out, std::int32_t flags, std::int32_t request_id,
                  std::int32_t response_to, DocView document) {
  out.assign(reply_envelope_bytes, 0);
  write_header(out.data(), {static_cast<std::int32_t>(reply_envelope_bytes + document.size()),
                            request_id, response_to, static_cast<std::int32_t>(OpCode::reply)});
  store_le(out.data() + 16, flags);
  store_le(out.data() + 20, std::int64_t{0});  // cursor
  store_le(out.data() + 28, std::int32_t{0});  // starting from
  store_le(out.data() + 32, std::int32_t{1});  // documents
  append_query_bytes(out, document.data(), document.size());
}

}  // namespace

Result<Bytes> parse_op_kill_cursors(Bytes whole_message) {
  constexpr std::size_t ids_offset = limits::message_header_bytes + 8;  // a zero, how many
  constexpr std::size_t ids_max = 29'999;
  if (!length_matches(whole_message) || whole_message.size() < ids_offset)
    return bad_query("OP_KILL_CURSORS: bad length");
  const Bytes ids = whole_message.subspan(ids_offset);
  const std::size_t count = load_le<std::uint32_t>(whole_message.data() + limits::message_header_bytes + 4);
  if (count == 0 || count > ids_max || ids.size() != count * sizeof(std::int64_t))
    return bad_query("OP_KILL_CURSORS: bad number of cursors");
  return ids;
}

Result<OpQuery> parse_op_query(Bytes whole_message) {
  if (!length_matches(whole_message)) return bad_query("OP_QUERY with a wrong length");
  Bytes rest = whole_message.subspan(limits::message_header_bytes);
  if (rest.size() < 4) return bad_query("OP_QUERY too short for its flags");
  OpQuery result;
  result.flags = load_le<std::int32_t>(rest.data());
  rest = rest.subspan(4);
  const auto nul = std::find(rest.begin(), rest.end(), std::uint8_t{0});
  if (nul == rest.end()) return bad_query("OP_QUERY whose collection name does not end");
  const auto name_size = static_cast<std::size_t>(nul - rest.begin());
  result.collection = {reinterpret_cast<const char*>(rest.data()), name_size};
  rest = rest.subspan(name_size + 1);
  if (rest.size() < 8) return bad_query("OP_QUERY too short for its counts");
  result.skip = load_le<std::int32_t>(rest.data());
  result.to_return = load_le<std::int32_t>(rest.data() + 4);
  rest = rest.subspan(8);
  Result<DocView> query = parse_checked_document(rest);
  if (!query) return std::move(query).error();
  result.query = *query;
  rest = rest.subspan(query->size());
  if (!rest.empty()) {  // a projection, which commands do not use
    Result<DocView> fields = DocView::parse(rest);
    if (!fields || fields->size() != rest.size()) return bad_query("OP_QUERY with bytes after its query");
  }
  return result;
}

DocView unwrap_query(DocView query) noexcept {
  const Element first = query.first();
  const bool wrapped = first.is_document() && (first.name == "$query" || first.name == "query");
  return wrapped ? first.as_document() : query;
}

bool is_hello_command(DocView command) noexcept {
  const std::string_view name = command.first().name;
  const auto same_letter = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  };
  constexpr std::string_view legacy = "ismaster";
  return name == "hello" ||
         std::equal(name.begin(), name.end(), legacy.begin(), legacy.end(), same_letter);
}

void encode_op_reply(std::vector<std::uint8_t>& out, std::int32_t request_id,
                     std::int32_t response_to, DocView document) {
  encode_reply(out, reply_flag_await_capable, request_id, response_to, document);
}

void encode_query_failure(std::vector<std::uint8_t>& out, std::int32_t request_id,
                          std::int32_t response_to, const Error& error) {
  BsonWriter document;
  document.append("$err", error.message).append("code", error.code);
  const BsonDoc failure = std::move(document).finish();
  encode_reply(out, reply_flag_query_failure | reply_flag_await_capable, request_id, response_to, failure);
}

}  // namespace spillway::wire
