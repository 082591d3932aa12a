// Any bytes as the start of a connection to the load balancers' port. What is read of them must not depend on how they
// arrive: of every shorter start, the answer is "more" until it is what it stays.
#include <cstdint>
#include <cstdlib>

#include "allocator/limits.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/proxy_header.h"

namespace {

using namespace spillway;
using namespace spillway::wire;

void expect(bool holds) {
  if (!holds) {
    std::abort();
  }
}

bool same(const ProxyHeader& a, const ProxyHeader& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.source == b.source &&
         a.destination == b.destination && a.why == b.why;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes whole(data, size);
  const ProxyHeader result = read_proxy_header(whole);
  expect(result.kind != ProxyHeader::Kind::more || size < proxy_header_bytes_max);
  expect(result.bytes <= size && (result.bytes > 0) == (result.kind == ProxyHeader::Kind::header));
  expect(result.why.empty() == (result.kind != ProxyHeader::Kind::bad));
  expect(result.source.empty() == result.destination.empty());
  bool settled = false;
  for (std::size_t have = 0; have <= size; ++have) {
    const ProxyHeader part = read_proxy_header(whole.first(have));
    settled = settled || part.kind != ProxyHeader::Kind::more;
    expect(settled == (part.kind != ProxyHeader::Kind::more));
    expect(!settled || same(part, result));
  }
  // What begins like a header is no message.
  if (result.kind == ProxyHeader::Kind::header && size >= limits::message_header_bytes) {
    expect(FrameReader::peek(whole).kind == FrameReader::Kind::bad);
  }
  return 0;
}
