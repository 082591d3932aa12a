// Any bytes on the admin port. What is read of them must not depend on how they arrive: whole, byte
// by byte, in pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/server/admin/admin_http.h"

namespace {

using namespace spillway::server;

void expect(bool holds) {
  if (!holds) std::abort();
}

// One line per request, and one for how it ended.
std::vector<std::string> read_all(std::string_view bytes, std::size_t piece) {
  HttpReader reader;
  std::vector<std::string> seen;
  HttpReader::State state = HttpReader::State::more;
  for (;;) {
    while (state == HttpReader::State::request) {
      const HttpRequest& request = reader.request();
      expect(request.body.size() <= (request.post ? http_body_bytes_max : 0));
      seen.push_back(std::string(request.head_only ? "HEAD " : request.post ? "POST " : "GET ") +
                     (request.keep_alive ? "+ " : "- ") + request.path + " " + request.body + " " +
                     std::string(cookie_of(request, "a")) + std::string(named_port(request)) +
                     (is_of_own_page(request) ? "o" : "-") + (is_local(request, "127.0.0.1:1") ? "l" : "-"));
      state = reader.next();
    }
    if (state == HttpReader::State::bad) {
      const HttpRefusal& why = reader.refusal();
      seen.push_back(std::to_string(why.status) + " " + std::string(why.why));
      return seen;
    }
    if (bytes.empty()) return seen;
    const std::size_t count = std::min({piece, bytes.size(), HttpReader::read_bytes});
    state = reader.feed(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> whole = read_all(bytes, size == 0 ? 1 : size);
  expect(whole == read_all(bytes, 1));
  expect(whole == read_all(bytes, 7));
  expect(size < 2 || whole == read_all(bytes, size / 2));
  return 0;
}
