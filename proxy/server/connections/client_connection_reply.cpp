// How a connection writes complete replies.
#include <algorithm>

#include "allocator/pressure.h"
#include "proxy/base/log.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/stalled_clients.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/server/connections/client_connection.h"
#include "proxy/shard/message_turns.h"
#include "proxy/wire/crc32c.h"
#include "proxy/wire/op_msg.h"

namespace spillway::server {

// A client must keep up reader_bytes_per_second_min from net.slowSenderTimeoutMillis on, or, while others wait for
// memory, from stalled_patience on.
Task<bool> ClientConnection::write_watched(std::span<iovec> pieces, TimePoint* first_tried) {
  const exec::Services& shared = environment_.context.shared;
  const TimePoint begun = Clock::now();
  const Duration patience = std::chrono::milliseconds(shared.parameters.slow_sender_ms.load(std::memory_order_relaxed));
  const TimePoint end = begun + patience + std::chrono::seconds(bytes_of(pieces) / exec::reader_bytes_per_second_min);
  const std::size_t all = bytes_of(pieces);
  exec::ReaderWindow window(begun, 0);
  for (;;) {
    const TimePoint window_end = std::min(end, Clock::now() + exec::stalled_patience);
    WriteAll writing(*transport_, pieces, window_end, std::exchange(first_tried, nullptr));
    const bool written = co_await writing;
    if (written) co_return true;
    const TimePoint now = Clock::now();
    if (now < window_end) co_return false;
    pieces = writing.rest();
    const bool slow = window.is_too_slow(now, all - bytes_of(pieces)) && exec::others_wait_for_memory(shared);
    if (!slow && now < end) continue;
    shared.metrics.stalled_clients_closed.add();
    log::info("connection {} from {} closed: it has not taken {} bytes of a reply", client_.connection_id, client_.peer,
              bytes_of(pieces));
    co_return false;
  }
}

Task<bool> ClientConnection::write_response(exec::Response& response, TimePoint* first_tried) {
  if (compresses_replies()) {
    co_return co_await write_compressed(response, first_tried);
  }
  Framed framed;
  frame(response, framed);
  co_return co_await write_watched(framed.pieces_span(), first_tried);
}

// Records a command's time inside the proxy, once its reply was begun.
void ClientConnection::note_inside(const shard::ShardTime& shards, TimePoint first_tried, std::size_t request_bytes,
                                   std::size_t reply_bytes) {
  if (first_tried == TimePoint{}) return;
  const exec::OperationClass of = exec::operation_class(shards, request_bytes, reply_bytes);
  environment_.context.inside_times->add(of, first_tried - received_ - shards.total(), shards.total());
}

// Puts header, flags and checksum around a reply, as pieces that point into both.
void ClientConnection::frame(const exec::Response& response, Framed& framed) {
  const std::size_t total = wire::op_msg_prefix_bytes + response.bytes() + (checksum_ ? 4 : 0);
  framed.prefix = wire::op_msg_prefix(total, new_request_id(), header_.request_id,
                                      checksum_ ? wire::flags::checksum_present : 0);
  std::span<const iovec> pieces = response.pieces();
  if (std::uint8_t* const before = response.room_before(framed.prefix.size())) {
    // A shard's reply had a header of this size. One piece leaves without being gathered.
    std::copy(framed.prefix.begin(), framed.prefix.end(), before);
    framed.pieces.push_back({before, framed.prefix.size() + pieces.front().iov_len});
    pieces = pieces.subspan(1);
  } else {
    framed.pieces.push_back({framed.prefix.data(), framed.prefix.size()});
  }
  for (const iovec& piece : pieces) framed.pieces.push_back(piece);
  if (checksum_) {
    for (const iovec& piece : framed.pieces) {
      framed.crc = wire::crc32c({static_cast<const std::uint8_t*>(piece.iov_base), piece.iov_len},
                                framed.crc);
    }
    framed.pieces.push_back({&framed.crc, sizeof framed.crc});
  }
  environment_.context.shared.metrics.bytes_out.add(total);
}

// A reply to a compressed request is compressed with the same compressor, whole.
Task<bool> ClientConnection::write_compressed(const exec::Response& response, TimePoint* first_tried) {
  const std::size_t plain_bytes = wire::op_msg_prefix_bytes + response.bytes();
  auto prefix = wire::op_msg_prefix(plain_bytes, new_request_id(), header_.request_id, 0);
  absl::InlinedVector<iovec, 10> pieces;
  pieces.push_back({prefix.data(), prefix.size()});
  for (const iovec& piece : response.pieces()) pieces.push_back(piece);
  exec::Context& context = environment_.context;
  auto packing = shard::pack_in_turns(context.pump, context.shared.memory.replies, *request_compressor_,
                                      {pieces.data(), pieces.size()}, wire::load_header(prefix));
  auto packed = co_await packing;
  if (packed) {
    pieces.assign(1, {packed->data(), packed->size()});
  } else {
    context.shared.metrics.uncompressed_replies.add();
  }
  context.shared.metrics.bytes_out.add(bytes_of({pieces.data(), pieces.size()}));
  co_return co_await write_watched({pieces.data(), pieces.size()}, first_tried);
}

}  // namespace spillway::server
