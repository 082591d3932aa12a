#include "proxy/server/tools/hash_password.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <vector>

#include "proxy/auth/scram.h"
#include "proxy/config/text.h"
#include "proxy/server/tools/command_line.h"

namespace spillway::server {

namespace {

// The terminal does not show what is typed while this lives.
class Unseen {
 public:
  Unseen() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    changed_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &now) == 0;
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }

 private:
  termios before_{};
  bool changed_ = false;
};

// One line, byte by byte: no buffer of the library keeps a copy. nullopt: too long, or nothing
// came.
std::optional<std::string> read_line() {
  std::string line;
  line.reserve(auth::password_bytes_max);  // it does not move: one place to wipe
  for (;;) {
    char c = 0;
    const ssize_t got = ::read(STDIN_FILENO, &c, 1);
    if (got <= 0 && line.empty()) return std::nullopt;
    if (got <= 0 || c == '\n') break;
    if (line.size() == auth::password_bytes_max) return std::nullopt;
    line += c;
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

std::optional<std::string> ask_terminal(const char* prompt) {
  if (::isatty(STDIN_FILENO) == 0) return read_line();
  std::fputs(prompt, stderr);
  std::optional<std::string> line;
  {
    const Unseen unseen;
    line = read_line();
  }
  std::fputc('\n', stderr);
  return line;
}

std::string credentials_text(auth::Hash hash, const auth::ScramCredentials& credentials) {
  return fmt::format(
      "      {}: {{iterationCount: {}, salt: \"{}\",\n        storedKey: \"{}\",\n        "
      "serverKey: \"{}\"}}\n",
      auth::mechanism_name(hash), credentials.iterations, auth::to_base64(credentials.salt),
      auth::to_base64(credentials.stored_key.view()),
      auth::to_base64(credentials.server_key.view()));
}

}  // namespace

Result<std::string> user_entry(const std::string& name, std::string_view password) {
  if (name.empty() || name.size() > auth::user_name_bytes_max) {
    return Error(ErrorCode::bad_value, "the name is empty, or too long");
  }
  std::string text = fmt::format(
      "  - user: {}\n    db: admin\n    roles: []  # for instance [{{role: readWrite, db: app}}]\n "
      "   credentials:\n",
      yaml_quoted(name));
  for (const auth::Hash hash : {auth::Hash::sha256, auth::Hash::sha1}) {
    const auto prepared = auth::scram_password(hash, name, password);
    if (prepared.has_error()) return prepared.error();
    std::vector<std::uint8_t> salt(auth::preset_salt_bytes(hash));
    auth::fill_random(salt);
    text += credentials_text(
        hash, auth::make_credentials(hash, **prepared, salt, auth::preset_iterations(hash)));
  }
  return text;
}

int hash_password(const std::string& name) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  auto password = ask_terminal("Password: ");
  if (!password) {
    std::fputs("spillway: no password was given on standard input, or it is too long\n", stderr);
    return exit_failed;
  }
  if (::isatty(STDIN_FILENO) != 0) {
    auto again = ask_terminal("Once more: ");
    const bool same = again && auth::same_secret(auth::bytes_of(*again), auth::bytes_of(*password));
    if (again) auth::wipe(*again);
    if (!same) {
      auth::wipe(*password);
      std::fputs("spillway: the two are not the same\n", stderr);
      return exit_failed;
    }
  }
  const auto entry = user_entry(name, *password);
  auth::wipe(*password);
  if (entry.has_error()) {
    std::fprintf(stderr, "spillway: %s\n", entry.error().message.c_str());
    return exit_failed;
  }
  std::fputs(entry->c_str(), stdout);
  return exit_ok;
}

}  // namespace spillway::server
