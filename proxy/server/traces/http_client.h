// Asks an HTTP server: the admin port of a router, or a collector of traces. One request on a connection of its own.
#pragma once

#include <string>

#include "proxy/base/tls_context.h"
#include "proxy/base/transport.h"
#include "proxy/config/http_endpoint.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
  std::string retry_after;  // as the header has it; empty: it is not there
};

inline constexpr std::size_t http_answer_bytes_max = 8 * 1024 * 1024;

// The errors of Network::connect(), and ProtocolError(17) for what is no whole answer of HTTP/1.1 or does not come in
// time.
Task<Result<HttpAnswer>> http_get(Network& network, shard::HostAddress address, std::string path, TimePoint deadline);

// A POST of JSON.
struct HttpPost {
  const HttpEndpoint& to;
  TlsContext::Ptr tls;  // with an endpoint of https
  std::string_view body;
  std::size_t answer_bytes_max = 64 * 1024;
  TimePoint connected_by = time_point_never;
  TimePoint deadline = time_point_never;
  // The connection while there is one, so that the caller can close it. May be null.
  Transport** under_way = nullptr;
};
// Errors as above; SSLHandshakeFailed(141). What `post` refers to outlives the task.
Task<Result<HttpAnswer>> http_post(Network& network, HttpPost post);

}  // namespace spillway::server
