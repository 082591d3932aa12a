// BatchBuilder: the documents of one reply to a client, copied into chunks that the budget pays for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "allocator/buffer.h"
#include "allocator/limits.h"
#include "cursor/bson_view.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// What a reply says of its cursor beside its name.
struct CursorFacts {
  DocView resume_token{};             // postBatchResumeToken; {}: none
  std::uint64_t at_cluster_time = 0;  // atClusterTime; 0: none
};

// Holds array elements (type, index name, document) as a batch array has them. Used if documents of several shards
// become one batch; a batch of one shard is not copied.
class BatchBuilder {
 public:
  explicit BatchBuilder(MemoryBudget& budget, std::size_t bytes_max = limits::document_bytes_max)
      : budget_(budget), bytes_max_(bytes_max) {}

  // Does a document of this size fit into `bytes_max`? The first document always does.
  bool fits(std::size_t document_bytes) const noexcept;
  // Error: memory_refused() (base/memory_wait.h). Nothing has changed then; try again after add_room().
  Result<void> append(DocView document) { return append_elements({document.data() + 4, document.size() - 5}); }
  // The same for a document that consists of these encoded elements.
  Result<void> append_elements(Bytes elements);
  // The most that a document of this size takes in the batch.
  static std::size_t room_for(std::size_t document_bytes) noexcept;
  // Memory that was waited for: the next document goes there if it fits.
  void add_room(Buffer chunk) { chunks_.push_back(std::move(chunk)); }
  std::size_t count() const noexcept { return count_; }
  std::size_t document_bytes() const noexcept { return document_bytes_; }

  // {cursor: {<batch_name>: […], partialResultsReturned?, id, ns, <facts>}, ok: 1}. Call once.
  Response finish(std::string_view batch_name, std::int64_t id, std::string_view ns, bool partial,
                  CursorFacts facts = {}) &&;

 private:
  void count_up() noexcept;

  MemoryBudget& budget_;
  std::size_t bytes_max_;
  absl::InlinedVector<Buffer, 4, RecyclingAllocator<Buffer>> chunks_;
  std::size_t count_ = 0;
  // The next document's index in decimal, kept as text: the last `name_bytes_` of it.
  std::array<char, 12> name_{'0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0'};
  std::size_t name_bytes_ = 1;
  std::size_t document_bytes_ = 0;
  std::size_t array_bytes_ = 0;
};

// The bytes around a batch array in a cursor reply: before it, from the document's length to the array's name,
// and after it. `array_bytes` counts the array from its length to its terminator. `more`: elements at the reply's end.
struct CursorReplyFrame {
  RecycledBytes before;
  RecycledBytes after;
};
CursorReplyFrame frame_cursor_reply(std::string_view batch_name, std::size_t array_bytes, std::int64_t id,
                                    std::string_view ns, bool partial, DocView more = {}, CursorFacts facts = {});
// The offset of the cursor id's eight bytes in CursorReplyFrame::after.
std::size_t frame_id_offset(bool partial) noexcept;

}  // namespace spillway::exec
