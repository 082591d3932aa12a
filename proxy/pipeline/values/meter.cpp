#include "proxy/pipeline/values/meter.h"
#include "proxy/pipeline/values/text.h"

#include <algorithm>

namespace spillway::pipeline {
namespace {

constexpr std::uint64_t step_bytes = 16 * 1024;

// The client may try again if an empty proxy had room.
Error refusal(const MemoryBudget& budget, std::string_view what, std::uint64_t wanted, std::uint64_t more) {
  const std::uint64_t ceiling = budget.ceiling_bytes();
  const bool never = ceiling != 0 && wanted > ceiling;
  std::string text = join("not enough memory for ", what, ": the memory budget '", budget.name(), "' refused ", more,
                          " bytes");
  return never ? Error(ErrorCode::exceeded_memory_limit, std::move(text)) : overloaded(std::move(text));
}

}  // namespace

Error too_many_steps_error() {
  return {
      ErrorCode::operation_failed,
      join("the expressions of a pipeline took more than ", steps_max,
           " steps for one document: move them before the first $group, $sort, $limit or $count, so that the shards "
           "evaluate them, or give them smaller arrays")};
}

Result<void> Meter::charge(std::uint64_t bytes) {
  if (bytes > bytes_max_ || used_bytes_ > bytes_max_ - bytes) {
    return Error(ErrorCode::query_exceeded_memory_limit,
                 join("Exceeded memory limit of ", bytes_max_, " bytes for ", what_,
                      ", and the disk is not used"));
  }
  const std::uint64_t wanted = used_bytes_ + bytes;
  if (wanted > reservation_.bytes()) {
    const std::uint64_t needed = wanted - reservation_.bytes();
    const std::uint64_t step = std::min(step_bytes, bytes_max_);
    // The last bytes of a budget are fewer than a step.
    const bool granted = (needed < step && reserve(step)) || reserve(needed);
    if (!granted) return refusal(*budget_, what_, wanted, needed);
  }
  used_bytes_ = wanted;
  if (total_ != nullptr) *total_ += bytes;
  return {};
}

bool Meter::reserve(std::uint64_t more) {
  if (reservation_.budget() != nullptr) return reservation_.try_grow(more);
  auto first = budget_->try_reserve(more);
  if (first) reservation_ = std::move(*first);
  return first.has_value();
}

void Meter::credit(std::uint64_t bytes) noexcept {
  bytes = std::min(bytes, used_bytes_);
  used_bytes_ -= bytes;
  if (total_ != nullptr) *total_ -= bytes;
  // A little stays reserved, so that a series of documents does not ask the budget for each.
  if (reservation_.bytes() > used_bytes_ + 4 * step_bytes) reservation_.shrink_to(used_bytes_ + step_bytes);
}

}  // namespace spillway::pipeline
