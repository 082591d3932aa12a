#include "proxy/server/admin/admin_http.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>

#include <algorithm>
#include <ctime>

#include "proxy/auth/crypto.h"
#include "proxy/base/ip_address.h"

namespace spillway::server {

namespace http = boost::beast::http;

namespace {

// "/metrics?x=1" and "http://host/metrics" are "/metrics".
std::string path_of(std::string_view target) {
  constexpr std::string_view scheme = "http://";
  if (target.starts_with(scheme)) {
    const std::size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  return std::string(target.substr(0, target.find('?')));
}

// Bytes that occur in no header, not even in a wrong one: they show another protocol at its first bytes.
bool is_foreign(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\r' && c != '\n' && c != '\t') || byte == 0x7f;
}

std::string text_of_field(const http::request<http::empty_body>& message, boost::beast::string_view name) {
  const auto value = message[name];
  return std::string(value.data(), value.size());
}

}  // namespace

bool is_of_other_site(const HttpRequest& request) {
  return !request.site.empty() && request.site != "same-origin" && request.site != "none";
}

bool is_local(const HttpRequest& request, std::string_view peer) {
  const auto loopback = [](std::string_view text) {
    const auto address = IpAddress::parse(text);
    return address && address->is_loopback();
  };
  std::string_view host = request.host;
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && !host.ends_with(']')) host = host.substr(0, colon);
  return !is_of_other_site(request) && !request.forwarded && loopback(without_port(peer)) &&
         (host == "localhost" || loopback(host));
}

bool is_of_own_page(const HttpRequest& request) {
  constexpr std::string_view scheme = "http://";
  const std::string_view origin = request.origin;
  if (!request.site.empty() && request.site != "same-origin") return false;
  return origin.starts_with(scheme) && origin.substr(scheme.size()) == request.host;
}

std::string_view named_port(const HttpRequest& request) noexcept {
  const std::string_view host = request.host;
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.ends_with(']')) return "80";
  const std::string_view port = host.substr(colon + 1);
  const bool number = !port.empty() && port.find_first_not_of("0123456789") == std::string_view::npos;
  return number ? port : "0";
}

std::string_view cookie_of(const HttpRequest& request, std::string_view name) noexcept {
  std::string_view rest = request.cookie;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) return pair.substr(name.size() + 1);
  }
  return {};
}

HttpReader::~HttpReader() {
  forget(pending_.size());
  auth::wipe(request_.body);
}

// Of the beginning of what has arrived.
void HttpReader::forget(std::size_t bytes) {
  const std::size_t rest = pending_.size() - bytes;
  std::char_traits<char>::move(pending_.data(), pending_.data() + bytes, rest);
  auth::wipe(pending_.data() + rest, bytes);
  pending_.resize(rest);
}

HttpReader::State HttpReader::refuse(HttpRefusal why) {
  bad_ = true;
  refusal_ = why;
  forget(pending_.size());
  return State::bad;
}

HttpReader::State HttpReader::feed(std::string_view bytes) {
  if (bad_) return State::bad;
  pending_.append(bytes);
  return parse();
}

HttpReader::State HttpReader::next() {
  auth::wipe(request_.body);
  return bad_ ? State::bad : parse();
}

// The body's memory is taken at once: one that moved would leave bytes behind.
HttpReader::State HttpReader::take_body() {
  std::string& body = request_.body;
  body.reserve(body_bytes_);
  const std::size_t bytes = std::min(body_bytes_ - body.size(), pending_.size());
  body.append(pending_, 0, bytes);
  forget(bytes);
  if (body.size() < body_bytes_) return State::more;
  body_bytes_ = 0;
  return State::request;
}

HttpReader::State HttpReader::parse() {
  if (body_bytes_ > 0) return take_body();
  // Some send an empty line after a request.
  while (pending_.starts_with("\r\n")) {
    pending_.erase(0, 2);
    scanned_ = 0;
  }
  const std::size_t end = pending_.find("\r\n\r\n", scanned_ > 3 ? scanned_ - 3 : 0);
  const bool whole = end != std::string::npos;
  const std::size_t bytes = whole ? end + 4 : pending_.size();
  // The first error counts: later bytes cannot change it.
  const auto seen = static_cast<std::ptrdiff_t>(std::min(scanned_, bytes));
  const auto limit = static_cast<std::ptrdiff_t>(std::min(bytes, http_header_bytes_max));
  if (std::any_of(pending_.begin() + std::min(seen, limit), pending_.begin() + limit, is_foreign)) {
    return refuse({400, "this is not HTTP\n"});
  }
  if (bytes > http_header_bytes_max) return refuse({431, "the header is too large\n"});
  scanned_ = bytes;
  if (!whole) return State::more;
  const State state = parse_header(std::string_view(pending_).substr(0, bytes));
  if (state != State::request) return state;
  forget(bytes);
  scanned_ = 0;
  return body_bytes_ > 0 ? take_body() : state;
}

HttpReader::State HttpReader::parse_header(std::string_view header) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(http_header_bytes_max + 1));
  parser.skip(true);  // take_body() reads it
  parser.body_limit(boost::none);
  boost::system::error_code ec;
  parser.put(boost::asio::buffer(header), ec);
  if (ec == http::error::bad_version)
    return refuse({505, "only HTTP/1.0 and HTTP/1.1 are spoken\n"});
  if (ec || !parser.is_header_done()) return refuse({400, "this is not an HTTP request\n"});
  const auto& message = parser.get();
  if (message.version() == 11 && message.count(http::field::host) != 1)
    return refuse({400, "one Host is needed\n"});
  request_.post = message.method() == http::verb::post;
  if (!request_.post && message.method() != http::verb::get && message.method() != http::verb::head) {
    return refuse({405, "only GET and HEAD are answered, and POST by a page's own actions\n"});
  }
  const std::uint64_t body_bytes = parser.content_length().value_or(0);
  if (parser.chunked() || body_bytes > (request_.post ? http_body_bytes_max : 0))
    return refuse({413, request_.post ? "the body is too large, or has no length\n" : "no body is taken\n"});
  if (message.count(http::field::expect) > 0) return refuse({417, "nothing is promised\n"});
  body_bytes_ = static_cast<std::size_t>(body_bytes);
  request_.head_only = message.method() == http::verb::head;
  request_.keep_alive = message.keep_alive();
  request_.path = path_of({message.target().data(), message.target().size()});
  request_.host = std::string(message[http::field::host]);
  request_.forwarded = message.count("X-Forwarded-For") + message.count(http::field::forwarded) +
                           message.count(http::field::via) > 0;
  request_.site = text_of_field(message, "Sec-Fetch-Site");
  request_.origin = text_of_field(message, "Origin");
  request_.content_type = text_of_field(message, "Content-Type");
  request_.cookie = text_of_field(message, "Cookie");
  request_.token = text_of_field(message, {http_token_field.data(), http_token_field.size()});
  return State::request;
}

std::string http_head(const HttpHead& head) {
  const boost::beast::string_view reason =
      http::obsolete_reason(static_cast<http::status>(head.status));
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: "
      "{}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: {}\r\n",
      head.status, std::string_view(reason.data(), reason.size()),
      fmt::gmtime(static_cast<std::time_t>(head.wall_ms / 1000)), head.content_type, head.rules);
  if (head.content_bytes) text += fmt::format("Content-Length: {}\r\n", *head.content_bytes);
  if (head.status == 405) text += fmt::format("Allow: {}\r\n", head.allow);
  text += head.more;
  if (!head.keep_alive) text += "Connection: close\r\n";
  return text += "\r\n";
}

}  // namespace spillway::server
