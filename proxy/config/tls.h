// net.tls in the form that connections use.
#pragma once

#include "proxy/base/tls_context.h"
#include "proxy/config/config.h"

namespace spillway {

struct TlsConfigError {
  std::string_view key;  // the key to correct
  std::string message;
};

// Checks the keys of net.tls against each other, and the files' content. Reads the files.
std::vector<TlsConfigError> check_tls(const TlsConfig& config);
// Towards clients. Null with mode disabled. InvalidSSLConfiguration(140), with the text of check_tls().
Result<TlsContext::Ptr> make_server_tls(const TlsConfig& config);
// Towards the servers of a cluster; nullopt: plain text, with modes disabled and allowTLS. BadValue(2).
Result<std::optional<TlsClientSettings>> cluster_tls(const TlsConfig& config);

}  // namespace spillway
