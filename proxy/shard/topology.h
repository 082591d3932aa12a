// Topology: the state of one shard's hosts, by a state machine over their hello replies. Pure: no clock, no sockets;
// time comes in with each event, and actions go out. A value: each worker chooses hosts by a copy (shared_shard.h).
//
//   seeds ──hello──▶ single (a standalone, or directConnection)
//           └──────▶ replica set: hosts follow the primary's list; one primary, never a stale one
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/shard/read_preference.h"
#include "proxy/shard/server_description.h"

namespace spillway::shard {

struct TopologyOptions {
  std::string name;  // the shard's
  std::vector<HostAddress> seeds;
  std::string set_name;  // empty: learnt from the first answer
  bool direct = false;
  std::int64_t heartbeat_ms = 10'000;
  std::int64_t expedited_heartbeat_ms = 500;
  std::int64_t local_threshold_ms = 15;
};

// What the owner must do, in order.
struct TopologyAction {
  enum class Kind : std::uint8_t {
    add_host,        // start to monitor it
    remove_host,     // it is no member any more: end its monitor, let its pool run dry
    drop_pool,       // close its idle connections; those in use end with their request
    fail_in_flight,  // close those in use too: the host is silent
    check_now,       // next_check() of this host has become due
  };
  Kind kind;
  HostAddress host;
  bool is_for_pool() const noexcept { return kind == Kind::drop_pool || kind == Kind::fail_in_flight; }
  bool operator==(const TopologyAction&) const = default;
};
using TopologyActions = std::vector<TopologyAction>;

class Topology {
 public:
  struct Host {
    HostAddress address;
    ServerDescription server;
    BuildInfo build;              // of the last answer
    std::int32_t max_wire_version = 0;  // when it was last known; 0: never
    Duration round_trip{};        // a moving average
    bool measured = false;        // round_trip holds a value
    bool answered = false;        // ever
    bool checking = false;        // a hello is on its way
    bool check_now = false;       // the next hello is due at once
    bool discard_answer = false;  // an error came after the hello left: its answer is older
    TimePoint last_check = TimePoint::min();
    int logins_refused = 0;  // since the last one that succeeded, and since it was last down
    TimePoint login_pause_end = TimePoint::min();  // it is not asked before
    ServerType refused_as = ServerType::unknown;   // what it was when it refused the last one
  };

  explicit Topology(TopologyOptions options);

  // --- events. Hosts that are not members (any more) are ignored.
  void check_started(const HostAddress& host);
  TopologyActions check_succeeded(const HostAddress& host, ServerDescription server,
                                  const BuildInfo& build, Duration round_trip, TimePoint now);
  // `silent`: the host gave no sign for the connect timeout, as opposed to refusing. Here and in network_error(): our
  // own lack of memory changes nothing.
  TopologyActions check_failed(const HostAddress& host, Error why, bool silent, TimePoint now);
  // A command got one of the codes of is_state_change(). `version`: the error reply's, if any.
  TopologyActions state_change_error(const HostAddress& host, std::int32_t code,
                                     const std::optional<TopologyVersion>& version, TimePoint now);
  TopologyActions network_error(const HostAddress& host, Error why, TimePoint now);
  // The host does not let the router log in: nothing is sent to it for a while, twice as long each time, up to the
  // heartbeat's interval. One refusal within that time is as good as many.
  TopologyActions login_refused(const HostAddress& host, Error why, TimePoint now);
  TopologyActions login_accepted(const HostAddress& host);
  // There are new credentials: the hosts that have refused a login are asked at once.
  TopologyActions try_logins_again();
  // Requests are under way on the host, and none has ended for a while: is it still there?
  TopologyActions no_progress(const HostAddress& host, TimePoint now);

  // When this host's next hello is due: at TimePoint::min() if at once, time_point_never while one
  // is on its way.
  TimePoint next_check(const HostAddress& host, bool request_waits) const;

  // The host for a request: among those fit for `preference` and within the local threshold of the
  // nearest, the one that `random` falls on. Null: none now. An error: waiting does not help (a refused single
  // host, a refused login, MaxStalenessOutOfRange(160)). Valid until the next event.
  Result<const Host*> select(const ReadPreference& preference, std::uint64_t random) const;
  // Why select() found none, for the operator: "a:1 is unknown (connection refused)".
  std::string explain() const;

  bool is_member(const HostAddress& host) const noexcept { return find(host) != nullptr; }
  ServerType type_of(const HostAddress& host) const noexcept;  // unknown: also for a host that is no member
  int logins_refused(const HostAddress& host) const noexcept;  // 0: also for a host that is no member
  bool any_login_refused() const noexcept;
  const std::vector<Host>& hosts() const noexcept { return hosts_; }
  bool replica_set() const noexcept { return replica_set_; }
  const std::string& set_name() const noexcept { return set_name_; }
  // Some host has answered a hello.
  bool answered() const noexcept;
  const TopologyOptions& options() const noexcept { return options_; }

 private:
  const Host* find(const HostAddress& address) const noexcept;
  Host* find(const HostAddress& address) noexcept;
  void accept(Host& host, ServerDescription server, TopologyActions& actions);
  void accept_member(Host& host, ServerDescription server, TopologyActions& actions);
  void accept_primary(Host& host, ServerDescription server, TopologyActions& actions);
  void accept_other(Host& host, ServerDescription server, TopologyActions& actions);
  bool stale_primary(const ServerDescription& server) const;
  void add_hosts(const std::vector<HostAddress>& list, TopologyActions& actions);
  void remove_hosts_not_in(const std::vector<HostAddress>& list, TopologyActions& actions);
  static void request_check(Host& host, TopologyActions& actions);

  using Candidates = std::vector<const Host*>;
  bool fresh_enough(const Host& host, const ReadPreference& preference) const;
  const Host* primary() const noexcept;
  Result<const Host*> choose(const ReadPreference& preference, std::uint64_t random) const;
  const Host* refusing(ReadMode mode) const noexcept;
  const Host* pick(Candidates candidates, std::uint64_t random) const;
  Candidates matching(const ReadPreference& preference, bool with_primary) const;

  TopologyOptions options_;
  std::string set_name_;
  bool replica_set_ = false;
  std::vector<Host> hosts_;
  std::optional<std::array<std::uint8_t, 12>> election_id_max_;
  std::optional<std::int64_t> set_version_max_;
};

// Codes that describe the shard's state and never reach a client.
// As a command's own code: the host looked at its role before it began, and did nothing. (What a command does in pieces
// within the host, as aggregations that write, may meet it later.)
constexpr bool is_refusal(std::int32_t code) noexcept {
  return code == 10107 || code == 13435 || code == 13436;
}
constexpr bool is_shutdown(std::int32_t code) noexcept { return code == 91 || code == 11600; }
// Other codes end a command at any of its yields: 189, PrimarySteppedDown, and 11602,
// InterruptedDueToReplStateChange.
constexpr bool is_state_change(std::int32_t code) noexcept {
  return is_refusal(code) || code == 189 || code == 11602 || is_shutdown(code);
}
// The codes after which an idempotent command is sent again.
constexpr bool is_retriable(std::int32_t code) noexcept {
  return is_state_change(code) || code == 6 || code == 7 || code == 89 || code == 134 || code == 262 || code == 317 ||
         code == 9001;
}

}  // namespace spillway::shard
