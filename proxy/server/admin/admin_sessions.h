// AdminSessions: the users logged in on the page of the admin port. Pure: no sockets, no commands; time is a parameter.
//
// A session has two keys, 256 random bits each. The cookie goes with each request, to other ports of this machine, too:
// cookies know no ports. So it counts only beside the token, which the page alone knows.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "proxy/base/clock.h"

namespace spillway::server {

class AdminSessions {
 public:
  static constexpr std::size_t sessions_max = 16;
  static constexpr Duration idle_max = std::chrono::minutes(15);
  // The most that all of them take: two names, of a user and a database.
  static constexpr std::uint64_t memory_bytes = sessions_max * 2048;

  struct User {
    std::string db, name;
  };
  // In hexadecimal.
  struct Keys {
    std::string cookie, token;
  };
  // Beyond sessions_max the one that was unused for longest ends.
  Keys begin(User user, TimePoint now);

  enum class Access : std::uint8_t {
    none,         // unknown, or ended, or unused for too long
    wrong_token,  // the page of another site asks
    granted,      // and the time without use begins again
  };
  struct Found {
    Access access = Access::none;
    User user = {};  // of granted
  };
  Found use(std::string_view cookie, std::string_view token, TimePoint now);
  void end(std::string_view cookie);
  void end_all() { sessions_.clear(); }
  std::size_t size() const noexcept { return sessions_.size(); }

 private:
  using Key = std::array<std::uint8_t, 32>;
  struct Session {
    Key cookie, token;
    User user;
    TimePoint used;
  };
  static Key random_key();
  static bool is(const Key& key, std::string_view text);
  std::list<Session>::iterator find(std::string_view cookie);

  std::list<Session> sessions_;  // the longest unused last
};

}  // namespace spillway::server
