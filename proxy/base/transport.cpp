#include "proxy/base/transport.h"

namespace spillway {

std::span<iovec> advance_pieces(std::span<iovec> pieces, std::size_t bytes) noexcept {
  while (!pieces.empty() && bytes >= pieces.front().iov_len) {
    bytes -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty() && bytes > 0) {
    pieces.front().iov_base = static_cast<std::uint8_t*>(pieces.front().iov_base) + bytes;
    pieces.front().iov_len -= bytes;
  }
  return pieces;
}

Task<bool> write_all(Transport& transport, std::span<iovec> pieces, TimePoint deadline) {
  pieces = advance_pieces(pieces, 0);
  while (!pieces.empty()) {
    const IoResult wrote = transport.try_write(pieces);
    if (wrote.ok()) {
      pieces = advance_pieces(pieces, wrote.bytes);
      continue;
    }
    if (!wrote.would_block()) co_return false;
    ReadyWait writable(transport, Transport::Direction::write, deadline);
    if (!co_await writable) co_return false;
  }
  co_return true;
}

Task<bool> read_exactly(Transport& transport, MutableBytes into, TimePoint deadline) {
  while (!into.empty()) {
    const IoResult got = transport.try_read(into);
    if (got.ok()) {
      into = into.subspan(got.bytes);
      continue;
    }
    if (!got.would_block()) co_return false;
    ReadyWait readable(transport, Transport::Direction::read, deadline);
    if (!co_await readable) co_return false;
  }
  co_return true;
}

}  // namespace spillway
