// TLS over another transport. (MongoDB's own: no protocol of its own, the first byte is TLS's.)
//
// establish() shakes hands; before it nothing can be read or written. A record is encrypted when the stream has room
// for it. Bytes that the kernel does not take at once are kept, 17 KiB at most, and count as written when they have
// left.
#pragma once

#include <memory>
#include <string>

#include "proxy/base/tls_context.h"
#include "proxy/base/transport.h"

namespace spillway {

enum class PlainText : std::uint8_t { refused, allowed };

// The server's end. `plain_text` allowed: a client that does not begin with TLS is served without. `ahead`: bytes of
// the stream that were read already; copied.
std::unique_ptr<Transport> make_tls_server(std::unique_ptr<Transport> stream,
                                           TlsContext::Ptr context, PlainText plain_text,
                                           Bytes ahead = {});
// Established, and not with a client in plain text?
bool speaks_tls(const Transport& transport) noexcept;
// The client's end. `host`: the name that the certificate must bear.
std::unique_ptr<Transport> make_tls_client(std::unique_ptr<Transport> stream,
                                           TlsContext::Ptr context, const std::string& host);

}  // namespace spillway
