// Users as YAML: security.users, and the file of security.usersFile. Does not throw.
#pragma once

#include <string>
#include <vector>

#include "proxy/auth/users.h"

namespace YAML {
class Node;
}

namespace spillway {

struct UsersReading {
  std::vector<auth::UserSpec> users;
  std::vector<std::string> errors;
  bool placed = false;  // the errors say where they are: "file:line: …"
};

// `file_name`: for messages; empty: they name the entry alone.
UsersReading read_users(const YAML::Node& list, const std::string& file_name);
// A file of at most a few MiB that only its owner and group may read.
UsersReading read_users_file(const std::string& path);

}  // namespace spillway
