// spillway --hash-password NAME: from a password to an entry of security.users.
#pragma once

#include <string>
#include <string_view>

#include "cursor/error.h"

namespace spillway::server {

// The YAML of an entry with both kinds of credentials and fresh salts; the user adds the roles. BadValue(2): what is
// wrong with the name or the password.
Result<std::string> user_entry(const std::string& name, std::string_view password);

// Asks on the terminal, twice and unseen; without one, reads the first line of standard input. Prints
// the entry to standard output. The exit code.
int hash_password(const std::string& name);

}  // namespace spillway::server
