// What a stage holds, charged to a MemoryBudget and bounded by a limit of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/budget.h"
#include "cursor/error.h"

namespace spillway::pipeline {

// A stage that may not use the disk is refused more than this (the server's own default).
inline constexpr std::uint64_t stage_bytes_max = 100ULL * 1024 * 1024;
// The budget alone decides.
inline constexpr std::uint64_t any_number_of_bytes = ~std::uint64_t{0};
// The server's limit on a document inside a pipeline.
inline constexpr std::size_t value_bytes_max = 16 * 1024 * 1024 + 16 * 1024;

// Counts bytes of one stage. The budget is asked in steps, so that small charges stay cheap. Single
// threaded. Everything is given back when the meter dies.
class Meter {
 public:
  // `what` names the stage in error messages ("$group"). `total`, if there is one, counts along,
  // for all meters of a pipeline; it outlives their use.
  Meter(MemoryBudget& budget, std::string_view what, std::uint64_t bytes_max = stage_bytes_max,
        std::uint64_t* total = nullptr)
      : budget_(&budget), what_(what), bytes_max_(bytes_max), total_(total) {}

  // QueryExceededMemoryLimitNoDiskUseAllowed (292) above the limit, ExceededMemoryLimit (146) when
  // the budget refuses. Nothing is charged then.
  Result<void> charge(std::uint64_t bytes);
  void credit(std::uint64_t bytes) noexcept;
  // Gives back what the budget was asked for ahead of its use: little more will be charged.
  void trim() noexcept { reservation_.shrink_to(used_bytes_); }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  MemoryBudget& budget() const noexcept { return *budget_; }

 private:
  MemoryBudget* budget_;
  std::string what_;
  std::uint64_t bytes_max_;
  std::uint64_t* total_;
  std::uint64_t used_bytes_ = 0;
  Reservation reservation_;
};

// Charges taken while one document is evaluated, given back at the end of the scope.
class MeterScope {
 public:
  explicit MeterScope(Meter& meter) noexcept : meter_(meter), before_bytes_(meter.used_bytes()) {}
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;
  ~MeterScope() { meter_.credit(meter_.used_bytes() - before_bytes_); }

 private:
  Meter& meter_;
  std::uint64_t before_bytes_;
};

}  // namespace spillway::pipeline
