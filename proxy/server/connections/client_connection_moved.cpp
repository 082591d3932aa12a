// How a connection passes to the process that replaces this one, goes on there, and reaches cursors and transactions
// that stayed behind.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cursor/registry.h"
#include "proxy/base/ip_address.h"
#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/base/tcp_transport.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/connection_counts.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/server/connections/client_connection.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/op_msg.h"

namespace spillway::server {

namespace {

// Of a reply that passes.
constexpr std::size_t relayed_piece_bytes = 16 * limits::kib;
constexpr std::size_t head_bytes = limits::message_header_bytes + 4;  // with the flags of an OP_MSG
// Of a killCursors to the older process: it and its answer fit into a piece.
constexpr std::size_t killed_at_once = 500;
// How often a wait for the older process looks whether it still makes sense.
constexpr Duration relay_look = std::chrono::milliseconds(250);

std::string text_of(DocView state, std::string_view name) {
  const ValueView value = state[name];
  return value.is_string() ? std::string(value.as_string()) : std::string();
}

}  // namespace

Entrance entrance_of(const MovedClient& client) noexcept {
  return client.state.view()["balanced"].truthy() ? Entrance::load_balancers : Entrance::clients;
}

BsonDoc ClientConnection::state() const {
  BsonWriter out;
  out.append("id", client_.connection_id).append("peer", client_.peer).append("local", client_.local);
  out.append("balanced", balanced()).append("internal", client_.internal).append("greeted", !first_hello_);
  out.append("heard", messages_ > 0).append("busy", client_.busy.entered());
  out.append("application", client_.application_name);
  if (!client_.metadata.empty()) out.append("metadata", DocView::trusted(client_.metadata.data()));
  if (client_.login.user) {
    out.begin_document("user");
    out.append("db", client_.login.user->db).append("name", client_.login.user->name);
    out.end();
  }
  out.begin_array("compressors");
  for (const wire::Compressor compressor : negotiated_) out.append_item(static_cast<std::int32_t>(compressor));
  out.end();
  return std::move(out).finish();
}

ClientConnection::ClientConnection(ConnectionEnvironment& environment, std::unique_ptr<Transport> transport,
                                   const MovedClient& moved)
    : environment_(environment),
      transport_(std::move(transport)),
      entrance_(entrance_of(moved)),
      begun_(Clock::now()),
      moved_(true),
      relayed_(moved.relayed) {
  const DocView state = moved.state.view();
  client_.connection_id = state["id"].to_int64().value_or(0);
  client_.peer = text_of(state, "peer");
  client_.local = text_of(state, "local");
  client_.internal = state["internal"].truthy();
  first_hello_ = !state["greeted"].truthy();
  messages_ = state["heard"].truthy() ? 1 : 0;
  if (!relayed_ && state["busy"].truthy()) client_.busy.enter(environment_.context.shared.connections.busy);
  next_request_id_ = static_cast<std::int32_t>(state["nextRequest"].to_int64().value_or(1));
  (relayed_ ? transactions_ : older_transactions_).take_from(state);
  if (const ValueView stream = state["stream"]; stream.is_document()) {
    stream_ = BsonDoc(stream.as_document());
    header_.request_id = static_cast<std::int32_t>(state["responseTo"].to_int64().value_or(0));
    checksum_ = state["checksum"].truthy();
  }
  attach_presence();
  refused_.reset();  // it is connected
  if (const ValueView metadata = state["metadata"]; metadata.is_document()) {
    const Bytes bytes = metadata.as_document().bytes();
    client_.metadata.assign(bytes.begin(), bytes.end());
    client_.application_name = text_of(state, "application");
    client_.presence.identify(client_.application_name, client_.metadata);
  }
  if (const ValueView list = state["compressors"]; list.is_array()) {
    for (const Element& one : list.as_document()) {
      const std::int64_t number = one.to_int64().value_or(-1);
      const bool known = number >= 0 && number <= static_cast<std::int64_t>(wire::Compressor::zstd);
      if (known && negotiated_.size() < negotiated_.capacity()) {
        negotiated_.push_back(static_cast<wire::Compressor>(number));
      }
    }
  }
  client_.login.from_loopback = !balanced() && is_loopback(without_port(client_.peer));
  if (const ValueView user = state["user"]; user.is_document()) {
    lost_user_ = !exec::restore_login(environment_.context, client_, text_of(user.as_document(), "db"),
                                      text_of(user.as_document(), "name"));
  }
  environment_.context.clients.insert(&client_);
}

// The first reply leaves at once: the version is another process's.
Task<bool> ClientConnection::go_on_streaming() {
  const auto hello = wire::parse_hello(stream_.view());
  if (hello.has_error() || !hello->topology_version) co_return false;
  co_return co_await stream_hello(*hello, stream_.view(), true);
}

// Instead of begin().
bool ClientConnection::go_on_here() {
  if (lost_user_) {
    log::info("connection {} from {} closed: its user is not known to this process", client_.connection_id,
              client_.peer);
    return false;
  }
  const bool plain_is_refused = environment_.context.tls && environment_.plain_text == PlainText::refused;
  if (plain_is_refused && !relayed_) return false;
  auto room = environment_.context.shared.memory.connections.try_reserve(exec::connection_bytes);
  if (!room) return refuse_connection();
  room_ = *std::move(room);
  return true;
}

bool ClientConnection::may_leave() const noexcept {
  return !relayed_ && !refused_ && transport_->can_release() && !client_.login.conversation;
}

bool ClientConnection::leaves() const noexcept { return environment_.leave_to && may_leave(); }

void ClientConnection::ask_to_leave() {
  if (!may_leave()) return;
  asked_to_leave_ = idle_ && served_;
  if (asked_to_leave_ || awaiting_hello_) transport_->cancel();
}

// Between two requests, or between two replies of a stream of hellos: `stream` is the hello, `response_to` the reply
// before. False: it stays.
bool ClientConnection::leave(DocView stream, std::int32_t response_to) {
  if (!leaves() || closing_ || pipelined_.size() > 0) return false;
  BsonWriter out;
  out.append_elements(state());
  if (!stream.empty()) {
    out.append("stream", stream).append("responseTo", response_to).append("checksum", checksum_);
  }
  out.append("nextRequest", next_request_id_);
  transactions_.append_to(out, environment_.context.shared.transactions.get());
  BsonDoc facts = std::move(out).finish();
  if (facts.size() > moved_state_bytes_max) return false;
  left_ = true;
  environment_.leave_to({std::move(facts), transport_->release(), std::move(room_), false});
  return true;
}

// May the client use what stayed in the process before this one?
bool ClientConnection::reaches_older() const noexcept {
  if (!environment_.older || !environment_.older->lives.load(std::memory_order_relaxed)) return false;
  return !environment_.context.shared.authorization || client_.login.user;
}

bool ClientConnection::is_unknown_cursor(std::int64_t id) const {
  return environment_.context.shared.cursors.ns_of(id).empty();
}

// Does the request go on with what stayed in the process before this one? A killCursors may name cursors of both.
bool ClientConnection::belongs_to_older(const exec::Request& request) const {
  if (!reaches_older()) return false;
  if (request.in_transaction && !request.start_transaction && request.txn_number && !request.lsid.empty()) {
    return !environment_.context.shared.transactions->knows(session_id_of_lsid(request.lsid), *request.txn_number);
  }
  if (request.name != "getMore") return false;
  const auto id = request.body.first().to_int64();
  return id && is_unknown_cursor(*id);
}

// False: there is no way to the older process.
bool ClientConnection::open_relay() {
  if (relay_ && relay_user_ == client_.user) return true;
  std::array<int, 2> ends{};
  relay_.reset();
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  relay_ = adopt_tcp_transport(environment_.context.loop, std::move(ours), {.keepalive = false});
  if (!relay_) return false;
  relay_user_ = client_.user;
  BsonWriter facts;
  facts.append_elements(state());
  older_transactions_.append_to(facts, nullptr);
  environment_.older->serve({std::move(facts).finish(), std::move(theirs), {}, true});
  return true;
}

// What the connection began in the older process ends there with its relay, which ends with it.
void ClientConnection::end_in_older() {
  if (moved_ && !relayed_ && environment_.older && environment_.older->lives) static_cast<void>(open_relay());
}

// How long the older process has for a request. One that is only slow says itself that the time is over.
TimePoint ClientConnection::older_until(const exec::Request& request) {
  const bool ends = request.name == "abortTransaction" || request.name == "killCursors" || ends_sessions(request);
  const TimePoint end =
      request.deadline == time_point_never ? time_point_never : request.deadline + std::chrono::seconds(1);
  return ends ? std::min(end, Clock::now() + ending_patience) : end;
}

// False: the older process has ended, or hangs, or the client waits no more.
Task<bool> ClientConnection::relay_can_be_read(TimePoint until) {
  for (;;) {
    ReadyWait readable(*relay_, Transport::Direction::read, std::min(until, Clock::now() + relay_look));
    const bool ready = co_await readable;
    if (ready) co_return true;
    const bool wanted = !transport_->peer_hung_up() && client_.interrupt.requested() == nullptr;
    if (!readable.timed_out() || !wanted || Clock::now() >= until) co_return false;
  }
}

// Fills `into` from the older process.
Task<bool> ClientConnection::read_relay(MutableBytes into, TimePoint until) {
  while (!into.empty()) {
    const IoResult got = relay_->try_read(into);
    if (got.ok()) {
      into = into.subspan(got.bytes);
      continue;
    }
    if (!got.would_block()) co_return false;
    const bool ready = co_await relay_can_be_read(until);
    if (!ready) co_return false;
  }
  co_return true;
}

// For what passes; nothing: there is no room, or the client waits no more.
Task<std::optional<Buffer>> ClientConnection::take_relay_room(std::size_t bytes) {
  const std::function<bool()> wanted = [this] { return is_wanted(); };
  auto taking = allocate_or_wait(environment_.context.loop, environment_.context.shared.memory.replies, bytes,
                                 Clock::now() + std::chrono::seconds(15), wanted);
  co_return co_await taking;
}

// False: it takes nothing more, or the client has left.
Task<bool> ClientConnection::write_to_older(std::span<iovec> pieces, TimePoint until) {
  for (;;) {
    const TimePoint end = std::min(until, Clock::now() + relay_look);
    WriteAll writing(*relay_, pieces, end);
    const bool written = co_await writing;
    if (written) co_return true;
    if (Clock::now() < end || end == until || !is_wanted()) co_return false;
    pieces = writing.rest();
  }
}

// The older process reads the request as it came, and its answer passes in pieces. What comes after `until` is dropped.
Task<ClientConnection::Relayed> ClientConnection::relay(bool silent, TimePoint until) {
  auto piece = co_await take_relay_room(relayed_piece_bytes);
  if (!piece || !open_relay()) co_return Relayed::unanswered;
  iovec request{message_.data(), message_.size()};
  const bool asked = co_await write_to_older({&request, 1}, until);
  bool answering = false;
  bool more = asked && !silent;
  bool whole = asked;
  while (more) {
    const MutableBytes head(piece->data(), head_bytes);
    whole = co_await read_relay(head, until);
    const auto need = whole ? wire::FrameReader::peek(head) : wire::FrameReader::Need();
    whole = need.kind == wire::FrameReader::Kind::message && need.bytes >= head_bytes;
    if (!whole) break;
    more = need.header.is(wire::OpCode::msg) && (wire::peek_flags(head) & wire::flags::more_to_come) != 0;
    answering = true;
    std::size_t have = head_bytes;
    std::size_t rest = need.bytes - head_bytes;
    for (;;) {
      iovec part{piece->data(), have};
      environment_.context.shared.metrics.bytes_out.add(have);
      const bool written = co_await write_watched({&part, 1}, nullptr);
      if (!written) co_return Relayed::broken;
      if (rest == 0) break;
      IoResult got = relay_->try_read({piece->data(), std::min(rest, relayed_piece_bytes)});
      while (got.would_block()) {
        const bool ready = co_await relay_can_be_read(until);
        if (!ready) co_return Relayed::broken;
        got = relay_->try_read({piece->data(), std::min(rest, relayed_piece_bytes)});
      }
      if (!got.ok()) co_return Relayed::broken;
      have = got.bytes;
      rest -= have;
    }
  }
  if (whole) co_return Relayed::answered;
  relay_.reset();
  co_return answering || !is_wanted() ? Relayed::broken : Relayed::unanswered;
}

// Asks the older process; its answer, a view into `room`, must fit there. HostUnreachable(6): there is none in time.
Task<Result<wire::OpMsg>> ClientConnection::ask_older(DocView command, MutableBytes room, TimePoint until) {
  auto prefix = wire::op_msg_prefix(wire::op_msg_prefix_bytes + command.size(), new_request_id(), 0, 0);
  std::array<iovec, 2> pieces{{{prefix.data(), prefix.size()},
                               {const_cast<std::uint8_t*>(command.data()), command.size()}}};
  bool read = co_await write_to_older(pieces, until);
  wire::FrameReader::Need need;
  if (read) {
    read = co_await read_relay(room.first(head_bytes), until);
  }
  if (read) {
    need = wire::FrameReader::peek(room.first(head_bytes));
    read = need.kind == wire::FrameReader::Kind::message && need.bytes >= head_bytes && need.bytes <= room.size();
  }
  if (read) {
    read = co_await read_relay(room.subspan(head_bytes, need.bytes - head_bytes), until);
  }
  auto answer = read ? wire::parse_op_msg_reply(room.first(need.bytes))
                     : Result<wire::OpMsg>(Error(ErrorCode::host_unreachable, std::string()));
  if (answer.has_error()) relay_.reset();
  co_return answer;
}

// A session may have something in both processes.
bool ClientConnection::ends_sessions(const exec::Request& request) noexcept {
  constexpr std::array<std::string_view, 4> names = {"endSessions", "killSessions", "killAllSessions",
                                                     "killAllSessionsByPattern"};
  return std::find(names.begin(), names.end(), request.name) != names.end();
}

// The older process takes the command first, and what it refuses is refused. When it ends, its part ends with it.
Task<Result<void>> ClientConnection::end_sessions_in_older(const exec::Request& request) {
  auto room = co_await take_relay_room(2 * relayed_piece_bytes);
  if (!room || !open_relay()) co_return Result<void>();
  const auto answer = co_await ask_older(request.body, {room->data(), 2 * relayed_piece_bytes}, older_until(request));
  if (answer.has_error() || wire::reply_is_ok(answer->body)) co_return Result<void>();
  co_return wire::error_from_reply(answer->body);
}

// Of a killCursors: what this process does not know ends in the older one. `killed` gets what did. What that refuses is
// refused as a whole; when it ends, its cursors end with it.
Task<Result<void>> ClientConnection::kill_in_older(const exec::Request& request, std::vector<std::int64_t>& killed) {
  const ValueView cursors = request.body["cursors"];
  if (!request.body.first().is_string() || !cursors.is_array()) co_return Result<void>();
  const TimePoint until = older_until(request);
  std::vector<std::int64_t> unknown;
  TimeSlice slice(environment_.context.pump);
  for (auto at = cursors.as_document().begin(); !at.done(); ++at) {
    if (slice.is_over()) co_await slice.next();
    if (at->type == BsonType::int64 && is_unknown_cursor(at->as_int64())) unknown.push_back(at->as_int64());
    if (unknown.size() < killed_at_once) continue;
    auto killing = kill_some_in_older(request, std::exchange(unknown, {}), killed, until);
    auto done = co_await killing;
    if (done.has_error()) co_return done;
  }
  auto killing = kill_some_in_older(request, std::move(unknown), killed, until);
  co_return co_await killing;
}

// The reply, with what has ended in the older process.
exec::Response ClientConnection::with_killed(const exec::Response& response, std::vector<std::int64_t> killed) {
  std::sort(killed.begin(), killed.end());
  const BsonDoc reply = response.copy();
  BsonWriter out;
  for (const Element& field : reply.view()) {
    const bool found = field.name == "cursorsKilled";
    if (!field.is_array() || !(found || field.name == "cursorsNotFound")) {
      out.append_element(field);
      continue;
    }
    out.begin_array(field.name);
    for (const Element& id : field.as_document()) {
      if (found || !std::binary_search(killed.begin(), killed.end(), id.as_int64())) out.append_item(id.as_int64());
    }
    if (found) {
      for (const std::int64_t id : killed) out.append_item(id);
    }
    out.end();
  }
  return exec::Response(std::move(out).finish());
}

Task<Result<void>> ClientConnection::kill_some_in_older(const exec::Request& request, std::vector<std::int64_t> ids,
                                                        std::vector<std::int64_t>& killed, TimePoint until) {
  if (ids.empty()) co_return Result<void>();
  auto room = co_await take_relay_room(2 * relayed_piece_bytes);
  if (!room || !open_relay()) co_return Result<void>();
  BsonWriter out;
  out.append("killCursors", request.body.first().as_string()).begin_array("cursors");
  for (const std::int64_t id : ids) out.append_item(id);
  out.end().append("$db", request.db);
  const BsonDoc command = std::move(out).finish();
  const auto answer = co_await ask_older(command, {room->data(), 2 * relayed_piece_bytes}, until);
  if (answer.has_error()) co_return Result<void>();
  if (!wire::reply_is_ok(answer->body)) co_return wire::error_from_reply(answer->body);
  const ValueView ended = answer->body["cursorsKilled"];
  if (!ended.is_array()) co_return Result<void>();
  for (auto at = ended.as_document().begin(); !at.done(); ++at) {
    if (const auto id = at->to_int64()) killed.push_back(*id);
  }
  co_return Result<void>();
}

}  // namespace spillway::server
