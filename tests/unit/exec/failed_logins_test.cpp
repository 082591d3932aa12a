#include "proxy/exec/tables/failed_logins.h"

#include <catch2/catch.hpp>

#include <string>

namespace spillway::exec {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint start{std::chrono::hours(24)};

TEST_CASE("after as many failures as are allowed the next logins wait, ever longer", "[logins]") {
  FailedLogins logins;
  logins.allowed = 3;
  TimePoint now = start;
  for (int i = 0; i < 3; ++i) {
    CHECK(logins.refused_for("10.0.0.1", "admin.ann", now) == 0ns);
    logins.failed("10.0.0.1", "admin.ann", now);
  }
  for (const Duration wait : {Duration(1s), Duration(2s), Duration(4s), Duration(8s), Duration(16s), Duration(32s),
                              Duration(60s), Duration(60s)}) {
    CHECK(logins.refused_for("10.0.0.1", "admin.ann", now) == wait);
    now += wait;
    CHECK(logins.refused_for("10.0.0.1", "admin.ann", now) == 0ns);
    logins.failed("10.0.0.1", "admin.ann", now);
  }
  CHECK(logins.refused() == 8);
}

TEST_CASE("a user may log in from other addresses, and other users are not concerned", "[logins]") {
  FailedLogins logins;
  for (int i = 0; i < 1'000; ++i) logins.failed("10.0.0.1", "admin.ann", start);
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 60s);
  CHECK(logins.refused_for("10.0.0.2", "admin.ann", start) == 0ns);
  CHECK(logins.refused_for("10.0.0.1", "admin.bob", start) == 0ns);
  CHECK(logins.refused_for("10.0.0.1", "test.ann", start) == 0ns);
}

TEST_CASE("a success, or a pause, makes up for failures", "[logins]") {
  FailedLogins logins;
  logins.allowed = 2;
  for (int i = 0; i < 2; ++i) logins.failed("10.0.0.1", "admin.ann", start);
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 1s);
  logins.succeeded("10.0.0.1", "admin.ann");
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 0ns);
  CHECK(logins.tracked() == 0);
  for (int i = 0; i < 2; ++i) logins.failed("10.0.0.1", "admin.ann", start);
  logins.failed("10.0.0.1", "admin.ann", start + 15min);
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start + 15min) == 0ns);
}

TEST_CASE("no more pairs are remembered than there is room for, the last ones", "[logins]") {
  FailedLogins logins(100);
  logins.allowed = 1;
  for (int i = 0; i < 10'000; ++i) logins.failed("10.0.0.1", "admin." + std::to_string(i), start);
  CHECK(logins.tracked() == 100);
  CHECK(logins.refused_for("10.0.0.1", "admin.9999", start) == 1s);
  CHECK(logins.refused_for("10.0.0.1", "admin.1", start) == 0ns);
}

TEST_CASE("made-up names do not end the wait of a user", "[logins]") {
  FailedLogins logins(100);
  for (int i = 0; i < 20; ++i) logins.failed("10.0.0.1", "admin.ann", start);
  for (int i = 0; i < 10'000; ++i) logins.failed("10.0.0.1", "admin." + std::to_string(i), start);
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 60s);
  CHECK(logins.tracked() == 100);
}

TEST_CASE("names that wait, however many, keep no others from being counted", "[logins]") {
  FailedLogins logins(100);
  logins.allowed = 3;
  const auto fail = [&](const std::string& name) { logins.failed("10.0.0.1", name, start); };
  for (int i = 0; i < 3'000; ++i) fail("admin." + std::to_string(i / 3));
  for (int i = 0; i < 3; ++i) {
    for (const char* name : {"admin.ann", "admin.bob"}) fail(name);
  }
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 1s);
  CHECK(logins.refused_for("10.0.0.1", "admin.bob", start) == 1s);
  CHECK(logins.tracked() == 100);
}

TEST_CASE("with nothing allowed nothing is counted", "[logins]") {
  FailedLogins logins;
  logins.allowed = 0;
  for (int i = 0; i < 100; ++i) logins.failed("10.0.0.1", "admin.ann", start);
  CHECK(logins.refused_for("10.0.0.1", "admin.ann", start) == 0ns);
  CHECK(logins.tracked() == 0);
}

}  // namespace
}  // namespace spillway::exec
