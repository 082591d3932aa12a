#include "proxy/base/transport.h"

namespace spillway {

IoResult Transport::splice_into(int, std::size_t) { return {IoResult::Status::failed, 0}; }
IoResult Transport::splice_from(int, std::size_t) { return {IoResult::Status::failed, 0}; }

Task<Result<void>> Transport::establish(TimePoint) { co_return Result<void>(); }

std::size_t bytes_of(std::span<const iovec> pieces) noexcept {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

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

// Unwritten bytes stay in pieces_; it is empty when all were written.
WriteAll::Progress WriteAll::write_some() {
  pieces_ = advance_pieces(pieces_, 0);
  while (!pieces_.empty()) {
    const IoResult wrote = transport_.try_write(pieces_);
    if (first_tried_ != nullptr) *std::exchange(first_tried_, nullptr) = Clock::now();
    if (!wrote.ok()) return wrote.would_block() ? Progress::blocked : Progress::failed;
    pieces_ = advance_pieces(pieces_, wrote.bytes);
  }
  return Progress::all;
}

Task<void> WriteAll::write_rest() {
  do {
    ReadyWait writable(transport_, Transport::Direction::write, deadline_);
    const bool ready = co_await writable;
    if (!ready) co_return;
  } while (write_some() == Progress::blocked);
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
