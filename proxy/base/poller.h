// Poller: tells the sockets of one loop when they may have become readable or writable.
//
// Edge-triggered: a socket is registered once, and is told of every change after that, whether somebody waits or
// not. That makes waiting free of system calls; Asio's own waits cost an epoll_ctl, its reads one recv that finds
// nothing. Waits inside Asio's loop, as one descriptor among others: an epoll set is readable when a socket in it is.
// Belongs to the loop's thread.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cstdint>

namespace spillway {

class Poller final : public boost::asio::execution_context::service {
 public:
  class Socket {
   public:
    // EPOLLIN, EPOLLOUT, EPOLLRDHUP, …: what is true now, after a change. May remove and destroy any socket.
    virtual void on_events(std::uint32_t events) = 0;

   protected:
    ~Socket() = default;
  };

  // The poller of this io_context.
  static Poller& of(boost::asio::io_context& io);

  static const boost::asio::execution_context::id id;  // of the service, for Asio
  explicit Poller(boost::asio::execution_context& owner);

  // False: the kernel refused. What is true already is told as a change. `socket` stays until remove().
  bool add(int descriptor, Socket& socket) noexcept;
  // Before the descriptor is closed. From now on `socket` is not called.
  void remove(int descriptor, Socket& socket) noexcept;

 private:
  using Set = boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  void shutdown() override;
  void wait();
  void dispatch();

  Set set_;
  // The events of the turn under way; those of removed sockets are blanked.
  std::array<epoll_event, 64> events_;
  int next_ = 0;
  int count_ = 0;
};

}  // namespace spillway
