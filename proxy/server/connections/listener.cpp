#include "proxy/server/connections/listener.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/v6_only.hpp>

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "proxy/base/log.h"
#include "proxy/base/pacing.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::server {

namespace {
using boost::system::error_code;

// Bounded, so that a flood of clients does not delay signals.
constexpr int accepts_per_turn = 64;

// Files reserved for connections to shards, the admin port and the process itself, which has some two dozen open
// before the first client.
std::int64_t reserved_files(std::int64_t files_max) noexcept {
  constexpr std::int64_t least = 64;
  return std::max(files_max / 5, least);
}

asio::ip::tcp::endpoint resolve(Loop& loop, const std::string& address, std::uint16_t port) {
  error_code ec;
  const auto numeric = asio::ip::make_address(address, ec);
  if (!ec) return {numeric, port};
  asio::ip::tcp::resolver resolver(loop.io());
  const auto found = resolver.resolve(address, std::to_string(port), ec);
  if (ec || found.empty()) {
    throw std::runtime_error(fmt::format("cannot resolve the address {} to listen on: {}", address, ec.message()));
  }
  return found.begin()->endpoint();
}

// Set before listening: accepted sockets have them from the first packet on.
void set_before_connections(int fd, const SocketBuffers& buffers) noexcept {
  const int segment = buffers.client_segment_bytes_max;
  if (segment > 0) ::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
  const int receive = buffers.client_receive_bytes;
  if (receive > 0) ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
  set_unpaced(fd);
}
}  // namespace

std::int64_t clients_of_files(std::int64_t files_max) noexcept {
  if (files_max == 0) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(files_max - reserved_files(files_max), 1);
}

std::int64_t files_for_clients(std::int64_t clients) noexcept {
  return std::max((clients * 5 + 3) / 4, clients + reserved_files(0));
}

Listener::Listener(Loop& loop, const exec::Services& shared, const ListenerOptions& options)
    : loop_(loop),
      shared_(shared),
      addresses_(options.clients ? options.addresses : std::vector<std::string>()),
      files_max_(options.files_max),
      port_(options.clients ? open_doors(options, options.port, Entrance::clients)
                            : std::uint16_t{0}) {
  set_connections_max(options.connections_max);
  if (options.load_balancer_port) {
    load_balancer_port_ =
        open_doors(options, *options.load_balancer_port, Entrance::load_balancers);
  }
}

std::uint16_t Listener::open_doors(const ListenerOptions& options, std::uint16_t port,
                                   Entrance entrance) {
  const SocketUse use = entrance == Entrance::clients ? SocketUse::clients : SocketUse::load_balancers;
  const std::uint16_t asked_port = port;
  for (const std::string& address : options.addresses) {
    const auto endpoint = resolve(loop_, address, port);
    auto door = std::make_unique<Door>(Door{Acceptor(loop_.io().get_executor()), entrance, use, asked_port});
    Acceptor& acceptor = door->acceptor;
    FileDescriptor offered = options.offered != nullptr ? options.offered->take(use, endpoint) : FileDescriptor();
    error_code ec;
    std::optional<SharedPort> shared;
    if (offered) {
      acceptor.assign(endpoint.protocol(), offered.get(), ec);
      if (!ec) static_cast<void>(offered.release());
    } else {
      acceptor.open(endpoint.protocol(), ec);
      if (!ec) acceptor.set_option(asio::socket_base::reuse_address(true), ec);
      if (!ec && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(true), ec);
      if (!ec && options.offered != nullptr) shared.emplace(*options.offered, port, acceptor.native_handle());
      if (!ec) acceptor.bind(endpoint, ec);
    }
    if (!ec) set_before_connections(acceptor.native_handle(), options.sockets);
    if (!ec) acceptor.listen(listen_backlog, ec);
    if (!ec) acceptor.non_blocking(true, ec);
    if (ec) {
      const bool in_use = ec == boost::system::errc::address_in_use;
      throw std::runtime_error(fmt::format("cannot listen on {}:{}: {}{}", address, port, ec.message(),
                                           in_use ? " (spillway doctor shows how to find its owner)" : ""));
    }
    port = acceptor.local_endpoint().port();  // every further address uses the same
    doors_.push_back(std::move(door));
  }
  return port;
}

std::string Listener::adopt(FileDescriptor socket, const SocketBuffers& buffers) {
  const auto listens = listening_endpoint(socket.get());
  if (!listens) throw std::runtime_error("the service manager passed a socket that is no listening TCP socket");
  set_before_connections(socket.get(), buffers);
  auto door = std::make_unique<Door>(Door{Acceptor(loop_.io().get_executor()), Entrance::clients,
                                          SocketUse::service_manager, listens->port()});
  Acceptor& acceptor = door->acceptor;
  error_code ec;
  acceptor.assign(listens->protocol(), socket.get(), ec);
  if (!ec) static_cast<void>(socket.release());
  if (!ec) acceptor.non_blocking(true, ec);
  if (ec) throw std::runtime_error(fmt::format("cannot use the service manager's socket: {}", ec.message()));
  if (addresses_.empty()) port_ = listens->port();
  doors_.push_back(std::move(door));
  addresses_.push_back(listens->address().to_string());
  return addresses_.back();
}

void Listener::start(std::vector<Worker*> workers) {
  workers_ = std::move(workers);
  for (auto& door : doors_) await_clients(*door);
}

void Listener::stop() {
  stopped_ = true;
  for (auto& door : doors_) {
    // Not close(): the socket may live on in another process, and would wake this one's loop for ever.
    error_code failed;
    const FileDescriptor socket(door->acceptor.release(failed));
    if (failed) door->acceptor.close(failed);
  }
}

std::vector<OfferedSocket> Listener::offer() const {
  std::vector<OfferedSocket> offered;
  for (const auto& door : doors_) {
    const int socket = const_cast<Acceptor&>(door->acceptor).native_handle();
    offered.push_back({door->use, door->asked_port, duplicate(socket)});
  }
  return offered;
}

void Listener::let_in(MovedClient client) {
  shared_.connections.total.fetch_add(1, std::memory_order_relaxed);
  least_loaded().adopt(std::move(client));
}

void Listener::set_connections_max(std::int64_t connections_max) {
  const std::int64_t allowed = clients_of_files(files_max_);
  shared_.connections.max = std::min(connections_max, allowed);
  short_of_files_ = connections_max > allowed;
  if (!short_of_files_) return;
  const bool preset = connections_max == static_cast<std::int64_t>(limits::client_connections_max);
  const std::string line = fmt::format(
      "at most {} clients are let in, not net.maxIncomingConnections ({}): the process may open {} files "
      "(LimitNOFILE=, ulimit -n), and shards need some",
      allowed, connections_max, files_max_);
  preset ? log::info("{}", line) : log::warning("{}", line);
}

// Accepted connections, including those that their worker does not know yet.
std::int64_t Listener::open_connections() const {
  std::int64_t open = 0;
  for (const Worker* worker : workers_) open += worker->connections();
  return open;
}

Worker& Listener::least_loaded() const {
  return **std::min_element(workers_.begin(), workers_.end(), [](const Worker* a, const Worker* b) {
    return a->connections() < b->connections();
  });
}

void Listener::await_clients(Door& door) {
  door.acceptor.async_wait(Acceptor::wait_read, [this, &door](const error_code& ec) {
    if (stopped_) return;
    const bool more = !ec && accept_clients(door);
    if (more) {
      await_clients(door);
      return;
    }
    // Out of file descriptors, most likely: try again when some may have been closed.
    auto timer = std::make_shared<asio::steady_timer>(loop_.io(), std::chrono::milliseconds(100));
    timer->async_wait([this, &door, timer](const error_code&) {
      if (!stopped_) await_clients(door);
    });
  });
}

// Only the descriptor crosses threads: a socket object belongs to its loop.
bool Listener::accept_clients(Door& door) {
  for (int turn = 0; turn < accepts_per_turn; ++turn) {
    FileDescriptor client(::accept4(door.acceptor.native_handle(), nullptr, nullptr,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      const int why = errno;
      if (const auto unwritten = failure_pace_.due(Clock::now())) {
        log::warning("accept failed: {}; {} more since the last such line", std::generic_category().message(why),
                     *unwritten);
      }
      return false;
    }
    if (may_be_open()) let_in(std::move(client), door.entrance);
  }
  return true;
}

bool Listener::may_be_open() {
  const std::int64_t most = shared_.connections.max.load(std::memory_order_relaxed);
  const std::int64_t open = open_connections();
  if (open < most) return true;
  shared_.metrics.connections_rejected.add();
  if (const auto unwritten = refusal_pace_.due(Clock::now())) {
    log::warning("connection refused: {} ({}) is reached; {} more since the last such line",
                 short_of_files_ ? "what the limit of open files allows" : "net.maxIncomingConnections", open,
                 *unwritten);
  }
  return false;
}

void Listener::let_in(FileDescriptor socket, Entrance entrance) {
  shared_.connections.total.fetch_add(1, std::memory_order_relaxed);
  least_loaded().adopt(std::move(socket), next_connection_id_++, entrance);
}

}  // namespace spillway::server
