#include "proxy/config/shard_login.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "proxy/base/credentials_directory.h"
#include "proxy/base/file_descriptor.h"

namespace spillway {

namespace {

// The first line of a file, by way of memory that is wiped.
Result<auth::Secret::Ptr> read_password(const std::string& written) {
  const auto path = expand_credentials(written);
  if (path.has_error()) return path.error();
  const auto fail = [&](std::string_view why) {
    return Error(ErrorCode::bad_value, fmt::format("{}: {}", *path, why));
  };
  const FileDescriptor file(::open(path->c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) {
    return fail("cannot be read: " + std::generic_category().message(errno));
  }
  if (!S_ISREG(facts.st_mode)) return fail("is no file");
  if ((facts.st_mode & S_IRWXO) != 0) return fail("may be read by everybody (chmod o-rwx)");
  std::array<char, auth::password_bytes_max + 2> bytes{};
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  const std::string_view line = std::string_view(bytes.data(), size)
                                    .substr(0, std::string_view(bytes.data(), size).find('\n'));
  const std::string_view password = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
  const bool fits = !password.empty() && password.size() <= auth::password_bytes_max;
  auth::Secret::Ptr secret = fits ? auth::Secret::make(password) : nullptr;
  auth::wipe(bytes.data(), bytes.size());
  if (!fits) return fail("its first line is no password: it is empty, or too long");
  return secret;
}

}  // namespace

Result<auth::ServiceLogin::Ptr> make_shard_login(const ShardLoginConfig& config) {
  const bool x509 = config.mechanism == auth::ServiceMechanism::x509;
  if (config.user.empty() && !x509) {
    if (config.password_file.empty()) return auth::ServiceLogin::Ptr();
    return Error(ErrorCode::bad_value, "passwordFile needs user");
  }
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
