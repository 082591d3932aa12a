#include "proxy/base/tcp_transport.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/ip/basic_resolver.hpp>
#include <cerrno>

#include <fmt/format.h>

namespace spillway {

namespace {

using boost::system::error_code;

std::string endpoint_text(const asio::ip::tcp::endpoint& endpoint) {
  if (endpoint.address().is_v6()) {
    return fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port());
  }
  return fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void set_option(int fd, int level, int name, int value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(Loop& loop, TcpSocket socket, const TcpOptions& options)
      : loop_(loop), socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    const int fd = socket_.native_handle();
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (options.send_buffer_bytes > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
    if (options.receive_buffer_bytes > 0) {
      set_option(fd, SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes);
    }
    if (options.keepalive) {
      set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
      set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
      set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
      set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
      set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 45'000);
    }
    const auto remote = socket_.remote_endpoint(ignored);
    if (!ignored) peer_ = endpoint_text(remote);
    const auto here = socket_.local_endpoint(ignored);
    if (!ignored) local_ = endpoint_text(here);
  }

  Loop& loop() noexcept override { return loop_; }

  bool peer_hung_up() const noexcept override {
    pollfd one{const_cast<TcpSocket&>(socket_).native_handle(), POLLRDHUP, 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
  }

  IoResult try_read(MutableBytes into) override {
    for (;;) {
      const ssize_t n = ::recv(socket_.native_handle(), into.data(), into.size(), MSG_DONTWAIT);
      if (n > 0) return {IoResult::Status::ok, static_cast<std::size_t>(n)};
      if (n == 0) return {IoResult::Status::closed, 0};
      if (errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? IoResult::Status::would_block
                                                      : IoResult::Status::failed,
              0};
    }
  }

  IoResult try_write(std::span<const iovec> pieces) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = std::min<std::size_t>(pieces.size(), 64);
    for (;;) {
      const ssize_t n = pieces.size() == 1
                            ? ::send(socket_.native_handle(), pieces[0].iov_base, pieces[0].iov_len,
                                     MSG_DONTWAIT | MSG_NOSIGNAL)
                            : ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) return {IoResult::Status::ok, static_cast<std::size_t>(n)};
      if (errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? IoResult::Status::would_block
                                                      : IoResult::Status::failed,
              0};
    }
  }

  void wait(Direction direction, IoWaiter& waiter) override {
    IoWaiter* const target = &waiter;
    socket_.async_wait(direction == Direction::read ? TcpSocket::wait_read : TcpSocket::wait_write,
                       [target](const error_code& ec) { target->on_ready(static_cast<bool>(ec)); });
  }

  void cancel() override {
    error_code ignored;
    socket_.cancel(ignored);
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

  void reset() override {
    const linger now{1, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  const std::string& peer() const noexcept override { return peer_; }
  const std::string& local() const noexcept override { return local_; }

 private:
  Loop& loop_;
  TcpSocket socket_;
  std::string peer_;
  std::string local_;
};

// Waits for one Asio operation with a deadline: `cancel` is called when it passes.
template <class Start, class Cancel>
class OperationWait final : public Timer {
 public:
  OperationWait(Loop& loop, TimePoint deadline, Start start, Cancel cancel)
      : loop_(loop), deadline_(deadline), start_(std::move(start)), cancel_(std::move(cancel)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (deadline_ != time_point_never) loop_.arm(*this, deadline_);
    start_([this](const error_code& ec) {
      ec_ = ec;
      loop_.disarm(*this);
      std::exchange(waiter_, nullptr).resume();
    });
  }
  error_code await_resume() const noexcept { return ec_; }
  void on_timer() override {
    timed_out_ = true;
    cancel_();
  }
  bool timed_out() const noexcept { return timed_out_; }

 private:
  Loop& loop_;
  TimePoint deadline_;
  Start start_;
  Cancel cancel_;
  std::coroutine_handle<> waiter_;
  error_code ec_;
  bool timed_out_ = false;
};

Error connect_error(bool timed_out, const std::string& host, std::uint16_t port, const error_code& ec) {
  if (timed_out) {
    return Error(ErrorCode::network_timeout, fmt::format("Timed out connecting to {}:{}", host, port));
  }
  return Error(ErrorCode::host_unreachable,
               fmt::format("Error connecting to {}:{} :: caused by :: {}", host, port, ec.message()));
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Loop& loop, TcpSocket socket, const TcpOptions& options) {
  return std::make_unique<TcpTransport>(loop, std::move(socket), options);
}

std::unique_ptr<Transport> adopt_tcp_transport(Loop& loop, FileDescriptor connected,
                                               const TcpOptions& options) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(connected.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return nullptr;
  }
  TcpSocket socket(loop.io().get_executor());
  error_code failed;
  socket.assign(address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                connected.get(), failed);
  if (failed) return nullptr;
  connected.release();
  return make_tcp_transport(loop, std::move(socket), options);
}

Task<Result<std::unique_ptr<Transport>>> TcpNetwork::connect(std::string host, std::uint16_t port,
                                                             TimePoint deadline) {
  using Resolver = asio::ip::basic_resolver<asio::ip::tcp, asio::io_context::executor_type>;
  std::vector<asio::ip::tcp::endpoint> endpoints;
  error_code parse_failed;
  const auto address = asio::ip::make_address(host, parse_failed);
  if (!parse_failed) {
    endpoints.emplace_back(address, port);
  } else {
    Resolver resolver(loop_.io().get_executor());
    auto start = [&](auto done) {
      resolver.async_resolve(host, std::to_string(port),
                             [&endpoints, done](const error_code& ec, const Resolver::results_type& found) {
                               for (const auto& entry : found) endpoints.push_back(entry.endpoint());
                               done(ec);
                             });
    };
    auto cancel = [&] { resolver.cancel(); };
    OperationWait wait(loop_, deadline, start, cancel);
    const error_code ec = co_await wait;
    if (ec || endpoints.empty()) {
      co_return Error(ErrorCode::host_not_found,
                      fmt::format("Could not find address for {}:{} :: caused by :: {}", host, port,
                                  ec.message()));
    }
  }
  Error last(ErrorCode::host_unreachable, "no address");
  for (const auto& endpoint : endpoints) {
    TcpSocket socket(loop_.io().get_executor());
    auto start = [&](auto done) { socket.async_connect(endpoint, done); };
    auto cancel = [&] {
      error_code ignored;
      socket.close(ignored);
    };
    OperationWait wait(loop_, deadline, start, cancel);
    const error_code ec = co_await wait;
    if (!ec && !wait.timed_out()) co_return make_tcp_transport(loop_, std::move(socket), options_);
    last = connect_error(wait.timed_out(), host, port, ec);
    if (wait.timed_out()) break;
  }
  co_return last;
}

}  // namespace spillway
