// Users: names, credentials and roles. A table is made from the configuration and never changes; a reload makes
// another one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"
#include "proxy/auth/roles.h"
#include "proxy/auth/scram.h"
#include "proxy/base/clock.h"

namespace spillway::auth {

inline constexpr std::size_t users_max = 100'000;
inline constexpr std::string_view external_db = "$external";  // of users with certificates

// A cluster's servers resolve roles, custom ones too.
struct ResolvedRoles {
  std::vector<RoleGrant> roles;  // inherited ones too
  std::vector<Privilege> privileges;

  bool operator==(const ResolvedRoles&) const = default;
};

// A user as the configuration has it, or a server.
struct UserSpec {
  std::string name;
  std::string db;
  std::vector<RoleGrant> roles;
  std::optional<ScramCredentials> sha1;
  std::optional<ScramCredentials> sha256;
  std::optional<ResolvedRoles> resolved = std::nullopt;  // none: the roles are of role_names()
  // userId: a user that is dropped and made again has another one. None: of the configuration, or of an old server.
  std::optional<std::array<std::uint8_t, 16>> uuid = std::nullopt;

  bool operator==(const UserSpec&) const = default;
  const std::optional<ScramCredentials>& credentials(Hash hash) const noexcept {
    return hash == Hash::sha1 ? sha1 : sha256;
  }
};

// What MongoDB calls a user's _id, "db.name": a database's name has no dot.
std::string user_id(std::string_view db, std::string_view name);

struct User : UserSpec {
  explicit User(UserSpec spec);
  std::string id;
  Privileges privileges;
};

class UserTable {
 public:
  using Ptr = std::shared_ptr<const UserTable>;

  // REQUIRES that no two users have the same database and name; callers check this before. `fake_key`: of the table
  // before; without one it is made from the users' keys.
  explicit UserTable(std::vector<UserSpec> users, const std::optional<Digest>& fake_key = std::nullopt,
                     bool lacks_fed = false);

  // Null: there is none. A connection holds the reference while it is logged in as this user.
  std::shared_ptr<const User> find(std::string_view db, std::string_view name) const;
  bool empty() const noexcept { return users_.empty(); }
  std::size_t size() const noexcept { return users_.size(); }
  std::vector<std::shared_ptr<const User>> all() const;

  // For saslSupportedMechs. An unknown user looks like most users.
  bool offers(std::string_view db, std::string_view name, Hash hash) const;
  struct ToCheck {
    ScramCredentials credentials;
    bool known = false;
  };
  // The user's credentials, or fake ones.
  ToCheck credentials(Hash hash, std::string_view db, std::string_view name) const;
  // The key of fake credentials; none: no user has a password, and fake credentials are made up.
  const std::optional<Digest>& fake_key() const noexcept { return fake_key_; }
  // Does it lack the users of a shard, which cannot be read?
  bool lacks_fed() const noexcept { return lacks_fed_; }

 private:
  absl::flat_hash_map<std::string, std::shared_ptr<const User>> users_;  // by id
  std::optional<Digest> fake_key_;  // no single user can compute it
  Digest made_up_key_;
  bool fakes_[2] = {true, true};                       // by Hash
  std::uint32_t fake_iterations_[2] = {10'000, 15'000};
  bool lacks_fed_ = false;
};

// The table in use. Thread-safe.
class UserDirectory {
 public:
  UserDirectory();

  UserTable::Ptr table() const;
  // Users of the configuration and users read from a shard together make up the table; the configuration's take
  // precedence. The table is replaced only if it changes; true: it was.
  bool configure(std::vector<UserSpec> users);
  bool feed(std::vector<UserSpec> users);
  // Reads may overlap: begin_read() before the first question. nullopt: nothing changes, since users of a read that
  // began later were fed already.
  std::uint64_t begin_read() noexcept { return reads_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::optional<bool> feed(std::uint64_t read, std::vector<UserSpec> users);
  // The same of one user; null: there is none of this name.
  std::optional<bool> feed_one(std::uint64_t read, std::string_view db, std::string_view name, const UserSpec* user);
  // The same of a user that is not fed yet: whatever reads are under way, none that began before this one removes it.
  void feed_new(std::uint64_t read, const UserSpec& user);
  // A user that is not in the table may have been made a moment ago: may it be asked for now? Ten questions in any
  // second, of which two for one address, so that strangers at a few addresses do not keep a new user out; one of the
  // same name.
  bool may_ask_for(std::string_view db, std::string_view name, std::string_view address, TimePoint now);
  // Fed users cannot be read any more: the table lacks them until they are fed again.
  void suspend_fed();
  // Changes whenever the table does: logged-in users are looked up again then.
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }

 private:
  bool put(std::vector<UserSpec> UserDirectory::* list, std::vector<UserSpec> users);
  void make_table();

  mutable Mutex mutex_;
  std::vector<UserSpec> configured_ ABSL_GUARDED_BY(mutex_);
  std::vector<UserSpec> fed_ ABSL_GUARDED_BY(mutex_);
  bool fed_suspended_ ABSL_GUARDED_BY(mutex_) = false;
  // Made from the first table with a password in it, and kept: an unknown user looks the same after changes of users,
  // as known ones do, and after a restart with the same users.
  std::optional<Digest> fake_key_ ABSL_GUARDED_BY(mutex_);
  UserTable::Ptr table_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> generation_{1};
  std::atomic<std::uint64_t> reads_{0};
  struct Question {
    TimePoint at;
    std::size_t user = 0, address = 0;  // hashes
  };
  Mutex asking_;
  std::array<std::optional<Question>, 10> questions_ ABSL_GUARDED_BY(asking_);  // the last ones
  Mutex feeding_;  // taken before mutex_
  std::uint64_t fed_read_ ABSL_GUARDED_BY(feeding_) = 0;  // the last one whose users were fed
  // Of feed_new(), with their reads.
  std::vector<std::pair<std::uint64_t, UserSpec>> new_ ABSL_GUARDED_BY(feeding_);
};

}  // namespace spillway::auth
