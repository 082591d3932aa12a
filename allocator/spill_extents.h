// SpillExtents: which parts of a file of bounded length are in use. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace spillway {

struct SpillExtent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // a multiple of SpillExtents::grain_bytes

  bool operator==(const SpillExtent&) const = default;
};

// Extents begin and end at multiples of a page, so that a hole can be punched for each. The lowest
// place that fits is taken, so that the file's end can sink again.
class SpillExtents {
 public:
  static constexpr std::uint64_t grain_bytes = 4096;

  // No extent reaches beyond `limit_bytes`.
  explicit SpillExtents(std::uint64_t limit_bytes);

  // Room for `bytes`, rounded up; nullopt: there is none in one piece. REQUIRES bytes > 0.
  std::optional<SpillExtent> take(std::uint64_t bytes);
  // REQUIRES an extent that take() gave, once.
  void give(SpillExtent extent);

  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  // Nothing is in use at or beyond this offset.
  std::uint64_t end_bytes() const noexcept { return end_bytes_; }
  std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  std::size_t holes() const noexcept { return holes_.size(); }

 private:
  std::uint64_t limit_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t end_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t>
      holes_;  // offset to bytes, below end_bytes_, never touching
};

}  // namespace spillway
