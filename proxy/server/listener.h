// Listener: accepts clients on the configured addresses and places each on the worker with the fewest connections.
// (SO_REUSEPORT's hash would leave a worker idle when there are few clients.)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proxy/base/tcp_transport.h"
#include "proxy/exec/context.h"
#include "proxy/server/socket_buffers.h"
#include "proxy/server/worker.h"

namespace spillway::server {

class Listener {
 public:
  // Binds and listens; clients wait in the backlog until start(). Throws std::runtime_error naming the address that
  // cannot be listened on. `loop` is the main thread's.
  Listener(Loop& loop, exec::Shared& shared, const std::vector<std::string>& addresses,
           std::uint16_t port, int backlog, std::int64_t connections_max,
           const SocketBuffers& buffers);

  void start(std::vector<Worker*> workers);
  void stop();
  std::uint16_t port() const noexcept { return port_; }  // the one in use, also when 0 was asked for
  const std::vector<std::string>& addresses() const noexcept { return addresses_; }

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type>;
  void await_clients(std::size_t index);
  // Takes the clients that wait. False: it failed, and would again at once.
  bool accept_clients(Acceptor& acceptor);
  Worker& least_loaded() const;

  Loop& loop_;
  exec::Shared& shared_;
  std::vector<Worker*> workers_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::vector<std::string> addresses_;
  std::int64_t connections_max_;
  std::int64_t next_connection_id_ = 1;
  std::uint16_t port_ = 0;
  bool stopped_ = false;
};

}  // namespace spillway::server
