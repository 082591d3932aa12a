#include "proxy/canned/canned.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"

namespace spillway::bench {
namespace {

constexpr std::size_t input_bytes_start = 16 * 1024;
constexpr std::size_t input_bytes_keep =
    1024 * 1024;                                 // an idle connection's buffer shrinks to this
constexpr std::size_t piece_bytes = 128 * 1024;  // of a large reply, then other replies have their turn
constexpr std::uint64_t small_reply_bytes = 64 * 1024;  // copied and sent at once

std::string errno_text(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// A large reply on its way: `out` of its connection goes first, then the elements, then `tail`.
struct Bulk {
  ElementRange range;
  std::size_t index = 0;         // the array key of the element in hand
  std::size_t offset_bytes = 0;  // of it already sent
  std::string tail;
};

struct Connection {
  int fd = -1;
  std::vector<std::uint8_t> input;
  std::size_t input_bytes = 0;
  std::string out;
  std::size_t out_sent_bytes = 0;
  Bulk bulk;
  bool bulk_active = false;
  bool readable = false;  // edge-triggered: true until a read came up short
  bool blocked = false;   // a send came up short: waits for EPOLLOUT
  bool queued = false;    // in the loop's queue of bulk transfers
  bool closed = false;
};

int listen_on(const CannedOptions& options, std::uint16_t& port, std::string& error) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.host.c_str(), &address.sin_addr) != 1) {
    error = "not an IPv4 address: " + options.host;
    return -1;
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    error = errno_text("socket");
    return -1;
  }
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, size) != 0 || listen(fd, 4096) != 0 ||
      getsockname(fd, generic, &size) != 0) {
    error = errno_text("listen");
    close(fd);
    return -1;
  }
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

// The shard's thread: owns the sockets, the store and everything that belongs to a connection.
class CannedShard::Loop {
 public:
  Loop(CannedShard& shard, const CannedOptions& options, int listen_fd, int epoll_fd)
      : shard_(shard),
        store_(store_options(shard, options)),
        connections_max_(options.connections_max),
        listen_fd_(listen_fd),
        epoll_fd_(epoll_fd) {}

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  ~Loop() {
    for (auto& connection : connections_) {
      if (connection && connection->fd >= 0) close(connection->fd);
    }
    close(listen_fd_);
    close(epoll_fd_);
  }

  void run() {
    std::array<epoll_event, 128> events;
    while (!shard_.stopping_.load()) {
      const int ready = epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()),
                                   bulks_.empty() ? -1 : 0);
      for (int at = 0; at < ready; ++at) handle(events[static_cast<std::size_t>(at)]);
      if (!bulks_.empty()) pump();
      reap();
    }
  }

 private:
  static StoreOptions store_options(const CannedShard& shard, const CannedOptions& options) {
    StoreOptions store;
    store.index = options.index;
    store.shard_count = options.shard_count;
    store.max_wire_version = options.max_wire_version;
    store.set_name = options.set_name;
    store.address = options.host + ":" + std::to_string(shard.port_);
    store.pool_bytes = options.pool_bytes;
    return store;
  }

  void handle(const epoll_event& event) {
    if (event.data.fd == shard_.wake_fd_) return;  // run() looks at the flag
    if (event.data.fd == listen_fd_) return accept_all();
    Connection& connection = *connections_[static_cast<std::size_t>(event.data.fd)];
    if (connection.closed) return;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) return close_connection(connection);
    if ((event.events & EPOLLOUT) != 0 && connection.blocked) {
      connection.blocked = false;
      if (connection.bulk_active) {
        enqueue(connection);
      } else {
        send_piece(connection);
      }
    }
    if ((event.events & (EPOLLIN | EPOLLRDHUP)) != 0) connection.readable = true;
    serve(connection);
  }

  void accept_all() {
    while (true) {
      const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      if (open_connections_ >= connections_max_) {
        close(fd);
        continue;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const auto slot = static_cast<std::size_t>(fd);
      if (connections_.size() <= slot) connections_.resize(slot + 1);
      connections_[slot] = std::make_unique<Connection>();
      connections_[slot]->fd = fd;
      connections_[slot]->input.resize(input_bytes_start);
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
      event.data.fd = fd;
      if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        connections_[slot].reset();
        continue;
      }
      shard_.open_connections_.store(++open_connections_);
    }
  }

  // Its slot is freed by reap(): events of this turn may still name the descriptor.
  void close_connection(Connection& connection) {
    if (connection.closed) return;
    connection.closed = true;
    connection.bulk_active = false;
    dead_.push_back(connection.fd);
    shard_.open_connections_.store(--open_connections_);
  }

  void reap() {
    for (const int fd : dead_) {
      Connection* const gone = connections_[static_cast<std::size_t>(fd)].get();
      std::erase(bulks_, gone);
      close(fd);
      connections_[static_cast<std::size_t>(fd)].reset();
    }
    dead_.clear();
  }

  // Reads and answers until no bytes are left, or a large reply must leave first.
  void serve(Connection& connection) {
    while (!connection.closed && !connection.bulk_active && !connection.blocked) {
      if (!answer_complete(connection)) return;
      if (connection.bulk_active) break;
      send_piece(connection);
      if (!connection.readable || connection.blocked || connection.closed) return;
      receive(connection);
    }
  }

  void receive(Connection& connection) {
    const std::size_t room = connection.input.size() - connection.input_bytes;
    const ssize_t got =
        recv(connection.fd, connection.input.data() + connection.input_bytes, room, 0);
    if (got > 0) {
      connection.input_bytes += static_cast<std::size_t>(got);
      connection.readable = static_cast<std::size_t>(got) == room;
      return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      connection.readable = errno == EINTR;
      return;
    }
    close_connection(connection);
  }

  // Answers the complete messages in the input buffer up to the first large reply. False if the
  // connection had to be closed. Leaves room for at least the rest of the message in hand.
  bool answer_complete(Connection& connection) {
    std::size_t at = 0;
    std::size_t wanted = input_bytes_start;
    while (!connection.bulk_active && connection.input_bytes - at >= limits::message_header_bytes) {
      const Bytes rest(connection.input.data() + at, connection.input_bytes - at);
      const auto header = wire::parse_header(rest);
      if (!header) {
        close_connection(connection);
        return false;
      }
      const auto size = static_cast<std::size_t>(header->message_length);
      if (rest.size() < size) {
        // Memory follows the received bytes, not the declared length.
        wanted = std::max(wanted, std::min(size, 2 * rest.size()));
        break;
      }
      if (!answer(connection, *header, rest.first(size))) {
        close_connection(connection);
        return false;
      }
      at += size;
    }
    if (at > 0) {
      connection.input_bytes -= at;
      std::memmove(connection.input.data(), connection.input.data() + at, connection.input_bytes);
    }
    wanted = std::max(wanted, connection.input_bytes + 1);
    if (connection.input.size() < wanted) connection.input.resize(wanted);
    if (connection.input_bytes == 0 && connection.input.size() > input_bytes_keep) {
      connection.input = std::vector<std::uint8_t>(input_bytes_start);
    }
    return true;
  }

  // False: the message is none that this shard knows.
  bool answer(Connection& connection, const wire::MessageHeader& header, Bytes message) {
    if (header.is(wire::OpCode::query)) {  // the first hello of a connection
      if (!wire::parse_op_query(message)) return false;
      shard_.requests_.fetch_add(1, std::memory_order_relaxed);
      std::vector<std::uint8_t> hello;
      wire::encode_op_reply(hello, ++request_id_, header.request_id, store_.hello_document("isMaster"));
      connection.out.append(reinterpret_cast<const char*>(hello.data()), hello.size());
      return true;
    }
    if (!header.is(wire::OpCode::msg)) return false;
    const auto request = wire::parse_op_msg(message, false);
    if (!request) return false;
    shard_.requests_.fetch_add(1, std::memory_order_relaxed);
    std::size_t documents = 0;
    for (const auto& sequence : request->sequences) documents += sequence.count;
    StoreReply reply = store_.answer(request->body, documents);
    shard_.open_cursors_.store(store_.open_cursors(), std::memory_order_relaxed);
    if (request->has_flag(wire::flags::more_to_come)) return true;
    const auto prefix =
        wire::op_msg_prefix(wire::op_msg_prefix_bytes + reply.bytes(), ++request_id_, header.request_id, 0);
    connection.out.append(reinterpret_cast<const char*>(prefix.data()), prefix.size());
    connection.out.append(reply.head);
    if (reply.range.images != nullptr) {
      if (reply.bytes() > small_reply_bytes) {
        connection.bulk = {reply.range, 0, 0, std::move(reply.tail)};
        connection.bulk_active = true;
        enqueue(connection);
        return true;
      }
      append_elements(connection.out, reply.range);
    }
    connection.out.append(reply.tail);
    return true;
  }

  static void append_elements(std::string& out, ElementRange range) {
    std::size_t index = 0;
    while (range.count > 0) {
      const auto run = range.images->stamp(range.local, index, range.count, small_reply_bytes);
      out.append(run.bytes, run.elements * run.element_bytes);
      index += run.elements;
      range.local += static_cast<std::int64_t>(run.elements);
      range.count -= run.elements;
    }
  }

  void enqueue(Connection& connection) {
    if (connection.queued || connection.closed) return;
    connection.queued = true;
    bulks_.push_back(&connection);
  }

  // One piece of the large reply whose turn it is.
  void pump() {
    Connection& connection = *bulks_.front();
    bulks_.pop_front();
    connection.queued = false;
    if (connection.closed || !connection.bulk_active) return;
    send_piece(connection);
    if (connection.closed || connection.blocked) return;
    if (connection.bulk_active) {
      enqueue(connection);
    } else {
      serve(connection);  // requests that were pipelined behind it
    }
  }

  // What waits in `out`, then one piece of the large reply, if there is one.
  void send_piece(Connection& connection) {
    Bulk& bulk = connection.bulk;
    std::array<iovec, 3> parts{};
    std::size_t used = 0;
    std::size_t offered = 0;
    const auto offer = [&](const char* from, std::size_t size) {
      parts[used++] = {const_cast<char*>(from), size};
      offered += size;
    };
    const std::size_t out_left = connection.out.size() - connection.out_sent_bytes;
    if (out_left > 0) offer(connection.out.data() + connection.out_sent_bytes, out_left);
    std::size_t element_bytes = 1;
    std::size_t elements_offered = 0;
    bool reaches_tail = bulk.range.count == 0;
    if (bulk.range.count > 0) {
      const auto run =
          bulk.range.images->stamp(bulk.range.local, bulk.index, bulk.range.count, piece_bytes);
      element_bytes = run.element_bytes;
      const std::size_t all = run.elements * run.element_bytes - bulk.offset_bytes;
      elements_offered = std::min(all, piece_bytes);
      offer(run.bytes + bulk.offset_bytes, elements_offered);
      reaches_tail = elements_offered == all && run.elements == bulk.range.count;
    }
    if (reaches_tail) offer(bulk.tail.data(), bulk.tail.size());
    if (offered == 0) return;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = used;
    const ssize_t sent = sendmsg(connection.fd, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        connection.blocked = errno == EAGAIN;
        return;
      }
      return close_connection(connection);
    }
    const auto sent_bytes = static_cast<std::size_t>(sent);
    connection.blocked = sent_bytes < offered;
    advance(connection, sent_bytes, out_left, elements_offered, element_bytes);
  }

  // Notes that `sent` bytes left, of `out`, then of the elements offered, then of the tail.
  void advance(Connection& connection, std::size_t sent, std::size_t out_left,
               std::size_t elements_offered, std::size_t element_bytes) {
    Bulk& bulk = connection.bulk;
    const std::size_t of_out = std::min(sent, out_left);
    connection.out_sent_bytes += of_out;
    sent -= of_out;
    if (connection.out_sent_bytes == connection.out.size()) {
      connection.out.clear();
      connection.out_sent_bytes = 0;
    }
    const std::size_t of_elements = std::min(sent, elements_offered);
    sent -= of_elements;
    const std::size_t position = bulk.offset_bytes + of_elements;
    const std::size_t finished = position / element_bytes;
    bulk.offset_bytes = position % element_bytes;
    bulk.index += finished;
    bulk.range.local += static_cast<std::int64_t>(finished);
    bulk.range.count -= finished;
    if (bulk.range.count > 0 || of_elements < elements_offered) return;
    // Only the tail is left: it becomes ordinary output.
    connection.bulk_active = false;
    connection.out.append(bulk.tail, sent);
    bulk = {};
  }

  CannedShard& shard_;
  CannedStore store_;
  std::size_t connections_max_;
  int listen_fd_;
  int epoll_fd_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor
  std::size_t open_connections_ = 0;
  std::deque<Connection*> bulks_;
  std::vector<int> dead_;
  std::int32_t request_id_ = 0;
};

std::unique_ptr<CannedShard> CannedShard::start(const CannedOptions& options, std::string& error) {
  if (options.shard_count < 1 || options.index < 0 || options.index >= options.shard_count) {
    error = "the index of a canned shard must be between 0 and the number of shards, less one";
    return nullptr;
  }
  std::unique_ptr<CannedShard> shard(new CannedShard);
  shard->host_ = options.host;
  const int listen_fd = listen_on(options, shard->port_, error);
  if (listen_fd < 0) return nullptr;
  shard->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const auto watch = [epoll_fd](int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (epoll_fd < 0 || shard->wake_fd_ < 0 || !watch(listen_fd) || !watch(shard->wake_fd_)) {
    error = errno_text("epoll");
    close(listen_fd);
    if (epoll_fd >= 0) close(epoll_fd);
    return nullptr;
  }
  auto loop = std::make_unique<Loop>(*shard, options, listen_fd, epoll_fd);
  shard->thread_ = std::thread([owned = std::move(loop)] { owned->run(); });
  return shard;
}

CannedShard::~CannedShard() { stop(); }

std::string CannedShard::uri() const {
  return "mongodb://" + host_ + ":" + std::to_string(port_) + "/";
}

void CannedShard::stop() {
  if (thread_.joinable()) {
    stopping_.store(true);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
    thread_.join();
  }
  if (wake_fd_ >= 0) close(wake_fd_);
  wake_fd_ = -1;
}

}  // namespace spillway::bench
