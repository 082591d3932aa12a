#include "proxy/exec/streams/single_shard.h"

#include <fmt/format.h>

#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/compressed_batches.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/streams/stream.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/reply_verdict.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/cursor_reply_scanner.h"

namespace spillway::exec {

namespace {

// A mongod limits its batches to 16 MiB of documents; each array element adds a type and an index name. Other shards
// send as much as they are asked for.
constexpr std::size_t mongod_batch_bytes_max = limits::document_bytes_max + 2 * limits::mib;

// Returns at least limits::document_bytes_max.
std::size_t passthrough_batch_bytes_max(const Context& context, std::uint16_t shard) {
  return context.gateway.capabilities(shard).offers_sort_key ? mongod_batch_bytes_max
                                                         : limits::document_bytes_max;
}

void set_remote(ClusterCursor& cursor, std::uint16_t shard, const shard::HostAddress& host,
                std::int64_t id) {
  if (cursor.remotes.empty()) cursor.remotes.emplace_back();
  RemoteCursor& remote = cursor.remotes.front();
  remote.shard = shard;
  remote.host = host.host;
  remote.port = host.port;
  remote.id = id;
}

// Reads the rest of a streaming reply that cannot pass in pieces.
Task<Result<void>> read_whole(Context& context, const Request& request, catalog::ShardIndex shard,
                              shard::Reply& reply) {
  SPILLWAY_CO_TRY(whole, co_await take_buffer(context, request, context.shared.memory.replies, reply.message_bytes,
                                              "a shard's reply"));
  whole->append(reply.bytes.data(), reply.bytes.size());
  shard::Connection& connection = *reply.lease;
  const shard::Interruptible interruptible(request.interrupt, connection);
  const auto lost = [&request] {
    if (const Error* why = shard::requested_of(request.interrupt)) return *why;
    return Error(ErrorCode::host_unreachable, "a shard's connection ended in the middle of a reply");
  };
  while (connection.remaining() > 0) {
    const IoResult got = connection.try_read_rest(
        whole->free_space().first(std::min(whole->room(), connection.remaining())));
    if (got.ok()) {
      whole->set_size(whole->size() + got.bytes);
      continue;
    }
    if (!got.would_block()) co_return lost();
    ReadyWait readable(connection.transport(), Transport::Direction::read, request.deadline);
    const bool ready = co_await readable;
    if (readable.timed_out()) co_return time_limit_exceeded();
    if (!ready) co_return lost();
  }
  reply.bytes = std::move(*whole);
  reply.lease.release();
  // What stands at the reply's end was not there when the call returned.
  if (!shard::judge_reply(reply).well_formed) co_return malformed_reply("a long reply");
  if (context.has_cluster_time()) note_times(context, reply, request.shard_time);
  const auto transaction = context.in_cluster() ? transaction_of(request.body) : std::nullopt;
  if (transaction && reply.says_ok) note_participant(context, *transaction, shard, reply.body());
  co_return Result<void>();
}

// May this streaming reply pass in pieces? Fills `stream` if so. A change stream's reply may not: the router's frame
// has no place for the resume token after the batch.
Result<bool> prepare_stream(shard::Reply& reply, bool change_stream, std::size_t batch_bytes_max,
                            StreamReply& stream, std::int64_t& shard_id) {
  if (change_stream) return false;
  wire::CursorReplyScanner scanner;
  SPILLWAY_TRY(head, scanner.feed_head(reply.bytes.bytes()));
  if (*head != wire::CursorReplyScanner::Head::batch) return false;
  const wire::CursorReplyParts& parts = scanner.parts();
  if (parts.batch_bytes > batch_bytes_max || parts.partial_results_returned) return false;
  stream.batch_offset = parts.batch_offset;
  stream.batch_bytes = parts.batch_bytes;
  stream.batch_name = parts.batch_name == "firstBatch" ? "firstBatch" : "nextBatch";
  stream.shard_id_known = parts.id_known;
  shard_id = parts.id;
  return true;
}

// Its top level was read when it came. REQUIRES a complete reply.
Result<wire::CursorReply> cursor_of(const shard::Reply& reply) {
  const bool known = reply.says_ok && reply.cursor_at != 0;
  return known ? wire::parse_cursor(reply.body(), reply.cursor()) : wire::parse_cursor_reply(reply.body());
}

// The batch of this reply is too large for the client, or it names another collection: sends what fits, and keeps the
// rest in the cursor.
Result<Response> repack(Context& context, ActiveCursor& cursor, std::size_t index, shard::Reply reply,
                        std::string_view batch_name) {
  RemoteCursor& remote = cursor->remotes[index];
  auto taken = take_reply(*cursor, remote, std::move(reply));
  if (taken.has_error()) return cursor.fail(taken.error());
  BatchBuilder batch(context.shared.memory.replies);
  while (remote.has_document() && batch.fits(remote.front()->peek()->size())) {
    auto appended = batch.append(*remote.front()->peek());
    if (appended.has_error() && batch.count() > 0) break;  // no memory: the rest stays in the cursor
    if (appended.has_error()) return cursor.fail(appended.error());
    remote.batches.front().pop();
  }
  if (!remote.has_document() && !remote.damaged()) remote.batches.clear();
  cursor->document_size.learn(batch.document_bytes(), batch.count());
  return cursor.answer(std::move(batch), batch_name, BatchOrigin::streamed);
}

// The reply with another cursor id, for the rare shard whose id is no int64.
Response rebuilt(DocView body, std::int64_t id) {
  BsonWriter out;
  for (auto at = body.begin(); !at.done(); ++at) {
    if (is_stripped_from_reply(at->name)) continue;
    if (at->name != "cursor" || !at->is_document()) {
      out.append_element(*at);
      continue;
    }
    out.begin_document("cursor");
    for (auto in = at->as_document().begin(); !in.done(); ++in) {
      if (in->name == "id") {
        out.append("id", id);
      } else {
        out.append_element(*in);
      }
    }
    out.end();
  }
  return Response(std::move(out).finish());
}

Response with_id(shard::Reply&& reply, const wire::CursorReply& parsed, std::int64_t id) {
  if (parsed.id_offset == 0) return rebuilt(reply.body(), id);
  auto* const document = const_cast<std::uint8_t*>(reply.body().data());
  if (parsed.id != id) store_le(document + parsed.id_offset, id);
  return passthrough_ok(std::move(reply));
}

}  // namespace

bool may_stream(const Request& request) noexcept {
  return !request.message.has_flag(wire::flags::checksum_present) &&
         !request.message.has_flag(wire::flags::more_to_come) && !request.answers_router;
}

CursorPtr CursorSeed::make(Reservation kept) const {
  CursorPtr cursor = make_cursor(client, request, collection, std::move(kept));
  cursor->batch_size = batch_size;
  cursor->no_timeout = no_timeout;
  cursor->tailable = tailable;
  cursor->await_data = await_data;
  cursor->allow_partial = allow_partial;
  cursor->change_stream = change_stream;
  cursor->from_one_shard = true;
  cursor->whole_documents = whole_documents;
  return cursor;
}

Task<Result<Response>> open_on_one_shard(Context& context, CursorSeed seed, ShardCommand command, bool stream,
                                         [[maybe_unused]] BsonDoc body) {
  const catalog::ShardIndex shard = command.shard;
  SPILLWAY_CO_TRY(kept, reserve_kept(context, seed.request, seed.collection));
  shard::CallOptions options = read_options(context, seed.request);
  // An error does not mean that nothing was written, so the command must not be sent twice.
  if (seed.writes || seed.merges) options.retry = shard::RetryPolicy::none;
  if (seed.writes) options.interrupt = nullptr;
  // The client gets the start of a streamed reply before the router knows whether the cursor stays open. So the limit
  // of cursors is checked first.
  options.stream = stream && may_stream(seed.request) && may_open_cursor(seed.client.limits.account().get());
  const bool one_document = seed.first_batch_documents == 1;
  if (stream && !one_document) {
    const NamespaceText ns(seed.request.db, seed.collection);
    const bool large = context.document_sizes.may_be_large(ns.view(), seed.first_batch_documents);
    if (large) options.use = shard::Use::bulk;
  }
  ShardOutcome outcome = co_await call_shard(context, command, options);
  if (!outcome.answered() || outcome.for_router()) co_return *std::move(outcome.error);
  shard::Reply& reply = outcome.reply;
  if (reply.streaming()) {
    StreamReplyPtr streaming(new StreamReply);
    std::int64_t shard_id = 0;
    SPILLWAY_CO_TRY(prepared,
                    prepare_stream(reply, seed.change_stream, passthrough_batch_bytes_max(context, shard),
                                   *streaming, shard_id));
    if (*prepared && !is_read_to_compress(context, seed.request, reply)) {
      streaming->cursor = ActiveCursor(context, seed.make(*std::move(kept)));
      set_remote(*streaming->cursor, shard, reply.host, shard_id);
      streaming->cursor->charge.take();
      streaming->cursor.enroll();
      streaming->reply = std::move(reply);
      co_return Response::of_stream(std::move(streaming));
    }
    SPILLWAY_CO_TRY(read, co_await read_whole(context, seed.request, shard, reply));
  }
  auto parsed = cursor_of(reply);
  if (parsed.has_error())
    co_return passthrough(std::move(reply));  // an error, or no cursor in it: pass it on
  const std::size_t batch_bytes = parsed->batch.size();
  // A shard names the collection below a view.
  if (!seed.request.view.empty() || batch_bytes > passthrough_batch_bytes_max(context, shard)) {
    ActiveCursor cursor(context, seed.make(*std::move(kept)));
    set_remote(*cursor, shard, reply.host, parsed->id);
    co_return repack(context, cursor, 0, std::move(reply), "firstBatch");
  }
  std::int64_t id = 0;
  const std::size_t documents = one_document && parsed->id == 0 ? 0 : parsed->batch.count();
  if (seed.whole_documents && !one_document && documents > 0) {
    const NamespaceText ns(seed.request.db, seed.collection);
    context.document_sizes.learn_mean(ns.view(), static_cast<double>(batch_bytes) / static_cast<double>(documents));
  }
  if (parsed->id != 0) {
    ActiveCursor cursor(context, seed.make(*std::move(kept)));
    set_remote(*cursor, shard, reply.host, parsed->id);
    cursor->document_size.learn(batch_bytes, documents);
    SPILLWAY_CO_TRY(finished, cursor.finish(documents, BatchOrigin::passed));
    id = *finished;
  }
  co_return with_id(std::move(reply), *parsed, id);
}

namespace {

// A getMore whose reply becomes the client's reply.
struct PassRequest {
  std::size_t remote = 0;
  std::int64_t batch_size = 0;  // 0: none given
  std::optional<std::int64_t> await_ms;
  std::string_view batch_name = "nextBatch";
  bool may_merge = false;  // one of several shards: a small reply stays in the cursor
};

// The shard got no command. For a first batch the client may repeat the whole command, later only the getMore.
Error fail_unasked(ActiveCursor& cursor, const PassRequest& pass, Error error) {
  const bool refused = error.is(ErrorCode::ingress_request_rate_limit_exceeded) && pass.batch_name == "nextBatch";
  return refused ? cursor.refuse(std::move(error)) : cursor.fail(std::move(error));
}

// Is it better to pass this complete reply on than to merge it with replies of other shards?
bool worth_passing(const wire::CursorReply& parsed, const PassRequest& pass) noexcept {
  if (pass.batch_name != "nextBatch") return false;  // the reply contains the shard's name of the array
  return parsed.id != 0 &&
         (pass.batch_size > 0 || parsed.batch.size() >= limits::reply_complete_bytes_max / 2);
}

std::int64_t size_to_ask(Context& context, const Request& request, ClusterCursor& cursor,
                         const RemoteCursor& remote, std::int64_t batch_size) {
  if (batch_size == 0 && request.compressed) {
    if (const auto documents = compressed_batch_documents(cursor.document_size.mean_bytes);
        documents > 0) {
      return documents;
    }
  }
  if (batch_size > 0 && context.gateway.capabilities(remote.shard).offers_sort_key) return batch_size;
  // A mongod limits its batches by itself; other shards are asked for what fits.
  const std::int64_t finds = std::exchange(cursor.batch_size, 0);  // here the getMore's own batchSize counts
  const std::int64_t fitting = remote_batch_size(context, cursor, remote.shard, true);
  cursor.batch_size = finds;
  return batch_size == 0 ? fitting : std::min(batch_size, fitting);
}

// Passes a complete reply on, repacks it, or leaves it in the cursor.
Result<std::optional<Response>> pass_complete(Context& context, ActiveCursor& cursor, const PassRequest& pass,
                                              shard::Reply reply) {
  RemoteCursor& remote = cursor->remotes[pass.remote];
  auto parsed = cursor_of(reply);
  if (parsed.has_error()) {
    if (parsed.error().is(ErrorCode::cursor_not_found)) remote.id = 0;
    Error error = cursor.fail(parsed.error());
    if (pass.may_merge || wire::reply_is_ok(reply.body())) return error;
    return std::optional<Response>(passthrough(std::move(reply)));
  }
  if (pass.may_merge && !worth_passing(*parsed, pass)) {
    auto taken = take_reply(*cursor, remote, std::move(reply));
    if (taken.has_error()) return cursor.fail(taken.error());
    return std::optional<Response>();
  }
  remote.id = parsed->id;
  if (cursor->below_view || parsed->batch.size() > passthrough_batch_bytes_max(context, remote.shard)) {
    SPILLWAY_TRY(repacked, repack(context, cursor, pass.remote, std::move(reply), pass.batch_name));
    return std::optional<Response>(*std::move(repacked));
  }
  const std::size_t documents = parsed->batch.count();
  cursor->document_size.learn(parsed->batch.size(), documents);
  if (cursor->whole_documents)
    context.document_sizes.learn_mean(cursor->ns, cursor->document_size.mean_bytes);
  const std::int64_t id = *cursor.finish(documents, BatchOrigin::passed);
  return std::optional<Response>(with_id(std::move(reply), *parsed, id));
}

Task<Result<std::optional<Response>>> pass_shard_batch(Context& context, const Request& request,
                                                       ActiveCursor& cursor, PassRequest pass) {
  RemoteCursor& remote = cursor->remotes[pass.remote];
  const std::int64_t asked = size_to_ask(context, request, *cursor, remote, pass.batch_size);
  if (cursor->from_one_shard) {
    cursor->ahead.last_batch_size = pass.batch_size;
    cursor->ahead.batch_size = asked;
  }
  const BsonDoc body = remote_get_more(context, *cursor, remote, asked, pass.await_ms);
  shard::CallOptions options;
  options.budget = &context.shared.memory.replies;
  options.host = shard::HostAddress{remote.host, remote.port};
  options.deadline = request.deadline;
  options.interrupt = request.interrupt;
  options.time = request.shard_time;
  options.user = request.asks;
  options.stream = may_stream(request);
  options.use = use_of_get_more(*cursor);
  shard::ReplyRoom room;
  if (is_scarce(context)) {
    auto taken = co_await take_reservation(context, request, context.shared.memory.replies,
                                           Buffer::charged_bytes(limits::reply_complete_bytes_max), "a shard's batch");
    if (taken.has_error()) co_return fail_unasked(cursor, pass, taken.error());
    room.paid = *std::move(taken);
    options.room = &room;
  }
  ShardOutcome outcome = co_await call_shard(context, remote.shard, RoutedBy::nothing(), body, options);
  room.paid.release();
  if (outcome.error && cursor->allow_partial && may_be_missing(outcome, ShardLoss::getting_more)) {
    if (is_unreachable(*outcome.error)) remote.id = 0;
    cursor->partial = true;
    auto answered = cursor.answer(BatchBuilder(context.shared.memory.replies), pass.batch_name, BatchOrigin::passed,
                                  Keep::never);
    if (answered.has_error()) co_return std::move(answered.error());
    co_return std::optional<Response>(*std::move(answered));
  }
  if (!outcome.answered()) co_return cursor.fail(*std::move(outcome.error));
  shard::Reply& reply = outcome.reply;
  if (reply.streaming()) {
    StreamReplyPtr streaming(new StreamReply);
    std::int64_t shard_id = 0;
    auto prepared = prepare_stream(reply, cursor->change_stream,
                                   passthrough_batch_bytes_max(context, remote.shard), *streaming,
                                   shard_id);
    if (prepared.has_error()) co_return cursor.fail(prepared.error());
    if (*prepared && !is_read_to_compress(context, request, reply)) {
      streaming->batch_name = pass.batch_name;
      streaming->reply = std::move(reply);
      streaming->remote = pass.remote;
      if (streaming->shard_id_known) remote.id = shard_id;
      streaming->cursor = std::move(cursor);
      co_return std::optional<Response>(Response::of_stream(std::move(streaming)));
    }
    auto read = co_await read_whole(context, request, remote.shard, reply);
    if (read.has_error()) co_return cursor.fail(read.error());
  }
  co_return pass_complete(context, cursor, pass, std::move(reply));
}

}  // namespace

Task<Result<Response>> get_more_on_one_shard(Context& context, const Request& request,
                                             ActiveCursor cursor, std::int64_t batch_size,
                                             std::optional<std::int64_t> await_ms) {
  PassRequest pass;
  pass.batch_size = batch_size;
  pass.await_ms = await_ms;
  SPILLWAY_CO_TRY(passed, co_await pass_shard_batch(context, request, cursor, pass));
  co_return std::move(**passed);
}

Task<Result<std::optional<Response>>> pass_one_batch(Context& context, const Request& request,
                                                     ActiveCursor& cursor, std::int64_t batch_size,
                                                     bool first) {
  SPILLWAY_CHECK(cursor->passes_through());
  PassRequest pass;
  pass.batch_size = batch_size;
  pass.batch_name = first ? "firstBatch" : "nextBatch";
  pass.may_merge = true;
  // The shards take turns; cursors begin at different shards.
  const std::size_t count = cursor->remotes.size();
  std::uint32_t& next = cursor->merge.next_remote;
  if (first) next = static_cast<std::uint32_t>(static_cast<std::uint64_t>(cursor->id) % count);
  std::size_t tried = 0;
  while (tried < count && cursor->remotes[next % count].id == 0) {
    ++next;
    ++tried;
  }
  if (tried == count) co_return std::optional<Response>();
  pass.remote = next++ % count;
  co_return co_await pass_shard_batch(context, request, cursor, pass);
}

}  // namespace spillway::exec
