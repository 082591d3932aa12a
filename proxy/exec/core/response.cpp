#include "proxy/exec/core/response.h"

namespace spillway::exec {

Response Response::of_buffer(Buffer owner, DocView document) {
  Response response;
  response.add_piece(document.data(), document.size());
  response.hold(std::move(owner));
  return response;
}

Response Response::of_stream(StreamReplyPtr stream) {
  Response response;
  response.stream_ = std::move(stream);
  return response;
}

void Response::append_elements(BsonDoc elements) {
  if (pieces_.empty()) pieces_.push_back({head_.data(), head_.size()});
  appended_.push_back(std::move(elements));
  // Without its length: elements, and the document's end.
  const Bytes rest = appended_.back().view().bytes().subspan(4);
  const auto total = static_cast<std::int32_t>(bytes() - 1 + rest.size());
  store_le(static_cast<std::uint8_t*>(pieces_.front().iov_base), total);
  pieces_.back().iov_len -= 1;
  add_piece(rest.data(), rest.size());
}

Response::Pieces Response::pieces() const {
  if (!pieces_.empty()) return pieces_;
  Pieces all;
  all.push_back({const_cast<std::uint8_t*>(head_.data()), head_.size()});
  return all;
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
  if (pieces_.empty()) return head_.size();
  std::size_t total = 0;
  for (const iovec& piece : pieces_) total += piece.iov_len;
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
