// A shard's connection string, parsed. The only door to libmongoc's URI parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proxy/auth/service_login.h"
#include "proxy/base/tls_context.h"
#include "proxy/shard/gateway.h"

namespace spillway::shard {

struct ConnectionString {
  std::vector<HostAddress> hosts;  // at least one
  std::string set_name;            // replicaSet; empty: not given
  bool direct = false;             // directConnection=true: this host and no other
  std::optional<std::int64_t> connect_timeout_ms;
  std::optional<TlsClientSettings> tls;  // tls=true and its options
  auth::ServiceLogin::Ptr login;  // its user; null: it names none
  // Options that drivers know and that have no effect here, as written; for a warning.
  std::vector<std::string> ignored_options;
};

// Errors, all FailedToParse(9) or CommandNotSupported(115) with the reason: not a mongodb:// string, no host, several
// hosts without replicaSet, mongodb+srv, Unix sockets, an unsupported mechanism, an option that no driver knows. No
// message repeats a password. For start-up: any thread.
Result<ConnectionString> parse_connection_string(std::string uri);
// The connection string of a shard as config.shards names it: "set/host:port,host:port", or "host:port" for a server
// that is no replica set. `tls`: null for plain text. FailedToParse(9), naming what is wrong. A seed list: monitors
// find the set's other members.
Result<std::string> connection_string_for(std::string_view host_spec, const TlsClientSettings* tls = nullptr);
// Does it hold a password? `uri` may be any text.
bool holds_password(std::string_view uri);

// "host:port", "host", "[::1]:port"; the port is `preset_port` unless given. nullopt: not an address.
std::optional<HostAddress> parse_host_address(std::string_view text, std::uint16_t preset_port = 27017);

}  // namespace spillway::shard
