// The command line of `spillway`: parsed into plain values.
//
// Exit codes of the program:
//   0   success; also after SIGTERM and SIGINT
//   1   failed while starting or running (a port in use, a log file that cannot be written, …)
//   64  the command line is wrong
//   78  the configuration is wrong or refused; each error is a line on standard error
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::server {

inline constexpr int exit_ok = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 64;   // EX_USAGE of sysexits.h
inline constexpr int exit_config = 78;  // EX_CONFIG; service managers show it by name

struct CommandLine {
  enum class Action : std::uint8_t {
    run,           // serve
    check_config,  // load the configuration, print what is wrong with it
    print_config,  // print `output`, exit 0
    hash_password,  // make an entry of security.users for `user_name`
    health_check,   // ask the process that serves here whether it does
    doctor,         // say what would fail with this configuration
    top,            // watch the process that serves here
    version,       // print `output`, exit 0
    help,          // print `output`, exit 0
    usage_error,   // print `output` to standard error, exit 64
  };
  Action action = Action::run;
  std::string output;
  std::string config_path;             // empty: no file
  std::vector<std::string> overrides;  // "key=value", in order
  std::optional<int> canned_shards;    // --canned N
  std::string user_name;               // of --hash-password
  bool json = false;                   // of doctor and top
  bool once = false;                   // of top
};

// Reads nothing but its arguments; does not print, exit or throw. `arguments` is without the
// program's name.
CommandLine parse_command_line(const std::vector<std::string>& arguments);
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace spillway::server
