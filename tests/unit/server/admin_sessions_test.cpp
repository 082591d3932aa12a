// Sessions of the admin port's page: two keys each, an end, and a largest number.
#include "proxy/server/admin/admin_sessions.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace spillway::server {
namespace {

using Access = AdminSessions::Access;

TEST_CASE("a session needs both of its keys", "[admin]") {
  AdminSessions sessions;
  const TimePoint now{};
  const auto keys = sessions.begin({"admin", "ops"}, now);
  const auto others = sessions.begin({"admin", "eve"}, now);
  CHECK(keys.cookie.size() == 64);
  CHECK(keys.token.size() == 64);
  CHECK(keys.cookie != keys.token);
  CHECK(keys.cookie != others.cookie);
  const auto found = sessions.use(keys.cookie, keys.token, now);
  CHECK(found.access == Access::granted);
  CHECK(found.user.name == "ops");
  CHECK(found.user.db == "admin");
  for (const std::string& wrong : {std::string(), others.token, keys.cookie, keys.token + "0", keys.token.substr(1)}) {
    CHECK(sessions.use(keys.cookie, wrong, now).access == Access::wrong_token);
    CHECK(sessions.use(keys.cookie, wrong, now).user.name.empty());
  }
  for (const std::string& wrong : {std::string(), keys.token, keys.cookie.substr(1), std::string(64, '0')}) {
    CHECK(sessions.use(wrong, keys.token, now).access == Access::none);
  }
  sessions.end(keys.cookie);
  CHECK(sessions.use(keys.cookie, keys.token, now).access == Access::none);
  CHECK(sessions.use(others.cookie, others.token, now).access == Access::granted);
}

TEST_CASE("a session ends after fifteen minutes without use", "[admin]") {
  AdminSessions sessions;
  TimePoint now{};
  const auto keys = sessions.begin({"admin", "ops"}, now);
  for (int i = 0; i < 10; ++i) {
    now += AdminSessions::idle_max - std::chrono::seconds(1);
    CHECK(sessions.use(keys.cookie, keys.token, now).access == Access::granted);
  }
  // One key alone does not keep it alive.
  now += AdminSessions::idle_max - std::chrono::seconds(1);
  CHECK(sessions.use(keys.cookie, "", now).access == Access::wrong_token);
  now += std::chrono::seconds(1);
  CHECK(sessions.use(keys.cookie, keys.token, now).access == Access::none);
  CHECK(sessions.size() == 0);
}

TEST_CASE("beyond sixteen sessions the one that was unused for longest ends", "[admin]") {
  AdminSessions sessions;
  TimePoint now{};
  std::vector<AdminSessions::Keys> all;
  for (std::size_t i = 0; i < AdminSessions::sessions_max; ++i) {
    all.push_back(sessions.begin({"admin", std::to_string(i)}, now += std::chrono::seconds(1)));
  }
  CHECK(sessions.use(all[0].cookie, all[0].token, now).access == Access::granted);
  sessions.begin({"admin", "one more"}, now);
  CHECK(sessions.size() == AdminSessions::sessions_max);
  CHECK(sessions.use(all[0].cookie, all[0].token, now).access == Access::granted);
  CHECK(sessions.use(all[1].cookie, all[1].token, now).access == Access::none);
  CHECK(sessions.use(all[2].cookie, all[2].token, now).access == Access::granted);
}

}  // namespace
}  // namespace spillway::server
