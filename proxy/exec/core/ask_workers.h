// Asking every worker about its own clients: each answers on its own thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proxy/exec/core/context.h"

namespace spillway::exec {

namespace detail {
// Lives until the last answer has come, even if the caller has given up.
template <class T>
struct WorkerAnswers final : Timer {
  Event done;
  std::size_t waiting = 0;
  std::vector<T> answers;
  void on_timer() override { done.set(); }
};
}  // namespace detail

// How long a worker may take to answer; one that is stopping never does.
inline constexpr Duration worker_answer_max = std::chrono::seconds(2);

// What `ask` returns on each of these workers, in no order. Those that do not answer in time are left out. `ask` is
// copied; it is called once per worker, on that worker's thread, and must not suspend or keep references. `home`: the
// loop that this runs on; it outlives the workers' threads. `own`, if not null, is answered for at once, first.
template <class T>
Task<std::vector<T>> ask_these_workers(Loop& home, std::span<Context* const> workers, const Context* own,
                                       std::function<T(const Context&)> ask, Duration patience = worker_answer_max) {
  auto state = std::make_shared<detail::WorkerAnswers<T>>();
  for (Context* worker : workers) {
    if (worker == own) continue;
    ++state->waiting;
    worker->loop.post([state, ask, worker, home = &home] {
      home->post([state, answer = ask(*worker)]() mutable {
        state->answers.push_back(std::move(answer));
        if (--state->waiting == 0) state->done.set();
      });
    });
  }
  if (own != nullptr) state->answers.push_back(ask(*own));
  if (state->waiting > 0) {
    home.arm(*state, Clock::now() + patience);
    co_await state->done;
    home.disarm(*state);
  }
  co_return std::exchange(state->answers, {});
}

// The same of all workers, on one of them.
template <class T>
Task<std::vector<T>> ask_workers(Context& context, std::function<T(const Context&)> ask) {
  return ask_these_workers<T>(context.loop, context.shared.workers, &context, std::move(ask));
}

}  // namespace spillway::exec
