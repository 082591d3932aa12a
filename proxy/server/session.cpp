#include "proxy/server/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/hello.h"
#include "proxy/exec/stream.h"
#include "proxy/exec/take_memory.h"
#include "proxy/wire/crc32c.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/hello.h"
#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"

namespace spillway::server {

namespace {

// Shorter operations are not worth a look at their client's socket.
constexpr Duration absence_noticed_after = std::chrono::milliseconds(250);
// How long a request may wait for memory before its client is asked to try again.
// (Long: what is refused is sent once more, and large.)
constexpr Duration room_wait_max = std::chrono::seconds(15);
// So many large messages are read to be dropped at a time; who else has waited in vain waits on. A crowd that is refused
// sends all of it again, and would leave no time for what is taken.
constexpr int refusals_under_way_max = 4;
constexpr std::size_t refusal_large_bytes = 1 * limits::mib;

class RefusalSlot {
 public:
  RefusalSlot(std::atomic<int>& taken, std::size_t message_bytes) noexcept
      : taken_(message_bytes >= refusal_large_bytes ? &taken : nullptr),
        free_(taken_ == nullptr || taken_->fetch_add(1, std::memory_order_relaxed) < refusals_under_way_max) {}
  RefusalSlot(const RefusalSlot&) = delete;
  RefusalSlot& operator=(const RefusalSlot&) = delete;
  ~RefusalSlot() {
    if (taken_ != nullptr) taken_->fetch_sub(1, std::memory_order_relaxed);
  }
  bool free() const noexcept { return free_; }

 private:
  std::atomic<int>* taken_;
  bool free_;
};
// What is read of a message at first while others wait for memory: who joins them keeps it meanwhile.
constexpr std::size_t first_read_bytes_scarce = 512;
// A sender that stops in the middle of a message holds its memory for so long; one that goes on pays for it with at
// least so many bytes a second.
constexpr Duration sender_patience = std::chrono::seconds(30);
constexpr std::size_t sender_bytes_per_second_min = 16 * limits::kib;
// While others wait for memory, a sender has less time: it must send this much in each such time.
constexpr Duration contended_patience = std::chrono::seconds(2);
constexpr std::size_t contended_bytes_min = 32 * limits::kib;
// What of a message tells whether it wants an answer.
constexpr std::size_t flags_end = limits::message_header_bytes + 4;
constexpr std::size_t answer_told_by = std::max(flags_end, wire::compressed_flags_bytes);

bool is_hello_name(std::string_view name) noexcept {
  return name == "hello" || name == "isMaster" || name == "ismaster";
}

// The flags of a message of which the start is there; nullopt: they cannot be told.
std::optional<std::uint32_t> flags_of(const wire::MessageHeader& header, Bytes start) {
  if (header.is(wire::OpCode::compressed)) return wire::peek_compressed_flags(start);
  if (!header.is(wire::OpCode::msg) || start.size() < flags_end) return std::nullopt;
  return load_le<std::uint32_t>(start.data() + limits::message_header_bytes);
}

// Every document of the request is well-formed to its last element: what is routed is never looked into again, and
// must not be a shard's problem.
Result<void> check_documents(const wire::OpMsg& message) {
  if (auto valid = message.body.validate(); valid.has_error()) return valid.error();
  for (const wire::DocSequence& sequence : message.sequences) {
    for (const DocView document : sequence) {
      if (auto valid = document.validate(); valid.has_error()) return valid.error();
    }
  }
  return {};
}

}  // namespace

Session::Session(SessionEnvironment& environment, std::unique_ptr<Transport> transport,
                 std::int64_t connection_id)
    : environment_(environment), transport_(std::move(transport)) {
  client_.connection_id = connection_id;
  client_.peer = transport_->peer();
  client_.local = transport_->local();
  client_.presence.attach(environment_.context.shared.open_clients, client_.peer, connection_id, false);
  environment_.context.clients.insert(&client_);
}

Session::~Session() { environment_.context.clients.erase(&client_); }

void Session::close(bool drain) {
  closing_ = true;
  if (!drain) {
    transport_->close();
  } else if (idle_) {
    transport_->cancel();
  }
}

Task<void> Session::run() {
  for (;;) {
    auto reading = read_message();
    const bool read = co_await reading;
    if (!read) break;
    exec::Metrics& metrics = environment_.context.shared.metrics;
    metrics.requests.add();
    metrics.bytes_in.add(static_cast<std::uint64_t>(header_.message_length));
    auto handling = handle_message();
    const bool go_on = co_await handling;
    message_.reset();
    if (!go_on || closing_) break;
  }
  transport_->close();
}

void Session::notice_absent_client(TimePoint now) {
  if (client_.running == nullptr || now - client_.running_since < absence_noticed_after) return;
  if (client_.interrupt.requested() != nullptr || !transport_->peer_hung_up()) return;
  environment_.context.shared.metrics.killed_due_to_client_disconnect.add();
  client_.interrupt.request(Error(ErrorCode::client_disconnect,
                                  "operation was interrupted because a client disconnected"));
}

Task<bool> Session::read_message() {
  request_compressor_.reset();
  Buffer ahead = std::move(pipelined_);  // what came behind the last message, or a piece of a header
  for (;;) {
    Bytes fresh = ahead.bytes();
    if (wire::FrameReader::peek(fresh).kind == wire::FrameReader::Kind::more) {
      // One read fills the scratch; a whole small message is copied once, into a buffer of its size.
      idle_ = fresh.empty();
      ReadyWait readable(*transport_, Transport::Direction::read);
      const bool ready = co_await readable;
      idle_ = false;
      if (!ready || (closing_ && fresh.empty())) co_return false;
      const MutableBytes scratch = environment_.scratch;
      std::copy(fresh.begin(), fresh.end(), scratch.begin());
      MutableBytes room = scratch.subspan(fresh.size());
      if (environment_.context.shared.request_queue.somebody_waits()) {
        room = room.first(std::min(room.size(), first_read_bytes_scarce));
      }
      const IoResult got = transport_->try_read(room);
      if (got.would_block()) continue;
      if (!got.ok()) co_return false;
      fresh = scratch.first(fresh.size() + got.bytes);
    }
    const wire::FrameReader::Need need = wire::FrameReader::peek(fresh);
    if (need.kind == wire::FrameReader::Kind::bad) {
      log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, need.error.message);
      co_return false;
    }
    if (need.kind == wire::FrameReader::Kind::message) {
      header_ = need.header;
      Admission admission = take_message(need.bytes, fresh);
      if (admission == Admission::refused) {
        auto waiting = wait_for_room(need.bytes, fresh);
        admission = co_await waiting;
      }
      if (admission == Admission::gone) co_return false;
      ahead = Buffer();
      if (admission == Admission::refused) {
        ahead = std::move(pipelined_);
        continue;
      }
      if (message_.size() < need.bytes) {
        auto reading = read_rest(need.bytes);
        const bool read = co_await reading;
        if (!read) co_return false;
      }
      if (!header_.is(wire::OpCode::compressed)) co_return true;
      auto decompressing = decompress();
      const Admission inflated = co_await decompressing;
      if (inflated != Admission::refused) co_return inflated == Admission::taken;
      message_.reset();
      ahead = std::move(pipelined_);
      continue;
    }
    if (!keep_for_later(fresh)) co_return false;
    ahead = std::move(pipelined_);
  }
}

// `have` starts with the message and may lie in the scratch, which the next suspension overwrites: all of it is copied.
// Refused: there is no room now.
Session::Admission Session::take_message(std::size_t message_bytes, Bytes have) {
  auto buffer = allocate_now(environment_.context.shared.request_memory, message_bytes);
  if (!buffer) return Admission::refused;
  message_ = std::move(*buffer);
  const std::size_t now = std::min(message_bytes, have.size());
  message_.append(have.data(), now);
  return keep_for_later(have.subspan(now)) ? Admission::taken : Admission::gone;
}

// Bytes that belong to the next message, behind those that are kept already. False: there is no room for them.
bool Session::keep_for_later(Bytes bytes) {
  if (bytes.empty()) return true;
  if (pipelined_.room() < bytes.size()) {
    auto larger = allocate_now(environment_.context.shared.request_memory, pipelined_.size() + bytes.size());
    if (!larger) {
      log::warning("connection {} from {} closed: no memory is left for {} bytes that it sent ahead",
                   client_.connection_id, client_.peer, pipelined_.size() + bytes.size());
      environment_.context.shared.metrics.requests_refused.add();
      return false;
    }
    if (pipelined_) larger->append(pipelined_.data(), pipelined_.size());
    pipelined_ = std::move(*larger);
  }
  pipelined_.append(bytes.data(), bytes.size());
  return true;
}

// There is no memory for the message now: its rest stays in the socket until there is.
Task<Session::Admission> Session::wait_for_room(std::size_t message_bytes, Bytes have) {
  exec::Shared& shared = environment_.context.shared;
  auto kept = allocate_now(shared.request_memory, have.size());
  if (!kept) {
    log::warning("connection {} from {} closed: no memory is left for a message of {} bytes",
                 client_.connection_id, client_.peer, message_bytes);
    shared.metrics.requests_refused.add();
    co_return Admission::gone;
  }
  kept->append(have.data(), have.size());
  const std::function<bool()> wanted = [this] { return !closing_ && !transport_->peer_hung_up(); };
  std::optional<Buffer> buffer;
  while (!buffer) {
    const TimePoint deadline = Clock::now() + room_wait_max;
    auto waiting = wait_for_buffer(environment_.context.loop, shared.request_memory, message_bytes, deadline, wanted);
    buffer = co_await waiting;
    if (!wanted()) co_return Admission::gone;
    if (buffer) break;
    const RefusalSlot slot(shared.refusals_under_way, message_bytes);
    if (!slot.free() && Clock::now() >= deadline) continue;
    shared.metrics.requests_refused.add();
    auto refusing = refuse_message(message_bytes, kept->bytes(),
                                   memory_refused(shared.request_memory, message_bytes, "a request"));
    co_return co_await refusing;
  }
  message_ = std::move(*buffer);
  const Bytes kept_bytes = kept->bytes();
  const std::size_t now = std::min(message_bytes, kept_bytes.size());
  message_.append(kept_bytes.data(), now);
  co_return keep_for_later(kept_bytes.subspan(now)) ? Admission::taken : Admission::gone;
}

// Reads a message that there is no room for and drops it, then says why.
Task<Session::Admission> Session::refuse_message(std::size_t message_bytes, Bytes have, Error why) {
  std::array<std::uint8_t, answer_told_by> start{};
  std::size_t seen = std::min(message_bytes, have.size());
  std::copy_n(have.begin(), std::min(seen, start.size()), start.begin());
  if (!keep_for_later(have.subspan(seen))) co_return Admission::gone;
  while (seen < message_bytes) {
    const MutableBytes scratch = environment_.scratch;
    const IoResult got = transport_->try_read(scratch.first(std::min(scratch.size(), message_bytes - seen)));
    if (got.ok()) {
      if (seen < start.size()) {
        std::copy_n(scratch.begin(), std::min(got.bytes, start.size() - seen), start.begin() + static_cast<std::ptrdiff_t>(seen));
      }
      seen += got.bytes;
      continue;
    }
    if (!got.would_block()) co_return Admission::gone;
    ReadyWait readable(*transport_, Transport::Direction::read, Clock::now() + sender_patience);
    const bool ready = co_await readable;
    if (!ready) co_return Admission::gone;
  }
  auto answering = answer_refusal(Bytes(start).first(std::min(message_bytes, start.size())), std::move(why));
  const bool go_on = co_await answering;
  co_return go_on ? Admission::refused : Admission::gone;
}

// Tells a client why its message, which starts so, was dropped, if it waits for an answer. False: the connection ends.
Task<bool> Session::answer_refusal(Bytes start, Error why) {
  const auto flags = flags_of(header_, start);
  if (!flags) {
    // Whether it wants an answer cannot be told: its client learns by the connection's end.
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, why.message);
    co_return false;
  }
  if ((*flags & wire::flags::more_to_come) != 0) co_return true;
  checksum_ = false;
  exec::Response response = exec::error_response(exec::without_writes(std::move(why)));
  auto writing = write_response(response);
  co_return co_await writing;
}

Task<bool> Session::read_rest(std::size_t message_bytes) {
  const SocketBuffers& sockets = environment_.socket_buffers;
  const bool large = sockets.client_receive_bytes > 0 &&
                     message_bytes > static_cast<std::size_t>(sockets.client_receive_bytes);
  if (large) transport_->set_receive_buffer(sockets.client_receive_large_bytes);
  auto receiving = receive_rest(message_bytes);
  const bool received = co_await receiving;
  if (large && received) transport_->set_receive_buffer(sockets.client_receive_bytes);
  co_return received;
}

Task<bool> Session::receive_rest(std::size_t message_bytes) {
  const MemoryQueue& queue = environment_.context.shared.request_queue;
  TimePoint now = Clock::now();
  const TimePoint end = now + sender_patience + std::chrono::seconds(message_bytes / sender_bytes_per_second_min);
  TimePoint last_heard = now;
  TimePoint window_start = now;
  std::size_t window_bytes = 0;
  while (message_.size() < message_bytes) {
    const IoResult got = transport_->try_read(message_.free_space().first(message_bytes - message_.size()));
    if (got.ok()) {
      message_.set_size(message_.size() + got.bytes);
      window_bytes += got.bytes;
      last_heard = time_point_never;  // now; the clock is asked when there is nothing to do
      continue;
    }
    if (!got.would_block()) co_return false;
    now = Clock::now();
    if (last_heard == time_point_never) last_heard = now;
    if (now - window_start >= contended_patience) {
      if (window_bytes < contended_bytes_min && queue.somebody_waits()) break;
      window_start = now;
      window_bytes = 0;
    }
    const TimePoint patience_end = std::min(end, last_heard + sender_patience);
    if (now >= patience_end) break;
    ReadyWait readable(*transport_, Transport::Direction::read,
                       std::min(patience_end, window_start + contended_patience));
    const bool ready = co_await readable;
    if (!ready && !readable.timed_out()) co_return false;
  }
  if (message_.size() == message_bytes) co_return true;
  log::info("connection {} from {} closed: it stopped {} bytes into a message of {}", client_.connection_id,
            client_.peer, message_.size(), message_bytes);
  environment_.context.shared.metrics.senders_stopped.add();
  co_return false;
}

Task<Session::Admission> Session::decompress() {
  auto parsed = wire::parse_compressed(message_.bytes());
  std::optional<Error> failed;
  if (parsed.has_error()) {
    failed = parsed.error();
  } else {
    MemoryBudget& budget = environment_.context.shared.write_memory;
    const std::size_t whole = limits::message_header_bytes + parsed->uncompressed_size;
    auto buffer = allocate_now(budget, whole);
    if (!buffer) {
      const std::function<bool()> wanted = [this] { return !closing_ && !transport_->peer_hung_up(); };
      auto waiting = wait_for_buffer(environment_.context.loop, budget, whole, Clock::now() + room_wait_max, wanted);
      buffer = co_await waiting;
    }
    if (!buffer) {
      environment_.context.shared.metrics.requests_refused.add();
      const Bytes start = message_.bytes().first(std::min(message_.size(), answer_told_by));
      auto answering = answer_refusal(start, memory_refused(budget, whole, "a compressed request"));
      const bool go_on = co_await answering;
      co_return go_on ? Admission::refused : Admission::gone;
    }
    if (auto done = wire::decompress_message(header_, *parsed, {buffer->data(), whole}); done.has_error()) {
      failed = done.error();
    } else {
      buffer->set_size(whole);
      request_compressor_ = parsed->compressor;
      message_ = std::move(*buffer);
      header_ = *wire::parse_header(message_.bytes().first(limits::message_header_bytes));
    }
  }
  if (failed) {
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, failed->message);
  }
  co_return failed ? Admission::gone : Admission::taken;
}

Task<bool> Session::handle_message() {
  if (header_.is(wire::OpCode::msg)) return handle_op_msg();
  if (header_.is(wire::OpCode::query)) return handle_op_query();
  return handle_unknown();
}

Task<bool> Session::handle_unknown() {
  log::info("connection {} from {} closed: opcode {} is not supported", client_.connection_id, client_.peer,
            header_.op_code);
  co_return false;
}

Task<bool> Session::handle_op_msg() {
  exec::Context& context = environment_.context;
  auto parsed = wire::parse_op_msg(message_.bytes());
  if (parsed.has_error()) {
    if (wire::connection_fatal(parsed.error())) {
      log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, parsed.error().message);
      co_return false;
    }
    if ((wire::peek_flags(message_.bytes()) & wire::flags::more_to_come) != 0) co_return true;
    checksum_ = false;
    exec::Response response = exec::error_response(parsed.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  checksum_ = parsed->has_flag(wire::flags::checksum_present);
  if (auto valid = check_documents(*parsed); valid.has_error()) {
    if (parsed->has_flag(wire::flags::more_to_come)) co_return true;
    exec::Response response = exec::error_response(valid.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  const bool silent = parsed->has_flag(wire::flags::more_to_come);
  Bytes sections = message_.bytes().subspan(limits::message_header_bytes + 4);
  if (checksum_) sections = sections.first(sections.size() - 4);
  auto request = exec::parse_request(*parsed, sections, Clock::now());
  if (request.has_error()) {
    if (silent) co_return true;
    exec::Response response = exec::error_response(request.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  request->interrupt = &client_.interrupt;
  if (!request->lsid.empty()) client_.presence.note_session(request->lsid);
  if (is_hello_name(request->name)) {
    auto answering = answer_hello(*request, parsed->has_flag(wire::flags::exhaust_allowed));
    co_return co_await answering;
  }
  auto running = exec::run_command(context, client_, *request);
  exec::Response response = co_await running;
  if (silent) co_return true;
  if (exec::StreamReply* stream = response.stream()) {
    auto relaying = exec::relay_stream(context, *transport_, *stream, next_request_id_++, header_.request_id);
    co_return co_await relaying;
  }
  if (is_compressed_request()) {
    auto writing = write_response(response);
    co_return co_await writing;
  }
  Framed framed;
  frame(response, framed);
  auto writing = write_all(*transport_, framed.pieces_span());
  co_return co_await writing;
}

// A connection's first hello says whether its driver retries what is refused.
void Session::count_hello(const wire::HelloRequest& hello) {
  if (!std::exchange(first_hello_, false)) return;
  exec::Metrics& metrics = environment_.context.shared.metrics;
  (hello.backpressure ? metrics.hellos_with_backpressure : metrics.hellos_without_backpressure).add();
}

Task<bool> Session::handle_op_query() {
  auto parsed = wire::parse_op_query(message_.bytes());
  if (parsed.has_error()) {
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, parsed.error().message);
    co_return false;
  }
  const DocView command = wire::unwrap_query(parsed->query);
  BsonDoc reply;
  if (!parsed->is_command() || !wire::is_hello_command(command)) {
    reply = exec::error_document(Error(
        ErrorCode::unsupported_op_query_command,
        fmt::format("Unsupported OP_QUERY command: {}. The client driver may require an upgrade.",
                    command.first().name)));
  } else if (auto hello = wire::parse_hello(command); hello.has_error()) {
    reply = exec::error_document(hello.error());
  } else if (auto repeated = wire::check_metadata_not_repeated(*hello, first_hello_); repeated.has_error()) {
    reply = exec::error_document(repeated.error());
  } else {
    if (hello->client) {
      client_.metadata.assign(hello->client->data(), hello->client->data() + hello->client->size());
      client_.application_name = hello->application_name;
      client_.presence.identify(client_.application_name, client_.metadata);
    }
    count_hello(*hello);
    if (hello->compression) negotiated_ = wire::negotiate(environment_.compressors, *hello->compression);
    reply = environment_.context.shared.quiescing
                ? exec::quiesce_reply(environment_.context)
                : exec::hello_reply(environment_.context, client_, *hello, negotiated_);
  }
  std::vector<std::uint8_t> out;
  wire::encode_op_reply(out, next_request_id_++, header_.request_id, reply);
  environment_.context.shared.metrics.bytes_out.add(out.size());
  iovec piece{out.data(), out.size()};
  auto writing = write_all(*transport_, {&piece, 1});
  co_return co_await writing;
}

Task<bool> Session::answer_hello(const exec::Request& request, bool exhaust) {
  exec::Context& context = environment_.context;
  auto hello = wire::parse_hello(request.body);
  std::optional<Error> failed;
  if (hello.has_error()) {
    failed = hello.error();
  } else if (auto repeated = wire::check_metadata_not_repeated(*hello, first_hello_); repeated.has_error()) {
    failed = repeated.error();
  } else if (exhaust) {
    if (auto checked = wire::check_exhaust_hello(*hello); checked.has_error()) failed = checked.error();
  }
  if (failed) {
    exec::Response response = exec::error_response(*failed);
    auto writing = write_response(response);
    co_return co_await writing;
  }
  if (hello->client) {
    client_.metadata.assign(hello->client->data(), hello->client->data() + hello->client->size());
    client_.application_name = hello->application_name;
    client_.presence.identify(client_.application_name, client_.metadata);
  }
  count_hello(*hello);
  if (hello->compression) negotiated_ = wire::negotiate(environment_.compressors, *hello->compression);
  if (hello->topology_version) {
    auto streaming = stream_hello(request, exhaust);
    co_return co_await streaming;
  }
  exec::Response response(context.shared.quiescing ? exec::quiesce_reply(context)
                                                   : exec::hello_reply(context, client_, *hello, negotiated_));
  auto writing = write_response(response);
  co_return co_await writing;
}

// Awaitable hello: waits for the topology version to change, at most maxAwaitTimeMS; with exhaust, again and again.
// The version changes once, when the router quiesces: a coarse poll is enough and costs nothing.
Task<bool> Session::stream_hello(const exec::Request& first, bool exhaust) {
  exec::Context& context = environment_.context;
  const auto hello = *wire::parse_hello(first.body);
  std::int32_t response_to = header_.request_id;
  std::int64_t seen = hello.topology_version->counter;
  const auto await_time = std::chrono::milliseconds(*hello.max_await_time_ms);
  bool compare = true;  // the first reply obeys the client's version; later ones the last one sent
  for (;;) {
    const wire::TopologyVersion current{Bytes(context.shared.facts.process_id),
                                        context.shared.topology_counter.load()};
    bool waits = current.counter == seen;
    if (std::exchange(compare, false)) {
      auto decided = wire::hello_waits(hello, current);
      if (decided.has_error()) {
        exec::Response response = exec::error_response(decided.error());
        auto writing = write_response(response);
        co_return co_await writing;
      }
      waits = *decided;
    }
    const TimePoint until = Clock::now() + await_time;
    while (waits && !closing_ && Clock::now() < until && context.shared.topology_counter.load() == current.counter) {
      // Waiting for the socket tells when the client leaves; a client that sends while it waits ends the stream.
      ReadyWait readable(*transport_, Transport::Direction::read,
                         std::min(until, Clock::now() + std::chrono::milliseconds(250)));
      const bool ready = co_await readable;
      if (ready) {
        const IoResult got = transport_->try_read(environment_.scratch);
        if (got.ok()) {
          if (!keep_for_later(environment_.scratch.first(got.bytes))) co_return false;
          if (pipelined_.size() > limits::mib) co_return false;
          exhaust = false;
        } else if (!got.would_block()) {
          co_return false;
        }
      } else if (!readable.timed_out()) {
        co_return false;
      }
    }
    const bool quiescing = context.shared.quiescing;
    const BsonDoc reply = quiescing ? exec::quiesce_reply(context)
                                    : exec::hello_reply(context, client_, hello, negotiated_);
    const bool more = exhaust && !quiescing && !closing_;
    std::vector<std::uint8_t> out;
    const std::int32_t request_id = next_request_id_++;
    wire::begin_op_msg(out, request_id, response_to, more ? wire::flags::more_to_come : 0);
    wire::append_body(out, reply);
    wire::finish_op_msg(out, checksum_);
    iovec piece{out.data(), out.size()};
    auto writing = write_all(*transport_, {&piece, 1});
    const bool written = co_await writing;
    if (!written) co_return false;
    if (!more) co_return true;
    response_to = request_id;
    seen = context.shared.topology_counter.load();
  }
}

Task<bool> Session::write_response(exec::Response& response) {
  if (is_compressed_request() && *request_compressor_ != wire::Compressor::noop) {
    auto writing = write_compressed(response);
    co_return co_await writing;
  }
  Framed framed;
  frame(response, framed);
  auto writing = write_all(*transport_, framed.pieces_span());
  co_return co_await writing;
}

// Puts header, flags and checksum around a reply, as pieces that point into both.
void Session::frame(const exec::Response& response, Framed& framed) {
  const std::size_t total = wire::op_msg_prefix_bytes + response.bytes() + (checksum_ ? 4 : 0);
  framed.prefix = wire::op_msg_prefix(total, next_request_id_++, header_.request_id,
                                      checksum_ ? wire::flags::checksum_present : 0);
  framed.pieces.push_back({framed.prefix.data(), framed.prefix.size()});
  for (const iovec& piece : response.pieces()) framed.pieces.push_back(piece);
  if (checksum_) {
    for (const iovec& piece : framed.pieces) {
      framed.crc = wire::crc32c({static_cast<const std::uint8_t*>(piece.iov_base), piece.iov_len}, framed.crc);
    }
    framed.pieces.push_back({&framed.crc, sizeof framed.crc});
  }
  environment_.context.shared.metrics.bytes_out.add(total);
}

// A reply to a compressed request is compressed with the same compressor, whole; one that could grow over the
// largest message is sent as it is.
Task<bool> Session::write_compressed(const exec::Response& response) {
  const wire::Compressor compressor = *request_compressor_;
  const std::size_t plain_bytes = wire::op_msg_prefix_bytes + response.bytes();
  const std::size_t packed_max = wire::compressed_message_size_max(compressor, plain_bytes);
  MemoryBudget& budget = environment_.context.shared.reply_memory;
  auto plain = Buffer::allocate(budget, plain_bytes);
  auto packed = packed_max <= limits::message_bytes_max ? Buffer::allocate(budget, packed_max) : std::nullopt;
  const auto prefix = wire::op_msg_prefix(plain_bytes, next_request_id_++, header_.request_id, 0);
  absl::InlinedVector<iovec, 10> pieces;
  if (plain && packed) {
    plain->append(prefix.data(), prefix.size());
    for (const iovec& piece : response.pieces()) plain->append(piece.iov_base, piece.iov_len);
    auto done = wire::compress_message(compressor, plain->bytes(), {packed->data(), packed_max});
    if (done.has_value()) pieces.push_back({packed->data(), *done});
  }
  if (pieces.empty()) {
    pieces.push_back({const_cast<std::uint8_t*>(prefix.data()), prefix.size()});
    for (const iovec& piece : response.pieces()) pieces.push_back(piece);
  }
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  environment_.context.shared.metrics.bytes_out.add(total);
  auto writing = write_all(*transport_, {pieces.data(), pieces.size()});
  co_return co_await writing;
}

}  // namespace spillway::server
