// The URL of a service that the proxy sends something to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cursor/error.h"

namespace spillway {

struct HttpEndpoint {
  bool tls = false;  // https
  std::string host;  // a name, or an address without brackets
  std::uint16_t port = 80;
  std::string path = "/";

  // As the header Host has it.
  std::string authority() const;
};

// "http://host:port/path", or https; the port is 80 or 443 unless given, the path `preset_path`. FailedToParse(9), with
// what is wrong: another scheme, a user, a query, a character that no URL has.
Result<HttpEndpoint> parse_http_endpoint(std::string_view url, std::string_view preset_path);
// A collector of traces: the path that collectors have is the preset.
inline Result<HttpEndpoint> trace_endpoint(std::string_view url) { return parse_http_endpoint(url, "/v1/traces"); }

}  // namespace spillway
