#include "proxy/base/poller.h"

#include <cerrno>
#include <system_error>

namespace spillway {

namespace asio = boost::asio;

const asio::execution_context::id Poller::id;

Poller& Poller::of(asio::io_context& io) { return asio::use_service<Poller>(io); }

Poller::Poller(asio::execution_context& owner)
    : service(owner), set_(static_cast<asio::io_context&>(owner).get_executor()) {
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  if (set < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  set_.assign(set);
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
  set_.async_wait(Set::wait_read, [this](const boost::system::error_code& failed) {
    if (failed) return;  // the io_context is going
    dispatch();
    wait();
  });
}

void Poller::dispatch() {
  next_ = 0;
  count_ = ::epoll_wait(set_.native_handle(), events_.data(), static_cast<int>(events_.size()), 0);
  while (next_ < count_) {
    const epoll_event event = events_[static_cast<std::size_t>(next_++)];
    if (event.data.ptr != nullptr) static_cast<Socket*>(event.data.ptr)->on_events(event.events);
  }
}

}  // namespace spillway
