#include "proxy/auth/service_login.h"

#include <fmt/format.h>

#include <utility>

#include "proxy/auth/key_file.h"
#include "proxy/auth/users.h"

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
  if (auto added = login->add_password(*password); added.has_error()) return added.error();
  return Ptr(login);
}

Result<ServiceLogin::Ptr> ServiceLogin::make_internal(const std::vector<Secret::Ptr>& keys, bool optional) {
  if (keys.size() > cluster_keys_max) {
    return Error(ErrorCode::bad_value,
                 fmt::format("there are {} keys; {} are possible", keys.size(), cluster_keys_max));
  }
  const std::shared_ptr<ServiceLogin> login(new ServiceLogin());
  login->internal_ = true;
  login->optional_ = optional;
  if (keys.empty()) {
    login->mechanism_ = ServiceMechanism::x509;
    login->db_ = external_db;
    return Ptr(login);
  }
  login->user_ = internal_user;
  login->db_ = internal_db;
  for (const Secret::Ptr& key : keys) {
    if (auto added = login->add_password(*key); added.has_error()) return added.error();
  }
  return Ptr(login);
}

Result<void> ServiceLogin::add_password(const Secret& typed) {
  const auto added = std::make_shared<Password>();
  if (mechanism_ != ServiceMechanism::scram_sha_256) {
    auto prepared = scram_password(Hash::sha1, user_, typed.text());
    if (prepared.has_error()) return prepared.error();
    added->sha1 = *std::move(prepared);
  }
  if (mechanism_ != ServiceMechanism::scram_sha_1) {
    auto prepared = scram_password(Hash::sha256, user_, typed.text());
    if (prepared.has_error()) return prepared.error();
    added->sha256 = *std::move(prepared);
  }
  secrets_.push_back(added);
  return {};
}

ScramClient ServiceLogin::begin(Hash hash, std::size_t password) const {
  const Password& secret = *secrets_[password];
  ScramClient client(hash, user_, hash == Hash::sha1 ? secret.sha1 : secret.sha256);
  client.remember_keys(hash == Hash::sha1 ? secret.sha1_keys : secret.sha256_keys);
  return client;
}

bool same_user(const ServiceLogin* a, const ServiceLogin* b) noexcept {
  if (a == nullptr || b == nullptr) return a == b;
  return a->mechanism() == b->mechanism() && a->user() == b->user() && a->db() == b->db();
}

}  // namespace spillway::auth
