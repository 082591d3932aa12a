#include "proxy/server/http_get.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>
#include <utility>

namespace spillway::server {

namespace {

constexpr std::string_view version = "HTTP/1.1 ";
constexpr std::string_view length_field = "\r\nContent-Length: ";
constexpr std::string_view header_end = "\r\n\r\n";

// What the admin port sends, which ends with its connection.
Result<HttpAnswer> parse_answer(std::string text) {
  const Error broken(ErrorCode::protocol_error, "the answer is not whole, or not the admin port's");
  const std::size_t end = text.find(header_end);
  const std::size_t field = text.find(length_field);
  if (!text.starts_with(version) || end == std::string::npos || field > end) return broken;
  HttpAnswer answer;
  std::size_t bytes = 0;
  const char* const last = text.data() + text.size();
  if (std::from_chars(text.data() + version.size(), last, answer.status).ec != std::errc()) return broken;
  if (std::from_chars(text.data() + field + length_field.size(), last, bytes).ec != std::errc()) return broken;
  answer.body = text.substr(end + header_end.size());
  if (answer.body.size() != bytes) return broken;
  return answer;
}

Task<std::string> read_to_end(Transport& transport, TimePoint deadline) {
  std::string text;
  std::array<std::uint8_t, 16 * 1024> piece;
  while (text.size() < http_answer_bytes_max) {
    const IoResult got = transport.try_read(piece);
    if (got.ok()) {
      text.append(reinterpret_cast<const char*>(piece.data()), got.bytes);
      continue;
    }
    if (!got.would_block()) break;
    ReadyWait readable(transport, Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) break;
  }
  co_return text;
}

}  // namespace

Task<Result<HttpAnswer>> http_get(Network& network, shard::HostAddress address, std::string path, TimePoint deadline) {
  auto connecting = network.connect(address.host, address.port, deadline);
  auto connected = co_await connecting;
  if (connected.has_error()) co_return connected.error();
  const std::unique_ptr<Transport> transport = *std::move(connected);
  std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address.text());
  iovec piece{request.data(), request.size()};
  auto writing = write_all(*transport, {&piece, 1}, deadline);
  std::string text;
  if (co_await writing) {
    auto reading = read_to_end(*transport, deadline);
    text = co_await reading;
  }
  transport->close();
  co_return parse_answer(std::move(text));
}

}  // namespace spillway::server
