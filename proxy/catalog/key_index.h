// The position of a key among sorted keys that the caller holds; the last of them is never compared. The index keeps
// the eight bytes of each key after the common prefix: a search mostly reads this small array alone, which stays in a
// processor's cache where the keys do not.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::catalog {

// The first eight bytes as a number in their order; what is missing is 0.
inline std::uint64_t key_head(std::string_view key) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, key.data(), std::min(key.size(), sizeof bytes));
  return __builtin_bswap64(bytes);
}

class KeyIndex {
 public:
  // `key_of(i)` gives the keys, ascending. REQUIRES: count > 0.
  template <class KeyOf>
  void build(std::size_t count, const KeyOf& key_of) {
    if (--count == 0) return;
    const std::string_view first = key_of(0);
    const std::string_view last = key_of(count - 1);
    prefix_.assign(first.begin(), std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first);
    heads_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) heads_.push_back(head(key_of(i)));
    for (std::size_t i = stride - 1; i < count; i += stride) samples_.push_back(heads_[i]);
  }

  // The first key that is above `key`, or, if `or_at`, at it; else the last one. REQUIRES: built with the same keys.
  template <class KeyOf>
  std::size_t find(std::string_view key, bool or_at, const KeyOf& key_of) const noexcept {
    const std::size_t last = heads_.size();
    const int order = key.substr(0, prefix_.size()).compare(prefix_);
    if (order != 0) return order < 0 ? 0 : last;
    const std::uint64_t wanted = head(key);
    std::size_t low = first_at_least(wanted);
    if (low == last || heads_[low] != wanted) return low;
    // Keys with the same head: only all of their bytes tell.
    auto high = static_cast<std::size_t>(
        std::upper_bound(heads_.begin() + static_cast<std::ptrdiff_t>(low), heads_.end(), wanted) - heads_.begin());
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      const int full_order = key_of(middle).compare(key);
      if (full_order > 0 || (or_at && full_order == 0)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  std::size_t memory_bytes() const noexcept {
    return prefix_.capacity() + (heads_.capacity() + samples_.capacity()) * sizeof(std::uint64_t);
  }

 private:
  std::uint64_t head(std::string_view key) const noexcept {
    return key.size() > prefix_.size() ? key_head(key.substr(prefix_.size())) : 0;
  }
  // Without a branch to guess wrong.
  static std::size_t first_at_least(const std::uint64_t* heads, std::size_t size, std::uint64_t wanted) noexcept {
    if (size == 0) return 0;
    const std::uint64_t* base = heads;
    for (std::size_t count = size; count > 1;) {
      const std::size_t half = count / 2;
      base = base[half - 1] < wanted ? base + half : base;
      count -= half;
    }
    return static_cast<std::size_t>(base - heads) + (*base < wanted ? 1 : 0);
  }
  std::size_t first_at_least(std::uint64_t wanted) const noexcept {
    const std::size_t start = stride * first_at_least(samples_.data(), samples_.size(), wanted);
    const std::size_t size = std::min(stride, heads_.size() - start);
    for (std::size_t i = 0; i < size; i += 8) __builtin_prefetch(heads_.data() + start + i);  // all lines at once
    return start + first_at_least(heads_.data() + start, size, wanted);
  }

  static constexpr std::size_t stride = 32;
  std::string prefix_;
  std::vector<std::uint64_t> heads_;
  std::vector<std::uint64_t> samples_;  // every 32nd of them: fewer lines of a cache are touched
};

}  // namespace spillway::catalog
