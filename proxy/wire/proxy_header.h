// The PROXY protocol's header: what a load balancer sends before a client's first byte, so that the client's own
// address is known. No message begins like one: as a message's length, the first bytes of both versions would be over
// 100 MB.
// Source: The PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt), sections 2.1 and 2.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway::wire {

// Version 2 allows 64 KiB; addresses and the fields that balancers add take a few hundred.
inline constexpr std::size_t proxy_header_bytes_max = 4096;

struct ProxyHeader {
  enum class Kind : std::uint8_t {
    none,    // the bytes are no such header: the client spoke first
    more,    // this may become one
    header,  // `bytes` of it
    bad,     // see `why`; the connection is unusable
  };
  Kind kind = Kind::more;
  std::size_t bytes = 0;
  // "address:port", "[address]:port". Empty: the connection's own ends (a load balancer's health check, or a family
  // that is not TCP over IP).
  std::string source, destination;
  std::string_view why;  // static
};

// `have`: a connection's first bytes, all that are there. At proxy_header_bytes_max the answer is never `more`.
// Pure; allocates the two addresses only.
ProxyHeader read_proxy_header(Bytes have);

}  // namespace spillway::wire
