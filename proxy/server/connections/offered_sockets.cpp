#include "proxy/server/connections/offered_sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace spillway::server {

FileDescriptor duplicate(int socket) {
  FileDescriptor copy(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!copy) throw std::runtime_error(fmt::format("a socket: {}", std::generic_category().message(errno)));
  return copy;
}

std::optional<boost::asio::ip::tcp::endpoint> listening_endpoint(int socket) {
  const auto option = [socket](int name) {
    int value = 0;
    socklen_t length = sizeof value;
    return ::getsockopt(socket, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  const int family = option(SO_DOMAIN);
  if ((family != AF_INET && family != AF_INET6) || option(SO_TYPE) != SOCK_STREAM || option(SO_ACCEPTCONN) != 1) {
    return std::nullopt;
  }
  boost::asio::ip::tcp::endpoint endpoint;
  auto bytes = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(socket, endpoint.data(), &bytes) != 0) return std::nullopt;
  endpoint.resize(bytes);
  return endpoint;
}

HandoverChannel::Message OfferedSockets::offer(std::vector<OfferedSocket> sockets) {
  if (sockets.size() > HandoverChannel::descriptors_max) {
    throw std::runtime_error(fmt::format("{} addresses are too many to hand over", sockets.size()));
  }
  BsonWriter body;
  body.begin_array("sockets");
  for (const OfferedSocket& socket : sockets) {
    body.begin_document_item();
    body.append("use", static_cast<std::int32_t>(socket.use)).append("port", std::int32_t{socket.asked_port});
    body.end();
  }
  body.end();
  HandoverChannel::Message message = HandoverChannel::message("offer", std::move(body).finish());
  for (OfferedSocket& socket : sockets) message.descriptors.push_back(std::move(socket.socket));
  return message;
}

OfferedSockets OfferedSockets::take(HandoverChannel::Message message) {
  const ValueView list = message.body.view()["sockets"];
  std::vector<OfferedSocket> sockets;
  bool good = message.kind == "offer" && list.is_array() && list.as_document().count() == message.descriptors.size();
  if (good) {
    for (const Element& element : list.as_document()) {
      const DocView entry = element.is_document() ? element.as_document() : DocView();
      const auto use = entry["use"].to_int64(), port = entry["port"].to_int64();
      good = good && use && *use >= 0 && *use <= static_cast<std::int64_t>(SocketUse::service_manager) && port &&
             *port >= 0 && *port <= UINT16_MAX;
      if (!good) break;
      FileDescriptor& socket = message.descriptors[sockets.size()];
      good = listening_endpoint(socket.get()).has_value();
      sockets.push_back({static_cast<SocketUse>(*use), static_cast<std::uint16_t>(*port), std::move(socket)});
    }
  }
  if (!good) throw std::runtime_error("the process before offers what are no listening sockets");
  return OfferedSockets(std::move(sockets));
}

FileDescriptor OfferedSockets::take(SocketUse use, const boost::asio::ip::tcp::endpoint& where) {
  for (OfferedSocket& offered : sockets_) {
    if (!offered.socket || offered.use == SocketUse::service_manager) continue;
    const auto found = listening_endpoint(offered.socket.get());
    if (!found || found->address() != where.address()) continue;
    const bool same = where.port() == 0 ? offered.asked_port == 0 && offered.use == use : found->port() == where.port();
    if (same) return std::move(offered.socket);
  }
  return {};
}

std::vector<int> OfferedSockets::on_port(std::uint16_t port) const {
  std::vector<int> found;
  for (const OfferedSocket& offered : sockets_) {
    const auto where = offered.socket ? listening_endpoint(offered.socket.get()) : std::nullopt;
    if (where && where->port() == port) found.push_back(offered.socket.get());
  }
  return found;
}

SharedPort::SharedPort(const OfferedSockets& offered, std::uint16_t port, int socket)
    : sockets_(offered.on_port(port)) {
  sockets_.push_back(socket);
  if (sockets_.size() > 1) set(1);
}

SharedPort::~SharedPort() { set(0); }

void SharedPort::set(int on) const noexcept {
  for (const int socket : sockets_) ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
}

std::vector<FileDescriptor> OfferedSockets::take_service_managers() {
  std::vector<FileDescriptor> taken;
  for (OfferedSocket& offered : sockets_) {
    if (offered.use == SocketUse::service_manager) taken.push_back(std::move(offered.socket));
  }
  return taken;
}

}  // namespace spillway::server
