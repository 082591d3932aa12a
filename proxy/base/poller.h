// Poller: tells the sockets of one loop when they may have become readable or writable.
//
// Edge-triggered: a socket is registered once and gets every change after that, with or without a waiter. So waiting
// takes no system call; Asio's own waits cost an epoll_ctl, its reads one recv that finds nothing. Waits inside
// Asio's loop, as one descriptor among others: an epoll set is readable when a socket in it is. While sockets and
// timers are all there is to wait for, it blocks in its own set instead, which takes one system call rather than
// three. Belongs to the loop's thread.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cstdint>

#include "proxy/base/file_descriptor.h"
#include "proxy/base/loop.h"

namespace spillway {

class Poller final : public boost::asio::execution_context::service, private Loop::Sleeper {
 public:
  class Socket {
   public:
    // EPOLLIN, EPOLLOUT, EPOLLRDHUP, …: what is true now, after a change. May remove and destroy any socket.
    virtual void on_events(std::uint32_t events) = 0;

   protected:
    ~Socket() = default;
  };

  // The poller of this loop.
  static Poller& of(Loop& loop);

  static const boost::asio::execution_context::id id;  // of the service, for Asio
  explicit Poller(boost::asio::execution_context& owner);

  // False: the kernel refused. The present state comes as a change, too. `socket` stays until remove().
  bool add(int descriptor, Socket& socket) noexcept;
  // Before the descriptor is closed. From now on `socket` is not called.
  void remove(int descriptor, Socket& socket) noexcept;

 private:
  using Set = boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  // What ends a wait in the set.
  class WakeUp final : public Socket {
   public:
    void on_events(std::uint32_t) override {}
  };

  void shutdown() override;
  void wake() noexcept override;
  void wait();
  void serve();
  void collect(int timeout_ms) noexcept;
  void dispatch();

  Loop* loop_ = nullptr;
  Set set_;
  FileDescriptor wake_up_;  // an eventfd; edge-triggered, hence never read
  WakeUp woken_;
  // The events of the turn under way; those of removed sockets are blanked.
  std::array<epoll_event, 64> events_;
  int next_ = 0;
  int count_ = 0;
};

}  // namespace spillway
