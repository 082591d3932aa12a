// security.keyFile: the keys of a cluster's members. Does not throw.
#pragma once

#include <string>
#include <vector>

#include "cursor/error.h"
#include "proxy/auth/crypto.h"

namespace spillway {

// One key, or a YAML list of two. BadValue(2), naming the file and what is wrong with it: its group or others may read
// it, it is no such YAML, or a key is no key. No message holds a key.
Result<std::vector<auth::Secret::Ptr>> read_key_file(const std::string& written);

}  // namespace spillway
