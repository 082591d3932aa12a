#include "proxy/shard/topology.h"

#include <catch2/catch.hpp>

#include <set>

using namespace spillway;
using namespace spillway::shard;
using namespace std::chrono_literals;
using Kind = TopologyAction::Kind;

namespace {

const HostAddress a{"a", 1}, b{"b", 2}, c{"c", 3};
const TimePoint t0 = TimePoint(1h);

ServerDescription server(ServerType type, std::vector<HostAddress> hosts = {a, b},
                         TimePoint now = t0) {
  ServerDescription description;
  description.type = type;
  description.set_name = type == ServerType::standalone ? "" : "rs0";
  description.hosts = std::move(hosts);
  description.max_wire_version = 21;
  description.updated = now;
  return description;
}

ServerDescription elected(std::uint8_t election, std::int64_t set_version = 1) {
  ServerDescription description = server(ServerType::rs_primary);
  description.election_id.emplace();
  description.election_id->back() = election;
  description.set_version = set_version;
  return description;
}

TopologyOptions options(std::vector<HostAddress> seeds, std::string set_name = "rs0") {
  TopologyOptions result;
  result.name = "shard0";
  result.seeds = std::move(seeds);
  result.set_name = std::move(set_name);
  return result;
}

TopologyActions answer(Topology& topology, const HostAddress& host, ServerDescription description,
                       Duration round_trip = 1ms, TimePoint now = t0) {
  topology.check_started(host);
  return topology.check_succeeded(host, std::move(description), {}, round_trip, now);
}

ReadPreference prefer(ReadMode mode) {
  ReadPreference preference;
  preference.mode = mode;
  return preference;
}

std::string pick(const Topology& topology, const ReadPreference& preference,
                 std::uint64_t random = 0) {
  const auto host = topology.select(preference, random);
  if (host.has_error()) return "error";
  return *host == nullptr ? "none" : (*host)->address.host;
}
std::string primary_of(const Topology& topology) {
  return pick(topology, prefer(ReadMode::primary));
}

bool has(const TopologyActions& actions, Kind kind, const HostAddress& host) {
  return std::find(actions.begin(), actions.end(), TopologyAction{kind, host}) != actions.end();
}

}  // namespace

TEST_CASE("a host's wire version is kept while it is unknown") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  REQUIRE(topology.hosts()[0].max_wire_version == 21);
  CHECK(topology.hosts()[1].max_wire_version == 0);
  topology.network_error(a, Error(ErrorCode::host_unreachable, "gone"), t0);
  CHECK_FALSE(topology.hosts()[0].server.known());
  CHECK(topology.hosts()[0].max_wire_version == 21);
  topology.check_failed(a, Error(ErrorCode::host_unreachable, "gone"), false, t0);
  CHECK(topology.hosts()[0].max_wire_version == 21);
  ServerDescription upgraded = elected(2);
  upgraded.max_wire_version = 25;
  answer(topology, a, std::move(upgraded));
  CHECK(topology.hosts()[0].max_wire_version == 25);
  // What it says of another set is none of this shard's.
  ServerDescription stranger = server(ServerType::rs_primary);
  stranger.set_name = "rs1";
  stranger.max_wire_version = 13;
  answer(topology, a, std::move(stranger));
  CHECK_FALSE(topology.hosts()[0].server.known());
  CHECK(topology.hosts()[0].max_wire_version == 25);
}

TEST_CASE("a standalone is tried even while it is down") {
  Topology topology(options({a}, ""));
  CHECK(primary_of(topology) == "a");
  answer(topology, a, server(ServerType::standalone));
  CHECK_FALSE(topology.replica_set());
  CHECK(topology.answered());
  CHECK(pick(topology, prefer(ReadMode::secondary)) == "a");
  const auto actions = topology.network_error(a, Error(ErrorCode::host_unreachable, "gone"), t0);
  CHECK(has(actions, Kind::drop_pool, a));
  CHECK(has(actions, Kind::check_now, a));
  CHECK(primary_of(topology) == "a");
}

TEST_CASE("a host that refuses logins is left alone for longer each time") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  answer(topology, b, server(ServerType::rs_secondary));
  const Error why(ErrorCode::host_unreachable, "a:1 does not let the router log in");
  TimePoint now = t0;
  for (const Duration pause : {500ms, 1'000ms, 2'000ms, 4'000ms, 8'000ms, 10'000ms, 10'000ms}) {
    const auto actions = topology.login_refused(a, why, now);
    CHECK(has(actions, Kind::drop_pool, a));
    CHECK(has(actions, Kind::check_now, a));
    CHECK(topology.next_check(a, true) == now + pause);
    CHECK(topology.next_check(b, false) == t0 + 10s);
    const int refused = topology.logins_refused(a);
    // A second connection's refusal, and what a check that was under way brings.
    CHECK(topology.login_refused(a, why, now + pause - 1ms).empty());
    CHECK(topology.logins_refused(a) == refused);
    now += pause;
    answer(topology, a, elected(1), 1ms, now);
    CHECK(primary_of(topology) == "a");
    CHECK(topology.next_check(a, false) == now + 10s);
  }
  topology.login_refused(a, why, now);
  topology.try_logins_again();
  CHECK(topology.next_check(a, false) == TimePoint::min());
  answer(topology, a, elected(1), 1ms, now);
  topology.login_accepted(a);
  CHECK(topology.logins_refused(a) == 0);
  CHECK_FALSE(topology.any_login_refused());
  topology.login_refused(a, why, now);
  CHECK(topology.next_check(a, false) == now + 500ms);
  // Another worker's connection was let in meanwhile: the pause is over.
  CHECK(has(topology.login_accepted(a), Kind::check_now, a));
  CHECK(topology.login_accepted(a).empty());
  topology.login_refused(a, why, now);
  // Its return is news once it was down.
  topology.check_failed(a, Error(ErrorCode::host_unreachable, "gone"), false, now);
  CHECK(topology.logins_refused(a) == 0);
}

TEST_CASE("an answer that was on its way does not end the pause after a refused login") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  topology.check_started(a);
  topology.login_refused(a, Error(ErrorCode::host_unreachable, "no"), t0);
  topology.check_succeeded(a, elected(1), {}, 1ms, t0);
  CHECK_FALSE(topology.hosts()[0].server.known());
  CHECK(topology.next_check(a, true) == t0 + 500ms);
}

TEST_CASE("no request waits for a host that refuses logins") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  answer(topology, b, server(ServerType::rs_secondary));
  topology.login_refused(a, Error(ErrorCode::host_unreachable, "a:1 does not let us in"), t0);
  const auto chosen = topology.select(ReadPreference(), 0);
  REQUIRE(chosen.has_error());
  CHECK(chosen.error().is(ErrorCode::host_unreachable));
  CHECK(chosen.error().message == "a:1 cannot be used: a:1 does not let us in");
  CHECK(pick(topology, prefer(ReadMode::nearest)) == "b");
  CHECK(pick(topology, prefer(ReadMode::secondary)) == "b");
  // Others may be elected.
  topology.login_refused(b, Error(ErrorCode::host_unreachable, "b:2 does not let us in"), t0);
  CHECK(pick(topology, prefer(ReadMode::nearest)) == "error");
  CHECK(pick(topology, prefer(ReadMode::secondary)) == "error");
  topology.network_error(b, Error(ErrorCode::host_unreachable, "gone"), t0);
  CHECK(pick(topology, prefer(ReadMode::secondary)) == "none");
}

TEST_CASE("a router is refused, with the reason") {
  Topology topology(options({a}, ""));
  topology.check_started(a);
  topology.check_failed(a, Error(ErrorCode::illegal_operation, "it is a router"), false, t0);
  const auto host = topology.select(ReadPreference(), 0);
  REQUIRE(host.has_error());
  CHECK(host.error().is(ErrorCode::illegal_operation));
  CHECK(host.error().message == "a:1 cannot be used: it is a router");
}

TEST_CASE("hosts are discovered from the primary's list, and dropped by it") {
  Topology topology(options({a}));
  CHECK(primary_of(topology) == "none");
  auto actions = answer(topology, a, server(ServerType::rs_secondary, {a, b}));
  CHECK(has(actions, Kind::add_host, b));
  actions = answer(topology, b, server(ServerType::rs_primary, {b, c}));
  CHECK(has(actions, Kind::add_host, c));
  CHECK(has(actions, Kind::remove_host, a));
  CHECK(primary_of(topology) == "b");
  // A secondary's list does not count while there is a primary.
  actions = answer(topology, c, server(ServerType::rs_secondary, {a, b, c}));
  CHECK(actions.empty());
  CHECK(topology.hosts().size() == 2);
}

TEST_CASE("one seed without a set's name finds its set") {
  Topology topology(options({a}, ""));
  const auto actions = answer(topology, a, server(ServerType::rs_secondary, {a, b}));
  CHECK(has(actions, Kind::add_host, b));
  CHECK(topology.replica_set());
  CHECK(topology.set_name() == "rs0");
  CHECK(primary_of(topology) == "none");
}

TEST_CASE("a direct connection stays with its host") {
  TopologyOptions direct = options({a}, "");
  direct.direct = true;
  Topology topology(direct);
  CHECK(answer(topology, a, server(ServerType::rs_secondary, {a, b})).empty());
  CHECK(topology.hosts().size() == 1);
  CHECK(primary_of(topology) == "a");
}

TEST_CASE("members of other sets, and standalones, are not used") {
  Topology topology(options({a}));
  answer(topology, a, server(ServerType::standalone));
  CHECK(primary_of(topology) == "none");
  CHECK(topology.explain().find("standalone, not a member") != std::string::npos);
  ServerDescription other = server(ServerType::rs_primary);
  other.set_name = "rs1";
  answer(topology, a, other);
  CHECK(primary_of(topology) == "none");
  CHECK(topology.explain().find("'rs1', not 'rs0'") != std::string::npos);
}

TEST_CASE("a step-down: the old primary is checked at once, the new one takes over") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  answer(topology, b, server(ServerType::rs_secondary));
  REQUIRE(primary_of(topology) == "a");

  auto actions = topology.state_change_error(a, 10107, std::nullopt, t0);
  CHECK(actions == TopologyActions{{Kind::check_now, a}});  // its connections are good
  CHECK(primary_of(topology) == "none");
  CHECK(topology.next_check(a, true) == TimePoint::min());
  CHECK(topology.next_check(b, true) == t0 + 500ms);
  CHECK(topology.next_check(b, false) == t0 + 10s);
  // The same news again changes nothing.
  CHECK(topology.state_change_error(a, 189, std::nullopt, t0).empty());

  answer(topology, a, server(ServerType::rs_secondary), 1ms, t0 + 10ms);
  CHECK(primary_of(topology) == "none");
  answer(topology, b, elected(2), 1ms, t0 + 500ms);
  CHECK(primary_of(topology) == "b");

  // The old one, back from a partition, still believes in itself.
  answer(topology, a, elected(1), 1ms, t0 + 1s);
  CHECK(primary_of(topology) == "b");
  CHECK(topology.explain().find("older election") != std::string::npos);
}

TEST_CASE("that a secondary is no primary is no news") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  answer(topology, b, server(ServerType::rs_secondary));
  for (const std::int32_t code : {10107, 13435, 189}) {
    CHECK(topology.state_change_error(b, code, std::nullopt, t0).empty());
    CHECK(topology.type_of(b) == ServerType::rs_secondary);
  }
  for (const std::int32_t code : {13436, 11600, 11602, 91}) {
    CHECK(has(topology.state_change_error(b, code, std::nullopt, t0), Kind::check_now, b));
    answer(topology, b, server(ServerType::rs_secondary));
  }
}

TEST_CASE("a shutdown error drops the pool") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  CHECK(has(topology.state_change_error(a, 91, std::nullopt, t0), Kind::drop_pool, a));
}

TEST_CASE("a new primary displaces the old one") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  const auto actions = answer(topology, b, elected(2));
  CHECK(has(actions, Kind::check_now, a));
  CHECK(primary_of(topology) == "b");
  // A later election counts, whatever version of the configuration its winner had, and goes on counting.
  for (int i = 0; i < 2; ++i) {
    answer(topology, a, elected(3, 3));
    CHECK(primary_of(topology) == (i == 0 ? "a" : "b"));
    answer(topology, b, elected(4, 2));
    answer(topology, b, elected(4, 2));
    CHECK(primary_of(topology) == "b");
  }
  // Before 6.0, the configuration's version comes first.
  ServerDescription old = elected(9, 1);
  old.max_wire_version = 13;
  answer(topology, a, elected(5, 2));
  answer(topology, b, old);
  CHECK(primary_of(topology) == "a");
}

TEST_CASE("an answer that left before an error came is not believed") {
  Topology topology(options({a, b}));
  answer(topology, a, elected(1));
  topology.check_started(a);
  topology.state_change_error(a, 10107, std::nullopt, t0);
  const auto actions = topology.check_succeeded(a, elected(1), {}, 1ms, t0);
  CHECK(has(actions, Kind::check_now, a));
  CHECK(primary_of(topology) == "none");
  answer(topology, a, elected(1));
  CHECK(primary_of(topology) == "a");
}

TEST_CASE("errors that are older than what is known are ignored") {
  Topology topology(options({a, b}));
  ServerDescription first = elected(1);
  first.topology_version = TopologyVersion{{}, 5};
  answer(topology, a, first);
  CHECK(topology.state_change_error(a, 10107, TopologyVersion{{}, 5}, t0).empty());
  CHECK(primary_of(topology) == "a");
  topology.state_change_error(a, 10107, TopologyVersion{{}, 6}, t0);
  CHECK(primary_of(topology) == "none");
}

TEST_CASE("a host that is down is asked often") {
  Topology topology(options({a}));
  CHECK(topology.next_check(a, false) == TimePoint::min());
  topology.check_started(a);
  CHECK(topology.next_check(a, false) == time_point_never);
  auto actions = topology.check_failed(a, Error(ErrorCode::host_unreachable, "refused"), false, t0);
  CHECK_FALSE(has(actions, Kind::fail_in_flight, a));
  CHECK(topology.next_check(a, false) == t0 + 500ms);
  topology.check_started(a);
  actions = topology.check_failed(a, Error(ErrorCode::network_timeout, "silent"), true, t0);
  CHECK(has(actions, Kind::fail_in_flight, a));
  CHECK(topology.next_check(b, false) == time_point_never);  // no member
}

TEST_CASE("requests that get nowhere make the monitor ask") {
  Topology topology(options({a}));
  answer(topology, a, elected(1));
  CHECK(topology.no_progress(a, t0 + 500ms).empty());
  CHECK(topology.no_progress(a, t0 + 1s) == TopologyActions{{Kind::check_now, a}});
  topology.check_started(a);
  CHECK(topology.no_progress(a, t0 + 5s).empty());
}

TEST_CASE("read preferences choose") {
  Topology topology(options({a, b, c}));
  answer(topology, a, server(ServerType::rs_primary, {a, b, c}), 20ms);
  ServerDescription tagged = server(ServerType::rs_secondary, {a, b, c});
  tagged.tags = {{"dc", "ny"}, {"use", "reports"}};
  answer(topology, b, tagged, 2ms);
  answer(topology, c, server(ServerType::rs_secondary, {a, b, c}), 5ms);

  CHECK(pick(topology, prefer(ReadMode::primary)) == "a");
  CHECK(pick(topology, prefer(ReadMode::primary_preferred)) == "a");
  std::set<std::string> secondaries, nearest;
  for (std::uint64_t random = 0; random < 8; ++random) {
    secondaries.insert(pick(topology, prefer(ReadMode::secondary), random));
    nearest.insert(pick(topology, prefer(ReadMode::nearest), random));
  }
  CHECK(secondaries == std::set<std::string>{"b", "c"});
  CHECK(nearest == std::set<std::string>{"b", "c"});  // a is more than 15 ms behind b

  ReadPreference preference = prefer(ReadMode::secondary);
  preference.tag_sets = {{{"dc", "sf"}}, {{"dc", "ny"}}};
  CHECK(pick(topology, preference, 1) == "b");
  preference.tag_sets = {{{"dc", "sf"}}};
  CHECK(pick(topology, preference) == "none");
  preference.mode = ReadMode::secondary_preferred;
  CHECK(pick(topology, preference) == "a");
  preference.tag_sets = {{{"dc", "sf"}}, {}};
  CHECK(pick(topology, preference) != "a");

  topology.network_error(a, Error(ErrorCode::host_unreachable, "gone"), t0);
  CHECK(pick(topology, prefer(ReadMode::primary_preferred)) != "none");
  CHECK(pick(topology, prefer(ReadMode::primary)) == "none");
}

TEST_CASE("arbiters and hidden members are never chosen") {
  Topology topology(options({a, b}));
  answer(topology, a, server(ServerType::rs_arbiter));
  answer(topology, b, server(ServerType::rs_other));
  CHECK(pick(topology, prefer(ReadMode::nearest)) == "none");
}

TEST_CASE("stale secondaries are left out") {
  Topology topology(options({a, b, c}));
  ServerDescription primary = server(ServerType::rs_primary, {a, b, c});
  primary.last_write_ms = 1'000'000;
  ServerDescription fresh = server(ServerType::rs_secondary, {a, b, c});
  fresh.last_write_ms = 1'000'000 - 70'000;
  ServerDescription stale = fresh;
  stale.last_write_ms = 1'000'000 - 90'000;
  answer(topology, a, primary);
  answer(topology, b, fresh);
  answer(topology, c, stale);
  ReadPreference preference = prefer(ReadMode::secondary);
  preference.max_staleness_seconds = 90;  // the heartbeat's ten seconds count too
  CHECK(pick(topology, preference, 0) == "b");
  CHECK(pick(topology, preference, 1) == "b");
  topology.network_error(a, Error(ErrorCode::host_unreachable, "gone"), t0);
  preference.max_staleness_seconds = 20;
  CHECK(pick(topology, preference, 1) == "b");  // measured against the freshest now
  preference.max_staleness_seconds = 15;
  CHECK(topology.select(preference, 0).error().is(ErrorCode::max_staleness_out_of_range));
}
