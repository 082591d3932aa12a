// Documents that a command makes or collects before it answers: its budget pays for each as it comes.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/memory_wait.h"

namespace spillway::exec {

class KeptDocuments {
 public:
  explicit KeptDocuments(MemoryBudget& budget) : budget_(&budget) {}

  // IngressRequestRateLimitExceeded(462) or ExceededMemoryLimit(146): there is no room.
  Result<void> charge(std::size_t bytes) {
    used_bytes_ += bytes;
    const std::uint64_t paid = free_bytes + room_.bytes();
    if (used_bytes_ <= paid) return {};
    const std::uint64_t more = used_bytes_ - paid;
    if (take(std::max<std::uint64_t>(step_bytes, more)) || take(more)) return {};
    return memory_refused(*budget_, used_bytes_, "a list of documents");
  }
  // What was charged is not kept any more; its room is for what comes.
  void give_back(std::size_t bytes) noexcept { used_bytes_ -= bytes; }
  // Room for documents that are added later. The same errors.
  Result<void> make_room(std::size_t documents, std::size_t bytes_each) {
    const std::size_t bytes = documents * (bytes_each + document_overhead_bytes);
    auto charged = charge(bytes);
    give_back(bytes);
    return charged;
  }
  Result<void> add(BsonDoc document) {
    if (auto charged = charge(document.size() + document_overhead_bytes); charged.has_error()) return charged;
    documents_.push_back(std::move(document));
    return {};
  }
  // A document that is charged already.
  void add_paid(BsonDoc document) { documents_.push_back(std::move(document)); }

  const std::vector<BsonDoc>& documents() const noexcept { return documents_; }
  std::vector<BsonDoc> take_documents() { return std::exchange(documents_, {}); }
  std::size_t used_bytes() const noexcept { return used_bytes_; }
  // The reservation of these documents; empty: they are few.
  Reservation take_room() { return std::move(room_); }

 private:
  // This much is not charged: most listings are small, and the cursor that takes one pays for it.
  static constexpr std::size_t free_bytes = 64 * limits::kib;
  static constexpr std::size_t step_bytes = 256 * limits::kib;
  static constexpr std::size_t document_overhead_bytes = 128;  // of two blocks and a place in a map

  bool take(std::uint64_t bytes) {
    if (room_.budget() != nullptr) return room_.try_grow(bytes);
    auto room = budget_->try_reserve(bytes);
    if (room) room_ = *std::move(room);
    return room.has_value();
  }

  MemoryBudget* budget_;
  std::vector<BsonDoc> documents_;
  Reservation room_;
  std::size_t used_bytes_ = 0;
};

}  // namespace spillway::exec
