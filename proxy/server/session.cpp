#include "proxy/server/session.h"

#include <chrono>

#include "proxy/base/log.h"
#include "proxy/exec/authorization.h"
#include "proxy/exec/stream.h"
#include "proxy/server/config.h"
#include "proxy/wire/op_msg.h"

namespace spillway::server {

namespace {

constexpr Duration handshake_patience = std::chrono::seconds(30);
// What OpenSSL takes for a connection: 17 KiB were measured when it is idle, more while it shakes hands.
constexpr std::uint64_t tls_connection_bytes = 20 * limits::kib;
constexpr std::uint64_t tls_handshake_bytes = 64 * limits::kib;
// Shorter operations are not worth a look at their client's socket.
constexpr Duration absence_noticed_after = std::chrono::milliseconds(250);

bool is_hello_name(std::string_view name) noexcept {
  return name == "hello" || name == "isMaster" || name == "ismaster";
}

// Of "127.0.0.1:5000" and "[::1]:5000".
std::string_view address_of(std::string_view peer) noexcept {
  peer = peer.substr(0, peer.rfind(':'));
  if (peer.starts_with('[') && peer.ends_with(']')) peer = peer.substr(1, peer.size() - 2);
  return peer;
}

// Every document of the request is well-formed to its last element: what is routed is never looked
// into again, and must not be a shard's problem.
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
                 std::int64_t connection_id, Entrance entrance)
    : environment_(environment), transport_(std::move(transport)), entrance_(entrance) {
  client_.connection_id = connection_id;
  client_.peer = transport_->peer();
  client_.local = transport_->local();
  // Behind a load balancer the address is not known yet.
  if (!balanced()) attach_presence();
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

void Session::attach_presence() {
  client_.presence.attach(environment_.context.shared.open_clients, client_.peer,
                          client_.connection_id, balanced());
}

void Session::wake_hello() {
  if (awaiting_hello_) transport_->cancel();
}

// What a load balancer says of its client comes first, in plain text.
Task<bool> Session::begin() {
  if (balanced()) {
    auto heading = read_proxy_header();
    const bool read = co_await heading;
    if (!read) co_return false;
  }
  client_.login.from_loopback = !balanced() && is_loopback(address_of(client_.peer));
  if (!environment_.context.tls) co_return true;
  auto room = environment_.context.shared.memory.try_reserve(tls_handshake_bytes);
  if (!room) {
    log::info("connection {} from {} closed: no memory for TLS", client_.connection_id, client_.peer);
    co_return false;
  }
  tls_room_ = *std::move(room);
  transport_ = make_tls_server(std::move(transport_), environment_.context.tls, environment_.plain_text,
                               pipelined_.bytes());
  pipelined_.reset();
  idle_ = true;
  auto establishing = transport_->establish(Clock::now() + handshake_patience);
  const Result<void> established = co_await establishing;
  idle_ = false;
  exec::Metrics& metrics = environment_.context.shared.metrics;
  if (established.has_error()) {
    metrics.tls_handshakes_failed.add();
  } else if (speaks_tls(*transport_)) {
    metrics.tls_handshakes.add();
  }
  if (!established.has_error()) {
    tls_room_.shrink_to(tls_connection_bytes);
    client_.login.certificate_subject = transport_->peer_certificate_subject();
    co_return !closing_;
  }
  log::info("connection {} from {} closed: TLS handshake: {}", client_.connection_id, client_.peer,
            established.error().message);
  co_return false;
}

Task<void> Session::run() {
  auto beginning = begin();
  bool go_on = co_await beginning;
  while (go_on) {
    auto reading = read_message();
    const bool read = co_await reading;
    if (!read) break;
    exec::Metrics& metrics = environment_.context.shared.metrics;
    metrics.requests.add();
    metrics.bytes_in.add(static_cast<std::uint64_t>(header_.message_length));
    auto handling = handle_message();
    const bool handled = co_await handling;
    go_on = handled && !closing_;
    message_.reset();
  }
  transport_->close();
  if (balanced()) {
    exec::end_with_connection(environment_.context, client_.connection_id, transactions_);
  }
}

void Session::notice_absent_client(TimePoint now) {
  if (client_.running == nullptr || now - client_.running_since < absence_noticed_after) return;
  if (client_.interrupt.requested() != nullptr || !transport_->peer_hung_up()) return;
  environment_.context.shared.metrics.killed_due_to_client_disconnect.add();
  client_.interrupt.request(Error(ErrorCode::client_disconnect,
                                  "operation was interrupted because a client disconnected"));
}

Task<bool> Session::handle_message() {
  if (header_.is(wire::OpCode::msg)) return handle_op_msg();
  if (header_.is(wire::OpCode::query)) return handle_op_query();
  return handle_unknown();
}

Task<bool> Session::handle_unknown() {
  log::info("connection {} from {} closed: opcode {} is not supported", client_.connection_id,
            client_.peer, header_.op_code);
  co_return false;
}

Task<bool> Session::handle_op_msg() {
  exec::Context& context = environment_.context;
  auto parsed = wire::parse_op_msg(message_.bytes());
  if (parsed.has_error()) {
    if (wire::connection_fatal(parsed.error())) {
      log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer,
                parsed.error().message);
      co_return false;
    }
    if ((wire::peek_flags(message_.bytes()) & wire::flags::more_to_come) != 0) co_return true;
    checksum_ = false;
    exec::Response response = exec::refuse(context.shared.metrics, parsed.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  checksum_ = parsed->has_flag(wire::flags::checksum_present);
  if (auto valid = check_documents(*parsed); valid.has_error()) {
    if (parsed->has_flag(wire::flags::more_to_come)) co_return true;
    exec::Response response = exec::refuse(context.shared.metrics, valid.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  const bool silent = parsed->has_flag(wire::flags::more_to_come);
  Bytes sections = message_.bytes().subspan(limits::message_header_bytes + 4);
  if (checksum_) sections = sections.first(sections.size() - 4);
  auto request = exec::parse_request(*parsed, sections, Clock::now());
  if (request.has_error()) {
    if (silent) co_return true;
    exec::Response response = exec::refuse(context.shared.metrics, request.error());
    auto writing = write_response(response);
    co_return co_await writing;
  }
  request->interrupt = &client_.interrupt;
  request->compressed = compresses_replies();
  const bool stranger = context.shared.authorization && !client_.login.user;
  if (!request->lsid.empty() && !stranger) client_.presence.note_session(request->lsid);
  if (is_hello_name(request->name)) {
    auto answering = answer_hello(*request, parsed->has_flag(wire::flags::exhaust_allowed));
    co_return co_await answering;
  }
  auto running = exec::run_command(context, client_, *request);
  exec::Response response = co_await running;
  // What ends with the connection: not another user's.
  if (balanced() && request->start_transaction && request->txn_number &&
      exec::owns_session(context, client_, *request)) {
    transactions_.note(*context.shared.transactions, *request);
  }
  if (response.closes) co_return false;
  if (silent) co_return true;
  if (exec::StreamReply* stream = response.stream()) {
    if (request->compressed) context.shared.metrics.uncompressed_replies.add();
    auto relaying =
        exec::relay_stream(context, *transport_, *stream, next_request_id_++, header_.request_id);
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

}  // namespace spillway::server
