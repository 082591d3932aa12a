#include "proxy/shard/pool.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "allocator/limits.h"
#include "proxy/shard/connect.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/log_in.h"

namespace spillway::shard {

namespace {
// A connection that has been idle for longer is checked before its next use.
constexpr auto trusted_idle_time = std::chrono::seconds(1);
// A bulk request may have grown its connection's buffers; only closing the connection frees them.
constexpr auto bulk_idle_time = std::chrono::seconds(10);
constexpr auto cursor_idle_time = std::chrono::minutes(10);
}  // namespace

std::size_t connections_to_create(const PoolCounts& counts, const PoolLimits& limits) noexcept {
  const std::size_t wanted =
      std::clamp(counts.waiting + counts.in_use, limits.min, std::max(limits.min, limits.max));
  const std::size_t have = counts.idle + counts.in_use + counts.connecting;
  if (wanted <= have || counts.connecting >= limits.connecting_max) return 0;
  return std::min(wanted - have, limits.connecting_max - counts.connecting);
}

std::size_t connections_max(Use use, std::size_t pool_max) noexcept {
  if (use == Use::point || pool_max <= 1) return pool_max;
  if (use == Use::waiting) return pool_max / 2;
  return pool_max - std::max<std::size_t>(1, pool_max / 4);
}

Pool::Pool(const PoolSettings& settings, HostAddress address, PoolOwner& owner, std::uint64_t generation)
    : settings_(settings), address_(std::move(address)), owner_(owner),
      generation_(generation) {}

Pool::~Pool() { SPILLWAY_CHECK(quiet()); }

std::size_t Pool::room_for(Use use) const noexcept {
  const auto left = [&](Use of, std::size_t in_use) {
    const std::size_t most = connections_max(of, settings_.limits.max);
    return most - std::min(most, in_use);
  };
  if (use == Use::point) return left(use, in_use());
  const std::size_t waiting = line(Use::waiting).in_use;
  const std::size_t others = left(Use::bulk, line(Use::bulk).in_use + waiting);
  return use == Use::bulk ? others : std::min(others, left(use, waiting));
}

std::unique_ptr<Connection> Pool::take_idle() {
  if (idle_.empty()) return nullptr;
  const TimePoint now = Clock::recent();
  while (!idle_.empty()) {
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (now - connection->pool_notes.idle_since <= trusted_idle_time || connection->still_quiet()) {
      return connection;
    }
  }
  return nullptr;
}

void Pool::lend(Connection& connection, Use use) noexcept {
  connection.pool_notes.use = use;
  lent_.push_back(connection);
  ++line(use).in_use;
}

void Pool::became_bulk(Connection& connection) noexcept {
  Use& use = connection.pool_notes.use;
  if (use != Use::point) return;
  --line(use).in_use;
  use = Use::bulk;
  ++line(use).in_use;
}

Lease Pool::try_acquire(Use use) {
  // A request joins the line if there is one of its use, or of one that goes before it.
  for (std::size_t before = 0; before <= static_cast<std::size_t>(use); ++before) {
    if (lines_[before].length > 0) return {};
  }
  if (stopped_ || (use != Use::point && room_for(use) == 0)) return {};
  std::unique_ptr<Connection> connection = take_idle();
  if (!connection) return {};
  lend(*connection, use);
  return Lease(this, std::move(connection));
}

// If the pool is full, the wait says nothing about the host.
TimePoint Pool::patience_end(const Request& request) const noexcept {
  const bool has_place = in_use() < settings_.limits.max && room_for(request.use) > 0;
  const Duration patience = std::chrono::milliseconds(settings_.connect_timeout_ms);
  if (!has_place) return Clock::now() + patience;
  return served_ == TimePoint::min() ? request.patience_end : std::max(request.patience_end, served_ + patience);
}

void Pool::Request::on_timer() {
  const TimePoint until = std::min(deadline, pool.patience_end(*this));
  if (until > Clock::now()) return wait_until(until);
  Waiter::on_timer();
}

Task<Result<Lease>> Pool::acquire(TimePoint patience_end, TimePoint deadline, Use use,
                                  Interrupt* interrupt) {
  Lease lease = try_acquire(use);
  if (lease) co_return std::move(lease);
  if (stopped_) co_return Error(ErrorCode::host_unreachable, "the proxy is shutting down");
  if (waiting() >= limits::pool_waiters_max) {
    co_return Error(ErrorCode::network_interface_exceeded_time_limit,
                    "too many requests wait for a connection");
  }
  Request request(*this, patience_end, deadline, use);
  line(use).requests.push_back(request);
  ++line(use).length;
  open_missing();
  const Interruptible interruptible(interrupt, request);
  const bool called = co_await request;
  if (request.error) co_return *std::move(request.error);
  if (!request.connection) {
    settle(request);
    // A connection may have become free after this request was woken: the next ones in line get it.
    if (waiting() > 0) serve();
    if (stopped_) owner_.stopped_pool_changed();
    if (called) co_return *interrupt->requested();
    if (Clock::now() < deadline) {
      co_return Error(ErrorCode::network_timeout,
                      fmt::format("Timed out connecting to {}", address_.text()));
    }
    co_return Error(ErrorCode::network_interface_exceeded_time_limit,
                    "Couldn't get a connection within the time limit");
  }
  lease = Lease(this, std::move(request.connection));
  if (!lease->clean()) co_return lease->failure();  // since it was lent
  co_return std::move(lease);
}

// The request has left the line.
void Pool::settle(Request& request) {
  --line(request.use).length;
}

Pool::Request* Pool::next_request() noexcept {
  const auto first = [&](Use use) {
    WaiterLine& requests = line(use).requests;
    const bool none = requests.empty() || (use != Use::point && room_for(use) == 0);
    return none ? nullptr : static_cast<Request*>(&requests.front());
  };
  Request* const point = first(Use::point);
  Request* const bulk = first(Use::bulk);
  Request* const waiting = first(Use::waiting);
  Request* const other = bulk != nullptr && (bulk_is_next_ || waiting == nullptr) ? bulk : waiting;
  if (point != nullptr && other != nullptr) {
    points_before_ = points_before_ < points_in_a_row ? points_before_ + 1 : 0;
    if (points_before_ > 0) return point;
  }
  if (other == nullptr) return point;
  bulk_is_next_ = other == waiting;
  return other;
}

void Pool::serve() {
  while (!idle_.empty()) {
    Request* request = next_request();
    if (request == nullptr) return;
    std::unique_ptr<Connection> connection = take_idle();
    if (!connection) break;
    lend(*connection, request->use);
    request->connection = std::move(connection);
    served_ = Clock::now();
    settle(*request);
    request->wake();
  }
  if (waiting() > 0) open_missing();
}

void Pool::fail_requests(const Error& why) {
  for (Line& each : lines_) {
    while (!each.requests.empty()) {
      auto& request = static_cast<Request&>(each.requests.front());
      request.error = why;
      settle(request);
      request.wake();
    }
  }
}

void Pool::give_back(std::unique_ptr<Connection> connection) noexcept {
  connection->unlink();
  ++returned_;
  --line(connection->pool_notes.use).in_use;
  if (!stopped_ && connection->clean() && connection->pool_notes.generation == generation_ &&
      !connection->transport().holds_wanted_memory()) {
    connection->pool_notes.idle_since = Clock::recent();
    idle_.push_back(std::move(connection));
  }
  connection.reset();
  if (waiting() > 0) serve();
  if (waiting() > 0) open_missing();
  if (stopped_) owner_.stopped_pool_changed();
}

void Pool::open_missing() {
  if (stopped_) return;
  const std::size_t waiting = std::min(line(Use::waiting).length, room_for(Use::waiting));
  const std::size_t others = std::min(line(Use::bulk).length + waiting, room_for(Use::bulk));
  const PoolCounts counts{.idle = idle_.size(),
                          .in_use = in_use(),
                          .connecting = connecting_,
                          .waiting = line(Use::point).length + others};
  for (std::size_t n = connections_to_create(counts, settings_.limits); n > 0; --n) {
    ++connecting_;
    settings_.loop.spawn(open_one());
  }
}

Task<void> Pool::open_one() {
  const std::uint64_t generation = generation_;
  const TimePoint began = Clock::now();
  const TimePoint deadline = began + std::chrono::milliseconds(settings_.connect_timeout_ms);
  const auth::ServiceLogin::Ptr login = settings_.login;  // a reload may replace it meanwhile
  std::optional<Error> failed;
  bool refused = false;
  std::unique_ptr<Connection> connection;
  auto connected = co_await connect(settings_, address_, deadline);
  if (connected.has_error()) {
    failed = connected.error();
  } else {
    connection = *std::move(connected);
    opening_.push_back(*connection);
    auto described = co_await introduce(*connection, settings_.introduction, settings_.budgets(), deadline);
    if (described.has_error()) {
      failed = described.error();
    } else if (login) {
      const Result<void> logged_in = co_await log_in(*connection, *login, settings_.budgets(), deadline, &refused);
      if (logged_in.has_error()) failed = logged_in.error();
    }
    connection->unlink();
  }
  --connecting_;
  if (!failed) {
    opened(std::move(connection), generation);
  } else if (generation == generation_ && !stopped_ &&
             !(failed->is(ErrorCode::network_timeout) && opened_ >= began)) {
    // Without means of our own, a connection that comes back serves the others.
    if (!failed->is(ErrorCode::too_many_files_open) || in_use() == 0) fail_requests(*failed);
    if (refused) {
      owner_.login_refused(address_, *failed);
    } else {
      owner_.connect_failed(address_, *failed);
    }
  } else {
    serve();
  }
  if (stopped_) owner_.stopped_pool_changed();
}

void Pool::opened(std::unique_ptr<Connection> connection, std::uint64_t generation) {
  if (!stopped_ && generation == generation_ && connection->clean()) {
    ++created_;
    owner_.connection_opened();
    opened_ = Clock::now();
    connection->pool_notes.generation = generation;
    connection->pool_notes.idle_since = Clock::now();
    idle_.push_back(std::move(connection));
    owner_.login_accepted(address_);
  }
  serve();
}

void Pool::drop() {
  ++generation_;
  idle_.clear();
}

void Pool::fail_in_flight(const Error& why) {
  for (Connection& connection : lent_) connection.fail(why);
  for (Connection& connection : opening_) connection.fail(why);
}

void Pool::tick(TimePoint now, bool host_up, bool ends_cursors) {
  const Duration idle_time =
      std::max<Duration>(std::chrono::milliseconds(settings_.idle_ms), ends_cursors ? cursor_idle_time : Duration());
  std::erase_if(idle_, [](const auto& connection) { return connection->transport().holds_wanted_memory(); });
  for (auto each = idle_.begin(); each != idle_.end() && idle_.size() + in_use() > settings_.limits.min;) {
    const Connection::PoolNotes& notes = (*each)->pool_notes;
    const bool may_be_large = notes.use != Use::point && !ends_cursors;
    const Duration at_most = may_be_large ? std::min<Duration>(idle_time, bulk_idle_time) : idle_time;
    each = now - notes.idle_since > at_most ? idle_.erase(each) : std::next(each);
  }
  if (host_up) open_missing();
}

void Pool::stop() {
  stopped_ = true;
  drop();
  const Error why(ErrorCode::host_unreachable, "the proxy is shutting down");
  fail_requests(why);
  for (Connection& connection : opening_) connection.fail(why);
}

}  // namespace spillway::shard
