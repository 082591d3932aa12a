// Task<T>: a lazy coroutine that is awaited exactly once, by its parent, on one thread.
//
// Children end before their parents: a Task owns its frame, and destroying a Task that is suspended is
// forbidden (its wait would resume freed memory). A child that completes without suspending returns to
// its parent without growing the stack, at every optimisation level. Frames are recycled per thread.
//
// Rules for its users, since GCC 12 miscompiles some temporaries: no capturing lambda is a coroutine; a call is awaited
// as a statement, an initialiser or what is returned, never in a condition or an argument; and what the call is given
// are names, or temporaries that own nothing. Otherwise name the task first.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "allocator/small_blocks.h"
#include "proxy/base/check.h"

namespace spillway {

template <class T>
class Task;

namespace detail {

// What frames are made of. A frame may be given back on another thread than it was taken on.
struct RecycledFrame {
  static void* operator new(std::size_t bytes) {
    void* const frame = small_blocks::take(bytes);
    if (frame == nullptr) throw std::bad_alloc();
    return frame;
  }
  static void operator delete(void* frame, std::size_t bytes) { small_blocks::give_back(frame, bytes); }
};

class PromiseBase : public RecycledFrame {
 public:

  std::suspend_always initial_suspend() const noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      PromiseBase& promise = self.promise();
      promise.finished_ = true;
      if (promise.parent_suspended_) return promise.parent_;
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  FinalAwaiter final_suspend() const noexcept { return {}; }
  // Nothing on the data plane throws; an exception that gets here is a bug.
  void unhandled_exception() noexcept { std::terminate(); }

  bool start(std::coroutine_handle<> self, std::coroutine_handle<> parent) {
    parent_ = parent;
    self.resume();
    if (finished_) return false;
    parent_suspended_ = true;
    return true;
  }

 private:
  std::coroutine_handle<> parent_;
  bool finished_ = false;
  bool parent_suspended_ = false;
};

template <class T>
class Promise : public PromiseBase {
 public:
  Task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
};

template <>
class Promise<void> : public PromiseBase {
 public:
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> parent) {
    return handle_.promise().start(handle_, parent);
  }
  T await_resume() { return handle_.promise().take(); }

 private:
  friend promise_type;
  explicit Task(Handle handle) noexcept : handle_(handle) {}
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// A coroutine that is never awaited: owns itself, runs until its first suspension at once.
struct Detached {
  struct promise_type : RecycledFrame {
    Detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};
}  // namespace detail

// Children of one parent that run at the same time. The parent awaits wait() before it ends.
class TaskGroup {
 public:
  TaskGroup() = default;
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup() { SPILLWAY_CHECK(running_ == 0); }

  // Runs the child until its first suspension, then returns.
  void start(Task<void> child) {
    ++running_;
    run(this, std::move(child));
  }
  std::size_t running() const noexcept { return running_; }

  // co_await group.wait(): until every child has ended.
  struct Wait {
    TaskGroup& group;
    bool await_ready() const noexcept { return group.running_ == 0; }
    void await_suspend(std::coroutine_handle<> parent) noexcept { group.parent_ = parent; }
    void await_resume() const noexcept {}
  };
  Wait wait() noexcept { return Wait{*this}; }

 private:
  static detail::Detached run(TaskGroup* group, Task<void> child) {
    co_await child;
    group->child_ended();
  }
  void child_ended() {
    if (--running_ == 0 && parent_) std::exchange(parent_, nullptr).resume();
  }

  std::size_t running_ = 0;
  std::coroutine_handle<> parent_;
};

// One waiter, one signal: a coroutine sleeps until other code on the same thread wakes it.
class Event {
 public:
  void set() {
    set_ = true;
    if (waiter_) std::exchange(waiter_, nullptr).resume();
  }
  void clear() noexcept { set_ = false; }
  bool is_set() const noexcept { return set_; }
  bool await_ready() const noexcept { return set_; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
  void await_resume() const noexcept {}

 private:
  std::coroutine_handle<> waiter_;
  bool set_ = false;
};

}  // namespace spillway
