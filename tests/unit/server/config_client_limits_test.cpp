// The keys of limits, rates, failed logins and the audit log, and how they reach what is limited.
#include <catch2/catch.hpp>

#include <string>

#include "proxy/exec/context.h"
#include "proxy/exec/failed_logins.h"
#include "proxy/exec/rate_limiter.h"
#include "proxy/config/config.h"
#include "proxy/server/parameters.h"
#include "proxy/config/reload_plan.h"

using namespace spillway;
using namespace spillway::server;

namespace {

LoadResult load(const std::string& text) { return load_config({.text = text, .file_name = "f", .needs_routing = false}); }

std::string only_error(const std::string& text) {
  const LoadResult loaded = load(text);
  REQUIRE(loaded.errors.size() == 1);
  return loaded.errors[0];
}

}  // namespace

TEST_CASE("limits_are_read_with_their_overrides") {
  const LoadResult loaded = load(R"(
limits:
  perUser: {connections: 10, bufferedBytes: 64MiB, operationsPerSecond: 100, burst: 500}
  perAddress: {cursors: 7}
  overrides:
    - {user: admin.batch, operationsPerSecond: 5, cursors: unlimited}
    - {application: "", connections: 3}
    - {address: 10.0.0.0/8, bufferedBytes: 1GiB}
    - {address: "2001:db8::/64", connections: 1}
)");
  for (const std::string& error : loaded.errors) FAIL_CHECK(error);
  const exec::LimitSettings& limits = loaded.config.limits;
  CHECK(limits.per[0] == exec::LimitValues{10, std::nullopt, 64 << 20, 100, 500});
  CHECK(limits.per[1] == exec::LimitValues{});
  CHECK(limits.per[2].cursors == 7);
  REQUIRE(limits.overrides.size() == 4);
  CHECK(limits.overrides[0].name == "admin.batch");
  CHECK(limits.overrides[0].values.cursors == exec::LimitValues::unlimited);
  CHECK(limits.overrides[1].key == exec::LimitKey::application);
  CHECK(limits.overrides[2].values.buffered_bytes == 1 << 30);
  CHECK(limits.overrides[3].range.bits == 64);
  CHECK(load("").config.limits == exec::LimitSettings{});
}

TEST_CASE("limits_that_make_no_sense_are_refused") {
  CHECK(only_error("limits: {perUser: {burst: 5}}") ==
        "f:1: limits.perUser.burst needs limits.perUser.operationsPerSecond");
  CHECK(only_error("limits: {perUser: {connections: 0}}").find("from 1 to") != std::string::npos);
  CHECK(only_error("limits: {perGroup: {connections: 1}}").find("unknown key") != std::string::npos);
  for (const char* entry : {"{connections: 1}", "{user: admin.a, address: 10.0.0.1, connections: 1}", "{user: admin.a}",
                            "{user: a, connections: 1}", "{address: here, connections: 1}", "{address: 10.0.0.0/40, connections: 1}",
                            "{address: 'fe80::1', connections: 1}", "{user: admin.a, conections: 1}", "{user: admin.a, burst: 1}",
                            "{user: admin.a, connections: many}", "{user: admin.a, connections: [1]}", "x"}) {
    CAPTURE(entry);
    CHECK(only_error(std::string("limits: {overrides: [") + entry + "]}").find("limits.overrides, entry 1: ") != std::string::npos);
  }
  CHECK(only_error("limits: {overrides: [{user: admin.a, cursors: 1}, {user: admin.a, cursors: 2}]}").find("twice") != std::string::npos);
  CHECK(only_error("limits: {overrides: 5}").find("a list") != std::string::npos);
}

TEST_CASE("rates_have_mongodbs_names") {
  const LoadResult loaded = load(R"(
net: {maxIncomingConnectionsOverride: [10.0.0.1, 192.168.0.0/16]}
setParameter:
  ingressConnectionEstablishmentRateLimiterEnabled: true
  ingressConnectionEstablishmentRatePerSec: 20
  ingressConnectionEstablishmentBurstCapacitySecs: 1.5
  ingressConnectionEstablishmentMaxQueueDepth: 7
  ingressConnectionEstablishmentRateLimiterBypass: {ranges: [10.0.0.0/8]}
  ingressRequestRateLimiterEnabled: 1
  ingressRequestAdmissionRatePerSec: 1000
)");
  for (const std::string& error : loaded.errors) FAIL_CHECK(error);
  CHECK(loaded.config.net.beyond_max_connections == "10.0.0.1,192.168.0.0/16");
  exec::Shared shared(0);
  take_limits(shared, nullptr, loaded.config);
  const exec::RateLimiter& rate = *shared.connection_rate;
  CHECK(rate.enabled);
  CHECK(rate.per_second == 20);
  CHECK(rate.burst_seconds == 1.5);
  CHECK(rate.queue_max == 7);
  CHECK(rate.exempt.contains(*IpAddress::parse("10.1.2.3")));
  CHECK(shared.request_rate->enabled);
  CHECK(shared.failed_logins->allowed == 10);
  CHECK(only_error("setParameter: {ingressConnectionEstablishmentBurstCapacitySecs: 0}").find("above 0") != std::string::npos);
  CHECK(only_error("net: {maxIncomingConnectionsOverride: [here]}").find("here") != std::string::npos);
}

TEST_CASE("a_reload_changes_what_its_keys_say_and_leaves_what_was_set_since") {
  const Config before = load("setParameter: {ingressConnectionEstablishmentRatePerSec: 20}").config;
  const LoadResult after = load(R"(
setParameter: {ingressConnectionEstablishmentRatePerSec: 20, ingressConnectionEstablishmentMaxQueueDepth: 3}
limits: {perUser: {operationsPerSecond: 5}, overrides: [{user: admin.a, operationsPerSecond: 6}]}
security: {failedLogins: {allowed: 3}}
net: {idleClientTimeoutMillis: 5000}
)");
  const ReloadPlan plan = plan_reload(before, nullptr, after);
  CHECK(plan.refusals.empty());
  CHECK(plan.changes("limits"));
  CHECK(plan.changes("limits.overrides"));
  CHECK(plan.changes("security.failedLogins.allowed"));
  exec::Shared shared(0);
  take_limits(shared, nullptr, before);
  shared.connection_rate->per_second = 99;  // setParameter
  take_limits(shared, &before, after.config);
  CHECK(shared.connection_rate->per_second == 99);
  CHECK(shared.connection_rate->queue_max == 3);
  CHECK(shared.limits.looks_at_operations());
  CHECK(shared.failed_logins->allowed == 3);
}

TEST_CASE("an_audit_log_is_checked") {
  CHECK(load("auditLog: {destination: file, path: /x, format: JSON, filter: '{\"atype\": \"authenticate\"}'}").ok());
  CHECK(load("auditLog: {destination: syslog, format: JSON}").ok());
  for (const char* wrong : {"{destination: file}", "{destination: console, path: /x}", "{path: /x}", "{format: BSON}",
                            "{destination: syslog, filter: '{\"$where\": \"1\"}'}", "{destination: syslog, filter: 'x'}",
                            "{filter: '{}'}", "{schema: OCSF}", "{destination: smoke}", "{compressionMode: zstd}",
                            "{localAuditKeyFile: /k}"}) {
    CAPTURE(wrong);
    only_error(std::string("auditLog: ") + wrong);
  }
}
