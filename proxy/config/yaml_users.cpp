#include "proxy/config/yaml_users.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "proxy/base/number.h"
#include "proxy/catalog/nearest_name.h"
#include "proxy/config/text.h"
#include "proxy/config/yaml.h"

namespace spillway {

namespace {

constexpr std::size_t users_file_bytes_max = 16UL * 1024 * 1024;
constexpr std::size_t roles_max = 256;

class UserReader {
 public:
  UserReader(UsersReading& reading, std::string file_name)
      : reading_(reading), file_name_(std::move(file_name)) {
    reading_.placed = !file_name_.empty();
  }

  void read_list(const YAML::Node& list) {
    if (!list.IsSequence()) {
      error(list, "users must be a list of {user, db, roles, credentials}");
      return;
    }
    for (const YAML::Node& item : list) read_user(item);
  }

 private:
  void error(const YAML::Node& node, const std::string& message) {
    const std::string place =
        reading_.placed ? fmt::format("{}:{}: ", file_name_, node.Mark().line + 1) : "";
    const std::string who =
        name_.empty() ? "security.users" : fmt::format("security.users, {}", name_);
    reading_.errors.push_back(fmt::format("{}{}: {}", place, who, message));
  }

  // The text below a key; nullopt: an error was reported.
  std::optional<std::string> text(const YAML::Node& map, const char* key) {
    const YAML::Node value = map[key];
    if (value && value.IsScalar() && !value.Scalar().empty()) return value.Scalar();
    error(value ? value : map, fmt::format("{} is missing, or no text", key));
    return std::nullopt;
  }

  // Every key of a map is one of these, and is there once.
  bool check_keys(const YAML::Node& map, std::initializer_list<const char*> known) {
    bool good = true;
    std::vector<std::string> seen;
    for (const auto& item : map) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
      const bool found =
          std::any_of(known.begin(), known.end(), [&](const char* name) { return key == name; });
      const bool again = std::find(seen.begin(), seen.end(), key) != seen.end();
      seen.push_back(key);
      if (found && !again) continue;
      good = false;
      if (found) {
        error(item.first, fmt::format("{} is written twice", key));
        continue;
      }
      error(item.first, fmt::format("unknown key \"{}\"{}", key,
                                    catalog::did_you_mean(key, {known.begin(), known.end()})));
    }
    return good;
  }

  void read_user(const YAML::Node& node) {
    name_.clear();
    if (!node.IsMap()) {
      error(node, "a user is {user, db, roles, credentials}");
      return;
    }
    if (!check_keys(node, {"user", "db", "roles", "credentials", "mechanisms", "_id"})) return;
    auto name = text(node, "user");
    if (!name) return;
    name_ = *name;
    auto db = text(node, "db");
    if (!db) return;
    auth::UserSpec user{*std::move(name), *std::move(db), {}, {}, {}};
    if (user.name.size() > auth::user_name_bytes_max || user.name.find('\0') != std::string::npos) {
      error(node, "the name is too long, or holds a NUL");
      return;
    }
    if (user.db.size() > 63 || user.db.find_first_of("/\\. \"*<>:|?") != std::string::npos) {
      error(node, fmt::format("\"{}\" is no database", user.db));
      return;
    }
    if (read_roles(node["roles"], node, user) &&
        read_credentials(node["credentials"], node, user)) {
      reading_.users.push_back(std::move(user));
    }
  }

  bool read_roles(const YAML::Node& list, const YAML::Node& node, auth::UserSpec& user) {
    if (!list || !list.IsSequence() || list.size() > roles_max) {
      error(node, "roles must be a list of {role, db}; [] allows nothing");
      return false;
    }
    for (const YAML::Node& item : list) {
      if (!item.IsMap() || !check_keys(item, {"role", "db"})) {
        error(item, "a role is {role, db}");
        return false;
      }
      auto role = text(item, "role");
      auto db = text(item, "db");
      if (!role || !db) return false;
      auth::RoleGrant grant{*std::move(role), *std::move(db)};
      if (auto checked = auth::check_role(grant); checked.has_error()) {
        std::vector<std::string> names(auth::role_names().begin(), auth::role_names().end());
        const bool known = std::find(names.begin(), names.end(), grant.role) != names.end();
        error(item,
              checked.error().message + (known ? "" : catalog::did_you_mean(grant.role, names)));
        return false;
      }
      user.roles.push_back(std::move(grant));
    }
    return true;
  }

  bool read_credentials(const YAML::Node& map, const YAML::Node& node, auth::UserSpec& user) {
    const bool external = user.db == auth::external_db;
    if (external && map) {
      error(map, "a user of $external logs in by a certificate, and has no credentials");
      return false;
    }
    if (external) return true;
    if (!map || !map.IsMap() || map.size() == 0) {
      error(node, "there are no credentials; spillway --hash-password makes them");
      return false;
    }
    if (!check_keys(map, {"SCRAM-SHA-1", "SCRAM-SHA-256"})) return false;
    for (const auth::Hash hash : {auth::Hash::sha1, auth::Hash::sha256}) {
      const YAML::Node one = map[std::string(auth::mechanism_name(hash))];
      if (!one) continue;
      auto read = read_scram(hash, one);
      if (!read) return false;
      (hash == auth::Hash::sha1 ? user.sha1 : user.sha256) = *std::move(read);
    }
    return true;
  }

  std::optional<auth::Digest> read_key(auth::Hash hash, const YAML::Node& map, const char* key) {
    const auto text_form = text(map, key);
    if (!text_form) return std::nullopt;
    const auto digest = auth::digest_from_base64(hash, *text_form);
    if (!digest) {
      error(map[key], fmt::format("{} of {} must be {} bytes in base64", key,
                                  auth::mechanism_name(hash), auth::digest_bytes(hash)));
    }
    return digest;
  }

  std::optional<auth::ScramCredentials> read_scram(auth::Hash hash, const YAML::Node& map) {
    if (!map.IsMap() || !check_keys(map, {"iterationCount", "salt", "storedKey", "serverKey"})) {
      error(map, fmt::format("{} must be {{iterationCount, salt, storedKey, serverKey}}",
                             auth::mechanism_name(hash)));
      return std::nullopt;
    }
    const auto count_text = text(map, "iterationCount");
    const auto salt_text = text(map, "salt");
    const auto stored_key = read_key(hash, map, "storedKey");
    const auto server_key = read_key(hash, map, "serverKey");
    if (!count_text || !salt_text || !stored_key || !server_key) return std::nullopt;
    const auto count = parse_number<std::uint32_t>(*count_text);
    if (!count || *count < auth::scram_iterations_min || *count > auth::scram_iterations_max) {
      error(map["iterationCount"],
            fmt::format("iterationCount must be an integer from {} to {}",
                        auth::scram_iterations_min, auth::scram_iterations_max));
      return std::nullopt;
    }
    const auto salt = auth::from_base64(*salt_text);
    if (!salt || salt->size() < 8 || salt->size() > auth::scram_salt_bytes_max) {
      error(map["salt"], "salt must be 8 to 256 bytes in base64");
      return std::nullopt;
    }
    return auth::ScramCredentials{*count, *salt, *stored_key, *server_key};
  }

  UsersReading& reading_;
  std::string file_name_;
  std::string name_;  // of the user being read
};

}  // namespace

UsersReading read_users(const YAML::Node& list, const std::string& file_name) {
  UsersReading reading;
  try {
    UserReader(reading, file_name).read_list(list);
  } catch (const YAML::Exception& e) {
    reading.errors.push_back(fmt::format("security.users: {}", e.msg));
  }
  return reading;
}

UsersReading read_users_file(const std::string& path) {
  UsersReading failed;
  failed.placed = true;
  const auto fail = [&](std::string_view why) {
    failed.errors.push_back(fmt::format("{}: {}", path, why));
    return failed;
  };
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return fail("cannot be read: " + std::generic_category().message(errno));
  }
  if (!S_ISREG(facts.st_mode)) return fail("is no file");
  if ((facts.st_mode & S_IRWXO) != 0) return fail("is world-readable (chmod o-rwx)");
  if (static_cast<std::size_t>(facts.st_size) > users_file_bytes_max) {
    return fail(fmt::format("is larger than {} bytes", users_file_bytes_max));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return fail("cannot be read, or is empty");
  try {
    if (holds_several_documents(text.str())) return fail("holds more than one YAML document");
    return read_users(YAML::Load(text.str()), path);
  } catch (const YAML::Exception& e) {
    return fail(fmt::format("not valid YAML: {}", e.msg));
  }
}

}  // namespace spillway
