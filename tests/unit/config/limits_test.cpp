// The keys of limits, failed logins and the audit log.
#include <catch2/catch.hpp>

#include <string>

#include "proxy/config/config.h"
#include "proxy/config/reload_plan.h"

using namespace spillway;

namespace {

LoadResult load(const std::string& text) {
  return load_config({.text = text, .file_name = "f", .needs_routing = false});
}

std::string only_error(const std::string& text) {
  const LoadResult loaded = load(text);
  REQUIRE(loaded.errors.size() == 1);
  return loaded.errors[0];
}

}  // namespace

TEST_CASE("limits_are_read_with_their_overrides") {
  const LoadResult loaded = load(R"(
limits:
  perUser: {connections: 10, bufferedBytes: 64MiB, operationsPerSecond: 100}
  perAddress: {cursors: 7}
  overrides:
    - {user: admin.batch, operationsPerSecond: 5, cursors: unlimited}
    - {address: 10.0.0.0/8, bufferedBytes: 1GiB}
    - {address: "2001:db8::/64", connections: 1}
)");
  for (const std::string& error : loaded.errors) FAIL_CHECK(error);
  const LimitSettings& limits = loaded.config.limits;
  CHECK(limits.per[0] == LimitValues{10, std::nullopt, 64 << 20, 100});
  CHECK(limits.per[1] == LimitValues{.cursors = 7});
  REQUIRE(limits.overrides.size() == 3);
  CHECK(limits.overrides[0].name == "admin.batch");
  CHECK(limits.overrides[0].values.cursors == LimitValues::unlimited);
  CHECK(limits.overrides[1].values.buffered_bytes == 1 << 30);
  CHECK(limits.overrides[2].range.bits == 64);
  CHECK(load("").config.limits == LimitSettings{});
}

TEST_CASE("limits_that_make_no_sense_are_refused") {
  CHECK(only_error("limits: {perUser: {connections: 0}}").find("from 1 to") != std::string::npos);
  CHECK(only_error("limits: {perGroup: {connections: 1}}").find("unknown key") != std::string::npos);
  for (const char* entry :
       {"{connections: 1}", "{user: admin.a, address: 10.0.0.1, connections: 1}", "{user: admin.a}",
        "{user: a, connections: 1}", "{address: here, connections: 1}", "{address: 10.0.0.0/40, connections: 1}",
        "{address: 'fe80::1', connections: 1}", "{user: admin.a, conections: 1}", "{user: admin.a, burst: 1}",
        "{application: shop, connections: 1}", "{user: admin.a, connections: many}",
        "{user: admin.a, connections: [1]}", "{user: admin.a, cursors: 1, cursors: 2}", "x"}) {
    CAPTURE(entry);
    CHECK(only_error(std::string("limits: {overrides: [") + entry + "]}").find("limits.overrides, entry 1: ") !=
          std::string::npos);
  }
  CHECK(only_error("limits: {overrides: [{user: admin.a, cursors: 1}, {user: admin.a, cursors: 2}]}").find("twice") !=
        std::string::npos);
  CHECK(only_error("limits: {overrides: 5}").find("a list") != std::string::npos);
}

TEST_CASE("a_reload_knows_of_limits_and_failed_logins") {
  const LoadResult after = load(R"(
limits: {perUser: {operationsPerSecond: 5}, overrides: [{user: admin.a, operationsPerSecond: 6}]}
security: {failedLogins: {allowed: 3}}
net: {idleClientTimeoutMillis: 5000}
)");
  const ReloadPlan plan = plan_reload(load("").config, nullptr, after);
  CHECK(plan.refusals.empty());
  CHECK(plan.changed.size() == 4);
  CHECK(plan.changes("limits"));
  CHECK(plan.changes("limits.overrides"));
  CHECK(plan.changes("security.failedLogins.allowed"));
}

TEST_CASE("an_audit_log_is_checked") {
  CHECK(load("auditLog: {destination: file, path: /x, format: JSON}").ok());
  CHECK(load("auditLog: {destination: syslog, format: JSON}").ok());
  for (const char* wrong : {"{destination: file}", "{destination: console, path: /x}", "{path: /x}", "{format: BSON}",
                            "{destination: syslog, filter: '{}'}", "{schema: OCSF}", "{destination: smoke}",
                            "{compressionMode: zstd}", "{localAuditKeyFile: /k}"}) {
    CAPTURE(wrong);
    only_error(std::string("auditLog: ") + wrong);
  }
}
