#include "proxy/auth/service_login.h"

#include <utility>

namespace spillway::auth {

Result<ServiceLogin::Ptr> ServiceLogin::make(ServiceMechanism mechanism, std::string user,
                                             std::string db, Secret::Ptr password) {
  const std::shared_ptr<ServiceLogin> login(new ServiceLogin());
  login->mechanism_ = mechanism;
  login->user_ = std::move(user);
  login->db_ = std::move(db);
  if (mechanism == ServiceMechanism::x509) return Ptr(login);
  if (login->user_.empty())
    return Error(ErrorCode::bad_value, "a mechanism other than MONGODB-X509 needs a user");
  if (!password) {
    return Error(ErrorCode::bad_value,
                 "the user " + login->user_ + " has no password: see security.shards.passwordFile");
  }
  if (mechanism != ServiceMechanism::scram_sha_256) {
    auto prepared = scram_password(Hash::sha1, login->user_, password->text());
    if (prepared.has_error()) return prepared.error();
    login->sha1_ = *std::move(prepared);
  }
  if (mechanism != ServiceMechanism::scram_sha_1) {
    auto prepared = scram_password(Hash::sha256, login->user_, password->text());
    if (prepared.has_error()) return prepared.error();
    login->sha256_ = *std::move(prepared);
  }
  return Ptr(login);
}

ScramClient ServiceLogin::begin(Hash hash) const {
  ScramClient client(hash, user_, hash == Hash::sha1 ? sha1_ : sha256_);
  client.remember_keys(hash == Hash::sha1 ? sha1_keys_ : sha256_keys_);
  return client;
}

bool same_user(const ServiceLogin* a, const ServiceLogin* b) noexcept {
  if (a == nullptr || b == nullptr) return a == b;
  return a->mechanism() == b->mechanism() && a->user() == b->user() && a->db() == b->db();
}

}  // namespace spillway::auth
