#include "proxy/server/listener.h"

#include <fmt/format.h>

#include <boost/asio/ip/v6_only.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "proxy/base/log.h"

namespace spillway::server {

namespace {
using boost::system::error_code;

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
}  // namespace

Listener::Listener(Loop& loop, exec::Shared& shared, const std::vector<std::string>& addresses, std::uint16_t port,
                   int backlog, std::int64_t connections_max)
    : loop_(loop), shared_(shared), connections_max_(connections_max), port_(port) {
  for (const std::string& address : addresses) {
    const auto endpoint = resolve(loop, address, port_);
    auto acceptor = std::make_unique<Acceptor>(loop.io().get_executor());
    error_code ec;
    acceptor->open(endpoint.protocol(), ec);
    if (!ec) acceptor->set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec && endpoint.address().is_v6()) acceptor->set_option(asio::ip::v6_only(true), ec);
    if (!ec) acceptor->bind(endpoint, ec);
    if (!ec) acceptor->listen(backlog, ec);
    if (ec) {
      throw std::runtime_error(fmt::format("cannot listen on {}:{}: {}", address, port_, ec.message()));
    }
    port_ = acceptor->local_endpoint().port();  // every further address uses the same
    acceptors_.push_back(std::move(acceptor));
    addresses_.push_back(address);
  }
}

void Listener::start(std::vector<Worker*> workers) {
  workers_ = std::move(workers);
  for (std::size_t i = 0; i < acceptors_.size(); ++i) accept_next(i);
}

void Listener::stop() {
  stopped_ = true;
  for (auto& acceptor : acceptors_) {
    error_code ignored;
    acceptor->close(ignored);
  }
}

Worker& Listener::least_loaded() const {
  return **std::min_element(workers_.begin(), workers_.end(), [](const Worker* a, const Worker* b) {
    return a->connections() < b->connections();
  });
}

void Listener::accept_next(std::size_t index) {
  Worker& worker = least_loaded();
  // The socket is born on the worker's loop; only its number crosses threads.
  acceptors_[index]->async_accept(
      worker.loop().io().get_executor(), [this, index](const error_code& ec, TcpSocket socket) {
        if (stopped_) return;
        if (ec) {
          log::warning("accept failed: {}", ec.message());
          // Out of file descriptors, most likely: try again when some may have been closed.
          auto timer = std::make_shared<asio::steady_timer>(loop_.io(), std::chrono::milliseconds(100));
          timer->async_wait([this, index, timer](const error_code&) {
            if (!stopped_) accept_next(index);
          });
          return;
        }
        if (shared_.connections_current.load() >= connections_max_) {
          error_code ignored;
          socket.close(ignored);
          log::warning("connection refused: net.maxIncomingConnections ({}) is reached", connections_max_);
        } else {
          shared_.connections_total.fetch_add(1, std::memory_order_relaxed);
          Worker* owner = workers_.front();
          for (Worker* candidate : workers_) {
            if (&asio::query(socket.get_executor(), asio::execution::context) == &candidate->loop().io()) {
              owner = candidate;
            }
          }
          owner->adopt(std::move(socket), next_connection_id_++);
        }
        accept_next(index);
      });
}

}  // namespace spillway::server
