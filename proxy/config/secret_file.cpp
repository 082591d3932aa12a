#include "proxy/config/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "proxy/base/credentials_directory.h"
#include "proxy/base/file_descriptor.h"

namespace spillway {

Result<auth::Secret::Ptr> read_secret_file(const std::string& written, mode_t closed, std::size_t bytes_max) {
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
  if ((facts.st_mode & closed & S_IRWXO) != 0) return fail("is world-readable (chmod o-rwx)");
  // Kubernetes mounts a Secret as files of root's that the group of the pod may read, whatever mode was asked for.
  const mode_t of_owner = facts.st_uid == 0 ? S_IRGRP : 0;
  if ((facts.st_mode & closed & ~of_owner) != 0) return fail("is open to its group (chmod g-rwx)");
  std::string bytes(bytes_max, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  auth::Secret::Ptr secret = auth::Secret::make(std::string_view(bytes).substr(0, size));
  auth::wipe(bytes);
  return secret;
}

}  // namespace spillway
