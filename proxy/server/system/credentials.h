// The router's credentials towards clients and shards, read from files at the start and at each reload, so that
// certificates and passwords can be renewed while serving.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proxy/base/tls_transport.h"
#include "proxy/catalog/routing.h"
#include "proxy/config/config.h"
#include "proxy/shard/gateway.h"

namespace spillway::server {

struct Credentials {
  using Ptr = std::shared_ptr<const Credentials>;

  TlsContext::Ptr clients;  // towards clients; null: plain text only
  PlainText plain_text = PlainText::allowed;
  std::vector<shard::ShardCredentials> shards;  // of each shard of the routing table

  bool password_file = false;  // one of the shards' passwords was read from a file

  // The credentials that were read from files, certificates with their subject and expiry, in words; empty: none.
  std::string read_from_files() const;
  // Certificates that soon expire, in words.
  std::vector<std::string> warnings() const;
};

// Reads files: any thread. InvalidSSLConfiguration(140), BadValue(2), naming the file. REQUIRES a configuration that
// was checked; the files may have changed since.
Result<Credentials::Ptr> read_credentials(const Config& config, const catalog::RoutingSnapshot& routing);

// A worker's gateway options, without credentials.
shard::GatewayOptions gateway_options(const Config& config, const catalog::RoutingSnapshot& routing);

}  // namespace spillway::server
