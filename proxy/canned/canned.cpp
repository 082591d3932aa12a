#include "proxy/canned/canned.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "allocator/limits.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/poller.h"
#include "proxy/base/pump.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/canned/canned_store.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"

namespace spillway::bench {
namespace {

constexpr std::size_t input_bytes_start = 16 * 1024;
constexpr std::size_t input_bytes_keep =
    1024 * 1024;                                 // an idle connection's buffer shrinks to this
constexpr std::size_t piece_bytes = 128 * 1024;  // of a large reply, then other replies have their turn
constexpr std::uint64_t small_reply_bytes = 64 * 1024;  // copied and sent at once

// Throws std::runtime_error.
FileDescriptor listen_on(const CannedOptions& options, std::uint16_t& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (inet_pton(AF_INET, options.host.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("not an IPv4 address: " + options.host);
  }
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 4096) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "listen");
  }
  port = ntohs(address.sin_port);
  return listener;
}

StoreOptions store_options(const CannedOptions& options, std::uint16_t port) {
  StoreOptions store;
  store.index = options.index;
  store.shard_count = options.shard_count;
  store.max_wire_version = options.max_wire_version;
  store.set_name = options.set_name;
  store.address = options.host + ":" + std::to_string(port);
  store.pool_bytes = options.pool_bytes;
  return store;
}

void append_elements(std::string& out, ElementRange range) {
  std::size_t index = 0;
  while (range.count > 0) {
    const auto run = range.images->stamp(range.local, index, range.count, small_reply_bytes);
    out.append(run.bytes, run.elements * run.element_bytes);
    index += run.elements;
    range.local += static_cast<std::int64_t>(run.elements);
    range.count -= run.elements;
  }
}

}  // namespace

// The sockets, the store and everything that belongs to a connection. Of the shard's thread, but for stop().
class CannedShard::Server final : private Poller::Socket, private Timer {
 public:
  Server(CannedShard& shard, const CannedOptions& options, FileDescriptor listener)
      : shard_(shard),
        store_(store_options(options, shard.port_)),
        connections_max_(options.connections_max),
        listener_(std::move(listener)) {
    const bool watched = Poller::of(loop_).add(listener_.get(), *this);
    if (!watched) throw std::system_error(errno, std::generic_category(), "epoll");
  }
  void run() { loop_.run(); }
  void stop() {
    loop_.post([this] {
      Poller::of(loop_).remove(listener_.get(), *this);
      loop_.disarm(*this);
      stopping_ = true;
      for (Transport* client : clients_) client->close();
      if (clients_.empty()) loop_.stop();
    });
  }

 private:
  void on_timer() override { on_events(0); }
  void on_events(std::uint32_t) override {
    for (;;) {
      FileDescriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!client && errno != EINTR && errno != ECONNABORTED) {
        // Waiting clients are signalled once: files may have run out.
        if (errno != EAGAIN) loop_.arm(*this, Clock::now() + std::chrono::milliseconds(100));
        return;
      }
      if (!client || clients_.size() >= connections_max_) continue;
      loop_.spawn(serve(adopt_tcp_transport(loop_, std::move(client), {.keepalive = false})));
    }
  }

  Task<void> serve(std::unique_ptr<Transport> client) {
    clients_.insert(client.get());
    shard_.open_connections_.store(clients_.size());
    co_await answer_all(*client);
    client->close();
    clients_.erase(client.get());
    shard_.open_connections_.store(clients_.size());
    if (stopping_ && clients_.empty()) loop_.stop();
  }

  // Until the client leaves, or sends what this shard does not know.
  Task<void> answer_all(Transport& client) {
    std::vector<std::uint8_t> input(input_bytes_start);
    std::size_t have = 0;
    std::string out;
    for (bool more = false;;) {
      if (!more) {
        ReadyWait readable(client, Transport::Direction::read);
        const bool ready = co_await readable;
        if (!ready) co_return;
      }
      const MutableBytes room = MutableBytes(input).subspan(have);
      const IoResult got = client.try_read(room);
      if (!got.ok() && !got.would_block()) co_return;
      have += got.bytes;
      more = got.bytes == room.size();
      const bool answered = co_await answer_complete(client, input, have, out);
      if (!answered) co_return;
      iovec piece{out.data(), out.size()};
      const bool written = co_await write_all(client, {&piece, 1});
      if (!written) co_return;
      out.clear();
    }
  }

  // Answers the complete messages; small replies are left in `out`. False: the connection must end. Leaves room for at
  // least the rest of the message in hand.
  Task<bool> answer_complete(Transport& client, std::vector<std::uint8_t>& input, std::size_t& have, std::string& out) {
    std::size_t at = 0;
    wire::FrameReader::Need need;
    for (;; at += need.bytes) {
      const Bytes rest = Bytes(input).subspan(at, have - at);
      need = wire::FrameReader::peek(rest);
      if (need.kind == wire::FrameReader::Kind::bad) co_return false;
      if (need.kind == wire::FrameReader::Kind::more || rest.size() < need.bytes) break;
      StoreReply large;
      if (!answer(need.header, rest.first(need.bytes), out, large)) co_return false;
      if (large.range.count == 0) continue;
      const bool sent = co_await send_large(client, out, large);
      if (!sent) co_return false;
    }
    std::copy(input.begin() + static_cast<std::ptrdiff_t>(at), input.begin() + static_cast<std::ptrdiff_t>(have),
              input.begin());
    have -= at;
    if (have == 0 && input.size() > input_bytes_keep) input = std::vector<std::uint8_t>(input_bytes_start);
    // Memory follows the received bytes, not the declared length.
    input.resize(std::max({input.size(), have + 1, std::min(need.bytes, 2 * have)}));
    co_return true;
  }

  // False: the message is none that this shard knows. `large` gets the elements of a large reply, and what comes behind
  // them; all else goes into `out`.
  bool answer(const wire::MessageHeader& header, Bytes message, std::string& out, StoreReply& large) {
    if (header.is(wire::OpCode::query)) {  // the first hello of a connection
      if (!wire::parse_op_query(message)) return false;
      shard_.requests_.fetch_add(1, std::memory_order_relaxed);
      std::vector<std::uint8_t> hello;
      wire::encode_op_reply(hello, ++request_id_, header.request_id, store_.hello_document("isMaster"));
      out.append(reinterpret_cast<const char*>(hello.data()), hello.size());
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
    out.append(reinterpret_cast<const char*>(prefix.data()), prefix.size());
    out.append(reply.head);
    if (reply.range.images != nullptr && reply.bytes() > small_reply_bytes) {
      large = std::move(reply);
      return true;
    }
    if (reply.range.images != nullptr) append_elements(out, reply.range);
    out.append(reply.tail);
    return true;
  }

  // `out`, then the elements, a piece in each turn, then the tail; what is left of that replaces `out`. False: the
  // client has left. Between turns other replies write their own numbers into the images.
  Task<bool> send_large(Transport& client, std::string& out, StoreReply& large) {
    ElementRange& range = large.range;
    std::size_t index = 0;         // the array key of the element in hand
    std::size_t offset_bytes = 0;  // of it already sent
    while (range.count > 0) {
      co_await pump_.turn();
      const auto run = range.images->stamp(range.local, index, range.count, piece_bytes);
      const std::size_t all = run.elements * run.element_bytes - offset_bytes;
      const std::size_t offered = std::min(all, piece_bytes);
      const bool reaches_tail = offered == all && run.elements == range.count;
      const std::array<iovec, 3> parts{{{out.data(), out.size()},
                                        {const_cast<char*>(run.bytes) + offset_bytes, offered},
                                        {large.tail.data(), reaches_tail ? large.tail.size() : 0}}};
      const IoResult wrote = client.try_write(parts);
      if (wrote.would_block()) {
        ReadyWait writable(client, Transport::Direction::write);
        const bool ready = co_await writable;
        if (!ready) co_return false;
        continue;
      }
      if (!wrote.ok()) co_return false;
      std::size_t bytes = wrote.bytes;
      const auto take = [&bytes](std::size_t most) {
        const std::size_t taken = std::min(bytes, most);
        bytes -= taken;
        return taken;
      };
      out.erase(0, take(out.size()));
      offset_bytes += take(offered);
      const std::size_t done = offset_bytes / run.element_bytes;
      offset_bytes %= run.element_bytes;
      index += done;
      range.local += static_cast<std::int64_t>(done);
      range.count -= done;
      large.tail.erase(0, bytes);
    }
    out = std::move(large.tail);
    co_return true;
  }

  CannedShard& shard_;
  CannedStore store_;
  const std::size_t connections_max_;
  const FileDescriptor listener_;
  Loop loop_;
  Pump pump_{loop_};
  std::set<Transport*> clients_;
  bool stopping_ = false;
  std::int32_t request_id_ = 0;
};

CannedShard::CannedShard() = default;

std::unique_ptr<CannedShard> CannedShard::start(const CannedOptions& options, std::string& error) try {
  if (options.shard_count < 1 || options.index < 0 || options.index >= options.shard_count) {
    error = "the index of a canned shard must be between 0 and the number of shards, less one";
    return nullptr;
  }
  std::unique_ptr<CannedShard> shard(new CannedShard);
  shard->host_ = options.host;
  FileDescriptor listener = listen_on(options, shard->port_);
  shard->server_ = std::make_unique<Server>(*shard, options, std::move(listener));
  shard->thread_ = std::thread([server = shard->server_.get()] { server->run(); });
  return shard;
} catch (const std::exception& failed) {
  error = failed.what();
  return nullptr;
}

CannedShard::~CannedShard() { stop(); }

std::string CannedShard::uri() const {
  return "mongodb://" + host_ + ":" + std::to_string(port_) + "/";
}

void CannedShard::stop() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
  server_.reset();
}

}  // namespace spillway::bench
