// HTTP/1.1 as the admin port speaks it: GET and HEAD without bodies, one request after the other.
// Pure: no sockets.
//
//   HttpReader reader;
//   reader.feed(bytes) -> more | request | bad
//
// The result does not depend on how the stream is cut into pieces. A bad stream stays bad: answer, and close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::server {

// The line and all header fields of a request.
inline constexpr std::size_t http_header_bytes_max = 8 * 1024;

struct HttpRequest {
  bool head_only = false;  // HEAD
  bool keep_alive = true;
  std::string path;  // without the query; "/metrics"
  std::string host;  // as the client names us, with the port
  bool forwarded = false;  // another program asks in somebody's name
};

// Does somebody on this machine ask, by a name of this machine? Then it is no page of another site whose name was made
// to lead here, and no program that forwards and says so. `peer`: "127.0.0.1:5000".
bool is_local(const HttpRequest& request, std::string_view peer);

// The answer to a bad stream.
struct HttpRefusal {
  unsigned status = 400;
  std::string_view why;  // a literal
};

class HttpReader {
 public:
  enum class State : std::uint8_t { more, request, bad };

  // REQUIRES bytes.size() <= read_bytes, and that the last state was `more`.
  State feed(std::string_view bytes);
  // Goes on to the next request, with the bytes that are there already.
  State next();

  const HttpRequest& request() const noexcept { return request_; }  // of State::request
  const HttpRefusal& refusal() const noexcept { return refusal_; }  // of State::bad
  // Has something of the next request arrived?
  bool begun() const noexcept { return !pending_.empty(); }

  static constexpr std::size_t read_bytes = 2 * 1024;
  // The most memory that a reader holds, parsing included.
  static constexpr std::size_t memory_bytes = 2 * (http_header_bytes_max + read_bytes);

 private:
  State parse();
  State parse_header(std::string_view header);
  State refuse(HttpRefusal why);

  std::string pending_;
  std::size_t scanned_ = 0;  // of it: no end of a header there, and nothing foreign
  HttpRequest request_;
  HttpRefusal refusal_;
  bool bad_ = false;
};

// The status line and header fields of an answer, with the empty line at their end. `wall_ms`: the time for its Date.
struct HttpHead {
  unsigned status = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::optional<std::size_t> content_bytes = 0;  // none: until the connection ends
  bool keep_alive = true;
  std::int64_t wall_ms = 0;
  std::string_view more = {};  // whole lines
};
std::string http_head(const HttpHead& head);

}  // namespace spillway::server
