// How the proxy logs in to shards: as one user for all clients. Shared by all connections to a shard; never changes,
// except for its cache of the last computation. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/mutex.h"
#include "proxy/auth/scram.h"

namespace spillway::auth {

enum class ServiceMechanism : std::uint8_t {
  negotiated,  // SCRAM-SHA-256 if the shard says that the user has it, else SCRAM-SHA-1
  scram_sha_1,
  scram_sha_256,
  x509,  // by the certificate of the TLS connection
};

class ServiceLogin {
 public:
  using Ptr = std::shared_ptr<const ServiceLogin>;

  // `password`: as typed; null with x509. BadValue(2): SCRAM without a name or a password, or with one that
  // cannot be used.
  static Result<Ptr> make(ServiceMechanism mechanism, std::string user, std::string db, Secret::Ptr password);
  // As a member of a cluster (__system), by the keys of its key file, or by a certificate where there are none.
  // `optional`: a server that refuses it is used without a login (security.transitionToAuth). BadValue(2): too many.
  static Result<Ptr> make_internal(const std::vector<Secret::Ptr>& keys, bool optional = false);

  ServiceMechanism mechanism() const noexcept { return mechanism_; }
  const std::string& user() const noexcept { return user_; }
  const std::string& db() const noexcept { return db_; }
  bool optional() const noexcept { return optional_; }
  // As a member of a cluster: servers check nothing of what this user does.
  bool internal() const noexcept { return internal_; }
  // Passwords to try, one after the other, while the server says that one is wrong; 0 with x509.
  std::size_t passwords() const noexcept { return secrets_.size(); }
  // A conversation with this hash. REQUIRES a mechanism that may end in it, and password < passwords().
  ScramClient begin(Hash hash, std::size_t password = 0) const;

 private:
  struct Password {
    Secret::Ptr sha1;  // of scram_password()
    Secret::Ptr sha256;
    mutable ScramKeyCache sha1_keys;
    mutable ScramKeyCache sha256_keys;
  };

  ServiceLogin() = default;
  Result<void> add_password(const Secret& typed);

  ServiceMechanism mechanism_ = ServiceMechanism::negotiated;
  std::string user_;
  std::string db_;
  bool internal_ = false;
  bool optional_ = false;
  std::vector<std::shared_ptr<const Password>> secrets_;
};

// Do both log in as the same user, by the same mechanism? Null: no login.
bool same_user(const ServiceLogin* a, const ServiceLogin* b) noexcept;

}  // namespace spillway::auth
