// HTTP/1.1 as the admin port speaks it: GET and HEAD without bodies, POST with a small one; one request after another.
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
// The body of a POST.
inline constexpr std::size_t http_body_bytes_max = 2 * 1024;

struct HttpRequest {
  bool head_only = false;  // HEAD
  bool post = false;
  bool keep_alive = true;
  std::string path;  // without the query; "/metrics"
  std::string host;  // as the client names us, with the port
  bool forwarded = false;  // by a proxy, for its client
  std::string site;    // Sec-Fetch-Site: whose page asks, as the browser says
  std::string origin;  // Origin: the same
  std::string content_type, cookie, token;  // of a POST; Content-Type, Cookie and http_token_field
  std::string body;                         // of a POST; its holder wipes it
};
inline constexpr std::string_view http_token_field = "X-Spillway-Token";

// Does the browser say that another site's page asks?
bool is_of_other_site(const HttpRequest& request);
// Does the request come from this machine, by a name of this machine, and not from a page of another site? That
// excludes sites whose name resolves to this machine (DNS rebinding), and proxies that say so. `peer`:
// "127.0.0.1:5000".
bool is_local(const HttpRequest& request, std::string_view peer);
// Does the browser say that the page which asks came from here? True needs an Origin: every browser sends one with a
// POST.
bool is_of_own_page(const HttpRequest& request);
// The port by which the client names us: another one than ours behind `ssh -L`. "80" without one, "0" for nonsense.
std::string_view named_port(const HttpRequest& request) noexcept;
// The value of a cookie; empty: it is not there.
std::string_view cookie_of(const HttpRequest& request, std::string_view name) noexcept;

// The answer to a bad stream.
struct HttpRefusal {
  unsigned status = 400;
  std::string_view why;  // a literal
};

class HttpReader {
 public:
  enum class State : std::uint8_t { more, request, bad };

  HttpReader() = default;
  HttpReader(const HttpReader&) = delete;
  HttpReader& operator=(const HttpReader&) = delete;
  ~HttpReader();  // a body may hold a password: nothing of it stays in memory

  // REQUIRES bytes.size() <= read_bytes, and that the last state was `more`.
  State feed(std::string_view bytes);
  // Goes on to the next request, with the bytes that are there already.
  State next();

  HttpRequest& request() noexcept { return request_; }  // of State::request
  const HttpRefusal& refusal() const noexcept { return refusal_; }  // of State::bad
  // Has something of the next request arrived?
  bool begun() const noexcept { return body_bytes_ > 0 || !pending_.empty(); }

  static constexpr std::size_t read_bytes = 2 * 1024;
  // The most memory that a reader holds, parsing included.
  static constexpr std::size_t memory_bytes = 2 * (http_header_bytes_max + read_bytes) + http_body_bytes_max;

 private:
  State parse();
  State parse_header(std::string_view header);
  State take_body();
  void forget(std::size_t bytes);
  State refuse(HttpRefusal why);

  std::string pending_;
  std::size_t scanned_ = 0;  // of it: no end of a header there, and nothing foreign
  std::size_t body_bytes_ = 0;  // that the request under way has; 0: none, or its header is not there yet
  HttpRequest request_;
  HttpRefusal refusal_;
  bool bad_ = false;
};

// For what is no page: nothing in it runs, or is loaded.
inline constexpr std::string_view http_bare_rules = "default-src 'none'; frame-ancestors 'none'";

// The status line and header fields of an answer, with the empty line at their end. `wall_ms`: the time for its Date.
struct HttpHead {
  unsigned status = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::optional<std::size_t> content_bytes = 0;  // none: until the connection ends
  bool keep_alive = true;
  std::int64_t wall_ms = 0;
  std::string_view allow = "GET, HEAD";  // with status 405
  std::string_view rules = http_bare_rules;  // the content security policy
  std::string_view more = {};                // whole lines
};
std::string http_head(const HttpHead& head);

}  // namespace spillway::server
