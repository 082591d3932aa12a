#include "proxy/exec/streams/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cursor/registry.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/batch_builder.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/streams/stream_relay.h"
#include "proxy/shard/connection.h"
#include "proxy/wire/op_msg.h"

namespace spillway::exec {

namespace {

// While memory is short, the router reserves memory for a piece of this size before it reads from the shard.
constexpr std::size_t scarce_piece_bytes = 32 * limits::kib;
constexpr auto scarce_wait_max = std::chrono::seconds(30);

// There is no memory to buffer for a slow client: its connection ends in the middle of a reply.
void end_client(Relay& relay) {
  client_went(relay);
  relay.context.shared.metrics.stream_refusals.add();
  relay.client.reset();
}

// Takes memory for the part of the next piece that the client's socket may not take.
Task<void> take_leftover(Relay& relay) {
  const std::function<bool()> wanted = [&relay] { return !relay.client.peer_hung_up(); };
  auto taking = allocate_or_wait(relay.context.loop, relay.context.shared.memory.replies,
                                 scarce_piece_bytes, Clock::now() + scarce_wait_max, wanted);
  auto buffer = co_await taking;
  if (!buffer) {
    end_client(relay);
    co_return;
  }
  relay.unsent.set_leftover_room(*std::move(buffer));
}

// The client has caught up. While memory is short, the stream keeps memory for one small piece.
void give_room_back(Relay& relay) {
  if (!is_scarce(relay.context)) {
    relay.unsent = Unsent();
  } else if (relay.unsent.leftover_room() > scarce_piece_bytes) {
    auto smaller = allocate_now(relay.context.shared.memory.replies, scarce_piece_bytes);
    if (smaller) relay.unsent.set_leftover_room(*std::move(smaller));
  }
}

// Sends `bytes`. Copies the part that the socket does not take at once, because the caller reuses the memory.
void send_piece(Relay& relay, Bytes bytes) {
  if (relay.client_gone || bytes.empty()) return;
  const iovec whole{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  const IoResult wrote = relay.client.try_write({&whole, 1});
  std::size_t done = 0;
  if (wrote.ok()) {
    done = wrote.bytes;
  } else if (!wrote.would_block()) {
    return client_went(relay);
  }
  if (done == bytes.size()) return;
  if (relay.unsent.leftover_room() == 0) {
    auto buffer = allocate_now(relay.context.shared.memory.replies, limits::stream_piece_bytes);
    if (!buffer) return end_client(relay);
    relay.unsent.set_leftover_room(*std::move(buffer));
  }
  relay.unsent.keep(bytes.subspan(done));
}

Task<Step> relay_batch(Relay& relay) {
  Pump& pump = relay.context.pump;
  std::size_t drained = 0;
  while (relay.left > 0) {
    shard::Connection& connection = *relay.stream.reply.lease;
    if (!relay.unsent.empty()) {
      const Step step = co_await pass_unsent(relay);
      if (step != Step::passed) co_return step;
      if (relay.unsent.empty()) give_room_back(relay);
      continue;
    }
    if (may_splice(relay)) {
      const Step step = co_await splice_batch(relay);
      if (step != Step::passed) co_return step;
      continue;
    }
    co_await pump.turn();
    // Asks after the turn: many streams that ask before their turns would all see the same free memory.
    if (relay.unsent.leftover_room() == 0 && !relay.client_gone && is_scarce(relay.context)) {
      co_await take_leftover(relay);
      continue;
    }
    const std::size_t room = relay.unsent.leftover_room();
    const std::size_t piece_bytes = room > 0 ? room : limits::stream_piece_bytes;
    const MutableBytes piece =
        pump.piece().first(std::min({limits::stream_piece_bytes, piece_bytes, relay.left}));
    const IoResult got = connection.try_read_rest(piece);
    if (got.would_block()) {
      ReadyWait readable = wait_for_shard(relay);
      const bool ready = co_await readable;
      if (!ready && !waits_on(relay, readable)) co_return Step::shard_lost;
      continue;
    }
    if (!got.ok()) co_return Step::shard_lost;
    const Bytes bytes = piece.first(got.bytes);
    if (count(relay, bytes).has_error()) co_return Step::malformed;
    if (relay.client_gone) {
      relay.left -= got.bytes;
      // Reads and drops the rest, up to a limit, so that the connection can be used again.
      drained += got.bytes;
      if (drained > limits::drain_bytes_max || Clock::now() > relay.drain_until)
        co_return Step::shard_lost;
      continue;
    }
    took(relay, got.bytes);
    send_piece(relay, bytes);
  }
  co_return Step::passed;
}

// Reads the fields of the shard's reply that follow the batch.
Task<Step> read_tail(Relay& relay) {
  std::array<std::uint8_t, 4096> bytes;
  const TimePoint deadline = Clock::now() + drain_time_max;
  while (!relay.scanner.done()) {
    auto reading = relay.stream.reply.lease->read_rest(
        MutableBytes(bytes).first(std::min(bytes.size(), relay.scanner.tail_missing())), deadline);
    const std::size_t got = co_await reading;
    if (got == 0) co_return Step::shard_lost;
    if (relay.scanner.feed_tail(Bytes(bytes).first(got)).has_error()) co_return Step::malformed;
  }
  co_return Step::passed;
}

// Sends the part of the batch that came with the head, and scans the part of the tail that came with it.
Task<Step> pass_head(Relay& relay, const CursorReplyFrame& frame, std::int32_t request_id,
                     std::int32_t response_to, TimePoint& first_tried) {
  const StreamReply& stream = relay.stream;
  const Bytes have = stream.reply.bytes.bytes().subspan(stream.batch_offset);
  const std::size_t of_batch = std::min(have.size(), stream.batch_bytes);
  const Bytes batch = have.first(of_batch);
  if (relay.counter.feed(batch).has_error()) co_return Step::malformed;
  relay.left = stream.batch_bytes - of_batch;
  if (stream.cursor->whole_documents) {
    // Requests that begin now can use the size. For documents larger than the head it is a lower bound.
    const double documents = static_cast<double>(std::max<std::size_t>(1, relay.counter.count()));
    relay.context.document_sizes.learn_mean(stream.cursor->ns, static_cast<double>(of_batch) / documents);
  }
  const std::size_t document_bytes = frame.before.size() + stream.batch_bytes + frame.after.size();
  auto prefix =
      wire::op_msg_prefix(wire::op_msg_prefix_bytes + document_bytes, request_id, response_to, 0);
  if (have.size() > of_batch && relay.scanner.feed_tail(have.subspan(of_batch)).has_error()) {
    co_return Step::malformed;
  }
  std::array<iovec, 3> pieces{
      {{prefix.data(), prefix.size()},
       {const_cast<std::uint8_t*>(frame.before.data()), frame.before.size()},
       {const_cast<std::uint8_t*>(batch.data()), batch.size()}}};
  const std::size_t ours = prefix.size() + frame.before.size();
  std::span<iovec> left(pieces);
  std::size_t written = 0;
  IoResult wrote = relay.client.try_write(left);
  first_tried = Clock::now();
  StalledClients::Place place(relay.context.stalled_clients, relay.stream.reply.host, relay.client);
  for (;;) {
    written += wrote.bytes;
    if (!wrote.ok() && !wrote.would_block()) client_went(relay);
    if (relay.client_gone || written >= ours) break;
    // The socket is full with an earlier reply. try_write() requires the same pieces again, the batch included.
    left = advance_pieces(left, wrote.bytes);
    ReadyWait writable(relay.client, Transport::Direction::write, Clock::now() + client_stall);
    const bool ready = co_await writable;
    const bool aborted = !ready && !writable.timed_out();
    // Also when the time is over: the socket may take bytes before it is reported as writable.
    wrote = aborted ? IoResult{IoResult::Status::failed, 0} : relay.client.try_write(left);
    if (wrote.bytes > 0) place.leave();
    if (!ready && wrote.would_block()) note_stall(relay, place);
  }
  if (relay.client_gone) co_return Step::passed;
  const std::size_t begin = stream.batch_offset + written - ours;
  const std::size_t end = stream.batch_offset + of_batch;
  if (begin < end) relay.unsent.hold(std::move(relay.stream.reply.bytes), begin, end);
  co_return Step::passed;
}

// Returns the client's cursor id; 0: the cursor has ended.
std::int64_t settle_cursor(Relay& relay, std::int64_t shard_id, Keep keep) {
  ActiveCursor& cursor = relay.stream.cursor;
  cursor->remotes[relay.stream.remote].id = shard_id;
  const std::size_t documents = documents_of(relay);
  if (documents > 0) {
    cursor->document_size.mean_bytes =
        static_cast<double>(relay.stream.batch_bytes) / static_cast<double>(documents);
    if (cursor->whole_documents)
      relay.context.document_sizes.learn_mean(cursor->ns, cursor->document_size.mean_bytes);
  }
  // Of its maxTimeMS nothing passes while the client reads.
  if (cursor->deadline_ns != 0) cursor->deadline_ns += steady_ns() - relay.began_ns;
  return *cursor.finish(documents, BatchOrigin::streamed, keep);
}

Task<Step> run(Relay& relay, CursorReplyFrame& frame, std::int32_t request_id,
               std::int32_t response_to, TimePoint& first_tried) {
  Step step = co_await pass_head(relay, frame, request_id, response_to, first_tried);
  if (step != Step::passed) co_return step;
  relay.stream.reply.bytes.reset();
  step = co_await relay_batch(relay);
  if (step != Step::passed) co_return step;
  co_return co_await read_tail(relay);
}

// Copies the times at the end of the shard's reply into the client's reply.
void take_times(Relay& relay, CursorReplyFrame& frame) {
  if (!relay.context.has_cluster_time()) return;
  const DocView fields = relay.scanner.parts().reply_fields;
  if (const ValueView told = fields["$clusterTime"]; told.is_document()) {
    hear_cluster_time(relay.context, told.as_document());
  }
  const BsonDoc& before = relay.times;
  if (before.view().empty()) return;
  const BsonDoc now = times_for_client(relay.context, *relay.stream.times_for,
                                       catalog::read_timestamp(fields["operationTime"]).value_or(0));
  if (now.size() != before.size()) return;
  const Bytes elements = now.view().bytes().subspan(4);
  std::copy(elements.begin(), elements.end(), frame.after.end() - static_cast<std::ptrdiff_t>(elements.size()));
}

// Which shards this one has brought into the client's transaction stands at the end of its reply (8.0).
void note_added_participants(const Relay& relay) {
  const ClusterCursor& cursor = *relay.stream.cursor;
  const auto& session = cursor.session;
  if (!session.in_transaction || !relay.context.in_cluster()) return;
  note_participant(relay.context, {session.lsid, *session.txn_number}, cursor.remotes[relay.stream.remote].shard,
                   relay.scanner.parts().reply_fields);
}

// The shard has sent everything: sends the unsent bytes and the end of the reply.
Task<bool> finish(Relay& relay, CursorReplyFrame& frame) {
  const bool sent = co_await send_all_unsent(relay);
  if (!sent) co_return false;
  iovec after{frame.after.data(), frame.after.size()};
  auto writing = write_all(relay.client, {&after, 1});
  co_return co_await writing;
}

}  // namespace

void StreamReplyEnd::operator()(StreamReply* stream) const noexcept { delete stream; }

Task<bool> relay_stream(Context& context, Transport& client, StreamReply& stream,
                        std::int32_t request_id, std::int32_t response_to, TimePoint& first_tried) {
  Relay relay{context, client, stream, {}, {}, 0, false, time_point_never, true, 0, false, {}, {}, {}};
  auto head = relay.scanner.feed_head(stream.reply.bytes.bytes());
  SPILLWAY_CHECK(!head.has_error());  // the head was scanned before
  context.shared.metrics.streamed_replies.add();
  if (stream.times_for) relay.times = times_for_client(context, *stream.times_for, 0);
  // The cursor id and later times are filled in at the end.
  const BsonDoc end =
      BsonWriter().append_elements(stream.recovery_token.view()).append_elements(relay.times.view()).finish();
  CursorReplyFrame frame = frame_cursor_reply(stream.batch_name, stream.batch_bytes, 0, stream.cursor->ns, false, end,
                                              {.at_cluster_time = stream.cursor->at_cluster_time});
  const Step step = co_await run(relay, frame, request_id, response_to, first_tried);
  if (step != Step::passed) {
    stream.reply.lease->mark_broken();
    log::warning("stream of {} from {} ended early: {}", stream.cursor->ns,
                 stream.reply.host.text(),
                 relay.client_gone         ? "the client went away"
                 : step == Step::malformed ? "the shard's batch is malformed"
                                           : "the shard's connection ended");
    context.shared.metrics.stream_failures.add();
    const std::int64_t shard_id = stream.cursor->remotes[stream.remote].id;
    stream.reply.lease.release();
    settle_cursor(relay, shard_id, Keep::never);
    client.reset();
    co_return false;
  }
  const std::int64_t shard_id = relay.scanner.parts().id;
  take_times(relay, frame);
  note_added_participants(relay);
  stream.reply.lease.release();
  const NamespaceText ns(stream.cursor->database(), stream.cursor->collection());
  const std::int64_t left_open =
      settle_cursor(relay, shard_id, relay.client_gone ? Keep::never : Keep::unless_exhausted);
  store_le(frame.after.data() + frame_id_offset(false), left_open);
  if (relay.client_gone) co_return false;
  const bool finished = co_await finish(relay, frame);
  if (!finished && left_open != 0) {
    end_cursor(context, context.shared.cursors.kill(left_open, ns.view()).cursor, CursorEnd::killed);
  }
  co_return finished;
}

std::size_t reply_bytes(const Response& response) noexcept {
  const StreamReply* const stream = response.stream();
  return stream != nullptr ? stream->reply.message_bytes : response.bytes();
}

}  // namespace spillway::exec
