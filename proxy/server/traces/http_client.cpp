#include "proxy/server/traces/http_client.h"

#include <fmt/format.h>

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "proxy/base/tls_transport.h"

namespace spillway::server {

namespace http = boost::beast::http;

namespace {

class AnswerReader {
 public:
  explicit AnswerReader(std::size_t bytes_max) {
    parser_.eager(true);
    parser_.body_limit(bytes_max);
    parser_.header_limit(8 * 1024);
  }
  // False: the answer is whole, or broken.
  bool feed(Bytes bytes) {
    pending_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (!pending_.empty() && !ended()) {
      const std::size_t taken = parser_.put(boost::asio::buffer(pending_), failed_);
      pending_.erase(0, taken);
      if (failed_ != http::error::need_more) continue;
      failed_ = {};
      break;
    }
    return !ended();
  }
  void end() {
    if (!ended()) parser_.put_eof(failed_);
  }
  Result<HttpAnswer> take() {
    if (failed_ || !parser_.is_done()) return Error(ErrorCode::protocol_error, "the answer is not whole, or not HTTP");
    auto& message = parser_.get();
    return HttpAnswer{message.result_int(), std::move(message.body()), std::string(message[http::field::retry_after])};
  }

 private:
  bool ended() const { return failed_.failed() || parser_.is_done(); }

  http::response_parser<http::string_body> parser_;
  std::string pending_;
  boost::system::error_code failed_;
};

Task<void> read_answer(Transport& transport, AnswerReader& reader, TimePoint deadline) {
  std::array<std::uint8_t, 16 * 1024> piece;
  for (;;) {
    const IoResult got = transport.try_read(piece);
    if (got.ok()) {
      if (!reader.feed(Bytes(piece).first(got.bytes))) co_return;
      continue;
    }
    if (!got.would_block()) {
      if (got.status == IoResult::Status::closed) reader.end();
      co_return;
    }
    ReadyWait readable(transport, Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) co_return;
  }
}

Task<Result<HttpAnswer>> exchange(Transport& transport, std::string head, std::string_view body,
                                  std::size_t answer_bytes_max, TimePoint deadline) {
  std::array<iovec, 2> pieces{iovec{head.data(), head.size()},
                              iovec{const_cast<char*>(body.data()), body.size()}};
  AnswerReader reader(answer_bytes_max);
  const bool written = co_await write_all(transport, {pieces.data(), body.empty() ? 1U : 2U}, deadline);
  if (written) {
    co_await read_answer(transport, reader, deadline);
  }
  transport.close();
  co_return reader.take();
}

}  // namespace

Task<Result<HttpAnswer>> http_get(Network& network, shard::HostAddress address, std::string path, TimePoint deadline) {
  auto connected = co_await network.connect(address.host, address.port, deadline);
  if (connected.has_error()) co_return connected.error();
  const std::unique_ptr<Transport> transport = *std::move(connected);
  auto exchanging = exchange(
      *transport, fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address.text()), {},
      http_answer_bytes_max, deadline);
  co_return co_await exchanging;
}

Task<Result<HttpAnswer>> http_post(Network& network, HttpPost post) {
  auto connecting = network.connect(post.to.host, post.to.port, std::min(post.connected_by, post.deadline));
  auto connected = co_await connecting;
  if (connected.has_error()) co_return connected.error();
  std::unique_ptr<Transport> transport = *std::move(connected);
  if (post.tls) transport = make_tls_client(std::move(transport), post.tls, post.to.host);
  if (post.under_way != nullptr) *post.under_way = transport.get();
  Result<void> established;
  if (post.tls) {
    established = co_await transport->establish(post.deadline);
  }
  Result<HttpAnswer> answer = Error(ErrorCode::protocol_error, std::string());
  if (established.has_error()) {
    transport->close();
    answer = established.error();
  } else {
    auto exchanging =
        exchange(*transport,
                 fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: spillway\r\nConnection: close\r\n"
                             "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                             post.to.path, post.to.authority(), post.body.size()),
                 post.body, post.answer_bytes_max, post.deadline);
    answer = co_await exchanging;
  }
  if (post.under_way != nullptr) *post.under_way = nullptr;
  co_return answer;
}

}  // namespace spillway::server
