// Listener: accepts clients on the configured addresses and places each on the worker with the
// fewest connections. (SO_REUSEPORT's hash would leave a worker idle when there are few clients.)
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/base/log_pace.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/connections/moved_client.h"
#include "proxy/server/connections/offered_sockets.h"
#include "proxy/server/connections/socket_buffers.h"
#include "proxy/server/connections/worker.h"

namespace spillway::server {

// Connections that the kernel holds until they are accepted (it caps this by net.core.somaxconn).
inline constexpr int listen_backlog = 4'096;
// The number of clients that `files_max` open files allow (0: no limit), and the least number of files for `clients`.
std::int64_t clients_of_files(std::int64_t files_max) noexcept;
std::int64_t files_for_clients(std::int64_t clients) noexcept;

struct ListenerOptions {
  std::vector<std::string> addresses;
  std::uint16_t port = 0;  // 0: a free one
  std::optional<std::uint16_t> load_balancer_port;  // the same; none: no such port
  bool clients = true;  // false: clients' sockets come by adopt()
  std::int64_t connections_max = 0;  // over all ports
  std::int64_t files_max = 0;  // that the process may open; 0: any number
  SocketBuffers sockets;
  OfferedSockets* offered = nullptr;  // taken where they fit; null: none
};

class Listener {
 public:
  // Binds and listens; clients wait in the backlog until start(). Throws std::runtime_error naming the address that
  // fails. `loop` is the main thread's.
  Listener(Loop& loop, const exec::Services& shared, const ListenerOptions& options);

  // Takes a socket that listens already. Returns its address. Throws std::runtime_error for any other kind.
  std::string adopt(FileDescriptor socket, const SocketBuffers& buffers);

  void start(std::vector<Worker*> workers);
  void stop();
  // Copies of its sockets, for the process that replaces this one.
  std::vector<OfferedSocket> offer() const;
  // After start(), also after stop(): a worker serves this client of the other process from now on.
  void let_in(MovedClient client);
  // Of the next connection.
  std::int64_t next_connection_id() const noexcept { return next_connection_id_; }
  void set_next_connection_id(std::int64_t id) noexcept { next_connection_id_ = id; }
  // Also limited by open files: shards and the process itself need some.
  void set_connections_max(std::int64_t connections_max);
  std::uint16_t port() const noexcept {
    return port_;
  }  // the one in use, also when 0 was asked for
  std::optional<std::uint16_t> load_balancer_port() const noexcept { return load_balancer_port_; }
  const std::vector<std::string>& addresses() const noexcept { return addresses_; }

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type>;
  struct Door {
    Acceptor acceptor;
    Entrance entrance;
    SocketUse use;
    std::uint16_t asked_port;
  };
  // Listens on all addresses with one port, which is returned.
  std::uint16_t open_doors(const ListenerOptions& options, std::uint16_t port, Entrance entrance);
  void await_clients(Door& door);
  // Accepts the waiting clients. False: it failed, and would fail again at once.
  bool accept_clients(Door& door);
  bool may_be_open();
  void let_in(FileDescriptor socket, Entrance entrance);
  std::int64_t open_connections() const;
  Worker& least_loaded() const;

  Loop& loop_;
  const exec::Services shared_;
  std::vector<Worker*> workers_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::string> addresses_;
  std::int64_t files_max_;
  bool short_of_files_ = false;  // the limit of open files is lower than net.maxIncomingConnections
  log::LogPace refusal_pace_, failure_pace_;
  std::int64_t next_connection_id_ = 1;
  std::uint16_t port_ = 0;
  std::optional<std::uint16_t> load_balancer_port_;
  bool stopped_ = false;
};

}  // namespace spillway::server
