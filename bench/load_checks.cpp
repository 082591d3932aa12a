#include "bench/load_checks.h"

#include <algorithm>

#include "bench/crc32c.h"

namespace spillway::bench {

void CheckCounts::add(const CheckCounts& other) noexcept {
  documents += other.documents;
  changed += other.changed;
  doubled += other.doubled;
  lost += other.lost;
  unexpected += other.unexpected;
  out_of_order += other.out_of_order;
}

ScanCheck::ScanCheck(std::int64_t count, bool sorted)
    : count_(count), sorted_(sorted), seen_(static_cast<std::size_t>((count + 63) / 64)) {}

void ScanCheck::restart() {
  distinct_ = 0;
  last_ = -1;
  std::fill(seen_.begin(), seen_.end(), 0);
}

void ScanCheck::see(std::int64_t number, CheckCounts& counts) noexcept {
  if (number < 0 || number >= count_) {
    ++counts.unexpected;
    return;
  }
  auto& word = seen_[static_cast<std::size_t>(number / 64)];
  const std::uint64_t bit = std::uint64_t{1} << (number % 64);
  if ((word & bit) != 0) {
    ++counts.doubled;
  } else {
    word |= bit;
    ++distinct_;
  }
  if (sorted_ && number < last_) ++counts.out_of_order;
  last_ = number;
}

void ScanCheck::finish(CheckCounts& counts) const noexcept {
  counts.lost += static_cast<std::uint64_t>(count_ - distinct_);
}

std::size_t DocumentCheck::check_pending(CheckCounts& counts) noexcept {
  const std::size_t pending = pending_count_;
  pending_count_ = 0;
  counts.documents += pending;
  if (depth_ == CheckDepth::none) return 0;
  std::array<ReadDocument, 4> documents;
  std::size_t good = 0;
  for (std::size_t at = 0; at < pending; ++at) {
    const auto read = read_document(pending_[at]);
    if (read && pending_[at].size() == doc_bytes_) documents[good++] = *read;
  }
  counts.changed += pending - good;
  std::size_t kept = good;
  if (depth_ == CheckDepth::full && good > 0) {
    std::array<const char*, 4> payloads;
    for (std::size_t at = 0; at < 4; ++at) {
      payloads[at] = documents[at < good ? at : 0].payload.data();
    }
    const std::size_t size = documents[0].payload.size();
    std::array<std::uint32_t, 4> running;
    if (good > 1) {
      running = crc32c_four(payloads, size);
    } else {
      running[0] = crc32c_extend(crc32c_seed, payloads[0], size);
    }
    kept = 0;
    for (std::size_t at = 0; at < good; ++at) {
      const auto number = static_cast<std::uint64_t>(documents[at].number);
      if (crc32c_finish(crc32c_extend_number(running[at], number)) == documents[at].crc) {
        documents[kept++] = documents[at];
      }
    }
    counts.changed += good - kept;
  }
  for (std::size_t at = 0; at < kept; ++at) numbers_[at] = documents[at].number;
  return kept;
}

}  // namespace spillway::bench
