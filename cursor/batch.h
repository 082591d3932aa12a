// Batch: documents of a shard's reply, waiting to be consumed. Owns their bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "allocator/buffer.h"
#include "allocator/spill.h"
#include "cursor/bson_view.h"

namespace spillway {

// A shard's reply that is damaged: documents after the damage cannot be read.
Error malformed_reply(std::string_view what);

// Documents are handed out in order as views into the batch's buffer; they are valid until the batch is
// destroyed. Moving a batch keeps them valid. Not thread-safe.
class Batch {
 public:
  // `array` points into `owner`: a batch array. Its elements are checked one by one as they are reached.
  Batch(Buffer owner, DocView array) noexcept
      : owner_(std::move(owner)), next_(array.data() + 4), end_(array.data() + array.size() - 1) {
    read();
  }
  // Bytes [begin, end) of `owner`: array elements that park() had taken.
  Batch(Buffer owner, std::size_t begin, std::size_t end) noexcept
      : owner_(std::move(owner)), next_(owner_.data() + begin), end_(owner_.data() + end) {
    read();
  }

  // The next document, or nullopt at the end or when the rest is malformed.
  std::optional<DocView> peek() const noexcept {
    return head_ != nullptr ? std::optional(DocView::trusted(head_)) : std::nullopt;
  }
  bool has_document() const noexcept { return head_ != nullptr; }
  DocView document() const noexcept { return DocView::trusted(head_); }  // REQUIRES has_document()
  void pop() noexcept {
    next_ += head_bytes_;
    read();
  }
  bool malformed() const noexcept { return malformed_; }
  // Bytes not handed out yet; at least the size of the remaining documents.
  std::size_t remaining_bytes() const noexcept { return static_cast<std::size_t>(end_ - next_); }
  std::size_t held_bytes() const noexcept { return owner_.capacity(); }
  const Buffer& owner() const noexcept { return owner_; }
  // A budget pays instead of a reserve, if it has room.
  void charge_to(MemoryBudget& budget) noexcept { owner_.charge_to(budget); }
  // Moves the rest into a block of its own size, if the present block is several times larger: one
  // unread document must not hold a 16 MB reply. Invalidates views of documents. Leaves a reserve to others. Does
  // nothing if the budget refuses.
  void compact(MemoryBudget& budget) noexcept;

  // Parks the rest, cut between documents. Invalidates views. Returns its ticket; then this batch is
  // empty: destroy it. nullopt: refused, nothing changed. REQUIRES remaining_bytes() > 0 and !malformed().
  std::optional<SpillTicket> park(SpillStore& store, std::int64_t now_ns);

 private:
  // As DocIterator reads an element, but that it must be a document: this is done for each document of a merge.
  void read() noexcept {
    head_ = nullptr;
    malformed_ = false;
    if (next_ == end_) return;
    malformed_ = true;
    if (static_cast<BsonType>(*next_) != BsonType::document) return;
    const std::uint8_t* const name = next_ + 1;
    const std::uint8_t* const nul = detail::find_nul(name, static_cast<std::size_t>(end_ - name));
    if (nul == nullptr) return;
    const std::size_t size = bson_value_size(BsonType::document, nul + 1, end_);
    if (size == no_size) return;
    malformed_ = false;
    head_ = nul + 1;
    head_bytes_ = static_cast<std::size_t>(head_ - next_) + size;
    // The one behind it is probably as large. While other documents pass, it comes closer: its end, which is looked
    // at first, and the rest, which is copied.
    const std::size_t ahead = std::min(size, fetched_bytes_max);
    for (std::size_t at = 0; at <= ahead; at += line_bytes) __builtin_prefetch(head_ + size + at);
  }

  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t fetched_bytes_max = 2048;

  Buffer owner_;
  const std::uint8_t* next_;
  const std::uint8_t* end_;
  const std::uint8_t* head_ = nullptr;  // null: there is none
  std::size_t head_bytes_ = 0;  // of its element
  bool malformed_ = false;
};

}  // namespace spillway
