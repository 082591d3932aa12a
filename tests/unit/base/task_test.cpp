// Tasks that are awaited where they are made, as the code does it: with this compiler each form must construct and
// destroy every value once, whether the task suspends or not.
#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/base/task.h"

namespace spillway {
namespace {

int alive = 0;

struct Counted {
  Counted() { ++alive; }
  Counted(const Counted& other) : text(other.text) { ++alive; }
  Counted(Counted&& other) noexcept : text(std::move(other.text)) { ++alive; }
  Counted& operator=(const Counted&) = default;
  Counted& operator=(Counted&&) = default;
  ~Counted() { --alive; }
  std::string text = std::string(50, 'x');
};

std::coroutine_handle<> sleeper;
bool suspends = false;

struct Sleep {
  bool await_ready() const noexcept { return !suspends; }
  void await_suspend(std::coroutine_handle<> handle) const noexcept { sleeper = handle; }
  void await_resume() const noexcept {}
};

Task<Counted> copy_of(const Counted& from) {
  Counted local = from;
  co_await Sleep{};
  co_return std::move(local);
}
Task<bool> same(const Counted&, bool value) {
  co_await Sleep{};
  co_return value;
}
Task<void> nothing(const Counted& from) {
  Counted local = from;
  co_await Sleep{};
}
Task<Counted> by_value(Counted from) {
  co_await Sleep{};
  co_return from;
}
Task<std::optional<Counted>> by_values(std::optional<Counted> from, std::vector<Counted> more) {
  co_await Sleep{};
  if (more.empty()) co_return std::nullopt;
  co_return from;
}

Task<Counted> returned(const Counted& from) { co_return co_await copy_of(from); }
Task<std::optional<Counted>> converted(const Counted& from) { co_return co_await by_value(from); }
Task<Counted> declared(const Counted& from) {
  auto first = co_await returned(from);
  const Counted second = co_await copy_of(first);
  co_return second;
}
Task<Counted> assigned(const Counted& from) {
  Counted to;
  to = co_await declared(from);
  bool yes = co_await same(to, true);
  if (yes) to = co_await by_value(to);
  co_await nothing(to);
  co_return to;
}
Task<Counted> nested(const Counted& from) {
  const std::vector<Counted> more(2);
  for (int i = 0; i < 3; ++i) {
    co_await nothing(from);
    if (i == 1) continue;
    auto found = co_await by_values(from, more);
    if (found) found = co_await converted(*found);
  }
  switch (from.text.size()) {
    case 50:
      co_return co_await assigned(from);
    default:
      co_return co_await returned(from);
  }
}

detail::Detached run(Task<Counted> task, std::string* text) {
  auto result = co_await task;
  *text = std::move(result.text);
}

}  // namespace

TEST_CASE("a task that is awaited where it is made ends once", "[task]") {
  for (const bool suspending : {false, true}) {
    suspends = suspending;
    {
      const Counted from;
      std::string text;
      run(nested(from), &text);
      while (text.empty() && sleeper) std::exchange(sleeper, nullptr).resume();
      CHECK(text == from.text);
      CHECK(alive == 1);
    }
    CHECK(alive == 0);
  }
}

}  // namespace spillway
