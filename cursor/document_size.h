// How large the documents of a stream are, as far as they have been seen.
#pragma once

#include <algorithm>
#include <cstddef>

namespace spillway {

struct DocumentSize {
  double mean_bytes = 0;     // 0: not known; recent batches count most
  double largest_bytes = 0;  // of the last few thousand documents; 0: not known
  double seen = 0;           // how many documents were looked at one by one

  bool known() const noexcept { return mean_bytes > 0; }

  // Of a batch, or a part of one. `largest`: 0 if its documents were not looked at one by one.
  void learn(std::size_t bytes, std::size_t documents, std::size_t largest = 0) noexcept {
    if (documents == 0) return;
    const double count = static_cast<double>(documents);
    const double mean = static_cast<double>(bytes) / count;
    mean_bytes = known() ? (mean_bytes + mean) / 2 : mean;
    if (largest == 0) return;
    seen += count;
    largest_bytes = std::max(static_cast<double>(largest), largest_bytes * halved_after / (halved_after + count));
  }
  // What another stream of the same documents has learned.
  void learn(const DocumentSize& other) noexcept {
    if (!other.known()) return;
    mean_bytes = known() ? (mean_bytes + other.mean_bytes) / 2 : other.mean_bytes;
    seen = std::max(seen, other.seen);
    if (other.largest_bytes > 0) largest_bytes = std::max(other.largest_bytes, largest_bytes * 15 / 16);
  }

  // The documents that were seen say little about those that came.
  void distrust() noexcept { seen = 0.25; }

 private:
  static constexpr double halved_after = 2048;  // documents, all of them smaller
};

}  // namespace spillway
