// How a connection through a load balancer begins: the PROXY protocol's header, if there is one, gives the client's
// address.
#include <algorithm>
#include <chrono>

#include "proxy/base/log.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/server/connections/client_connection.h"

namespace spillway::server {

namespace {

// From the connection's start to the end of the header, or to the client's first byte: a driver sends hello at once.
// Parameters::handshake_ms may shorten it.
constexpr auto header_patience = std::chrono::seconds(30);

}  // namespace

Task<bool> ClientConnection::read_proxy_header() {
  const TimePoint deadline = std::min(begun_ + header_patience, handshake_end());
  wire::ProxyHeader header;
  while (header.kind == wire::ProxyHeader::Kind::more) {
    idle_ = true;
    ReadyWait readable(*transport_, Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    idle_ = false;
    if (readable.timed_out()) {
      log::info(
          "connection {} from {} closed: it said nothing, or only part of a PROXY header, for {} ms",
          client_.connection_id, client_.peer,
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - begun_).count());
      environment_.context.shared.metrics.silent_clients_closed.add();
    }
    if (!ready || closing_) co_return false;
    const Bytes ahead =
        pipelined_.bytes();  // shorter than the longest header: it fits into the scratch
    const MutableBytes scratch = environment_.scratch;
    std::copy(ahead.begin(), ahead.end(), scratch.begin());
    const IoResult got = transport_->try_read(scratch.subspan(ahead.size()));
    if (got.would_block()) continue;
    if (!got.ok()) co_return false;
    const Bytes have = scratch.first(ahead.size() + got.bytes);
    header = wire::read_proxy_header(have);
    pipelined_.reset();
    if (!keep_for_later(have.subspan(header.bytes))) co_return false;
  }
  if (header.kind == wire::ProxyHeader::Kind::bad) {
    log::info("connection {} from {} closed: it begins like a PROXY header, but {}",
              client_.connection_id, client_.peer, header.why);
    co_return false;
  }
  if (!header.source.empty()) {
    client_.peer = std::move(header.source);
    client_.local = std::move(header.destination);
  }
  attach_presence();
  co_return true;
}

}  // namespace spillway::server
