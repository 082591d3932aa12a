// Response: a command's reply, ready to be written, as pieces that are not copied together.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "allocator/buffer.h"
#include "allocator/small_blocks.h"
#include "cursor/bson_writer.h"

namespace spillway::exec {

// A reply that passes from a shard's connection to the client: streams/stream.h.
struct StreamReply;
struct StreamReplyEnd {
  void operator()(StreamReply* stream) const noexcept;
};
using StreamReplyPtr = std::unique_ptr<StreamReply, StreamReplyEnd>;

// The bytes of a reply document, in order. Owns what it points to.
class Response {
 public:
  using Pieces = absl::InlinedVector<iovec, 4, RecyclingAllocator<iovec>>;
  Response() = default;
  explicit Response(BsonDoc document) : head_(std::move(document).take()) {}
  Response(Response&&) = default;
  Response& operator=(Response&&) = default;

  // A document that lies in a buffer: `document` points into `owner`.
  static Response of_buffer(Buffer owner, DocView document);
  static Response of_stream(StreamReplyPtr stream);

  // Pieces: bytes of `head` or of a held buffer, appended in the document's order.
  void set_head(RecycledBytes head) { head_ = std::move(head); }
  void hold(Buffer buffer) { held_.push_back(std::move(buffer)); }
  void add_piece(const void* data, std::size_t bytes) {
    if (bytes > 0) pieces_.push_back({const_cast<void*>(data), bytes});
  }

  // The document in one piece.
  BsonDoc copy() const;
  // More elements at the document's end. REQUIRES a complete reply.
  void append_elements(BsonDoc elements);

  // The document's pieces: the head alone if none were added.
  Pieces pieces() const;
  std::size_t bytes() const noexcept;
  StreamReply* stream() const noexcept { return stream_.get(); }
  // ok: 0 replies are counted as failed commands, by their code.
  bool failed = false;
  std::int32_t failure_code = 0;  // 0: the reply names none
  // The connection ends without an answer.
  bool closes = false;

 private:
  RecycledBytes head_;
  Pieces pieces_;
  absl::InlinedVector<BsonDoc, 1> appended_;
  absl::InlinedVector<Buffer, 2, RecyclingAllocator<Buffer>> held_;
  StreamReplyPtr stream_;
};

// A number as servers count: int32 as long as it fits.
inline void append_count(BsonWriter& out, std::string_view name, std::int64_t count) {
  if (std::in_range<std::int32_t>(count)) {
    out.append(name, static_cast<std::int32_t>(count));
  } else {
    out.append(name, count);
  }
}
// {…fields, ok: 1}
inline BsonDoc ok_document(BsonWriter&& fields = BsonWriter()) {
  return std::move(fields.append("ok", 1.0)).finish();
}
inline Response ok_response(BsonWriter&& fields = BsonWriter()) { return Response(ok_document(std::move(fields))); }
// {ok: 0, errmsg, code, codeName, errorLabels?, …extra}
BsonDoc error_document(const Error& error);
Response error_response(const Error& error);

}  // namespace spillway::exec
