#include "proxy/base/credentials_directory.h"

#include <cstdlib>
#include <string_view>

namespace spillway {

namespace {
constexpr std::string_view credentials_directory = "$CREDENTIALS_DIRECTORY";
}  // namespace

Result<std::string> expand_credentials(const std::string& path) {
  if (!path.starts_with(credentials_directory)) return path;
  const char* const directory = std::getenv("CREDENTIALS_DIRECTORY");
  if (directory == nullptr) {
    return Error(ErrorCode::bad_value,
                 "$CREDENTIALS_DIRECTORY is not set: systemd sets it for LoadCredential=");
  }
  return directory + path.substr(credentials_directory.size());
}

}  // namespace spillway
