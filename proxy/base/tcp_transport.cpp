#include "proxy/base/tcp_transport.h"

#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "allocator/limits.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log.h"
#include "proxy/base/pacing.h"
#include "proxy/base/poller.h"

namespace spillway {

namespace {

using boost::system::error_code;

std::string endpoint_text(const asio::ip::tcp::endpoint& endpoint) {
  if (endpoint.address().is_v6()) {
    return fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port());
  }
  return fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

// One end of a connection, as getpeername or getsockname tells it.
template <class GetName>
std::string end_text(int fd, GetName get_name) {
  asio::ip::tcp::endpoint endpoint;
  socklen_t length = static_cast<socklen_t>(endpoint.capacity());
  if (get_name(fd, endpoint.data(), &length) != 0) return {};
  endpoint.resize(length);
  return endpoint_text(endpoint);
}

void set_option(int fd, int level, int name, int value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

bool is_same_machine(std::string_view peer, std::string_view local) noexcept {
  const auto address = IpAddress::parse(without_port(peer));
  return address && (address->is_loopback() || address == IpAddress::parse(without_port(local)));
}

// Pieces of at most this much together leave as one: copying them costs less than a vectored send.
constexpr std::size_t gathered_bytes_max = 4096;

// How often a grown buffer is checked.
constexpr auto growth_look = std::chrono::seconds(1);
// A stream that moves this number of buffers in that time is not slow.
constexpr std::uint64_t fast_buffers = 8;
// A peer that takes less than this of a send buffer that is wanted back loses its connection.
constexpr int drain_looks = 10;
constexpr int drain_bytes_min = drain_looks * 16 * limits::kib;
// A socket takes nothing more while it holds twice its buffer's size and a segment: one that holds less may be a stream
// that goes on.
constexpr int segment_bytes_max = 64 * limits::kib;
// Nothing came: the stream has ended.
constexpr int idle_looks_max = 2;
// Until a slow stream's buffer may grow again.
constexpr auto growth_rest = std::chrono::seconds(10);

// What the kernel charges a socket for what it has received.
struct ReceiveMemory {
  std::uint32_t used_bytes = 0;
  std::uint32_t limit_bytes = 0;
};
ReceiveMemory receive_memory(int fd) noexcept {
  std::array<std::uint32_t, SK_MEMINFO_VARS> all{};
  socklen_t length = sizeof all;
  ::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, all.data(), &length);
  return {all[SK_MEMINFO_RMEM_ALLOC], all[SK_MEMINFO_RCVBUF]};
}

// The kernel's own count of a buffer; it may grant less than was asked for.
std::uint64_t buffer_bytes(int fd, int name) noexcept {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  ::getsockopt(fd, SOL_SOCKET, name, &bytes, &length);
  return static_cast<std::uint64_t>(std::max(bytes, 0));
}

// Gives back what the kernel did not grant.
void keep_granted(Reservation& room, int fd, int name, int before) noexcept {
  const std::uint64_t bytes = buffer_bytes(fd, name);
  const auto base = 2 * static_cast<std::uint64_t>(before);
  const std::uint64_t granted = bytes - std::min(bytes, base);
  if (granted < room.bytes()) room.shrink_to(granted);
}

class TcpTransport final : public Transport, private Poller::Socket {
 public:
  TcpTransport(Loop& loop, FileDescriptor socket, const TcpOptions& options)
      : loop_(loop), poller_(Poller::of(loop)), socket_(std::move(socket)) {
    const int fd = socket_.get();
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);  // splice() has no other way not to block
    if (options.send_buffer_bytes > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
    if (options.keepalive) {
      set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
      set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
      set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
      set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
      set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, options.user_timeout_ms);
    }
    receive_buffer_bytes_ = options.receive_buffer_bytes;
    send_buffer_bytes_ = options.send_buffer_bytes;
    growth_ = options.growth;
    peer_ = end_text(fd, ::getpeername);
    local_ = end_text(fd, ::getsockname);
    if (!is_same_machine(peer_, local_)) set_paced_again(fd);
    if (!poller_.add(fd, *this)) socket_.reset();
  }
  ~TcpTransport() override { disconnect(); }

  Loop& loop() noexcept override { return loop_; }

  void grow_receive_buffer(int bytes) override {
    receive_buffer_bytes_ = bytes;
    set_option(socket_.get(), SOL_SOCKET, SO_RCVBUF, bytes);
  }

  // A receive buffer of fixed size bounds what the peer may have on its way. The mark is at most a quarter of it:
  // with a larger one the peer would stop until this end has read, and every buffer would take a round trip. (A
  // buffer that the kernel sizes gets room for twice the mark.) If enough bytes are there already, the kernel tells
  // at once.
  void set_read_low_water(std::size_t bytes) override {
    if (bytes > 1) grow_for_much();
    if (receive_buffer_bytes_ > 0) bytes = std::min(bytes, static_cast<std::size_t>(receive_buffer_bytes_) / 4);
    bytes = std::max<std::size_t>(bytes, 1);
    if (bytes == read_low_water_) return;
    read_low_water_ = bytes;
    set_option(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(bytes));
  }

  bool holds_wanted_memory() const noexcept override {
    if (!receive_growth_ || receive_growth_->room.budget() != &growth_->borrowed()) return false;
    return receive_growth_->idle_looks >= idle_looks_max || growth_->wants_back(receive_growth_->room);
  }

  bool timed_out() const noexcept override { return timed_out_; }

  bool peer_hung_up() const noexcept override {
    if (!socket_) return true;
    pollfd one{socket_.get(), POLLRDHUP, 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
  }

  IoResult try_read(MutableBytes into) override {
    for (;;) {
      const ssize_t n = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
      if (n > 0) {
        // Less than the room for it: nothing is left, unless the stream's end follows.
        received_bytes_ += static_cast<std::uint64_t>(n);
        if (static_cast<std::size_t>(n) < into.size() && !hung_up_) ready_[of(Direction::read)] = false;
        return {IoResult::Status::ok, static_cast<std::size_t>(n)};
      }
      if (n == 0) return {IoResult::Status::closed, 0};
      if (errno == EINTR) continue;
      return would_block(Direction::read);
    }
  }

  IoResult try_write(std::span<const iovec> pieces) override {
    std::array<std::uint8_t, gathered_bytes_max> gathered;
    iovec whole;
    if (pieces.size() > 1 && gather(pieces, gathered, whole)) pieces = {&whole, 1};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = std::min<std::size_t>(pieces.size(), 64);
    for (;;) {
      const ssize_t n = pieces.size() == 1
                            ? ::send(socket_.get(), pieces[0].iov_base, pieces[0].iov_len,
                                     MSG_DONTWAIT | MSG_NOSIGNAL)
                            : ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) return {IoResult::Status::ok, static_cast<std::size_t>(n)};
      if (errno == EINTR) continue;
      return would_block(Direction::write);
    }
  }

  bool can_splice() const noexcept override { return true; }

  IoResult splice_into(int pipe, std::size_t bytes) override {
    const IoResult got = moved(Direction::read, [&] {
      return ::splice(socket_.get(), nullptr, pipe, nullptr, bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    });
    received_bytes_ += got.bytes;
    return got;
  }

  IoResult splice_from(int pipe, std::size_t bytes) override {
    return moved(Direction::write, [&] {
      return ::splice(pipe, nullptr, socket_.get(), nullptr, bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    });
  }

  void wait(Direction direction, IoWaiter& waiter) override {
    if (socket_ && !ready_[of(direction)]) {
      waiters_[of(direction)] = &waiter;
    } else {
      IoWaiter* const target = &waiter;
      loop_.post([target] { target->on_ready(false); });
    }
  }

  void cancel() override {
    for (IoWaiter*& waiter : waiters_) {
      if (IoWaiter* const target = std::exchange(waiter, nullptr)) {
        loop_.post([target] { target->on_ready(true); });
      }
    }
  }

  void close() override {
    cancel();
    disconnect();
  }

  bool can_release() const noexcept override { return static_cast<bool>(socket_); }
  // Its buffers have their first size again: the new owner pays for no more.
  FileDescriptor release() override {
    cancel();
    set_read_low_water(1);
    if (receive_growth_) set_option(socket_.get(), SOL_SOCKET, SO_RCVBUF, receive_growth_->before);
    if (send_growth_) set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, send_buffer_bytes_);
    poller_.remove(socket_.get(), *this);
    FileDescriptor socket = std::move(socket_);
    forget_growth();
    return socket;
  }

  void reset() override {
    const linger now{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  const std::string& peer() const noexcept override { return peer_; }
  const std::string& local() const noexcept override { return local_; }

 private:
  static constexpr std::size_t of(Direction direction) noexcept {
    return static_cast<std::size_t>(direction);
  }

  // The callback may destroy this transport.
  void on_events(std::uint32_t events) override {
    IoWaiter* reader = nullptr;
    IoWaiter* writer = nullptr;
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
      ready_[of(Direction::read)] = true;
      reader = std::exchange(waiters_[of(Direction::read)], nullptr);
    }
    if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
      ready_[of(Direction::write)] = true;
      writer = std::exchange(waiters_[of(Direction::write)], nullptr);
    }
    if (reader != nullptr) reader->on_ready(false);
    if (writer != nullptr) writer->on_ready(false);
  }

  template <class Splice>
  IoResult moved(Direction direction, const Splice& splice) noexcept {
    for (;;) {
      const ssize_t n = splice();
      if (n > 0) return {IoResult::Status::ok, static_cast<std::size_t>(n)};
      if (n == 0) return {IoResult::Status::closed, 0};
      if (errno == EINTR) continue;
      return would_block(direction);
    }
  }

  void grow_for_much() {
    if (receive_buffer_bytes_ == 0 || growth_ == nullptr || receive_growth_) return;
    if (may_grow_from_ != TimePoint::min() && Clock::now() < may_grow_from_) return;
    Reservation room = growth_->take_for_receiving();
    if (room.bytes() == 0) return;
    const int before = receive_buffer_bytes_;
    grow_receive_buffer(before + static_cast<int>(room.bytes() / 2));  // the kernel doubles the value
    keep_granted(room, socket_.get(), SO_RCVBUF, before);
    if (room.bytes() == 0) {
      may_grow_from_ = time_point_never;
      return;
    }
    receive_growth_ = std::make_unique<ReceiveGrowth>(*this, std::move(room), before);
    received_bytes_ = 0;
    loop_.arm(*receive_growth_, Clock::now() + growth_look);
  }

  struct ReceiveGrowth final : Timer {
    ReceiveGrowth(TcpTransport& grown, Reservation pays, int bytes)
        : transport(grown), room(std::move(pays)), before(bytes) {}
    void on_timer() override { transport.look_at_receive_growth(); }
    TcpTransport& transport;
    Reservation room;
    int before;
    int idle_looks = 0;   // in a row
    bool shrunk = false;  // the kernel may still hold what came before
  };

  // What was promised to the peer cannot be taken back: the buffer shrinks only while it is full, since then nothing
  // is promised. A slow stream's is full most of the time, and needs no large one. A fast stream keeps it.
  void look_at_receive_growth() {
    ReceiveGrowth& growth = *receive_growth_;
    const ReceiveMemory memory = receive_memory(socket_.get());
    const std::uint64_t moved = std::exchange(received_bytes_, 0);
    growth.idle_looks = moved == 0 ? growth.idle_looks + 1 : 0;
    if (growth.shrunk && memory.used_bytes <= memory.limit_bytes) {
      may_grow_from_ = Clock::now() + growth_rest;
      receive_growth_.reset();
      return;
    }
    const bool full = memory.used_bytes >= memory.limit_bytes / 16 * 15;
    if (!growth.shrunk && full && moved < fast_buffers * growth.room.bytes()) {
      growth.shrunk = true;
      grow_receive_buffer(growth.before);
      set_read_low_water(read_low_water_);
    }
    loop_.arm(growth, Clock::now() + growth_look);
  }

  // The peer takes less than we send.
  void grow_for_rest() noexcept {
    if (send_buffer_bytes_ == 0 || growth_ == nullptr || send_growth_) return;
    Reservation room = growth_->take_for_sending();
    if (room.bytes() == 0) return;
    const int grown = send_buffer_bytes_ + static_cast<int>(room.bytes() / 2);
    set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, grown);
    keep_granted(room, socket_.get(), SO_SNDBUF, send_buffer_bytes_);
    send_growth_ = std::make_unique<SendGrowth>(*this, std::move(room));
    loop_.arm(*send_growth_, Clock::now() + growth_look);
  }

  struct SendGrowth final : Timer {
    SendGrowth(TcpTransport& grown, Reservation pays) : transport(grown), room(std::move(pays)) {}
    void on_timer() override { transport.look_at_send_growth(); }
    TcpTransport& transport;
    Reservation room;
    int wanted_looks = 0;  // in a row
    int held_bytes = 0;    // at the first of them
  };

  // It shrinks once it is empty; at once if its memory is wanted back, and is paid for until what it holds has left.
  // Only this watches a peer that does not take it: for the rest of the proxy the reply is written.
  void look_at_send_growth() {
    const bool wanted_back = growth_->wants_back(send_growth_->room);
    if (wanted_back) set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, send_buffer_bytes_);
    const int held_bytes_max = wanted_back ? 2 * send_buffer_bytes_ + segment_bytes_max : 0;
    int unsent = 0;
    if (::ioctl(socket_.get(), SIOCOUTQ, &unsent) == 0 && unsent > held_bytes_max) {
      if (wanted_back && is_stuck(*send_growth_, unsent)) {
        log::info("the connection from {} closed: it has not taken {} bytes in a buffer that others need", peer_,
                  unsent);
        return reset();
      }
      if (!wanted_back) send_growth_->wanted_looks = 0;
      return loop_.arm(*send_growth_, Clock::now() + growth_look);
    }
    set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, send_buffer_bytes_);
    send_growth_.reset();
  }

  static bool is_stuck(SendGrowth& growth, int unsent) noexcept {
    if (growth.wanted_looks++ == 0) growth.held_bytes = unsent;
    if (growth.wanted_looks <= drain_looks) return false;
    growth.wanted_looks = 0;
    return growth.held_bytes - unsent < drain_bytes_min;
  }

  // After a system call that failed.
  IoResult would_block(Direction direction) noexcept {
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      timed_out_ = timed_out_ || errno == ETIMEDOUT;
      return {IoResult::Status::failed, 0};
    }
    if (direction == Direction::write) grow_for_rest();
    ready_[of(direction)] = false;
    return {IoResult::Status::would_block, 0};
  }

  void disconnect() noexcept {
    if (!socket_) return;
    poller_.remove(socket_.get(), *this);
    socket_.reset();
    forget_growth();
  }

  void forget_growth() noexcept {
    if (receive_growth_) loop_.disarm(*receive_growth_);
    receive_growth_.reset();
    if (send_growth_) loop_.disarm(*send_growth_);
    send_growth_.reset();
  }

  // Copies the pieces into one, if they are small enough.
  static bool gather(std::span<const iovec> pieces, std::array<std::uint8_t, gathered_bytes_max>& into,
                     iovec& whole) noexcept {
    std::size_t size = 0;
    for (const iovec& piece : pieces) {
      if (piece.iov_len > into.size() - size) return false;
      if (piece.iov_len > 0) std::memcpy(into.data() + size, piece.iov_base, piece.iov_len);
      size += piece.iov_len;
    }
    whole = {into.data(), size};
    return true;
  }

  Loop& loop_;
  Poller& poller_;
  FileDescriptor socket_;
  // By direction. Not ready: the last call found nothing, and no change has been told since.
  std::array<bool, 2> ready_{};
  std::array<IoWaiter*, 2> waiters_{};
  std::size_t read_low_water_ = 1;
  int receive_buffer_bytes_ = 0;  // 0: the kernel's choice
  int send_buffer_bytes_ = 0;     // before it has grown; likewise
  SocketGrowth* growth_ = nullptr;
  std::unique_ptr<ReceiveGrowth> receive_growth_;  // null: it has not grown
  std::unique_ptr<SendGrowth> send_growth_;        // likewise
  TimePoint may_grow_from_ = TimePoint::min();
  std::uint64_t received_bytes_ = 0;  // since the last look at the receive buffer
  bool hung_up_ = false;
  bool timed_out_ = false;
  std::string peer_;
  std::string local_;
};

// Waits for one Asio operation with a deadline: `cancel` is called when it passes.
template <class Start, class Cancel>
class OperationWait final : public Timer {
 public:
  OperationWait(Loop& loop, TimePoint deadline, Start start, Cancel cancel)
      : loop_(loop), operation_(loop), deadline_(deadline), start_(std::move(start)), cancel_(std::move(cancel)) {}
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
  Loop::AsioOperation operation_;
  TimePoint deadline_;
  Start start_;
  Cancel cancel_;
  std::coroutine_handle<> waiter_;
  error_code ec_;
  bool timed_out_ = false;
};

// The end of the first attempt of `left`: each gets its share of the remaining time.
TimePoint share_of(TimePoint deadline, std::size_t left) {
  if (deadline == time_point_never || left <= 1) return deadline;
  const TimePoint now = Clock::now();
  return now + (deadline - now) / static_cast<Duration::rep>(left);
}

Error connect_error(bool timed_out, const std::string& host, std::uint16_t port, const error_code& ec) {
  if (timed_out) {
    return Error(ErrorCode::network_timeout, fmt::format("Timed out connecting to {}:{}", host, port));
  }
  // What this machine lacks: descriptors, ports, buffers.
  const bool lacking = ec == asio::error::no_descriptors || ec.value() == ENFILE || ec.value() == ENOBUFS ||
                       ec.value() == ENOMEM || ec.value() == EADDRNOTAVAIL;
  return Error(lacking ? ErrorCode::too_many_files_open : ErrorCode::host_unreachable,
               fmt::format("Error connecting to {}:{} :: caused by :: {}", host, port, ec.message()));
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Loop& loop, TcpSocket socket, const TcpOptions& options) {
  error_code failed;
  FileDescriptor connected(socket.release(failed));
  if (failed) connected.reset();
  return std::make_unique<TcpTransport>(loop, std::move(connected), options);
}

std::unique_ptr<Transport> adopt_tcp_transport(Loop& loop, FileDescriptor connected,
                                               const TcpOptions& options) {
  if (::fcntl(connected.get(), F_GETFD) < 0) return nullptr;
  return std::make_unique<TcpTransport>(loop, std::move(connected), options);
}

// At the first transport, in a coroutine, nothing could take what the poller throws.
TcpNetwork::TcpNetwork(Loop& loop, const TcpOptions& options, NameLookup& names)
    : loop_(loop), options_(options), names_(names) {
  Poller::of(loop_);
}

Task<Result<std::unique_ptr<Transport>>> TcpNetwork::connect(std::string host, std::uint16_t port,
                                                             TimePoint deadline) {
  IpAddresses addresses;
  error_code parse_failed;
  const auto address = asio::ip::make_address(host, parse_failed);
  if (!parse_failed) {
    addresses.push_back(address);
  } else {
    auto found = co_await names_.look_up(loop_, host, deadline);
    if (found.has_error()) co_return std::move(found.error());
    addresses = *std::move(found);
  }
  Error last(ErrorCode::host_unreachable, "no address");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const asio::ip::tcp::endpoint endpoint(addresses[i], port);
    TcpSocket socket(loop_.io().get_executor());
    error_code not_opened;
    socket.open(endpoint.protocol(), not_opened);
    if (!not_opened && endpoint.address().is_loopback()) set_unpaced(socket.native_handle());
    auto start = [&](auto done) { socket.async_connect(endpoint, done); };
    auto cancel = [&] {
      error_code ignored;
      socket.close(ignored);
    };
    OperationWait wait(loop_, share_of(deadline, addresses.size() - i), start, cancel);
    const error_code ec = co_await wait;
    if (!ec && options_.receive_buffer_bytes > 0) {
      set_option(socket.native_handle(), SOL_SOCKET, SO_RCVBUF, options_.receive_buffer_bytes);
    }
    if (!ec && !wait.timed_out()) co_return make_tcp_transport(loop_, std::move(socket), options_);
    last = connect_error(wait.timed_out(), host, port, ec);
    if (wait.timed_out() && Clock::now() >= deadline) break;
  }
  co_return last;
}

}  // namespace spillway
