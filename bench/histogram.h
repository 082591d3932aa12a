// A log-linear histogram of non-negative integers, in the manner of HDR histograms: values below
// 2^sub_bits are exact, above that every power of two is cut into 2^(sub_bits-1) equal parts, so
// that a reported value is never off by more than 1/2^(sub_bits-1) (0.8 %). Fixed size, about 57
// KB; recording never allocates. Not thread-safe; histograms of the same kind can be added up.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace spillway::bench {

class Histogram {
 public:
  void record(std::uint64_t value) noexcept {
    ++counts_[index_of(value)];
    ++total_;
    sum_ += value;
    if (value > max_) max_ = value;
    if (value < min_) min_ = value;
  }

  void add(const Histogram& other) noexcept {
    for (std::size_t at = 0; at < slots; ++at) counts_[at] += other.counts_[at];
    total_ += other.total_;
    sum_ += other.sum_;
    if (other.max_ > max_) max_ = other.max_;
    if (other.min_ < min_) min_ = other.min_;
  }

  std::uint64_t count() const noexcept { return total_; }
  std::uint64_t max() const noexcept { return max_; }
  std::uint64_t min() const noexcept { return total_ == 0 ? 0 : min_; }
  double mean() const noexcept {
    return total_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(total_);
  }

  // The least recorded value (rounded up to its slot's upper end, never above max()) that at least
  // `percent` of all values do not exceed. 0 when nothing was recorded.
  std::uint64_t percentile(double percent) const noexcept {
    if (total_ == 0) return 0;
    const double wanted = percent / 100.0 * static_cast<double>(total_);
    auto rank = static_cast<std::uint64_t>(wanted);
    if (static_cast<double>(rank) < wanted) ++rank;
    if (rank == 0) rank = 1;
    if (rank >= total_) return max_;
    std::uint64_t seen = 0;
    for (std::size_t at = 0; at < slots; ++at) {
      seen += counts_[at];
      if (seen >= rank) return upper_end(at) < max_ ? upper_end(at) : max_;
    }
    return max_;
  }

  // Calls `visit(value, count)` for each slot that holds something, in ascending order; `value` as
  // percentile() reports it.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t at = 0; at < slots; ++at) {
      if (counts_[at] > 0) visit(upper_end(at) < max_ ? upper_end(at) : max_, counts_[at]);
    }
  }

  // The slot of a value, and the greatest value that falls into a slot.
  static constexpr std::size_t index_of(std::uint64_t value) noexcept {
    if (value < exact_values) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - sub_bits;
    return shift * half + static_cast<std::size_t>(value >> shift);
  }
  static constexpr std::uint64_t upper_end(std::size_t index) noexcept {
    if (index < exact_values) return index;
    const std::size_t shift = index / half - 1;
    const std::uint64_t top = index - shift * half;
    return ((top + 1) << shift) - 1;
  }

  static constexpr unsigned sub_bits = 8;

 private:
  static constexpr std::size_t exact_values = std::size_t{1} << sub_bits;
  static constexpr std::size_t half = exact_values / 2;
  static constexpr std::size_t slots = (64 - sub_bits) * half + exact_values;

  std::array<std::uint64_t, slots> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
};

}  // namespace spillway::bench
