// How a connection answers hello, in OP_MSG and OP_QUERY, once or as an exhaust stream.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/exec/access/audit.h"
#include "proxy/exec/access/authentication.h"
#include "proxy/exec/admin/hello.h"
#include "proxy/exec/commands/client_times.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/commands/op_query_commands.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/server/connections/client_connection.h"
#include "proxy/wire/hello.h"
#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"

namespace spillway::server {
namespace {

// The least pause that drivers make between two (minHeartbeatFrequencyMS).
constexpr Duration exhaust_pause_min = std::chrono::milliseconds(500);
constexpr std::size_t waiting_hello_bytes_max = 2 * limits::kib;  // drivers' have less than 500 bytes

}  // namespace

// Takes the connection's properties from a hello; an error is the answer to it. (A connection's first hello says
// whether its driver retries refused requests.)
Result<wire::HelloRequest> ClientConnection::take_hello(DocView command, bool exhaust) {
  if (auto repeated = wire::check_metadata_not_repeated(command, first_hello_); repeated.has_error()) {
    return repeated.error();
  }
  auto hello = wire::parse_hello(command);
  if (hello.has_error()) return hello.error();
  if (first_hello_ || !balanced()) {
    if (auto checked = wire::check_load_balanced(*hello, balanced()); checked.has_error()) {
      return checked.error();
    }
  }
  if (exhaust) {
    if (auto checked = wire::check_exhaust_hello(*hello); checked.has_error())
      return checked.error();
  }
  if (hello->client) {
    client_.metadata.assign(hello->client->data(), hello->client->data() + hello->client->size());
    client_.application_name = hello->application_name;
    client_.presence.identify(client_.application_name, client_.metadata);
    if (exec::AuditLog* const audit = environment_.context.shared.audit.get()) audit->client_metadata(client_);
  }
  client_.internal = client_.internal || hello->internal_client;
  if (std::exchange(first_hello_, false)) {
    exec::Metrics& metrics = environment_.context.shared.metrics;
    (hello->backpressure ? metrics.hellos_with_backpressure : metrics.hellos_without_backpressure)
        .add();
  }
  if (hello->compression)
    negotiated_ = wire::negotiate(environment_.compressors, *hello->compression);
  return hello;
}

// A driver in another mode would treat connections through the load balancer as interchangeable.
bool ClientConnection::ends_connection(const Error& refused) const noexcept {
  return balanced() && refused.is(ErrorCode::load_balancer_support_mismatch);
}

// As tests have planned it; none: it is answered.
Task<std::optional<exec::PlannedFailure>> ClientConnection::fail_hello(const wire::HelloRequest& hello) {
  if (auto user = exec::user_to_learn(environment_.context, client_, hello)) {
    auto learning = exec::learn_user(environment_.context, *std::move(user));
    co_await learning;
  }
  if (!environment_.context.shared.fail_command.on()) co_return std::nullopt;
  auto failing = exec::fail_as_planned(environment_.context, client_,
                                       {hello.is_hello ? "hello" : "isMaster", "admin", {}}, time_point_never);
  co_return co_await failing;
}

// As a router counts every command.
void ClientConnection::count_hello(std::string_view name, bool answered) {
  exec::Metrics& metrics = environment_.context.shared.metrics;
  exec::Metrics::Command& counted = metrics.commands[exec::command_named(name)->index];
  counted.total.add();
  if (!answered) counted.failed.add();
  metrics.op_command.add();
}

BsonDoc ClientConnection::hello_reply(const wire::HelloRequest& hello) {
  exec::Context& context = environment_.context;
  BsonDoc reply = context.shared.life.quiescing && !leaves()
                      ? exec::quiesce_reply(context)
                      : exec::hello_reply(context, client_, hello, negotiated_);
  const BsonDoc times = exec::times_for_hello(context, client_);
  if (times.view().empty()) return reply;
  BsonWriter out;
  out.append_elements(reply).append_elements(times);
  return std::move(out).finish();
}

// The error of a query, in the form of its kind of query.
void ClientConnection::encode_query_error(std::vector<std::uint8_t>& out, const wire::OpQuery& query,
                                          const Error& error) {
  const std::int32_t request_id = new_request_id();
  if (query.is_command()) {
    wire::encode_op_reply(out, request_id, header_.request_id, exec::error_document(error));
  } else {
    wire::encode_query_failure(out, request_id, header_.request_id, error);
  }
}

// A command of a monitoring program; all other commands are refused. (An error of ours: the caller counts it.)
// `copies`: of the answer, until it has left.
Task<Result<BsonDoc>> ClientConnection::answer_query_command(const wire::OpQuery& query, DocView command,
                                                             Reservation& copies) {
  const std::string_view name = command.first().name;
  const std::string_view db = query.database();
  if (!query.is_command()) {
    co_return Error(ErrorCode::unsupported_op_query_command,
                    "OP_QUERY finds are not supported. The client driver may require an upgrade.");
  }
  if (query.to_return != 1 && query.to_return != -1) {
    co_return Error(16979,
                    fmt::format("Bad numberToReturn ({}) for $cmd type ns - can only be 1 or -1", query.to_return));
  }
  if (command.size() > exec::query_command_bytes_max || !exec::is_answered_over_op_query(name, db)) {
    co_return Error(ErrorCode::unsupported_op_query_command,
                    fmt::format("Unsupported OP_QUERY command: {}. The client driver may require an upgrade.", name));
  }
  // Shards must not get a damaged one.
  if (auto valid = command.validate(); valid.has_error()) co_return valid.error();
  std::vector<std::uint8_t> sections;
  auto request = exec::parse_query_command(command, db, Clock::now(), sections);
  if (request.has_error()) co_return request.error();
  request->interrupt = &client_.interrupt;
  const exec::Response response = co_await exec::run_command(environment_.context, client_, *request);
  if (response.closes) close(false);
  if (response.stream() != nullptr)
    co_return Error(ErrorCode::unsupported_op_query_command, "the reply is too large for OP_REPLY");
  // It is copied twice, and may leave slowly.
  const std::size_t copied = 2 * response.bytes();
  auto reserved = environment_.context.shared.memory.replies.try_reserve(copied);
  if (!reserved) co_return memory_refused(environment_.context.shared.memory.replies, copied, "a reply over OP_QUERY");
  copies = *std::move(reserved);
  RecycledBytes document;
  for (const iovec& piece : response.pieces()) {
    const auto* bytes = static_cast<const std::uint8_t*>(piece.iov_base);
    document.insert(document.end(), bytes, bytes + piece.iov_len);
  }
  co_return BsonDoc(std::move(document));
}

Task<bool> ClientConnection::handle_op_query() {
  auto parsed = wire::parse_op_query(message_.bytes());
  if (parsed.has_error()) {
    log::info("connection {} from {} closed: {}", client_.connection_id, client_.peer,
              parsed.error().message);
    co_return false;
  }
  const DocView command = wire::unwrap_query(parsed->query);
  Reservation copies;
  Result<BsonDoc> reply = Error();
  bool go_on = true;
  if (!parsed->is_command() || !wire::is_hello_command(command)) {
    reply = co_await answer_query_command(*parsed, command, copies);
    if (reply.has_error()) environment_.context.shared.metrics.errors.add(reply.error().code);
  } else if (auto hello = take_hello(command, false); hello.has_error()) {
    reply = hello.error();
    go_on = !ends_connection(hello.error());
  } else {
    const auto failure = co_await fail_hello(*hello);
    if (failure && failure->closes) co_return false;
    reply = failure ? Result<BsonDoc>(failure->error) : Result<BsonDoc>(hello_reply(*hello));
    count_hello(hello->is_hello ? "hello" : "isMaster", !failure);
  }
  std::vector<std::uint8_t> out;
  if (reply.has_error()) {
    encode_query_error(out, *parsed, reply.error());
  } else {
    wire::encode_op_reply(out, new_request_id(), header_.request_id, *reply);
  }
  environment_.context.shared.metrics.bytes_out.add(out.size());
  iovec piece{out.data(), out.size()};
  const bool written = co_await write_watched({&piece, 1});
  co_return written && go_on;
}

Task<bool> ClientConnection::answer_hello(const exec::Request& request, bool exhaust) {
  const auto allowed = exec::check_api_strict(*exec::command_named(request.name), request);
  auto hello = allowed.has_error() ? Result<wire::HelloRequest>(allowed.error()) : take_hello(request.body, exhaust);
  if (hello.has_value()) {
    auto failure = co_await fail_hello(*hello);
    if (failure && failure->closes) co_return false;
    if (failure) hello = std::move(failure->error);
  }
  if (hello.has_value() && hello->topology_version) {
    count_hello(request.name, true);
    co_return co_await stream_hello(*hello, request.body, exhaust);
  }
  count_hello(request.name, hello.has_value());
  const bool go_on = hello.has_value() || !ends_connection(hello.error());
  exec::Response response = hello.has_error() ? exec::refuse(environment_.context.shared.metrics, hello.error())
                                              : exec::Response(hello_reply(*hello));
  const bool written = co_await write_response(response);
  co_return written&& go_on;
}

// Awaitable hello: waits for the topology version to change, at most maxAwaitTimeMS; with exhaust, repeatedly. The
// version changes once, when the router quiesces: wake_hello() signals it. A stream goes on in the process that
// replaces this one: some drivers take its end for a failure. `command`: the hello itself.
Task<bool> ClientConnection::stream_hello(const wire::HelloRequest& hello, DocView command, bool exhaust) {
  exec::Context& context = environment_.context;
  const exec::LifeCycle& life = context.shared.life;
  const wire::TopologyVersion current{Bytes(context.shared.facts.process_id), life.topology_counter.load()};
  // The first reply compares with the client's version, later ones with the last one sent.
  auto waits = wire::hello_waits(hello, current);
  if (waits.has_error()) {
    exec::Response response = exec::refuse(context.shared.metrics, waits.error());
    co_return co_await write_response(response);
  }
  std::int32_t response_to = header_.request_id;
  std::int64_t seen = current.counter;
  const Duration asked = std::chrono::milliseconds(*hello.max_await_time_ms);
  // The message is kept as long as it waits, also before a login, and no client that waits sends a long one.
  const bool may_wait = message_.size() <= waiting_hello_bytes_max;
  exhaust = exhaust && may_wait;
  // Bounds the rate of the stream.
  const Duration await_time = exhaust ? std::max<Duration>(asked, exhaust_pause_min) : asked;
  // While the router quiesces the version does not change any more, and all clients must learn it at once.
  bool first = true;
  for (bool wait = *waits && may_wait && !life.quiescing;; wait = life.topology_counter.load() == seen) {
    std::optional<exec::PlannedFailure> failure;
    if (!std::exchange(first, false)) {  // the client would have asked again
      failure = co_await fail_hello(hello);
      if (failure && failure->closes) co_return false;
    }
    if (wait && !failure) {
      const bool go_on = co_await wait_for_topology(seen, Clock::now() + await_time, exhaust);
      if (!go_on) co_return false;
      if (exhaust && leaves()) {
        leave(command, response_to);
        co_return false;
      }
    }
    seen = life.topology_counter.load();  // before the reply: a later change goes into the next one
    const BsonDoc reply = failure ? exec::error_document(failure->error) : hello_reply(hello);
    const bool more = exhaust && (!life.quiescing || leaves()) && !closing_ && !failure;
    std::vector<std::uint8_t> out;
    const std::int32_t request_id = new_request_id();
    wire::begin_op_msg(out, request_id, response_to, more ? wire::flags::more_to_come : 0);
    wire::append_body(out, reply);
    wire::finish_op_msg(out, checksum_);
    iovec piece{out.data(), out.size()};
    const bool written = co_await write_watched({&piece, 1});
    if (!written) co_return false;
    if (!more) co_return true;
    response_to = request_id;
  }
}

// Waits until the version is not `seen` any more, or until `until`. If the client sends meanwhile, the wait ends, and
// so does the stream (`exhaust`): the connection must not store the client's bytes for long. False: the connection
// must end.
Task<bool> ClientConnection::wait_for_topology(std::int64_t seen, TimePoint until, bool& exhaust) {
  const exec::LifeCycle& life = environment_.context.shared.life;
  if (pipelined_.size() > 0) {  // it has sent a message already: one read ahead, not one for each hello
    exhaust = false;
    co_return true;
  }
  while (!closing_ && !leaves() && Clock::now() < until && life.topology_counter.load() == seen) {
    // Waiting for the socket also detects that the client leaves.
    ReadyWait readable(*transport_, Transport::Direction::read, until);
    awaiting_hello_ = true;
    const bool ready = co_await readable;
    awaiting_hello_ = false;
    const bool aborted = !ready && !readable.timed_out();
    if (aborted && !closing_ && !leaves() && life.topology_counter.load() == seen) co_return false;
    if (!ready) continue;
    const IoResult got = transport_->try_read(environment_.scratch);
    if (!got.ok() && !got.would_block()) co_return false;
    if (!got.ok()) continue;
    exhaust = false;
    co_return keep_for_later(environment_.scratch.first(got.bytes));
  }
  co_return true;
}

}  // namespace spillway::server
