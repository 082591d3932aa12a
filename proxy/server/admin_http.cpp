#include "proxy/server/admin_http.h"

#include <fmt/format.h>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>

#include <algorithm>
#include <ctime>
#include <utility>

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

}  // namespace

bool is_local(const HttpRequest& request, std::string_view peer) {
  const auto loopback = [](std::string_view text) {
    const auto address = IpAddress::parse(text);
    return address && address->is_loopback();
  };
  std::string_view host = request.host;
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && !host.ends_with(']')) host = host.substr(0, colon);
  return !request.forwarded && loopback(without_port(peer)) && (host == "localhost" || loopback(host));
}

HttpReader::State HttpReader::refuse(HttpRefusal why) {
  bad_ = true;
  refusal_ = why;
  pending_.clear();
  return State::bad;
}

HttpReader::State HttpReader::feed(std::string_view bytes) {
  if (bad_) return State::bad;
  pending_.append(bytes);
  return parse();
}

HttpReader::State HttpReader::next() { return bad_ ? State::bad : parse(); }

HttpReader::State HttpReader::parse() {
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
  pending_.erase(0, bytes);
  scanned_ = 0;
  return state;
}

HttpReader::State HttpReader::parse_header(std::string_view header) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(http_header_bytes_max + 1));
  parser.skip(true);  // bodies are refused, not read
  boost::system::error_code ec;
  parser.put(boost::asio::buffer(header), ec);
  if (ec == http::error::bad_version)
    return refuse({505, "only HTTP/1.0 and HTTP/1.1 are spoken\n"});
  if (ec || !parser.is_header_done()) return refuse({400, "this is not an HTTP request\n"});
  const auto& message = parser.get();
  if (message.version() == 11 && message.count(http::field::host) != 1)
    return refuse({400, "one Host is needed\n"});
  if (message.method() != http::verb::get && message.method() != http::verb::head) {
    return refuse({405, "only GET and HEAD are answered\n"});
  }
  if (parser.chunked() || parser.content_length().value_or(0) > 0)
    return refuse({413, "no body is taken\n"});
  request_.head_only = message.method() == http::verb::head;
  request_.keep_alive = message.keep_alive();
  request_.path = path_of({message.target().data(), message.target().size()});
  request_.host = std::string(message[http::field::host]);
  request_.forwarded = message.count("X-Forwarded-For") + message.count(http::field::forwarded) +
                           message.count(http::field::via) > 0;
  return State::request;
}

std::string http_head(const HttpHead& head) {
  const boost::beast::string_view reason =
      http::obsolete_reason(static_cast<http::status>(head.status));
  const std::time_t seconds = static_cast<std::time_t>(head.wall_ms / 1000);
  std::tm date{};
  ::gmtime_r(&seconds, &date);
  constexpr std::string_view days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::string_view months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\nContent-Type: "
      "{}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
      head.status, std::string_view(reason.data(), reason.size()), days[date.tm_wday], date.tm_mday,
      months[date.tm_mon], date.tm_year + 1900, date.tm_hour, date.tm_min, date.tm_sec,
      head.content_type);
  if (head.content_bytes) text += fmt::format("Content-Length: {}\r\n", *head.content_bytes);
  if (head.status == 405) text += "Allow: GET, HEAD\r\n";
  text += head.more;
  if (!head.keep_alive) text += "Connection: close\r\n";
  return text += "\r\n";
}

}  // namespace spillway::server
