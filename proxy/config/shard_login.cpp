#include "proxy/config/shard_login.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "proxy/config/secret_file.h"

namespace spillway {

namespace {

// The first line of a file.
Result<auth::Secret::Ptr> read_password(const std::string& written) {
  const auto file = read_secret_file(written, S_IRWXO, auth::password_bytes_max + 2);
  if (file.has_error()) return file.error();
  const std::string_view text = (*file)->text();
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view password = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
  if (password.empty() || password.size() > auth::password_bytes_max) {
    return Error(ErrorCode::bad_value,
                 fmt::format("{}: its first line is no password: it is empty, or too long", written));
  }
  return auth::Secret::make(password);
}

}  // namespace

bool names_login(const ShardLoginConfig& config) noexcept {
  return !config.user.empty() || config.mechanism == auth::ServiceMechanism::x509;
}

Result<auth::ServiceLogin::Ptr> make_shard_login(const ShardLoginConfig& config) {
  if (!names_login(config)) {
    if (config.password_file.empty()) return auth::ServiceLogin::Ptr();
    return Error(ErrorCode::bad_value, "passwordFile needs user");
  }
  const bool x509 = config.mechanism == auth::ServiceMechanism::x509;
  auth::Secret::Ptr password;
  if (!x509) {
    if (config.password_file.empty()) return Error(ErrorCode::bad_value, "user needs passwordFile");
    auto read = read_password(config.password_file);
    if (read.has_error()) return read.error();
    password = *std::move(read);
  }
  return auth::ServiceLogin::make(config.mechanism, config.user,
                                  x509 ? std::string(auth::external_db) : config.db,
                                  std::move(password));
}

}  // namespace spillway
