// How the proxy logs in to shards: as one user for all clients. Shared by all connections to a shard; never changes,
// except for its cache of the last computation. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

  ServiceMechanism mechanism() const noexcept { return mechanism_; }
  const std::string& user() const noexcept { return user_; }
  const std::string& db() const noexcept { return db_; }
  // A conversation with this hash. REQUIRES a mechanism that may end in it.
  ScramClient begin(Hash hash) const;

 private:
  ServiceLogin() = default;

  ServiceMechanism mechanism_ = ServiceMechanism::negotiated;
  std::string user_;
  std::string db_;
  Secret::Ptr sha1_;  // of scram_password()
  Secret::Ptr sha256_;
  mutable ScramKeyCache sha1_keys_;
  mutable ScramKeyCache sha256_keys_;
};

// Do both log in as the same user, by the same mechanism? Null: no login.
bool same_user(const ServiceLogin* a, const ServiceLogin* b) noexcept;

}  // namespace spillway::auth
