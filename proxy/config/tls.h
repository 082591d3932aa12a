// net.tls as connections use it.
#pragma once

#include "proxy/base/tls_context.h"
#include "proxy/config/config.h"

namespace spillway {

struct TlsConfigError {
  std::string_view key;  // that is to be mended
  std::string message;
};

// What holds between the keys of net.tls, and what the files contain. Reads the files.
std::vector<TlsConfigError> check_tls(const TlsConfig& config);
// Null with mode disabled. InvalidSSLConfiguration(140), as check_tls() words it.
Result<TlsContext::Ptr> make_server_tls(const TlsConfig& config);

}  // namespace spillway
