#include "proxy/exec/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/batch_builder.h"
#include "proxy/exec/cursor_ops.h"
#include "proxy/exec/take_memory.h"
#include "proxy/shard/connection.h"
#include "proxy/wire/cursor_reply_scanner.h"
#include "proxy/wire/document_counter.h"
#include "proxy/wire/op_msg.h"

namespace spillway::exec {

namespace {

constexpr auto drain_time_max = std::chrono::seconds(5);
// Where memory is short: so much is read of the shard at a time, into what is taken before.
constexpr std::size_t scarce_piece_bytes = 32 * limits::kib;
constexpr auto scarce_wait_max = std::chrono::seconds(30);

// One relay under way. The scanner has seen the head; `left` counts the batch bytes that are still to pass.
struct Relay {
  Context& context;
  Transport& client;
  StreamReply& stream;
  wire::CursorReplyScanner scanner;
  wire::DocumentCounter counter;
  std::size_t left = 0;
  bool client_gone = false;
  // What the client's socket did not take. Taken when first needed; where memory is short, before anything is read.
  Buffer leftover;
};

enum class Step { passed, shard_lost, malformed };

// No memory to be slow with: the client's connection ends, in the middle of a reply.
void end_client(Relay& relay) {
  relay.client_gone = true;
  relay.context.shared.metrics.stream_refusals.add();
  relay.client.reset();
}

// Room for what the client's socket may not take of the next piece.
Task<void> take_leftover(Relay& relay) {
  const std::function<bool()> wanted = [&relay] { return !relay.client.peer_hung_up(); };
  auto taking = allocate_or_wait(relay.context.loop, relay.context.shared.reply_memory, scarce_piece_bytes,
                                 Clock::now() + scarce_wait_max, wanted);
  auto buffer = co_await taking;
  if (!buffer) {
    end_client(relay);
    co_return;
  }
  relay.leftover = *std::move(buffer);
}

// Sends `bytes`, which lie in memory that others will overwrite: what does not leave at once is copied.
Task<void> send_piece(Relay& relay, Bytes bytes) {
  if (relay.client_gone || bytes.empty()) co_return;
  const iovec whole{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  const IoResult wrote = relay.client.try_write({&whole, 1});
  std::size_t done = 0;
  if (wrote.ok()) {
    done = wrote.bytes;
  } else if (!wrote.would_block()) {
    relay.client_gone = true;
    co_return;
  }
  if (done == bytes.size()) co_return;
  if (!relay.leftover) {
    auto buffer = allocate_now(relay.context.shared.reply_memory, limits::stream_piece_bytes);
    if (!buffer) {
      end_client(relay);
      co_return;
    }
    relay.leftover = std::move(*buffer);
  }
  relay.leftover.set_size(0);
  relay.leftover.append(bytes.data() + done, bytes.size() - done);
  iovec rest{relay.leftover.data(), relay.leftover.size()};
  auto writing = write_all(relay.client, {&rest, 1});
  relay.client_gone = !co_await writing;
}

Result<void> count(Relay& relay, Bytes bytes) { return relay.counter.feed(bytes); }

// Reads up to `into.size()` bytes of the shard's message, waiting for them. 0: the shard is gone.
Task<std::size_t> read_rest(Relay& relay, MutableBytes into, TimePoint deadline) {
  shard::Connection& connection = *relay.stream.reply.lease;
  for (;;) {
    const IoResult got = connection.try_read_rest(into);
    if (got.ok()) co_return got.bytes;
    if (!got.would_block()) co_return 0;
    ReadyWait readable(connection.transport(), Transport::Direction::read, deadline);
    const bool ready = co_await readable;
    if (!ready) co_return 0;
  }
}

Task<Step> pass_batch(Relay& relay) {
  Pump& pump = relay.context.pump;
  TimePoint deadline = time_point_never;
  std::size_t drained = 0;
  while (relay.left > 0) {
    shard::Connection& connection = *relay.stream.reply.lease;
    if (!relay.leftover && !relay.client_gone && is_scarce(relay.context)) {
      auto taking = take_leftover(relay);
      co_await taking;
    }
    co_await pump.turn();
    const std::size_t piece_bytes = relay.leftover ? relay.leftover.capacity() : limits::stream_piece_bytes;
    const MutableBytes piece =
        pump.piece().first(std::min({limits::stream_piece_bytes, piece_bytes, relay.left}));
    const IoResult got = connection.try_read_rest(piece);
    if (got.would_block()) {
      ReadyWait readable(connection.transport(), Transport::Direction::read, deadline);
      const bool ready = co_await readable;
      if (!ready) co_return Step::shard_lost;
      continue;
    }
    if (!got.ok()) co_return Step::shard_lost;
    const Bytes bytes = piece.first(got.bytes);
    if (count(relay, bytes).has_error()) co_return Step::malformed;
    relay.left -= got.bytes;
    if (relay.client_gone) {
      // Read and drop the rest, so that the connection can be used again: within bounds.
      drained += got.bytes;
      if (deadline == time_point_never) deadline = Clock::now() + drain_time_max;
      if (drained > limits::drain_bytes_max || Clock::now() > deadline) co_return Step::shard_lost;
      continue;
    }
    relay.context.shared.metrics.streamed_bytes.add(got.bytes);
    auto sending = send_piece(relay, bytes);
    co_await sending;
  }
  co_return Step::passed;
}

// Reads the shard's fields after the batch.
Task<Step> read_tail(Relay& relay) {
  std::array<std::uint8_t, 4096> bytes;
  const TimePoint deadline = Clock::now() + drain_time_max;
  while (!relay.scanner.done()) {
    auto reading = read_rest(relay, MutableBytes(bytes).first(std::min(bytes.size(), relay.scanner.tail_missing())),
                             deadline);
    const std::size_t got = co_await reading;
    if (got == 0) co_return Step::shard_lost;
    if (relay.scanner.feed_tail(Bytes(bytes).first(got)).has_error()) co_return Step::malformed;
  }
  co_return Step::passed;
}

// The bytes of the head that belong to the batch, then those of the tail.
Task<Step> pass_head(Relay& relay, const CursorReplyFrame& frame, std::int32_t request_id,
                     std::int32_t response_to) {
  const StreamReply& stream = relay.stream;
  const Bytes have = stream.reply.bytes.bytes().subspan(stream.batch_offset);
  const std::size_t of_batch = std::min(have.size(), stream.batch_bytes);
  const Bytes batch = have.first(of_batch);
  if (count(relay, batch).has_error()) co_return Step::malformed;
  relay.left = stream.batch_bytes - of_batch;
  const std::size_t document_bytes = frame.before.size() + stream.batch_bytes + frame.after.size();
  auto prefix = wire::op_msg_prefix(wire::op_msg_prefix_bytes + document_bytes, request_id, response_to, 0);
  std::array<iovec, 3> pieces{{{prefix.data(), prefix.size()},
                               {const_cast<std::uint8_t*>(frame.before.data()), frame.before.size()},
                               {const_cast<std::uint8_t*>(batch.data()), batch.size()}}};
  auto writing = write_all(relay.client, pieces);
  relay.client_gone = !co_await writing;
  if (have.size() > of_batch && relay.scanner.feed_tail(have.subspan(of_batch)).has_error()) {
    co_return Step::malformed;
  }
  co_return Step::passed;
}

void settle_cursor(Relay& relay, std::int64_t shard_id, bool keep) {
  CursorPtr cursor = std::move(relay.stream.cursor);
  cursor->remotes[relay.stream.remote].id = shard_id;
  const std::size_t documents = relay.counter.count();
  cursor->documents_returned += documents;
  ++cursor->batches_returned;
  if (documents > 0) {
    cursor->mean_document_bytes =
        static_cast<double>(relay.stream.batch_bytes) / static_cast<double>(documents);
    if (cursor->whole_documents) relay.context.document_sizes.learn(cursor->ns, cursor->mean_document_bytes);
  }
  if (keep && !cursor->exhausted()) {
    end_cursor(relay.context, relay.context.shared.cursors.check_in(std::move(cursor), steady_ns()),
               CursorEnd::killed);
    return;
  }
  relay.context.shared.cursors.forget(cursor->id);
  end_cursor(relay.context, std::move(cursor));
}

Task<Step> run(Relay& relay, CursorReplyFrame& frame, std::int32_t request_id, std::int32_t response_to) {
  auto heading = pass_head(relay, frame, request_id, response_to);
  Step step = co_await heading;
  if (step != Step::passed) co_return step;
  relay.stream.reply.bytes.reset();
  auto passing = pass_batch(relay);
  step = co_await passing;
  if (step != Step::passed) co_return step;
  auto tail = read_tail(relay);
  co_return co_await tail;
}

}  // namespace

Task<bool> relay_stream(Context& context, Transport& client, StreamReply& stream, std::int32_t request_id,
                        std::int32_t response_to) {
  Relay relay{context, client, stream, {}, {}, 0, false, {}};
  auto head = relay.scanner.feed_head(stream.reply.bytes.bytes());
  SPILLWAY_CHECK(!head.has_error());  // it was scanned before
  context.shared.metrics.streamed_replies.add();
  const std::int64_t cursor_id = stream.cursor->id;
  CursorReplyFrame frame =
      frame_cursor_reply(stream.batch_name, stream.batch_bytes, cursor_id, stream.cursor->ns, false);
  auto running = run(relay, frame, request_id, response_to);
  const Step step = co_await running;
  if (step != Step::passed) {
    stream.reply.lease->mark_broken();
    log::warning("stream of {} from {} ended early: {}", stream.cursor->ns, stream.reply.host.text(),
                 relay.client_gone ? "the client went away"
                 : step == Step::malformed ? "the shard's batch is malformed"
                                           : "the shard's connection ended");
    context.shared.metrics.stream_failures.add();
    const std::int64_t shard_id = stream.cursor->remotes[stream.remote].id;
    stream.reply.lease.release();
    settle_cursor(relay, shard_id, false);
    client.reset();
    co_return false;
  }
  const std::int64_t shard_id = relay.scanner.parts().id;
  stream.reply.lease.release();
  stream.cursor->remotes[stream.remote].id = shard_id;
  const bool last = stream.cursor->exhausted();
  store_le(frame.after.data() + frame_id_offset(false), last ? std::int64_t{0} : cursor_id);
  const bool keep = !relay.client_gone;
  settle_cursor(relay, shard_id, keep);
  if (relay.client_gone) co_return false;
  iovec after{frame.after.data(), frame.after.size()};
  auto writing = write_all(client, {&after, 1});
  co_return co_await writing;
}

}  // namespace spillway::exec
