// Asks the admin port of a router, this one's or another's.
#pragma once

#include <string>

#include "proxy/base/transport.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

inline constexpr std::size_t http_answer_bytes_max = 8 * 1024 * 1024;

// One GET on a connection of its own. The errors of Network::connect(), and ProtocolError(17) for what is no whole
// answer of HTTP/1.1 or does not come in time.
Task<Result<HttpAnswer>> http_get(Network& network, shard::HostAddress address, std::string path, TimePoint deadline);

}  // namespace spillway::server
