// Asking every worker about its own clients: each answers on its own thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "proxy/exec/context.h"

namespace spillway::exec {

namespace detail {
// Lives until the last answer came, even when the one who asked has given up.
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

// What `ask` returns on every worker, in no order, this one's first. Workers that do not answer in
// time are left out. `ask` is copied; it is called once per worker, on that worker's thread, and
// must not suspend or keep references.
template <class T>
Task<std::vector<T>> ask_workers(Context& context, std::function<T(const Context&)> ask) {
  auto state = std::make_shared<detail::WorkerAnswers<T>>();
  for (Context* worker : context.shared.workers) {
    if (worker == &context) continue;
    ++state->waiting;
    worker->loop.post([state, ask, worker, home = &context.loop] {
      home->post([state, answer = ask(*worker)]() mutable {
        state->answers.push_back(std::move(answer));
        if (--state->waiting == 0) state->done.set();
      });
    });
  }
  state->answers.push_back(ask(context));
  if (state->waiting > 0) {
    context.loop.arm(*state, Clock::now() + worker_answer_max);
    co_await state->done;
    context.loop.disarm(*state);
  }
  co_return std::exchange(state->answers, {});
}

}  // namespace spillway::exec
