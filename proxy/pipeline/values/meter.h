// The memory of a stage, charged to a MemoryBudget and bounded by a limit of its own, and its work on one document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/budget.h"
#include "cursor/error.h"

namespace spillway::pipeline {

// The limit of a stage that may not use the disk (the server's own default).
inline constexpr std::uint64_t stage_bytes_max = 100ULL * 1024 * 1024;
// The budget alone decides.
inline constexpr std::uint64_t any_number_of_bytes = ~std::uint64_t{0};
// The server's limit on a document inside a pipeline.
inline constexpr std::size_t value_bytes_max = 16 * 1024 * 1024 + 16 * 1024;

// The work on one document, in steps of some 30 ns: a worker has other requests. Of expressions an evaluated operator,
// operand or path, of filters a value.
inline constexpr std::uint64_t steps_max = 20'000'000;
Error too_many_steps_error();  // OperationFailed (96)
// The steps of walking over elements, and of reading bytes one by one.
inline constexpr std::uint64_t steps_of_elements(std::uint64_t count) noexcept { return count / 4; }
inline constexpr std::uint64_t steps_of_bytes(std::uint64_t count) noexcept { return count / 64; }

// Counts bytes of one stage. It reserves from the budget in steps, so that small charges stay cheap. Single-threaded.
// Its destructor gives everything back.
class Meter {
 public:
  // `what` names the stage in error messages ("$group"). `total`, if given, is the sum over all meters of a pipeline,
  // and `steps_left` what is left of steps_max, which the pipeline renews for each document; they outlive their use.
  Meter(MemoryBudget& budget, std::string_view what, std::uint64_t bytes_max = stage_bytes_max,
        std::uint64_t* total = nullptr, std::uint64_t* steps_left = nullptr)
      : budget_(&budget), what_(what), bytes_max_(bytes_max), total_(total), steps_left_(steps_left) {}

  // QueryExceededMemoryLimitNoDiskUseAllowed (292) above the limit, ExceededMemoryLimit (146) when
  // the budget refuses. Nothing is charged then.
  Result<void> charge(std::uint64_t bytes);
  void credit(std::uint64_t bytes) noexcept;
  // Gives the unused reservation back: little more will be charged.
  void trim() noexcept { reservation_.shrink_to(used_bytes_); }
  // False: too_many_steps_error() is due.
  [[nodiscard]] bool spend(std::uint64_t steps) noexcept {
    std::uint64_t& left = steps_left_ != nullptr ? *steps_left_ : own_steps_left_;
    const bool enough = steps <= left;
    left -= enough ? steps : left;
    return enough;
  }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  MemoryBudget& budget() const noexcept { return *budget_; }

 private:
  bool reserve(std::uint64_t more);

  MemoryBudget* budget_;
  std::string what_;
  std::uint64_t bytes_max_;
  std::uint64_t* total_;
  std::uint64_t* steps_left_;
  std::uint64_t own_steps_left_ = steps_max;  // without a pipeline
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
