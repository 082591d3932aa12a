// Whether the documents that came are the ones that should have: the load generator's conscience.
//
// DocumentCheck looks at single documents: layout, size, CRC. ScanCheck looks at one scan as a
// whole: which numbers came, twice, not at all, out of order. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proxy/canned/documents.h"

namespace spillway::bench {

struct CheckCounts {
  std::uint64_t documents = 0;
  std::uint64_t changed = 0;  // of another layout or size, or whose CRC does not match
  std::uint64_t doubled = 0;
  std::uint64_t lost = 0;
  std::uint64_t unexpected = 0;  // a number that was not asked for
  std::uint64_t out_of_order = 0;

  std::uint64_t faults() const noexcept {
    return changed + doubled + lost + unexpected + out_of_order;
  }
  void add(const CheckCounts& other) noexcept;
};

// One scan over all numbers of a collection.
class ScanCheck {
 public:
  // `sorted`: the numbers must come in ascending order.
  ScanCheck(std::int64_t count, bool sorted);
  void restart();
  void see(std::int64_t number, CheckCounts& counts) noexcept;
  // Call when the server says that the scan is complete: what is missing is lost.
  void finish(CheckCounts& counts) const noexcept;

 private:
  std::int64_t count_;
  bool sorted_;
  std::int64_t distinct_ = 0;
  std::int64_t last_ = -1;
  std::vector<std::uint64_t> seen_;
};

enum class CheckDepth {
  none,     // documents are counted only
  numbers,  // numbers, layout and size
  full,     // and the CRC of every document
};

// Checks documents, four at a time where their CRCs can be computed side by side. The views given
// to add() must stay valid until flush(); numbers reach the sink in the order of add().
class DocumentCheck {
 public:
  DocumentCheck(CheckDepth depth, std::size_t doc_bytes) : depth_(depth), doc_bytes_(doc_bytes) {}

  template <class Sink>  // called with (number)
  void add(std::string_view document, CheckCounts& counts, Sink&& sink) {
    pending_[pending_count_++] = document;
    if (pending_count_ == pending_.size()) flush(counts, sink);
  }
  template <class Sink>
  void flush(CheckCounts& counts, Sink&& sink) {
    const std::size_t good = check_pending(counts);
    for (std::size_t at = 0; at < good; ++at) sink(numbers_[at]);
  }
  // Forgets what is pending.
  void discard() noexcept { pending_count_ = 0; }

 private:
  // Leaves the numbers of the unchanged pending documents in numbers_, returns how many.
  std::size_t check_pending(CheckCounts& counts) noexcept;

  CheckDepth depth_;
  std::size_t doc_bytes_;
  std::array<std::string_view, 4> pending_;
  std::array<std::int64_t, 4> numbers_{};
  std::size_t pending_count_ = 0;
};

}  // namespace spillway::bench
