#include "allocator/spill_extents.h"

#include <cassert>
#include <iterator>

namespace spillway {

SpillExtents::SpillExtents(std::uint64_t limit_bytes)
    : limit_bytes_(limit_bytes / grain_bytes * grain_bytes) {}

std::optional<SpillExtent> SpillExtents::take(std::uint64_t bytes) {
  assert(bytes > 0);
  if (bytes > limit_bytes_ - used_bytes_) return std::nullopt;
  const std::uint64_t wanted = (bytes + grain_bytes - 1) / grain_bytes * grain_bytes;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [offset, room] = *hole;
    if (room < wanted) continue;
    holes_.erase(hole);
    if (room > wanted) holes_.emplace(offset + wanted, room - wanted);
    used_bytes_ += wanted;
    return SpillExtent{offset, wanted};
  }
  if (wanted > limit_bytes_ - end_bytes_) return std::nullopt;
  const SpillExtent extent{end_bytes_, wanted};
  end_bytes_ += wanted;
  used_bytes_ += wanted;
  return extent;
}

void SpillExtents::give(SpillExtent extent) {
  assert(extent.bytes > 0 && extent.offset + extent.bytes <= end_bytes_);
  assert(extent.bytes <= used_bytes_);
  used_bytes_ -= extent.bytes;
  auto after = holes_.lower_bound(extent.offset);
  if (after != holes_.end() && after->first == extent.offset + extent.bytes) {
    extent.bytes += after->second;
    after = holes_.erase(after);
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    assert(before->first + before->second <= extent.offset);
    if (before->first + before->second == extent.offset) {
      extent = {before->first, before->second + extent.bytes};
      holes_.erase(before);
    }
  }
  if (extent.offset + extent.bytes == end_bytes_) {
    end_bytes_ = extent.offset;
  } else {
    holes_.emplace(extent.offset, extent.bytes);
  }
}

}  // namespace spillway
