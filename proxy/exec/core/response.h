// Response: a command's reply, ready to be written, as pieces that are not copied together.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

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

// The bytes of a reply document, in order. Owns what it points to. A move is a pointer's: a response passes through
// every coroutine of its command.
class Response {
 public:
  Response() = default;
  explicit Response(BsonDoc document) { set_head(std::move(document).take()); }
  Response(Response&&) = default;
  Response& operator=(Response&&) = default;

  // A document that lies in a buffer: `document` points into `owner`, whose other bytes are not needed any more.
  static Response of_buffer(Buffer owner, DocView document);
  static Response of_stream(StreamReplyPtr stream);

  // Pieces: bytes of `head` or of a held buffer, appended in the document's order.
  void set_head(RecycledBytes head);
  void hold(Buffer buffer) { parts().held.push_back(std::move(buffer)); }
  void add_piece(const void* data, std::size_t bytes) {
    if (bytes > 0) parts().pieces.push_back({const_cast<void*>(data), bytes});
  }

  // The document in one piece.
  BsonDoc copy() const;
  // Pays for its bytes as long as it lives.
  void pay(Reservation room) { parts().paid = std::move(room); }
  // Of those that no buffer holds: nothing has paid for them.
  std::size_t unpaid_bytes() const noexcept {
    return parts_ == nullptr || parts_->paid.bytes() > 0 ? 0 : parts_->head.size();
  }
  // More elements at the document's end. REQUIRES a complete reply.
  void append_elements(BsonDoc elements);

  // The document's pieces: the head alone if none were added. Valid until it is changed or destroyed.
  std::span<const iovec> pieces() const noexcept;
  // Room for `bytes` directly before the document, as for a header in one piece with it; null: there is none.
  std::uint8_t* room_before(std::size_t bytes) const noexcept;
  std::size_t bytes() const noexcept;
  StreamReply* stream() const noexcept { return parts_ == nullptr ? nullptr : parts_->stream.get(); }
  // ok: 0 replies are counted as failed commands, by their code.
  bool failed = false;
  std::int32_t failure_code = 0;  // 0: the reply names none
  // The connection ends without an answer.
  bool closes = false;

 private:
  struct Parts {
    static void* operator new(std::size_t bytes) { return RecyclingAllocator<std::byte>().allocate(bytes); }
    static void operator delete(void* block, std::size_t bytes) noexcept { small_blocks::give_back(block, bytes); }

    RecycledBytes head;
    iovec head_piece{};
    std::size_t bytes_before = 0;  // the document
    absl::InlinedVector<iovec, 4, RecyclingAllocator<iovec>> pieces;
    absl::InlinedVector<BsonDoc, 1> appended;
    absl::InlinedVector<Buffer, 2, RecyclingAllocator<Buffer>> held;
    Reservation paid;
    StreamReplyPtr stream;
  };
  Parts& parts() {
    if (parts_ == nullptr) parts_ = std::make_unique<Parts>();
    return *parts_;
  }

  std::unique_ptr<Parts> parts_;  // null: it has no bytes
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
inline BsonDoc ok_document(BsonWriter& fields) { return ok_document(std::move(fields)); }
inline Response ok_response(BsonWriter&& fields = BsonWriter()) { return Response(ok_document(std::move(fields))); }
inline Response ok_response(BsonWriter& fields) { return Response(ok_document(fields)); }
// {ok: 0, errmsg, code, codeName, errorLabels?, …extra}
BsonDoc error_document(const Error& error);
Response error_response(const Error& error);

}  // namespace spillway::exec
