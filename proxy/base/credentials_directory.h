// Paths of secrets as a configuration writes them.
#pragma once

#include <string>

#include "cursor/error.h"

namespace spillway {

// A path that begins with $CREDENTIALS_DIRECTORY, where systemd puts what LoadCredential= names; others as they are.
// BadValue(2): it is not set.
Result<std::string> expand_credentials(const std::string& path);

}  // namespace spillway
