// Pool: one worker's connections to one host.
//
// Requests take the most recently used idle connection, or wait in line while new ones are opened.
// Bulk requests (getMores, scans) cannot take the last quarter of the maximum, so that point operations always find a
// connection that no stream holds; getMores that wait for new documents cannot take the last half. Where several kinds
// stand in line, point operations go first, but at most points_in_a_row. Dropping the pool starts a new generation:
// connections of an older one are closed as they come back.
//
// Belongs to one loop's thread. A Lease points back to its pool: the pool outlives them (quiet()).
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

#include "proxy/auth/service_login.h"
#include "proxy/base/tls_context.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/handshake.h"
#include "proxy/shard/waiter.h"

namespace spillway::shard {

// --- the arithmetic, pure

struct PoolLimits {
  std::size_t min = 1;
  std::size_t max = 1'000;
  std::size_t connecting_max = 2;
};
struct PoolCounts {
  std::size_t idle = 0;
  std::size_t in_use = 0;
  std::size_t connecting = 0;
  std::size_t waiting = 0;  // requests in line that may be served
};
// The number of connections to open now.
std::size_t connections_to_create(const PoolCounts& counts, const PoolLimits& limits) noexcept;
// The most connections that requests of this use hold together, at least one. Those of waiting ones count for bulk
// requests, too.
std::size_t connections_max(Use use, std::size_t pool_max) noexcept;

// How many point operations overtake another request in line.
inline constexpr std::size_t points_in_a_row = 8;

// --- the pool

struct PoolSettings {
  Loop& loop;
  Network& network;
  MemoryBudget& budget;       // pays for commands that are compressed
  MemoryBudget& link_budget;  // pays for handshakes and monitors; `budget` where it has no room
  Introduction introduction;
  PoolLimits limits;
  TlsContext::Ptr tls = nullptr;  // null: plain text
  auth::ServiceLogin::Ptr login = nullptr;  // null: without logging in
  std::int64_t connect_timeout_ms = 10'000;
  std::int64_t idle_ms = 300'000;
  Pump* pump = nullptr;  // Connection's. REQUIRED if the introduction has compressors

  LinkBudgets budgets() const noexcept { return {link_budget, budget}; }
};

class PoolOwner {
 public:
  // A connection could not be opened; its waiters have the error.
  virtual void connect_failed(const HostAddress& host, const Error& why) = 0;
  // The host answered, and did not let the router log in; the waiters have the error.
  virtual void login_refused(const HostAddress& host, const Error& why) = 0;
  // The first login since that succeeded.
  virtual void login_accepted(const HostAddress& host) = 0;
  virtual void connection_opened() = 0;
  // A stopped pool may have become quiet.
  virtual void stopped_pool_changed() = 0;

 protected:
  ~PoolOwner() = default;
};

class Pool {
 public:
  Pool(const PoolSettings& settings, HostAddress address, PoolOwner& owner, std::uint64_t generation = 0);
  ~Pool();  // REQUIRES quiet()
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // An idle connection that is free at once; else an empty lease.
  Lease try_acquire(Use use);
  // A wait for a place in the pool, or for a turn to connect, is no failure of the host: it lasts until the deadline.
  // From `patience_end` on it fails if the pool has a place and no request in line was served for the connect
  // timeout. Errors: why no connection could be opened (HostUnreachable, NetworkTimeout, …);
  // NetworkInterfaceExceededTimeLimit(202) when the deadline passed, or the line is too long; the interrupt's (null:
  // none), which takes the request out of the line.
  Task<Result<Lease>> acquire(TimePoint patience_end, TimePoint deadline, Use use,
                              Interrupt* interrupt = nullptr);
  void give_back(std::unique_ptr<Connection> connection) noexcept;  // by Lease
  void became_bulk(Connection& connection) noexcept;                // by Lease

  // Closes idle connections, and the others when they come back.
  void drop();
  // Ends the connections in use and those being opened.
  void fail_in_flight(const Error& why);
  // Ends the waits for a connection.
  void fail_requests(const Error& why);
  // Trims idle connections; keeps the minimum if the host is up.
  // `ends_cursors`: the server ends a cursor with the connection that opened it (FerretDB 1.x), which therefore stays
  // for as long as cursors may be idle.
  void tick(TimePoint now, bool host_up, bool ends_cursors = false);
  // No request is served and no connection opened any more; idle connections are closed, waiters get an error.
  void stop();

  std::uint64_t generation() const noexcept { return generation_; }
  bool quiet() const noexcept { return in_use() == 0 && connecting_ == 0 && waiting() == 0; }
  std::size_t idle() const noexcept { return idle_.size(); }
  std::size_t in_use() const noexcept { return lines_[0].in_use + lines_[1].in_use + lines_[2].in_use; }
  std::size_t waiting() const noexcept { return lines_[0].length + lines_[1].length + lines_[2].length; }
  std::size_t created() const noexcept { return created_; }      // ever
  std::uint64_t returned() const noexcept { return returned_; }  // leases that ended, ever
  const HostAddress& address() const noexcept { return address_; }

 private:
  struct Request : Waiter {
    Request(Pool& asked, TimePoint patience_ends, TimePoint latest, Use wanted)
        : Waiter(asked.settings_.loop, std::min(patience_ends, latest)),
          pool(asked),
          patience_end(patience_ends),
          deadline(latest),
          use(wanted) {}
    void on_timer() override;
    Pool& pool;
    TimePoint patience_end;
    TimePoint deadline;
    Use use;
    std::unique_ptr<Connection> connection;
    std::optional<Error> error;
  };
  using Connections =
      boost::intrusive::list<Connection, boost::intrusive::constant_time_size<false>>;

  // How many more connections requests of this use may take.
  std::size_t room_for(Use use) const noexcept;
  TimePoint patience_end(const Request& request) const noexcept;
  std::unique_ptr<Connection> take_idle();
  void lend(Connection& connection, Use use) noexcept;
  Request* next_request() noexcept;
  void settle(Request& request);
  void serve();
  void open_missing();
  Task<void> open_one();
  void opened(std::unique_ptr<Connection> connection, std::uint64_t generation);

  const PoolSettings& settings_;
  HostAddress address_;
  PoolOwner& owner_;
  std::deque<std::unique_ptr<Connection>> idle_;  // the most recently used last
  Connections lent_;                              // owned by leases
  Connections opening_;                           // owned by open_one()
  // By use.
  struct Line {
    WaiterLine requests;
    std::size_t length = 0;
    std::size_t in_use = 0;
  };
  Line& line(Use use) noexcept { return lines_[static_cast<std::size_t>(use)]; }
  const Line& line(Use use) const noexcept { return lines_[static_cast<std::size_t>(use)]; }
  std::array<Line, 3> lines_;
  std::size_t connecting_ = 0;
  std::size_t created_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t generation_ = 0;
  TimePoint served_ = TimePoint::min();  // when a request in line was last served
  TimePoint opened_ = TimePoint::min();  // when a connection last opened: earlier attempts say nothing about the host
  std::size_t points_before_ = 0;  // that overtook the first of the others
  bool bulk_is_next_ = true;       // of the others
  bool stopped_ = false;
};

}  // namespace spillway::shard
