#include "proxy/server/connections/client_connection.h"

#include <absl/container/btree_map.h>

#include "cursor/bson_validator.h"
#include "cursor/registry.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log.h"
#include "proxy/base/log_pace.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/time_slice.h"
#include "proxy/config/config.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/commands/command_trace.h"
#include "proxy/exec/commands/op_query_commands.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/tracer.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/streams/stream.h"
#include "proxy/exec/tables/limits.h"
#include "proxy/exec/tables/open_clients.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/wire/op_msg_parser.h"

namespace spillway::server {

namespace {

constexpr std::uint64_t tls_handshake_bytes = 64 * limits::kib;
// When Parameters::handshake_ms sets no limit.
constexpr Duration tls_patience = std::chrono::seconds(30);
// The limit for one handshake while over half of the room for handshakes is taken.
constexpr Duration tls_patience_contended = std::chrono::seconds(2);
// Shorter operations do not justify a check of their client's socket.
constexpr Duration absence_noticed_after = std::chrono::milliseconds(250);

bool is_hello_name(std::string_view name) noexcept {
  return name == "hello" || name == "isMaster" || name == "ismaster";
}

// Larger messages are checked in steps.
constexpr std::size_t looked_through_at_once_bytes_max = 256 * limits::kib;
// What TimeSlice counts for a small document; each byte of it counts a quarter.
constexpr std::size_t checked_document_bytes = 64;
constexpr std::size_t elements_per_step = 256, documents_per_step = 64, summed_bytes_per_step = 64 * limits::kib;

// The top level was checked as it was parsed.
Result<void> check_body(const wire::OpMsg& message) {
  if (!message.fields.is_of(message.body)) return message.body.validate();
  for (IndexedIterator at(message.body, &message.fields); !at.done(); ++at) {
    if (auto valid = validate_element(*at, limits::bson_depth_max - 1); valid.has_error()) return valid;
  }
  return {};
}

// Every document of the request is well-formed to its last element: routed documents are not checked again, and
// shards must not get damaged ones.
Result<void> check_documents(const wire::OpMsg& message) {
  if (auto valid = check_body(message); valid.has_error()) return valid;
  for (const wire::DocSequence& sequence : message.sequences) {
    for (const DocView document : sequence) {
      if (auto valid = document.validate(); valid.has_error()) return valid.error();
    }
  }
  return {};
}

Task<Result<void>> check_document(TimeSlice& slice, DocView document) {
  BsonValidator validator(document);
  for (;;) {
    const auto stepped = validator.step(elements_per_step);
    if (stepped.has_error()) co_return stepped.error();
    if (*stepped) co_return Result<void>();
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
}

Task<Result<void>> check_documents_in_steps(TimeSlice& slice, const wire::OpMsg& message) {
  auto checking_body = check_document(slice, message.body);
  if (auto valid = co_await checking_body; valid.has_error()) co_return valid.error();
  for (const wire::DocSequence& sequence : message.sequences) {
    for (const DocView document : sequence) {
      if (slice.is_over_short(checked_document_bytes + document.size() / 4)) co_await slice.next();
      if (document.size() <= 4 * limits::kib) {
        if (auto valid = document.validate(); valid.has_error()) co_return valid.error();
        continue;
      }
      auto checking = check_document(slice, document);
      if (auto valid = co_await checking; valid.has_error()) co_return valid.error();
    }
  }
  co_return Result<void>();
}

Task<Result<void>> parse_in_steps(TimeSlice& slice, wire::OpMsg& into, Bytes message) {
  wire::OpMsgParser parser(message);
  for (;;) {
    const auto stepped = parser.step(summed_bytes_per_step, documents_per_step);
    if (stepped.has_error()) co_return stepped.error();
    if (*stepped) {
      into = std::move(parser).take();
      co_return Result<void>();
    }
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
}

}  // namespace

ClientConnection::ClientConnection(ConnectionEnvironment& environment, std::unique_ptr<Transport> transport,
                 std::int64_t connection_id, Entrance entrance)
    : environment_(environment), transport_(std::move(transport)), entrance_(entrance), begun_(Clock::now()) {
  client_.connection_id = connection_id;
  client_.peer = transport_->peer();
  client_.local = transport_->local();
  // Behind a load balancer the address is not known yet.
  if (!balanced()) attach_presence();
  environment_.context.clients.insert(&client_);
}

ClientConnection::~ClientConnection() { environment_.context.clients.erase(&client_); }

void ClientConnection::close(bool drain) {
  closing_ = true;
  if (!drain) {
    transport_->close();
  } else if (idle_ || awaiting_hello_) {
    transport_->cancel();
  }
}

void ClientConnection::attach_presence() {
  client_.presence.attach(environment_.context.shared.open_clients, client_.peer,
                          client_.connection_id, balanced());
  const std::string_view text = without_port(client_.peer);
  const auto address = IpAddress::parse(text);
  refused_ = client_.limits.enter(environment_.context.shared.limits, LimitKey::address,
                                  address ? exec::Limits::address_name(*address) : std::string(text));
}

TimePoint ClientConnection::handshake_end() const noexcept {
  const std::int64_t most_ms = environment_.context.shared.parameters.handshake_ms.load(std::memory_order_relaxed);
  return messages_ > 0 || most_ms <= 0 ? time_point_never : begun_ + std::chrono::milliseconds(most_ms);
}

void ClientConnection::wake_hello() {
  if (awaiting_hello_ && !leaves()) transport_->cancel();
}

bool ClientConnection::refuse_connection() {
  static log::LogPace pace;
  if (const auto unwritten = pace.due(Clock::now())) {
    log::warning("connection {} from {} refused: connections take all the memory that memory.limit leaves them; {} "
                 "more since the last such line", client_.connection_id, client_.peer, *unwritten);
  }
  environment_.context.shared.metrics.connections_rejected.add();
  return false;
}

// First the PROXY protocol's header, in plain text.
Task<bool> ClientConnection::begin() {
  auto room = environment_.context.shared.memory.connections.try_reserve(exec::connection_bytes);
  if (!room) co_return refuse_connection();
  room_ = *std::move(room);
  if (balanced()) {
    const bool read = co_await read_proxy_header();
    if (!read) co_return false;
  }
  client_.login.from_loopback = !balanced() && is_loopback(without_port(client_.peer));
  TlsContext::Ptr tls = environment_.context.tls;
  if (!tls) co_return true;
  if (refused_) co_return false;  // a handshake costs more than the refusal is worth
  auto beginning = begin_tls(std::move(tls));
  co_return co_await beginning;
}

// A handshake takes no memory before its first byte. A reload meanwhile changes nothing for this connection.
Task<bool> ClientConnection::begin_tls(TlsContext::Ptr tls) {
  const PlainText plain_text = environment_.plain_text;
  const exec::Services& shared = environment_.context.shared;
  TimePoint end = handshake_end();
  if (end == time_point_never) end = Clock::now() + tls_patience;
  idle_ = true;
  if (pipelined_.size() == 0) {
    ReadyWait readable(*transport_, Transport::Direction::read, end);
    const bool ready = co_await readable;
    if (readable.timed_out()) {
      shared.metrics.tls_handshakes_failed.add();
      log::info("connection {} from {} closed: TLS handshake: nothing came", client_.connection_id, client_.peer);
    }
    if (!ready || closing_) co_return false;
  }
  const std::function<bool()> wanted = [this] { return is_wanted(); };
  auto taking = reserve_or_wait(environment_.context.loop, shared.memory.strangers, tls_handshake_bytes, end, wanted);
  const auto handshake = co_await taking;
  if (!wanted()) co_return false;
  if (!handshake || !room_.try_grow(exec::tls_connection_bytes)) co_return refuse_connection();
  transport_ = make_tls_server(std::move(transport_), std::move(tls), plain_text, pipelined_.bytes());
  pipelined_.reset();
  const BudgetUsage strangers = shared.memory.strangers.usage();
  if (strangers.limit_bytes != 0 && strangers.used_bytes > strangers.limit_bytes / 2) {
    end = std::min(end, Clock::now() + tls_patience_contended);
  }
  const Result<void> established = co_await transport_->establish(end);
  idle_ = false;
  if (established.has_error()) {
    shared.metrics.tls_handshakes_failed.add();
    log::info("connection {} from {} closed: TLS handshake: {}", client_.connection_id, client_.peer,
              established.error().message);
    co_return false;
  }
  if (speaks_tls(*transport_)) {
    shared.metrics.tls_handshakes.add();
  } else {
    room_.shrink_to(exec::connection_bytes);
  }
  client_.login.certificate = transport_->peer_certificate();
  co_return !closing_;
}

Task<void> ClientConnection::run() {
  bool go_on = moved_ && go_on_here();
  if (!moved_) {
    go_on = co_await begin();
  }
  served_ = true;
  if (go_on && !stream_.view().empty()) {
    go_on = co_await go_on_streaming();
    stream_ = BsonDoc();
  }
  while (go_on) {
    if (environment_.leave_to && leave()) break;
    request_compressor_.reset();
    std::size_t have = 0;
    FirstRead first = FirstRead::part;
    if (pipelined_.size() == 0) {
      // Here, so that a message that comes whole takes no frame of its own, nor does the wait for it.
      idle_ = true;
      ReadyWait readable(*transport_, Transport::Direction::read);
      const bool ready = co_await readable;
      idle_ = false;
      rests_ = std::exchange(asked_to_leave_, false) && !ready && !closing_;
      first = ready && !closing_ ? read_first(have) : FirstRead::gone;
    }
    bool read = first == FirstRead::whole;
    if (first == FirstRead::part) {
      read = co_await read_message(have);
    }
    if (!read && std::exchange(rests_, false)) continue;
    if (!read) break;
    ++messages_;
    exec::Metrics& metrics = environment_.context.shared.metrics;
    metrics.requests.add();
    metrics.bytes_in.add(static_cast<std::uint64_t>(header_.message_length));
    exec::Counted under_way;
    if (relayed_) under_way.enter(environment_.relayed_requests);
    const bool handled = co_await handle_message();
    go_on = handled && !closing_;
    message_.reset();
  }
  if (transport_->timed_out()) {
    environment_.context.shared.metrics.clients_timed_out.add();
    log::info("connection {} from {} closed: its client took or answered nothing for too long",
              client_.connection_id, client_.peer);
  }
  transport_->close();
  if (balanced() && !left_) {
    end_in_older();
    exec::end_with_connection(environment_.context, client_.connection_id, transactions_);
  }
}

void ClientConnection::notice_absent_client(TimePoint now) {
  if (client_.running == nullptr || now - client_.running_since < absence_noticed_after) return;
  if (!exec::ends_with_client(*client_.running)) return;
  if (client_.interrupt.requested() != nullptr || !transport_->peer_hung_up()) return;
  environment_.context.shared.metrics.killed_due_to_client_disconnect.add();
  client_.interrupt.request(Error(ErrorCode::client_disconnect,
                                  "operation was interrupted because a client disconnected"));
}

ClientConnection::Silence ClientConnection::notice_silence(TimePoint now) {
  const Parameters& parameters = environment_.context.shared.parameters;
  const bool same = seen_messages_ == messages_ && seen_idle_ == idle_ && seen_in_header_ == in_header_;
  if (!same) quiet_since_ = now;
  seen_messages_ = messages_;
  seen_idle_ = idle_;
  seen_in_header_ = in_header_;
  if (closing_ || !(idle_ || in_header_)) return Silence::none;
  const auto over = [&](Duration quiet, std::int64_t most_ms) {
    return most_ms > 0 && quiet >= std::chrono::milliseconds(most_ms);
  };
  if (!served_) return Silence::none;  // begin() has time limits of its own
  if (messages_ == 0) {
    const bool enough = now >= handshake_end() || (refused_ && now - begun_ >= refused_patience);
    return enough ? Silence::never_spoke : Silence::none;
  }
  if (!same) return Silence::none;
  const Duration quiet = now - quiet_since_;
  if (in_header_) return over(quiet, parameters.slow_sender_ms.load()) ? Silence::stopped_sending : Silence::none;
  if (relayed_) return Silence::none;  // its client is not idle; it ends with the client's connection
  return over(quiet, parameters.idle_client_ms.load()) ? Silence::idle : Silence::none;
}

void ClientConnection::close_silent(Silence silence) {
  exec::Metrics& metrics = environment_.context.shared.metrics;
  std::string_view why = "it was idle";
  if (silence == Silence::never_spoke) why = "it has said nothing that is a message";
  if (silence == Silence::stopped_sending) why = "it stopped in the middle of a message's header";
  (silence == Silence::idle          ? metrics.idle_clients_closed
   : silence == Silence::never_spoke ? metrics.silent_clients_closed
                                     : metrics.senders_stopped)
      .add();
  log::debug("connection {} from {} closed: {}", client_.connection_id, client_.peer, why);
  close(false);
}

// Answers the first message of a connection whose address may not connect now.
Task<bool> ClientConnection::answer_refused() {
  if (header_.is(wire::OpCode::query)) {
    const auto parsed = wire::parse_op_query(message_.bytes());
    if (parsed.has_error()) co_return false;
    std::vector<std::uint8_t> out;
    encode_query_error(out, *parsed, *refused_);
    iovec piece{out.data(), out.size()};
    co_await write_all(*transport_, {&piece, 1});
  } else if (header_.is(wire::OpCode::msg)) {
    exec::Response response = exec::error_response(*refused_);
    co_await write_response(response);
  }
  co_return false;
}

Task<bool> ClientConnection::handle_message() {
  if (refused_) return answer_refused();
  if (header_.is(wire::OpCode::msg)) return handle_op_msg();
  if (header_.is(wire::OpCode::query)) return handle_op_query();
  if (header_.is(wire::OpCode::kill_cursors)) return handle_kill_cursors();
  return handle_unknown();
}

// A killCursors for each namespace, by its rules.
Task<bool> ClientConnection::handle_kill_cursors() {
  const auto parsed = wire::parse_op_kill_cursors(message_.bytes());
  if (parsed.has_error()) {
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer, parsed.error().message);
    co_return false;
  }
  absl::btree_map<std::string, std::vector<std::int64_t>> ids;
  bool any_unknown = false;
  TimeSlice slice(environment_.context.pump);
  for (Bytes rest = *parsed; !rest.empty(); rest = rest.subspan(sizeof(std::int64_t))) {
    if (slice.is_over()) co_await slice.next();
    const auto id = load_le<std::int64_t>(rest.data());
    std::string ns = environment_.context.shared.cursors.ns_of(id);
    any_unknown = any_unknown || ns.empty();
    if (!ns.empty()) ids[std::move(ns)].push_back(id);
  }
  for (const auto& [ns, of_ns] : ids) {
    co_await kill_cursors(ns, of_ns);
  }
  if (any_unknown && reaches_older()) {
    co_await relay(true, Clock::now() + ending_patience);
  }
  co_return true;
}

Task<void> ClientConnection::kill_cursors(std::string_view ns, std::span<const std::int64_t> ids) {
  const catalog::Namespace names = catalog::split_namespace(ns);
  BsonWriter out;
  out.append("killCursors", names.collection).begin_array("cursors");
  for (const std::int64_t id : ids) out.append_item(id);
  out.end();
  const BsonDoc command = std::move(out).finish();
  std::vector<std::uint8_t> sections;
  auto request = exec::parse_query_command(command, names.db, arrived_, sections);
  if (request.has_error()) co_return;
  request->interrupt = &client_.interrupt;
  co_await exec::run_command(environment_.context, client_, *request);
}

Task<bool> ClientConnection::handle_unknown() {
  log::info("connection {} from {} closed: opcode {} is not supported", client_.connection_id,
            client_.peer, header_.op_code);
  co_return false;
}

// `silent`: the client wants no answer.
Task<bool> ClientConnection::refuse(const Error& why, bool silent) {
  if (silent) co_return true;
  exec::Response refusal = exec::refuse(environment_.context.shared.metrics, why);
  co_return co_await write_response(refusal);
}

Task<bool> ClientConnection::handle_op_msg() {
  exec::Context& context = environment_.context;
  const bool large = message_.size() > looked_through_at_once_bytes_max;
  TimeSlice slice(context.pump);
  exec::Request request;
  const wire::OpMsg& message = request.message;
  Result<void> parsed;
  if (large) {
    parsed = co_await parse_in_steps(slice, request.message, message_.bytes());
  } else {
    parsed = wire::parse_op_msg(request.message, message_.bytes());
  }
  if (parsed.has_error()) {
    if (wire::connection_fatal(parsed.error())) {
      log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer,
                parsed.error().message);
      co_return false;
    }
    const std::uint32_t flags = wire::peek_flags(message_.bytes());
    if ((flags & wire::flags::more_to_come) != 0) co_return true;
    checksum_ = (flags & wire::flags::checksum_present) != 0 && !speaks_tls(*transport_);
    exec::Response response = exec::refuse(context.shared.metrics, parsed.error());
    co_return co_await write_response(response);
  }
  const bool has_checksum = message.has_flag(wire::flags::checksum_present);
  checksum_ = has_checksum && !speaks_tls(*transport_);  // which has its own
  Result<void> valid;
  if (large) {
    valid = co_await check_documents_in_steps(slice, message);
  } else {
    valid = check_documents(message);
  }
  if (valid.has_error()) {
    if (message.has_flag(wire::flags::more_to_come)) co_return true;
    exec::Response response = exec::refuse(context.shared.metrics, valid.error());
    co_return co_await write_response(response);
  }
  const bool silent = message.has_flag(wire::flags::more_to_come);
  Bytes sections = message_.bytes().subspan(limits::message_header_bytes + 4);
  if (has_checksum) sections = sections.first(sections.size() - 4);
  if (auto read = exec::read_request(request, sections, arrived_); read.has_error()) {
    if (silent) co_return true;
    exec::Response response = exec::refuse(context.shared.metrics, read.error());
    co_return co_await write_response(response);
  }
  shard::ShardTime shards;
  request.interrupt = &client_.interrupt;
  request.shard_time = &shards;
  request.user = client_.user.empty() ? without_port(client_.peer) : std::string_view(client_.user);
  request.compressed = compresses_replies();
  const bool stranger = context.shared.authorization && !client_.login.user;
  if (!request.lsid.empty() && !stranger) client_.presence.note_session(request.lsid);
  if (is_hello_name(request.name) && !silent) {
    co_return co_await answer_hello(request, message.has_flag(wire::flags::exhaust_allowed));
  }
  if (relay_ && !environment_.older->lives.load(std::memory_order_relaxed)) relay_.reset();
  if (belongs_to_older(request)) {
    // That process has the users of its own start.
    if (auto allowed = exec::check_may_run(context, client_, request); allowed.has_error()) {
      auto refusing = refuse(allowed.error(), silent);
      co_return co_await refusing;
    }
    const Relayed relayed = co_await relay(silent, older_until(request));
    if (relayed != Relayed::unanswered) co_return relayed == Relayed::answered;
    if (Clock::now() >= request.deadline) {
      const Error late = time_limit_exceeded();
      co_return co_await refuse(late, silent);
    }
  }
  std::vector<std::int64_t> killed;  // in the older process
  const bool kills = request.name == "killCursors";
  if (reaches_older() && (kills || ends_sessions(request))) {
    auto asking = kills ? kill_in_older(request, killed) : end_sessions_in_older(request);
    const Result<void> asked = co_await asking;
    if (asked.has_error()) {
      auto refusing = refuse(asked.error(), silent);
      co_return co_await refusing;
    }
  }
  TimePoint first_tried{};
  exec::CommandTrace trace(context.shared.tracer.get(), request, client_, shards, received_, first_tried);
  exec::Response response = co_await exec::run_command(context, client_, request);
  if (!killed.empty() && !response.failed && !response.closes) response = with_killed(response, std::move(killed));
  trace.answered(response);
  // Ends with the connection, so that it cannot become another user's.
  if (balanced() && request.start_transaction && request.txn_number &&
      exec::owns_session(context, client_, request)) {
    transactions_.note(*context.shared.transactions, request);
  }
  // The reply may take long to leave, and needs nothing of the request.
  const bool compressed = request.compressed;
  const std::size_t request_bytes = message_.size();
  message_.reset();
  if (response.closes) co_return false;
  if (silent) co_return true;
  if (exec::StreamReply* stream = response.stream()) {
    if (compressed) context.shared.metrics.uncompressed_replies.add();
    const std::size_t bytes = stream->reply.message_bytes;
    const bool relayed =
        co_await exec::relay_stream(context, *transport_, *stream, new_request_id(), header_.request_id, first_tried);
    note_inside(shards, first_tried, request_bytes, bytes);
    co_return relayed;
  }
  std::optional<exec::HeldReply> held;
  const std::size_t reply_bytes = response.bytes();
  if (context.shared.limits.looks_at_bytes()) held.emplace(client_.limits, reply_bytes);
  if (is_compressed_request()) {
    const bool written = co_await write_response(response, &first_tried);
    note_inside(shards, first_tried, request_bytes, reply_bytes);
    co_return written;
  }
  Framed framed;
  frame(response, framed);
  // Nearly all are taken at once. The others are watched: other requests may wait for their memory.
  WriteAll writing(*transport_, framed.pieces_span(), time_point_never, &first_tried);
  const bool at_once = writing.await_ready();
  const bool written = at_once ? writing.await_resume() : co_await write_watched(writing.rest());
  note_inside(shards, first_tried, request_bytes, reply_bytes);
  co_return written;
}

}  // namespace spillway::server
