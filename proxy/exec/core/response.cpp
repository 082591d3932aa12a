#include "proxy/exec/core/response.h"

namespace spillway::exec {

Response Response::of_buffer(Buffer owner, DocView document) {
  Response response;
  Parts& parts = response.parts();
  parts.pieces.push_back({const_cast<std::uint8_t*>(document.data()), document.size()});
  parts.bytes_before = static_cast<std::size_t>(document.data() - owner.data());
  parts.held.push_back(std::move(owner));
  return response;
}

Response Response::of_stream(StreamReplyPtr stream) {
  Response response;
  response.parts().stream = std::move(stream);
  return response;
}

void Response::set_head(RecycledBytes head) {
  Parts& to = parts();
  to.head = std::move(head);
  to.head_piece = {to.head.data(), to.head.size()};
}

void Response::append_elements(BsonDoc elements) {
  Parts& to = parts();
  if (to.pieces.empty()) to.pieces.push_back(to.head_piece);
  to.appended.push_back(std::move(elements));
  // Without its length: elements, and the document's end.
  const Bytes rest = to.appended.back().view().bytes().subspan(4);
  const auto total = static_cast<std::int32_t>(bytes() - 1 + rest.size());
  store_le(static_cast<std::uint8_t*>(to.pieces.front().iov_base), total);
  to.pieces.back().iov_len -= 1;
  add_piece(rest.data(), rest.size());
}

std::span<const iovec> Response::pieces() const noexcept {
  if (parts_ == nullptr) return {};
  if (!parts_->pieces.empty()) return {parts_->pieces.data(), parts_->pieces.size()};
  return {&parts_->head_piece, 1};
}

std::uint8_t* Response::room_before(std::size_t bytes) const noexcept {
  if (parts_ == nullptr || parts_->bytes_before < bytes) return nullptr;
  return static_cast<std::uint8_t*>(parts_->pieces.front().iov_base) - bytes;
}

BsonDoc Response::copy() const {
  RecycledBytes copied;
  copied.reserve(bytes());
  for (const iovec& piece : pieces()) {
    const auto* const from = static_cast<const std::uint8_t*>(piece.iov_base);
    copied.insert(copied.end(), from, from + piece.iov_len);
  }
  return BsonDoc(std::move(copied));
}

std::size_t Response::bytes() const noexcept {
  std::size_t total = 0;
  for (const iovec& piece : pieces()) total += piece.iov_len;
  return total;
}

BsonDoc error_document(const Error& error) {
  BsonWriter writer;
  writer.append("ok", 0.0);
  writer.append("errmsg", error.message);
  writer.append("code", error.code);
  writer.append("codeName", error_code_name(error.code));
  if (!error.labels.empty()) {
    writer.begin_array("errorLabels");
    for (const std::string& label : error.labels) writer.append_item(std::string_view(label));
    writer.end();
  }
  if (!error.extra.empty()) writer.append_elements(DocView::trusted(error.extra.data()));
  return std::move(writer).finish();
}

Response error_response(const Error& error) {
  Response response(error_document(error));
  response.failed = true;
  response.failure_code = error.code;
  return response;
}

}  // namespace spillway::exec
