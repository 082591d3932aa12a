#include "proxy/exec/core/repeat.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace spillway::exec {

namespace {

// Before the third try and those after it.
constexpr std::array<std::chrono::milliseconds, 8> pauses = {
    std::chrono::milliseconds(5),  std::chrono::milliseconds(10),  std::chrono::milliseconds(20),
    std::chrono::milliseconds(50), std::chrono::milliseconds(100), std::chrono::milliseconds(200),
    std::chrono::milliseconds(500), std::chrono::milliseconds(500)};

}  // namespace

Duration pause_before_try(std::size_t number) noexcept {
  return number < 3 ? Duration::zero() : pauses[std::min(number - 3, pauses.size() - 1)];
}

Task<Result<Routes>> learn_routes(Router& router, RouteNames names, RouteWait wait) {
  for (std::size_t tries = 0; tries < tries_max; ++tries) {
    SPILLWAY_CO_TRY(learned, co_await router.learn(names, wait));
    if (auto routes = router.resolve(names)) co_return *std::move(routes);
  }
  co_return Error(ErrorCode::conflicting_operation_in_progress,
                  "the routing table changes faster than it can be read");
}

}  // namespace spillway::exec
