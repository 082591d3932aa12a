#include "proxy/exec/pipeline/meter.h"
#include "proxy/exec/pipeline/text.h"

#include <algorithm>

namespace spillway::pipeline {
namespace {

constexpr std::uint64_t step_bytes = 16 * 1024;

}  // namespace

Result<void> Meter::charge(std::uint64_t bytes) {
  if (bytes > bytes_max_ || used_bytes_ > bytes_max_ - bytes) {
    return Error(ErrorCode::query_exceeded_memory_limit,
                 join("Exceeded memory limit of ", bytes_max_, " bytes for ", what_,
                      ", and the disk is not used"));
  }
  const std::uint64_t wanted = used_bytes_ + bytes;
  if (wanted > reservation_.bytes()) {
    const std::uint64_t more =
        std::max(wanted - reservation_.bytes(), std::min(step_bytes, bytes_max_));
    bool granted = false;
    if (reservation_.budget() != nullptr) {
      granted = reservation_.try_grow(more);
    } else if (auto first = budget_->try_reserve(more)) {
      reservation_ = std::move(*first);
      granted = true;
    }
    if (!granted) {
      return Error(ErrorCode::exceeded_memory_limit,
                   join("not enough memory for ", what_, ": the memory budget '", budget_->name(),
                        "' refused ", more, " bytes"));
    }
  }
  used_bytes_ = wanted;
  return {};
}

void Meter::credit(std::uint64_t bytes) noexcept {
  used_bytes_ -= std::min(bytes, used_bytes_);
  // A little is kept, so that documents evaluated one after another do not ask again and again.
  if (reservation_.bytes() > used_bytes_ + 4 * step_bytes) {
    reservation_.shrink_to(used_bytes_ + step_bytes);
  }
}

}  // namespace spillway::pipeline
