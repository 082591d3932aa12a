// What the router proves itself with, to clients and to shards, as files hold it: read at the start and at each
// reload, so that certificates and passwords can be renewed while serving.
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

  bool password_file = false;  // a password of theirs was read from a file

  // What was read from files, certificates with their subject and end, in words; empty: nothing.
  std::string read_from_files() const;
  // Certificates that soon expire, in words.
  std::vector<std::string> warnings() const;
};

// Reads files: any thread. InvalidSSLConfiguration(140), BadValue(2), naming the file. REQUIRES a configuration that
// was checked; the files may have changed since.
Result<Credentials::Ptr> read_credentials(const Config& config, const catalog::RoutingSnapshot& routing);

// What a worker's gateway needs, without its credentials.
shard::GatewayOptions gateway_options(const Config& config, const catalog::RoutingSnapshot& routing);

}  // namespace spillway::server
