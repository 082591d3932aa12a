// FineHistogram: how long short things took, to an eighth: 193 fixed cells of microseconds, eight to a doubling, up to
// a minute. One thread adds, without a locked instruction or memory; any thread may read, as of LatencyHistogram.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "proxy/base/clock.h"
#include "proxy/base/latency.h"

namespace spillway {

// Cell i holds times over fine_bound_us(i - 1) and up to fine_bound_us(i); the last one holds all longer times.
inline constexpr std::size_t fine_cells_exact = 16;  // of one microsecond each
inline constexpr int fine_octave_last = 26;          // the bounds end at 2^26 us
inline constexpr std::size_t fine_cells = fine_cells_exact + (fine_octave_last - 4) * 8 + 1;

constexpr std::uint64_t fine_bound_us(std::size_t cell) noexcept {
  if (cell < fine_cells_exact) return cell + 1;
  const std::size_t above = cell - fine_cells_exact;
  return (9 + above % 8) << (above / 8 + 1);
}

constexpr std::size_t fine_cell_of(std::int64_t ns) noexcept {
  if (ns <= 0) return 0;
  const std::uint64_t below = (static_cast<std::uint64_t>(ns) - 1) / 1000;
  if (below < fine_cells_exact) return static_cast<std::size_t>(below);
  const int octave = static_cast<int>(std::bit_width(below)) - 1;
  if (octave >= fine_octave_last) return fine_cells - 1;
  const std::uint64_t eighth = (below >> (octave - 3)) & 7;
  return fine_cells_exact + static_cast<std::size_t>(octave - 4) * 8 + static_cast<std::size_t>(eighth);
}

// What a histogram held, or the sum of several.
struct FineReading {
  std::array<std::uint64_t, fine_cells> counts{};
  std::uint64_t sum_ns = 0;

  std::uint64_t total() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t count : counts) all += count;
    return all;
  }
  // The number of times up to 2^octave us. REQUIRES octave <= fine_octave_last.
  std::uint64_t up_to_octave(int octave) const noexcept {
    const auto end =
        octave < 4 ? std::size_t{1} << octave : fine_cells_exact + static_cast<std::size_t>(octave - 4) * 8;
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < end; ++i) all += counts[i];
    return all;
  }
  // The least bound that covers a share of `quantile`; 0 for an empty histogram; at most the last bound.
  std::uint64_t quantile_us(double quantile) const noexcept {
    const auto rank = static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(total())));
    std::uint64_t below = 0;
    for (std::size_t i = 0; i + 1 < fine_cells && rank > 0; ++i) {
      below += counts[i];
      if (below >= rank) return fine_bound_us(i);
    }
    return rank > 0 ? fine_bound_us(fine_cells - 2) : 0;
  }
  FineReading& operator+=(const FineReading& other) noexcept {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum_ns += other.sum_ns;
    return *this;
  }
};

class FineHistogram {
 public:
  // The owner's thread. A negative time counts as zero.
  void add(Duration time) noexcept {
    const std::int64_t ns = time.count();
    counts_[fine_cell_of(ns)].add();
    sum_ns_.add(ns > 0 ? static_cast<std::uint64_t>(ns) : 0);
  }
  FineReading read() const noexcept {
    FineReading reading;
    for (std::size_t i = 0; i < counts_.size(); ++i) reading.counts[i] = counts_[i].value();
    reading.sum_ns = sum_ns_.value();
    return reading;
  }

 private:
  std::array<OwnCounter, fine_cells> counts_;
  OwnCounter sum_ns_;
};

}  // namespace spillway
