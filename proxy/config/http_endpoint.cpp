#include "proxy/config/http_endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/shard/connection_string.h"

namespace spillway {

std::string HttpEndpoint::authority() const {
  if (port == (tls ? 443 : 80)) return host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  return shard::HostAddress{host, port}.text();
}

Result<HttpEndpoint> parse_http_endpoint(std::string_view url, std::string_view preset_path) {
  constexpr std::string_view plain = "http://", secure = "https://";
  constexpr std::size_t url_bytes_max = 2'000;
  const auto wrong = [](const std::string& what) { return Error(ErrorCode::failed_to_parse, what); };
  HttpEndpoint endpoint;
  endpoint.tls = url.starts_with(secure);
  if (!endpoint.tls && !url.starts_with(plain)) return wrong(fmt::format("\"{}\" is no http:// or https:// URL", url));
  if (url.size() > url_bytes_max) return wrong("the URL is too long");
  const auto is_foreign = [](char c) { return c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' || c == '\\'; };
  if (std::any_of(url.begin(), url.end(), is_foreign)) return wrong("the URL has a character that must be escaped");
  if (url.find_first_of("?#") != std::string_view::npos) return wrong("a query or a fragment is not supported");
  const std::string_view rest = url.substr(endpoint.tls ? secure.size() : plain.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  if (rest.substr(0, slash).find('@') != std::string_view::npos) {
    return wrong("a user or a password in the URL is not supported");
  }
  const auto address = shard::parse_host_address(rest.substr(0, slash), endpoint.tls ? 443 : 80);
  if (!address) return wrong(fmt::format("\"{}\" is no host, or no host:port", rest.substr(0, slash)));
  endpoint.host = address->host.str();
  endpoint.port = address->port;
  endpoint.path = slash == rest.size() ? preset_path : rest.substr(slash);
  return endpoint;
}

}  // namespace spillway
