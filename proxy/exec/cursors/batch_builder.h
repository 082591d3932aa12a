// BatchBuilder: the documents of one reply to a client, copied into chunks that the budget pays for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "allocator/buffer.h"
#include "allocator/limits.h"
#include "cursor/bson_view.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// Holds array elements (type, index name, document), ready to stand inside a batch array. Used where documents
// of several shards become one batch; a batch of one source is never copied.
class BatchBuilder {
 public:
  explicit BatchBuilder(MemoryBudget& budget, std::size_t bytes_max = limits::document_bytes_max)
      : budget_(budget), bytes_max_(bytes_max) {}

  // May this document still join, by MongoDB's cap of 16 MiB on a batch, or a lower one? The first one always may.
  bool fits(std::size_t document_bytes) const noexcept;
  // The error of memory_refused() (base/memory_wait.h) when the budget refuses; nothing has changed then, and it may
  // be tried again, best after add_room().
  Result<void> append(DocView document) { return append_elements({document.data() + 4, document.size() - 5}); }
  // The same for the document that consists of these elements, encoded.
  Result<void> append_elements(Bytes elements);
  // What a document of this size may take in the batch.
  static std::size_t room_for(std::size_t document_bytes) noexcept;
  // Room that was waited for: the next document goes there if it fits.
  void add_room(Buffer chunk) { chunks_.push_back(std::move(chunk)); }
  std::size_t count() const noexcept { return count_; }
  std::size_t document_bytes() const noexcept { return document_bytes_; }

  // {cursor: {<batch_name>: […], partialResultsReturned?, id, ns}, ok: 1}. Call once.
  Response finish(std::string_view batch_name, std::int64_t id, std::string_view ns, bool partial) &&;

 private:
  MemoryBudget& budget_;
  std::size_t bytes_max_;
  absl::InlinedVector<Buffer, 4, RecyclingAllocator<Buffer>> chunks_;
  std::size_t count_ = 0;
  std::size_t document_bytes_ = 0;
  std::size_t array_bytes_ = 0;
};

// The bytes around a batch array in a cursor reply: before it, from the document's length to the array's name,
// and after it. `array_bytes` counts the array from its length to its terminator.
struct CursorReplyFrame {
  RecycledBytes before;
  RecycledBytes after;
};
CursorReplyFrame frame_cursor_reply(std::string_view batch_name, std::size_t array_bytes, std::int64_t id,
                                    std::string_view ns, bool partial);
// The offset of the cursor id's eight bytes in CursorReplyFrame::after.
std::size_t frame_id_offset(bool partial) noexcept;

}  // namespace spillway::exec
