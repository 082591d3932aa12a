#include "proxy/base/poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_allocator.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <system_error>

#include "allocator/small_blocks.h"

namespace spillway {

namespace {

// Rounded up: a timer does not fire early.
int milliseconds_until(std::optional<TimePoint> timer) {
  constexpr auto longest = std::chrono::milliseconds(60'000);
  if (!timer) return -1;
  const Duration left = *timer - Clock::recent();
  if (left <= Duration::zero()) return 0;
  return static_cast<int>(std::min(std::chrono::ceil<std::chrono::milliseconds>(left), longest).count());
}

}  // namespace

const asio::execution_context::id Poller::id;

Poller& Poller::of(Loop& loop) {
  Poller& poller = asio::use_service<Poller>(loop.io());
  poller.loop_ = &loop;
  return poller;
}

Poller::Poller(asio::execution_context& owner)
    : service(owner), set_(static_cast<asio::io_context&>(owner).get_executor()) {
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  if (set < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  set_.assign(set);
  wake_up_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_up_.get() < 0 || !add(wake_up_.get(), woken_)) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  wait();
}

void Poller::shutdown() {
  boost::system::error_code ignored;
  set_.close(ignored);
}

bool Poller::add(int descriptor, Socket& socket) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &socket;
  return ::epoll_ctl(set_.native_handle(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Poller::remove(int descriptor, Socket& socket) noexcept {
  epoll_event unused{};
  ::epoll_ctl(set_.native_handle(), EPOLL_CTL_DEL, descriptor, &unused);
  for (int i = next_; i < count_; ++i) {
    epoll_event& event = events_[static_cast<std::size_t>(i)];
    if (event.data.ptr == &socket) event.data.ptr = nullptr;
  }
}

void Poller::wait() {
  // Asio keeps two blocks for all operations under way, and allocates when neither fits.
  set_.async_wait(Set::wait_read,
                  asio::bind_allocator(RecyclingAllocator<std::byte>(),
                                       [this](const boost::system::error_code& failed) {
                                         if (failed) return;  // the io_context is going
                                         collect(0);
                                         Clock::now();  // for Clock::recent()
                                         dispatch();
                                         serve();
                                         wait();
                                       }));
}

void Poller::wake() noexcept {
  constexpr std::uint64_t one = 1;
  // Cannot fail: the counter never overflows.
  [[maybe_unused]] const ssize_t written = ::write(wake_up_.get(), &one, sizeof one);
}

// Until Asio has work to do.
void Poller::serve() {
  while (loop_ != nullptr && loop_->begin_sleep(*this)) {
    collect(milliseconds_until(loop_->next_timer()));
    loop_->end_sleep();
    dispatch();
  }
}

void Poller::collect(int timeout_ms) noexcept {
  next_ = 0;
  count_ = ::epoll_wait(set_.native_handle(), events_.data(), static_cast<int>(events_.size()), timeout_ms);
  if (loop_ != nullptr) loop_->note_poll(count_);
}

void Poller::dispatch() {
  while (next_ < count_) {
    const epoll_event event = events_[static_cast<std::size_t>(next_++)];
    if (loop_ != nullptr) loop_->note_event_run();
    if (event.data.ptr != nullptr) static_cast<Socket*>(event.data.ptr)->on_events(event.events);
  }
}

}  // namespace spillway
