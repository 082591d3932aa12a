#include "proxy/exec/tables/session_owners.h"

#include <catch2/catch.hpp>

namespace spillway::exec {
namespace {

using Claim = SessionOwners::Claim;
using namespace std::chrono_literals;

SessionId id(std::uint64_t number) { return {number, number * 7919}; }

TEST_CASE("a session is its first user's, for as long as it is used") {
  SessionOwners owners;
  const TimePoint start = Clock::now();
  CHECK(owners.claim(id(1), "admin.ann", start) == Claim::own);
  CHECK(owners.claim(id(1), "admin.ann", start + 29min) == Claim::own);
  CHECK(owners.claim(id(1), "admin.bob", start + 58min) == Claim::another_users);
  CHECK(owners.is_another_users(id(1), "admin.bob", start + 58min));
  CHECK(!owners.is_another_users(id(1), "admin.ann", start + 58min));
  CHECK(!owners.is_another_users(id(2), "admin.bob", start));
  CHECK(owners.is_of(id(1), "admin.ann"));
  CHECK(owners.claim(id(1), "admin.bob", start + 60min) == Claim::own);
  CHECK(owners.claim(id(1), "admin.ann", start + 61min) == Claim::another_users);
  owners.release(id(1), "admin.ann");  // not ann's
  CHECK(owners.is_of(id(1), "admin.bob"));
  owners.release(id(1), "admin.bob");
  CHECK(owners.claim(id(1), "admin.ann", start + 61min) == Claim::own);
  CHECK(owners.of("admin.ann", 10) == std::vector<SessionId>{id(1)});
  CHECK(owners.of("admin.ann", 0).empty());
}

TEST_CASE("there are no more than fit: the oldest of the largest holder goes") {
  SessionOwners owners(16 * 4);
  const TimePoint start = Clock::now();
  for (std::uint64_t n = 0; n < 200; ++n) {
    CHECK(owners.claim(id(n), "u", start + std::chrono::seconds(n)) == Claim::own);
  }
  CHECK(owners.size() <= 64);
  CHECK(owners.is_of(id(199), "u"));
  CHECK(!owners.is_of(id(0), "u"));
}

TEST_CASE("a user that fills the table takes nothing from others, and keeps no user out") {
  SessionOwners owners(16 * 8);
  const TimePoint start = Clock::now();
  for (std::uint64_t n = 0; n < 16; ++n) REQUIRE(owners.claim(id(n), "ann", start) == Claim::own);
  for (std::uint64_t n = 1'000; n < 100'000; ++n) {
    REQUIRE(owners.claim(id(n), "mallory", start + 1s) == Claim::own);
  }
  for (std::uint64_t n = 0; n < 16; ++n) CHECK(owners.claim(id(n), "bob", start + 2s) == Claim::another_users);
  for (std::uint64_t n = 100; n < 132; ++n) CHECK(owners.claim(id(n), "bob", start + 2s) == Claim::own);
  for (std::uint64_t n = 100; n < 132; ++n) CHECK(owners.is_of(id(n), "bob"));
  CHECK(owners.size() <= 128);
}

TEST_CASE("a share holds for ids that were chosen to meet, too") {
  SessionOwners owners(16 * 8);
  const TimePoint start = Clock::now();
  const auto met = [](std::uint64_t n) { return SessionId{n, 0}; };
  REQUIRE(owners.claim(met(0), "ann", start) == Claim::own);
  for (std::uint64_t n = 1; n < 1'000; ++n) REQUIRE(owners.claim(met(n), "mallory", start) == Claim::own);
  CHECK(owners.is_of(met(0), "ann"));
  CHECK(owners.of("mallory", 1'000).size() == 7);
}

TEST_CASE("used sessions stay, and expired ones go first, of any user") {
  SessionOwners owners(16 * 4);
  const TimePoint start = Clock::now();
  const auto met = [](std::uint64_t n) { return SessionId{n, 0}; };
  REQUIRE(owners.claim(met(1), "ann", start) == Claim::own);
  for (std::uint64_t n = 2; n <= 4; ++n) REQUIRE(owners.claim(met(n), "bob", start + 20min) == Claim::own);
  REQUIRE(owners.claim(met(2), "bob", start + 35min) == Claim::own);
  REQUIRE(owners.claim(met(5), "bob", start + 35min) == Claim::own);
  CHECK(!owners.is_of(met(1), "ann"));
  REQUIRE(owners.claim(met(6), "bob", start + 36min) == Claim::own);
  CHECK(owners.is_of(met(2), "bob"));
  CHECK(!owners.is_of(met(3), "bob"));
}

}  // namespace
}  // namespace spillway::exec
