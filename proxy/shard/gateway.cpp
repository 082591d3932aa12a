#include "proxy/shard/gateway.h"

#include <fmt/format.h>

#include <chrono>

#include "proxy/base/log.h"
#include "proxy/base/log_pace.h"
#include "proxy/shard/call_counts.h"
#include "proxy/shard/call_trace.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/connection_string.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/remote_shard.h"
#include "proxy/shard/reply_verdict.h"
#include "proxy/shard/shard_list.h"
#include "proxy/shard/shard_time.h"
#include "proxy/shard/unread_reply.h"
#include "proxy/wire/compression.h"

namespace spillway::shard {

namespace {

// A command is sent at most this often.
constexpr int sends_max = 4;
// Pauses before the third and the fourth attempt: a host in the middle of a step-down may still call itself primary.
constexpr std::array<std::chrono::milliseconds, sends_max> pauses{
    std::chrono::milliseconds(0), std::chrono::milliseconds(0), std::chrono::milliseconds(100),
    std::chrono::milliseconds(500)};

// Replies that were refused for want of memory, and are read to their end all the same: at most so many at once, each
// for at most this long.
constexpr std::size_t unread_max = 16;
constexpr Duration unread_time_max = std::chrono::seconds(5);

// Room for the shards that may be found while a caller walks over states().
constexpr std::size_t spare_states = 16;

// The end of an attempt without a usable reply.
struct Failure {
  Error error;
  bool unsent = false;   // not sent as a whole: the next attempt is the first
  bool refused = false;  // refused before any of it was executed
  bool final = false;    // never sent again: the deadline, our own memory
};

class GatewayImpl final : public Gateway, public ShardListener {
 public:
  GatewayImpl(Loop& loop, Pump& pump, Network& network, MemoryBudget& budget, MemoryBudget& link_budget,
              GatewayOptions options, SharedShards& shared);
  ~GatewayImpl() override { SPILLWAY_CHECK(quiet()); }

  Task<Result<Reply>> call(std::uint16_t shard, Command command, CallOptions options) override;
  const std::vector<ShardState>& states() const override;
  const ShardCapabilities& capabilities(std::uint16_t shard) const override;
  const CallCounts* call_counts(std::size_t shard) const noexcept override { return call_counts_.find(shard); }
  Result<std::uint16_t> add_shard(ShardAddress address, ShardCredentials credentials) override;
  void retire_shard(std::uint16_t shard) override;
  Task<bool> wait_until_known(TimePoint deadline) override;
  void use_credentials(const std::vector<ShardCredentials>& credentials) override;
  void tick(TimePoint now) override;
  void abort_calls() override;
  Task<void> shut_down() override;

 private:
  struct Attempt {
    std::optional<Reply> reply;
    bool try_again = false;  // the reply is an error that another attempt may overcome
    Failure failure;         // without a reply
  };

  void shard_changed() override;
  void take_shards() const;
  void take_shard(ShardList::Entry entry) const;
  bool looked_at() const noexcept { return !states_.empty(); }
  void read_states() const;
  bool quiet() const noexcept;
  bool all_known() const noexcept;
  Task<Result<Lease>> lease(RemoteShard& shard, const CallOptions& options, TimePoint patience_end);
  Attempt broken(RemoteShard& shard, Lease lease, Error why, const CallOptions& options);
  Task<void> end_unread(Lease lease, std::unique_ptr<UnreadReply> unread);
  Attempt judge(RemoteShard& shard, Lease lease, Reply reply, const CallOptions& options);

  Loop& loop_;
  GatewayOptions options_;
  PoolSettings settings_;
  const std::shared_ptr<ShardList> list_;
  const bool leads_;
  ShardListener& listener_ = *this;
  // A const look at a shard that another worker has added takes it over.
  mutable std::vector<std::unique_ptr<RemoteShard>> shards_;
  mutable CallCountsList call_counts_;
  std::optional<ShardCredentials> renewed_;  // for shards that were added
  std::size_t calls_ = 0;
  std::size_t unread_ = 0;  // refused replies that are read to their end
  bool stopped_ = false;
  WaiterLine watchers_;  // wait_until_known and shut_down
  mutable std::vector<ShardState> states_;  // of all shards; empty until the first call of states()
};

Error in_context(const RemoteShard& shard, const HostAddress* host, Error error) {
  const std::string where = host != nullptr
                                ? fmt::format("shard {} at {}", shard.name(), host->text())
                                : fmt::format("shard {}", shard.name());
  error.message = fmt::format("{}: {}", where, error.message);
  return error;
}

// There was no room for a reply, but the command was executed: it must not be sent again.
void lose_reply(Error& refusal, const CallOptions& options) {
  refusal.labels.clear();
  // A cursor's host stays unchanged by its getMore; a write's outcome is as unknown as after a lost connection.
  if (!options.host) refusal.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);
}

// The client takes this refusal for its own error. The log tells the operator about the shard's, at a bounded rate.
void tell_of_refusal(const RemoteShard& shard, DocView reply) {
  static log::LogPace pace;
  const auto unwritten = pace.due(Clock::now());
  if (!unwritten) return;
  const ValueView message = reply["errmsg"];
  log::warning("Shard {} refuses what the router asks of it: {}; {} more since the last such line; see security.shards",
               shard.name(), message.is_string() ? message.as_string() : "Unauthorized", *unwritten);
}

PoolSettings pool_settings(Loop& loop, Pump& pump, Network& network, MemoryBudget& budget,
                           MemoryBudget& link_budget, const GatewayOptions& options) {
  Introduction introduction{options.application_name, wire::parse_list(options.compressors)};
  return PoolSettings{
      .loop = loop,
      .network = network,
      .budget = budget,
      .link_budget = link_budget,
      .introduction = std::move(introduction),
      .limits = {.min = options.pool_min,
                 .max = std::max<std::size_t>(1, options.pool_max),
                 .connecting_max = std::max<std::size_t>(1, options.pool_connecting_max)},
      .connect_timeout_ms = options.connect_timeout_ms,
      .idle_ms = options.pool_idle_ms,
      .pump = &pump};
}

GatewayImpl::GatewayImpl(Loop& loop, Pump& pump, Network& network, MemoryBudget& budget,
                         MemoryBudget& link_budget, GatewayOptions options, SharedShards& shared)
    : loop_(loop),
      options_(std::move(options)),
      settings_(pool_settings(loop, pump, network, budget, link_budget, options_)),
      list_(shared.list()),
      leads_(list_->take_lead()) {
  take_shards();
  if (!leads_) return;
  if (options_.credentials.empty()) options_.credentials = read_credentials(options_).value();
  SPILLWAY_CHECK(options_.credentials.size() == options_.shards.size());
  for (std::size_t i = 0; i < options_.shards.size(); ++i) {
    add_shard(options_.shards[i], options_.credentials[i]).value();
  }
  options_.credentials.clear();  // from now on the shards hold them
}

// --- the set of shards

Result<std::uint16_t> GatewayImpl::add_shard(ShardAddress address, ShardCredentials credentials) {
  SPILLWAY_CHECK(leads_);
  if (stopped_) return Error(ErrorCode::shutdown_in_progress, "the proxy is shutting down");
  auto parsed = parse_connection_string(address.uri);
  if (parsed.has_error()) return std::move(parsed.error()).with_context("shard " + address.name);
  const std::size_t index = shards_.size();
  if (index > UINT16_MAX) return Error(ErrorCode::illegal_operation, "there are too many shards");
  if (renewed_) credentials = *renewed_;
  ShardList::Entry entry{std::move(address.name), *std::move(parsed), std::move(credentials), nullptr};
  take_shard(entry);
  entry.shared = shards_.back()->shared();
  list_->add(std::move(entry));
  return static_cast<std::uint16_t>(index);
}

void GatewayImpl::retire_shard(std::uint16_t shard) {
  SPILLWAY_CHECK(leads_ && shard < shards_.size());
  shards_[shard]->retire();
}

// Those that the list has and this does not.
void GatewayImpl::take_shards() const {
  if (leads_) return;
  while (shards_.size() < list_->size()) {
    ShardList::Entry entry = list_->at(shards_.size());
    if (renewed_) entry.credentials = *renewed_;
    take_shard(std::move(entry));
  }
}

// Without an entry's `shared` this gateway makes it.
void GatewayImpl::take_shard(ShardList::Entry entry) const {
  call_counts_.add_shard();
  CallCounts& counts = call_counts_[shards_.size()];
  shards_.push_back(std::make_unique<RemoteShard>(settings_, options_, std::move(entry.name),
                                                  std::move(entry.connection_string), std::move(entry.shared),
                                                  listener_, counts));
  RemoteShard& shard = *shards_.back();
  shard.use_credentials(entry.credentials);
  shard.start();
  if (stopped_) shard.stop();
  // What a caller sees of the others stays where it is: read_states() left room.
  if (looked_at()) states_.push_back(shard.state());
}

void GatewayImpl::use_credentials(const std::vector<ShardCredentials>& credentials) {
  SPILLWAY_CHECK(credentials.size() == options_.shards.size());
  take_shards();
  if (credentials.empty()) return;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i]->use_credentials(credentials[std::min(i, credentials.size() - 1)]);
  }
  renewed_ = credentials.back();
}

// --- a call

// Can this reply go to the caller unchanged? A streaming reply takes the lease along.
bool leaves_as_it_is(Reply& reply, Lease& lease) {
  if (reply.streaming()) {  // errors are never this long
    lease.mark_bulk();
    reply.lease = std::move(lease);
    return true;
  }
  if (!judge_reply(reply).good()) return false;
  lease.release();
  return true;
}

// Keeps count of the calls under way.
class CallCount {
 public:
  explicit CallCount(std::size_t& calls, const bool& stopped, ShardListener& gateway)
      : calls_(calls), stopped_(stopped), gateway_(gateway) {
    ++calls_;
  }
  ~CallCount() {
    if (--calls_ == 0 && stopped_) gateway_.shard_changed();
  }
  CallCount(const CallCount&) = delete;
  CallCount& operator=(const CallCount&) = delete;

 private:
  std::size_t& calls_;
  const bool& stopped_;
  ShardListener& gateway_;
};

// One attempt of a call, recorded at its end if the operation is traced.
class AttemptRecord {
 public:
  AttemptRecord(const CallOptions& options, const RemoteShard& shard, const Command& command, int attempt)
      : trace_(options.time != nullptr ? options.time->trace() : nullptr) {
    if (trace_ != nullptr) [[unlikely]] begin(shard, command, attempt);
  }
  AttemptRecord(const AttemptRecord&) = delete;
  AttemptRecord& operator=(const AttemptRecord&) = delete;
  ~AttemptRecord() {
    if (trace_ != nullptr) [[unlikely]] end();
  }
  void found(const HostAddress& host) {
    if (trace_ == nullptr) [[likely]] return;
    call_->host = host;
    call_->began = Clock::now();
  }
  void failed(std::int32_t code) noexcept {
    if (trace_ != nullptr) [[unlikely]] call_->error = code;
  }
  void answered(const Reply& reply) noexcept {
    if (trace_ == nullptr) [[likely]] return;
    call_->error = judge_reply(reply.body()).code;
  }

 private:
  void begin(const RemoteShard& shard, const Command& command, int attempt) {
    call_ = std::make_unique<TracedCall>();
    call_->shard = shard.name();
    call_->command = command.name(CallTrace::name_bytes_max);
    call_->attempt = static_cast<std::uint8_t>(attempt);
    call_->began = Clock::now();
  }
  void end() {
    call_->ended = Clock::now();
    trace_->add(std::move(*call_));
  }

  CallTrace* const trace_;
  std::unique_ptr<TracedCall> call_;
};

std::optional<Error> refuse_suffix(const Command& command) {
  const auto body = command.find_body();
  if (!body) return Error(ErrorCode::internal_error, "a command without a body has nothing to append fields to");
  if (body->size + command.suffix.size() <= limits::internal_document_bytes_max) return std::nullopt;
  return Error(ErrorCode::bson_object_too_large,
               fmt::format("a command of {} bytes has no room for the {} bytes that the router must add", body->size,
                           command.suffix.size()));
}

// What ends a call of which an earlier attempt may have been executed: that it cannot be sent again is no refusal.
Error after_lost(Error lost, Error last) {
  if (!last.is(ErrorCode::failed_to_satisfy_read_preference)) return last;
  lost.message += fmt::format(" :: and then :: {}", last.message);
  return lost;
}

Task<Result<Reply>> GatewayImpl::call(std::uint16_t index, Command command, CallOptions options) {
  SPILLWAY_CHECK(options.budget != nullptr);
  if (index >= shards_.size()) take_shards();
  if (index >= shards_.size()) {
    co_return Error(ErrorCode::shard_not_found, fmt::format("there is no shard {}", index));
  }
  if (header_and_flags_bytes + command.bytes() > limits::message_bytes_max) {
    co_return Error(
        ErrorCode::bson_object_too_large,
        fmt::format("a command of {} bytes is longer than a message may be", command.bytes()));
  }
  if (!command.suffix.empty()) {
    if (auto why = refuse_suffix(command)) co_return *std::move(why);
  }
  const CallCount counted(calls_, stopped_, *this);
  RemoteShard& shard = *shards_[index];
  CallCounts& counts = call_counts_[index];
  TimePoint patience_end = time_point_never;  // for waits; set when there is one
  std::unique_ptr<Error> lost;                // the failure of an attempt that may have been executed
  const auto ended_by = [&options, &lost]() -> const Error* {
    if (options.interrupt == nullptr && lost) return nullptr;
    return requested_of(options.interrupt != nullptr ? options.interrupt : options.until_sent);
  };
  if (options.time != nullptr) options.time->note_call(options.use != Use::point);
  for (int sends = 1;; ++sends) {
    if (const Error* why = ended_by()) co_return *why;
    if (sends > 1 && Clock::now() >= options.deadline) {  // it passed in the pause
      counts.failed.add();
      const bool unknown = lost && options.retry != RetryPolicy::idempotent;  // whether it was executed
      co_return unknown ? *std::move(lost) : time_limit_exceeded();
    }
    if (sends > 1) counts.retries.add();
    AttemptRecord record(options, shard, command, sends);
    auto leased = shard.try_lease(options);
    if (leased.has_value() && !*leased) {
      if (patience_end == time_point_never) patience_end = Clock::now() + shard.host_patience();
      CallOptions waiting = options;
      if (waiting.interrupt == nullptr && !lost) waiting.interrupt = options.until_sent;
      leased = co_await lease(shard, waiting, patience_end);
      // The caller is gone: nothing is sent. The connection goes back as it is.
      if (const Error* why = ended_by()) {
        record.failed(why->code);
        co_return *why;
      }
    }
    std::optional<Failure> failure;
    if (leased.has_value()) {
      Connection& connection = **leased;
      record.found(connection.address());
      const Interruptible interruptible(options.interrupt, connection);
      ShardWait waiting(options.time);
      const bool sent = co_await connection.send(command, options.deadline);
      std::optional<Attempt> ended;
      if (!sent) {
        ended = broken(shard, *std::move(leased), connection.failure(), options);
      } else {
        waiting.begin();
        auto receiving =
            connection.receive(*options.budget, options.stream, options.deadline, options.room, &waiting);
        auto received = co_await receiving;
        waiting.end();
        if (received.has_value()) counts.round_trips.add(waiting.taken());
        if (received.has_value() && received->streaming() && options.time != nullptr) options.time->note_bulk();
        if (received.has_value() && leaves_as_it_is(*received, *leased)) co_return *std::move(received);
        ended = received.has_error() ? broken(shard, *std::move(leased), received.error(), options)
                                     : judge(shard, *std::move(leased), *std::move(received), options);
      }
      if (ended->reply) {
        record.answered(*ended->reply);
      } else {
        record.failed(ended->failure.error.code);
      }
      if (ended->reply && !(ended->try_again && sends < sends_max && !options.host && !stopped_)) {
        co_return *std::move(ended->reply);
      }
      failure = std::move(ended->failure);
      if (!ended->reply && !failure->refused) lost = std::make_unique<Error>(failure->error);
      if (const Error* why = requested_of(options.interrupt)) co_return *why;
      // A long-running command does not use up the time for finding another host.
      if (sends == 1) patience_end = Clock::now() + shard.host_patience();
    } else {
      failure.emplace().error = in_context(shard, nullptr, leased.error());
      failure->unsent = true;
      // Ours, not the shard's: clients are to take both for a host that was not reached.
      const bool ends = failure->error.is(ErrorCode::shutdown_in_progress);
      if (ends || failure->error.is(ErrorCode::too_many_files_open))
        failure->error.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);
      failure->final = ends || !shard.replica_set() || failure->error.is(ErrorCode::max_time_ms_expired) ||
                      !is_retriable(failure->error.code);
      record.failed(failure->error.code);
    }
    const bool allowed = failure->unsent || options.retry == RetryPolicy::idempotent ||
                         (options.retry == RetryPolicy::not_idempotent && failure->refused);
    if (failure->final || !allowed || sends == sends_max || options.host || stopped_) {
      counts.failed.add();
      co_return lost ? after_lost(*std::move(lost), std::move(failure->error)) : std::move(failure->error);
    }
    const Duration pause = pauses[static_cast<std::size_t>(sends)];
    if (pause > Duration::zero()) {
      co_await loop_.sleep_until(std::min(options.deadline, Clock::now() + pause));
    }
  }
}

Task<Result<Lease>> GatewayImpl::lease(RemoteShard& shard, const CallOptions& options,
                                       TimePoint patience_end) {
  auto leased = co_await shard.lease(options, std::min(options.deadline, patience_end));
  if (leased.has_error() && Clock::now() >= options.deadline) co_return time_limit_exceeded();
  co_return std::move(leased);
}

Task<void> GatewayImpl::end_unread(Lease lease, std::unique_ptr<UnreadReply> unread) {
  const CallCount counted(calls_, stopped_, *this);
  ++unread_;
  auto ending = unread->end_cursor(*lease, *settings_.pump, settings_.budgets(), Clock::now() + unread_time_max);
  co_await ending;
  --unread_;
}

// The connection failed under the command. It closes when the lease ends, unless what was refused can be read.
GatewayImpl::Attempt GatewayImpl::broken(RemoteShard& shard, Lease lease, Error why,
                                         const CallOptions& options) {
  Attempt attempt;
  const HostAddress host = lease->address();
  attempt.failure.unsent = !lease->sent_whole();
  attempt.failure.error = in_context(shard, &host, why);
  switch (static_cast<ErrorCode>(why.code)) {
    case ErrorCode::max_time_ms_expired:
      attempt.failure.final = true;
      break;
    case ErrorCode::exceeded_memory_limit:
    case ErrorCode::ingress_request_rate_limit_exceeded:
      attempt.failure.final = true;
      if (options.retry != RetryPolicy::idempotent) lose_reply(attempt.failure.error, options);
      break;
    case ErrorCode::network_timeout:
      // The monitor found the host silent: only another host may help.
      attempt.failure.final = !shard.replica_set();
      break;
    case ErrorCode::host_unreachable:
      shard.network_error(host, lease->pool_notes.generation, why);
      break;
    default:  // a protocol error, or the proxy is shutting down
      attempt.failure.final = true;
      attempt.failure.error.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);
      break;
  }
  // (A cursor whose host is known is known, too.)
  if (auto unread = lease->take_unread(); unread && !options.host && unread_ < unread_max && !stopped_) {
    lease.mark_bulk();
    loop_.spawn(end_unread(std::move(lease), std::move(unread)));
  }
  return attempt;
}

// A complete reply that needs a closer look.
GatewayImpl::Attempt GatewayImpl::judge(RemoteShard& shard, Lease lease, Reply reply,
                                        const CallOptions& options) {
  Attempt attempt;
  const ReplyVerdict verdict = judge_reply(reply.body());
  if (!verdict.well_formed) {
    lease->mark_broken();
    return broken(shard, std::move(lease),
                  Error(ErrorCode::protocol_error, "a reply is not well-formed"), options);
  }
  const bool idempotent = options.retry == RetryPolicy::idempotent;
  if (verdict.code == static_cast<std::int32_t>(ErrorCode::unauthorized)) {
    tell_of_refusal(shard, reply.body());
  }
  const bool top_level = is_state_change(verdict.code);
  if (!top_level && verdict.inner_state_change == 0) {
    attempt.try_again = idempotent && is_retriable(verdict.code);
    attempt.reply = std::move(reply);
    return attempt;
  }
  const std::int32_t code = top_level ? verdict.code : verdict.inner_state_change;
  lease.release();
  shard.state_change_error(reply.host, code, reply.body());
  if (!top_level && !idempotent) {
    auto relabelled = relabel_state_changes(reply, *options.budget);
    if (relabelled.has_value()) {
      reply.bytes = *std::move(relabelled);
      reply.message_bytes = reply.bytes.size();
      judge_reply(reply);  // its times stand elsewhere now
      attempt.reply = std::move(reply);
      return attempt;
    }
  }
  const ValueView message = reply.body()["errmsg"];
  attempt.failure.refused = top_level && is_refusal(code);
  attempt.failure.error = in_context(
      shard, &reply.host,
      Error(ErrorCode::host_unreachable,
            fmt::format("the shard changed its state (code {}{}): {}", code,
                        attempt.failure.refused ? "" : "; the command may have been executed, or in part",
                        message.is_string() ? message.as_string() : "")));
  return attempt;
}

// --- state

void GatewayImpl::shard_changed() { wake_all(watchers_); }

void GatewayImpl::read_states() const {
  take_shards();
  if (states_.capacity() < shards_.size()) states_.reserve(2 * shards_.size() + spare_states);
  for (std::size_t i = states_.size(); i < shards_.size(); ++i) states_.push_back(shards_[i]->state());
}

const std::vector<ShardState>& GatewayImpl::states() const {
  read_states();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i]->take_change()) {
      states_[i] = shards_[i]->state();
    } else {
      shards_[i]->update_counts(states_[i]);
    }
  }
  return states_;
}

// With a thousand shards, one of them changes at almost any time: the others are not looked at.
const ShardCapabilities& GatewayImpl::capabilities(std::uint16_t shard) const {
  if (shard >= states_.size()) read_states();
  static const ShardCapabilities of_none;
  if (shard >= states_.size()) return of_none;
  if (shards_[shard]->take_change()) states_[shard] = shards_[shard]->state();
  return states_[shard];
}

bool GatewayImpl::all_known() const noexcept {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->answered() || shard->is_retired(); });
}

bool GatewayImpl::quiet() const noexcept {
  return calls_ == 0 && std::all_of(shards_.begin(), shards_.end(),
                                    [](const auto& shard) { return shard->quiet(); });
}

Task<bool> GatewayImpl::wait_until_known(TimePoint deadline) {
  while (!all_known()) {
    if (stopped_) co_return false;
    Waiter waiter(loop_, deadline);
    watchers_.push_back(waiter);
    const bool called = co_await waiter;
    if (!called) co_return all_known();
  }
  co_return true;
}

void GatewayImpl::tick(TimePoint now) {
  if (stopped_) return;
  take_shards();
  for (const auto& shard : shards_) shard->tick(now);
}

void GatewayImpl::abort_calls() {
  for (const auto& shard : shards_) shard->abort_calls();
}

Task<void> GatewayImpl::shut_down() {
  stopped_ = true;
  for (const auto& shard : shards_) shard->stop();
  wake_all(watchers_);
  while (!quiet()) {
    Waiter waiter(loop_, time_point_never);
    watchers_.push_back(waiter);
    co_await waiter;
  }
}

}  // namespace

Result<std::vector<ShardCredentials>> read_credentials(const GatewayOptions& options) {
  std::vector<ShardCredentials> all;
  for (const ShardAddress& shard : options.shards) {
    const ConnectionString parsed = parse_connection_string(shard.uri).value();
    ShardCredentials credentials{nullptr, parsed.login ? parsed.login : options.login};
    if (parsed.tls) {
      auto made = TlsContext::make_client(*parsed.tls);
      if (made.has_error()) {
        return Error(ErrorCode::invalid_ssl_configuration,
                     fmt::format("shard {}: {}", shard.name, made.error().message));
      }
      credentials.tls = *std::move(made);
    }
    all.push_back(std::move(credentials));
  }
  return all;
}

std::unique_ptr<Gateway> make_gateway(Loop& loop, Pump& pump, Network& network, MemoryBudget& budget,
                                      MemoryBudget& link_budget, GatewayOptions options, SharedShards& shared) {
  return std::make_unique<GatewayImpl>(loop, pump, network, budget, link_budget, std::move(options), shared);
}

}  // namespace spillway::shard
