// Runs one task on a loop that has nothing else to do.
#pragma once

#include <optional>
#include <utility>

#include "proxy/base/loop.h"
#include "proxy/base/task.h"

namespace spillway {

namespace detail {
template <class T>
Task<void> run_and_stop(Loop& loop, Task<T> task, std::optional<T>& outcome) {
  T done = co_await task;
  outcome.emplace(std::move(done));
  loop.stop();
}
}  // namespace detail

template <class T>
T run_alone(Loop& loop, Task<T> task) {
  std::optional<T> outcome;
  loop.spawn(detail::run_and_stop(loop, std::move(task), outcome));
  if (!outcome) loop.run();
  return *std::move(outcome);
}

}  // namespace spillway
