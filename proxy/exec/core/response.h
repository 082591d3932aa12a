// Response: what a command answers, ready to be written, as pieces that are not copied together.
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
#include "cursor/cursor.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

// A reply that streams from one shard connection to the client (cut-through): the shard's batch array passes in
// pieces, everything around it is ours.
struct StreamReply {
  static void* operator new(std::size_t bytes) {
    return RecyclingAllocator<std::byte>().allocate(bytes);
  }
  static void operator delete(void* block, std::size_t bytes) noexcept {
    small_blocks::give_back(block, bytes);
  }

  shard::Reply reply;            // its first bytes, and the lease for the rest
  std::size_t batch_offset = 0;  // of the array's first byte (its length) in reply.bytes
  std::size_t batch_bytes = 0;   // the whole array, length and terminator included
  std::string_view batch_name;   // "firstBatch" or "nextBatch": a literal
  CursorPtr cursor;              // registered as checked out; its remote's id is set when the tail was read
  std::size_t remote = 0;        // whose batch it is
  bool shard_id_known = false;   // the shard's cursor id stood before the batch
};

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
  static Response of_stream(std::unique_ptr<StreamReply> stream);

  // Pieces: bytes of `head` or of a held buffer, appended in the document's order.
  void set_head(RecycledBytes head) { head_ = std::move(head); }
  void hold(Buffer buffer) { held_.push_back(std::move(buffer)); }
  void add_piece(const void* data, std::size_t bytes) {
    if (bytes > 0) pieces_.push_back({const_cast<void*>(data), bytes});
  }

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
  absl::InlinedVector<Buffer, 2, RecyclingAllocator<Buffer>> held_;
  std::unique_ptr<StreamReply> stream_;
};

// {ok: 0, errmsg, code, codeName, errorLabels?, …extra}
BsonDoc error_document(const Error& error);
Response error_response(const Error& error);

}  // namespace spillway::exec
