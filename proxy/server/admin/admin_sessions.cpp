#include "proxy/server/admin/admin_sessions.h"

#include <algorithm>
#include <utility>

#include "cursor/hex.h"
#include "proxy/auth/crypto.h"

namespace spillway::server {

AdminSessions::Key AdminSessions::random_key() {
  Key key;
  auth::fill_random(key);
  return key;
}

// Takes the same time wherever they differ.
bool AdminSessions::is(const Key& key, std::string_view text) {
  return auth::same_secret(auth::bytes_of(hex(key)), auth::bytes_of(text));
}

std::list<AdminSessions::Session>::iterator AdminSessions::find(std::string_view cookie) {
  return std::find_if(sessions_.begin(), sessions_.end(),
                      [cookie](const Session& session) { return is(session.cookie, cookie); });
}

AdminSessions::Keys AdminSessions::begin(User user, TimePoint now) {
  if (sessions_.size() == sessions_max) sessions_.pop_back();
  const Session& made = sessions_.emplace_front(Session{random_key(), random_key(), std::move(user), now});
  return {hex(made.cookie), hex(made.token)};
}

AdminSessions::Found AdminSessions::use(std::string_view cookie, std::string_view token, TimePoint now) {
  sessions_.remove_if([now](const Session& session) { return now - session.used >= idle_max; });
  const auto found = find(cookie);
  if (found == sessions_.end()) return {};
  if (!is(found->token, token)) return {Access::wrong_token};
  found->used = now;
  sessions_.splice(sessions_.begin(), sessions_, found);
  return {Access::granted, found->user};
}

void AdminSessions::end(std::string_view cookie) {
  const auto found = find(cookie);
  if (found != sessions_.end()) sessions_.erase(found);
}

}  // namespace spillway::server
