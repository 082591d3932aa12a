#include "proxy/exec/session_owners.h"

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
  owners.release(id(1), "admin.ann");  // not his
  CHECK(owners.is_of(id(1), "admin.bob"));
  owners.release(id(1), "admin.bob");
  CHECK(owners.claim(id(1), "admin.ann", start + 61min) == Claim::own);
  CHECK(owners.of("admin.ann", 10) == std::vector<SessionId>{id(1)});
  CHECK(owners.of("admin.ann", 0).empty());
}

TEST_CASE("there are no more than fit, and expired ones make room") {
  SessionOwners owners(16 * 4);
  const TimePoint start = Clock::now();
  std::uint64_t refused_at = 0;
  for (std::uint64_t n = 0; n < 200 && refused_at == 0; ++n) {
    if (owners.claim(id(n), "u", start) == Claim::too_many) refused_at = n;
  }
  CHECK(refused_at > 0);
  CHECK(owners.size() <= 64);
  CHECK(owners.claim(id(0), "u", start + 1min) == Claim::own);
  CHECK(owners.claim(id(refused_at), "u", start + 40min) == Claim::own);
}

}  // namespace
}  // namespace spillway::exec
