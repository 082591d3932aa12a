// Files of secrets: of passwords and keys.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "proxy/auth/crypto.h"
#include "cursor/error.h"

namespace spillway {

// A file's first `bytes_max` bytes. `written`: its path, as the configuration has it. BadValue(2), naming the file: it
// cannot be read, is no file, or has one of the bits `closed` of its mode (S_IRWXO, S_IRWXG). Its group
// may always read a file of root's: root decides on the group's members.
Result<auth::Secret::Ptr> read_secret_file(const std::string& written, mode_t closed, std::size_t bytes_max);

}  // namespace spillway
