// One shard's piece of a write: the client's command with some of its operations, as a document
// sequence.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/buffer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/write/write_key.h"
#include "proxy/exec/write/write_parse.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

struct ChildOp {
  DocView document;                  // of the client's message, or built here: outlives the child
  const ObjectId* new_id = nullptr;  // put first, as _id
  std::int32_t stmt_id = 0;
};

// What TimeSlice::is_over_short() counts for an operation that is only listed or counted.
inline constexpr std::size_t listed_op_bytes = 64;

// Documents are copied once, into memory of the write budget, or not at all if they stand back to
// back in the client's message. Not thread-safe; movable, its bytes stay where they are.
class ChildMessage {
 public:
  // REQUIRES: ops is not empty; everything outlives the call. Waits for memory when it is short; then the error may
  // be that of memory_refused() (base/memory_wait.h).
  static Task<Result<ChildMessage>> build(Context& context, const Request& request,
                                          const WriteCommand& command, std::span<const ChildOp> ops);
  // The bytes of one operation in a child, without its statement id in the body.
  static std::size_t bytes_of(const ChildOp& op) noexcept;
  static constexpr std::size_t statement_id_bytes = 1 + 6 + 4;  // type, "99999" with its NUL, int32
  // A message's header, the heads of its sections, and what is added to a client's body: here, and for a shard of a
  // cluster (versions, times, the client's user with all roles).
  static constexpr std::size_t envelope_bytes_max = 16 * limits::kib;
  // The most bytes of a child's operations, statement ids included, so that it fits into a message.
  static std::size_t operations_bytes_max(const Request& request,
                                          const WriteCommand& command) noexcept;

  // Valid while this lives.
  shard::Command command() const noexcept;
  bool empty() const noexcept { return head_.empty(); }

 private:
  RecycledBytes head_;  // the body's section, and the sequence's first bytes
  Buffer copied_;
  Bytes documents_;
};

}  // namespace spillway::exec
