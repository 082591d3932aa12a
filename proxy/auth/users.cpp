#include "proxy/auth/users.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/hash/hash.h"

#include "proxy/auth/concat.h"

namespace spillway::auth {

namespace {

std::size_t place(Hash hash) noexcept { return hash == Hash::sha1 ? 0 : 1; }

}  // namespace

std::string user_id(std::string_view db, std::string_view name) { return concat(db, ".", name); }

User::User(UserSpec spec)
    : UserSpec(std::move(spec)),
      id(user_id(db, name)),
      privileges(resolved ? Privileges::of_resolved(resolved->privileges) : Privileges(roles)) {}

UserTable::UserTable(std::vector<UserSpec> users, const std::optional<Digest>& fake_key, bool lacks_fed)
    : fake_key_(fake_key), lacks_fed_(lacks_fed) {
  std::map<std::string, const UserSpec*> in_order;
  for (const UserSpec& user : users) in_order.emplace(user_id(user.db, user.name), &user);
  std::string keys;
  std::size_t with_password = 0;
  for (const Hash hash : {Hash::sha1, Hash::sha256}) {
    std::map<std::uint32_t, std::size_t> by_iterations;
    std::size_t count = 0;
    for (const auto& [id, user] : in_order) {
      const auto& credentials = user->credentials(hash);
      if (!credentials) continue;
      ++count;
      ++by_iterations[credentials->iterations];
      keys += text_of(credentials->server_key.view());
    }
    fakes_[place(hash)] = 2 * count >= users.size() && count > 0;
    with_password += count;
    if (count == 0) continue;
    const auto most =
        std::max_element(by_iterations.begin(), by_iterations.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    fake_iterations_[place(hash)] = most->first;
  }
  if (with_password == 0 || (!fakes_[0] && !fakes_[1])) fakes_[place(Hash::sha256)] = true;
  made_up_key_.size = static_cast<std::uint8_t>(made_up_key_.bytes.size());
  fill_random(made_up_key_.bytes);
  if (!fake_key_ && !keys.empty()) fake_key_ = digest(Hash::sha256, bytes_of(keys));
  wipe(keys);
  for (UserSpec& user : users) {
    auto made = std::make_shared<const User>(std::move(user));
    users_.emplace(made->id, made);
  }
}

std::shared_ptr<const User> UserTable::find(std::string_view db, std::string_view name) const {
  const auto found = users_.find(user_id(db, name));
  return found == users_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<const User>> UserTable::all() const {
  std::vector<std::shared_ptr<const User>> list;
  list.reserve(users_.size());
  for (const auto& [id, user] : users_) list.push_back(user);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return list;
}

bool UserTable::offers(std::string_view db, std::string_view name, Hash hash) const {
  const auto user = find(db, name);
  return user ? user->credentials(hash).has_value() : db != external_db && fakes_[place(hash)];
}

UserTable::ToCheck UserTable::credentials(Hash hash, std::string_view db,
                                          std::string_view name) const {
  if (const auto user = find(db, name); user && user->credentials(hash))
    return {*user->credentials(hash), true};
  return {fake_credentials(hash, (fake_key_ ? *fake_key_ : made_up_key_).view(), user_id(db, name),
                           fake_iterations_[place(hash)]),
          false};
}

UserDirectory::UserDirectory()
    : table_(std::make_shared<const UserTable>(std::vector<UserSpec>())) {}

UserTable::Ptr UserDirectory::table() const {
  MutexLock lock(mutex_);
  return table_;
}

namespace {

// Of two users with one name the first counts.
UserTable::Ptr table_of(std::vector<UserSpec> users, const std::optional<Digest>& fake_key, bool lacks_fed) {
  std::set<std::string> ids;
  std::erase_if(
      users, [&](const UserSpec& user) { return !ids.insert(user_id(user.db, user.name)).second; });
  return std::make_shared<const UserTable>(std::move(users), fake_key, lacks_fed);
}

}  // namespace

bool UserDirectory::put(std::vector<UserSpec> UserDirectory::*list, std::vector<UserSpec> users) {
  {
    MutexLock lock(mutex_);
    const bool resumes = list == &UserDirectory::fed_ && fed_suspended_;
    if (this->*list == users && !resumes) return false;
    this->*list = std::move(users);
    if (resumes) fed_suspended_ = false;
  }
  make_table();
  return true;
}

void UserDirectory::make_table() {
  std::vector<UserSpec> all;
  std::optional<Digest> key;
  bool lacks_fed = false;
  // The table is built outside of the lock, and again if a list changed meanwhile: otherwise an older table could
  // replace a newer one and restore a removed user.
  for (UserTable::Ptr table;; table = table_of(all, key, lacks_fed)) {
    MutexLock lock(mutex_);
    std::vector<UserSpec> now = configured_;
    if (!fed_suspended_) now.insert(now.end(), fed_.begin(), fed_.end());
    if (table && now == all && key == fake_key_ && lacks_fed == fed_suspended_) {
      fake_key_ = table->fake_key();
      table_.swap(table);
      generation_.fetch_add(1, std::memory_order_release);
      return;
    }
    all = std::move(now);
    key = fake_key_;
    lacks_fed = fed_suspended_;
  }
}

bool UserDirectory::may_ask_for(std::string_view db, std::string_view name, std::string_view address, TimePoint now) {
  constexpr Duration period = std::chrono::seconds(1);
  constexpr int of_one_address_max = 2;
  const Question question{now, absl::HashOf(db, name), absl::HashOf(address)};
  const MutexLock lock(asking_);
  int of_address = 0;
  std::optional<Question>* unused = nullptr;
  for (std::optional<Question>& each : questions_) {
    if (!each || each->at + period <= now) {
      unused = &each;
      continue;
    }
    if (each->user == question.user) return false;
    if (each->address == question.address) ++of_address;
  }
  if (unused == nullptr || of_address >= of_one_address_max) return false;
  *unused = question;
  return true;
}

void UserDirectory::suspend_fed() {
  MutexLock feeding(feeding_);
  {
    MutexLock lock(mutex_);
    if (fed_suspended_) return;
    fed_suspended_ = true;
  }
  make_table();
}

bool UserDirectory::configure(std::vector<UserSpec> users) {
  return put(&UserDirectory::configured_, std::move(users));
}

namespace {

std::vector<UserSpec>::iterator find_named(std::vector<UserSpec>& users, std::string_view db, std::string_view name) {
  return std::find_if(users.begin(), users.end(),
                      [&](const UserSpec& one) { return one.db == db && one.name == name; });
}

}  // namespace

bool UserDirectory::feed(std::vector<UserSpec> users) {
  MutexLock feeding(feeding_);
  return put(&UserDirectory::fed_, std::move(users));
}

std::optional<bool> UserDirectory::feed(std::uint64_t read, std::vector<UserSpec> users) {
  MutexLock feeding(feeding_);
  if (read < fed_read_) return std::nullopt;
  fed_read_ = read;
  std::erase_if(new_, [read](const auto& each) { return each.first < read; });
  for (const auto& [number, user] : new_) {
    if (find_named(users, user.db, user.name) == users.end()) users.push_back(user);
  }
  return put(&UserDirectory::fed_, std::move(users));
}

void UserDirectory::feed_new(std::uint64_t read, const UserSpec& user) {
  MutexLock feeding(feeding_);
  // A read that began later would have it.
  if (read < fed_read_ || table()->find(user.db, user.name)) return;
  std::vector<UserSpec> users;
  {
    MutexLock lock(mutex_);
    users = fed_;
  }
  users.push_back(user);
  new_.emplace_back(read, user);
  put(&UserDirectory::fed_, std::move(users));
}

std::optional<bool> UserDirectory::feed_one(std::uint64_t read, std::string_view db, std::string_view name,
                                            const UserSpec* user) {
  MutexLock feeding(feeding_);
  if (read < fed_read_) return std::nullopt;
  fed_read_ = read;
  std::erase_if(new_, [read](const auto& each) { return each.first < read; });
  std::vector<UserSpec> users;
  {
    MutexLock lock(mutex_);
    users = fed_;
  }
  const auto found = find_named(users, db, name);
  if (user == nullptr) {
    if (found != users.end()) users.erase(found);
  } else if (found != users.end()) {
    *found = *user;
  } else {
    users.push_back(*user);
  }
  return put(&UserDirectory::fed_, std::move(users));
}

}  // namespace spillway::auth
