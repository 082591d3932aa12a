#include "proxy/server/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>

#include "allocator/limits.h"
#include "proxy/config/table.h"
#include "proxy/config/environment.h"

namespace spillway::server {

namespace {

struct Flags {
  bool check_config = false;
  bool print_config = false;
  bool print_man = false;
  bool print_reference = false;
  bool health_check = false;
  bool version = false;
  bool doctor = false;
  bool top = false;
  int canned_shards = 0;
};

void declare_options(CLI::App& app, CommandLine& line, Flags& flags) {
  app.add_option("-f,--config", line.config_path, "The configuration file (YAML)")
      ->type_name("FILE");
  app.add_option("--set", line.overrides, "A key that goes before the file's: --set net.port=0")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* check = app.add_flag("--check-config", flags.check_config,
                             "Load the configuration, report every error, exit 0 or 78");
  auto* print = app.add_flag("--print-config", flags.print_config,
                             "Print every key: meaning, unit, range, default; itself a valid file");
  auto* hash = app.add_option("--hash-password", line.user_name,
                              "Read a password from standard input, print an entry of security.users");
  hash->type_name("NAME")->excludes(check)->excludes(print);
  auto* health = app.add_flag("--healthcheck", flags.health_check,
                              "Say hello to the process that serves with this configuration; exit 0 or 1");
  health->excludes(check)->excludes(print)->excludes(hash);
  auto* version = app.add_flag("--version", flags.version, "Print the version");
  auto* canned = app.add_option("--canned", flags.canned_shards,
                                "Serve N canned shards from inside, for load tests");
  canned->type_name("N")->check(CLI::Range(1, static_cast<int>(limits::shards_max)));
  health->excludes(version)->excludes(canned);
  // For the build and the manual; not in --help.
  app.add_flag("--print-man", flags.print_man, "")->group("");
  app.add_flag("--print-reference", flags.print_reference, "")->group("");
  check->excludes(print)->excludes(version);
  print->excludes(version)->excludes(canned);
  version->excludes(canned);
  // Options before and after the word are the same.
  auto* doctor = app.add_subcommand("doctor", "Say what would fail with this configuration, and what "
                                              "mends it; exit 0, 1 or 78");
  doctor->fallthrough()->parse_complete_callback([&flags] { flags.doctor = true; });
  doctor->add_flag("--json", line.json, "For scripts: one document");
  auto* top = app.add_subcommand("top", "Watch the process that serves with this configuration; q ends it");
  top->fallthrough()->parse_complete_callback([&flags] { flags.top = true; });
  top->add_flag("--once", line.once, "One look");
  top->add_flag("--json", line.json, "For scripts: a document a line");
  for (auto* command : {doctor, top}) {
    command->footer("And those of spillway itself:\n"
                    "  -f,--config FILE            The configuration file (YAML)\n"
                    "  --set KEY=VALUE ...         A key that goes before the file's\n");
    command->excludes(check)->excludes(print)->excludes(hash)->excludes(health)->excludes(version)->excludes(canned);
  }
  doctor->excludes(top);
}

std::string variables_help() {
  std::string text = "Environment variables, which go before the file:";
  std::size_t column = text.size();
  for (const EnvironmentSetting& setting : environment_settings()) {
    const bool fits = column + setting.variable.size() < 96;
    text += fits ? " " : "\n  ";
    column = setting.variable.size() + (fits ? column + 1 : 2);
    text += setting.variable;
  }
  return text + "\n";
}

CommandLine::Action action_of(const Flags& flags) {
  using Action = CommandLine::Action;
  if (flags.version) return Action::version;
  if (flags.print_config || flags.print_man || flags.print_reference) return Action::print_config;
  if (flags.health_check) return Action::health_check;
  if (flags.doctor) return Action::doctor;
  if (flags.top) return Action::top;
  return flags.check_config ? Action::check_config : Action::run;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  Flags flags;
  CLI::App app("A routing proxy for MongoDB with bounded memory", "spillway");
  app.footer(
      "Prints \"spillway ready: mongodb://HOST:PORT/\" when it listens; SIGTERM and SIGINT end "
      "it.\n" +
      variables_help() +
      "Exit codes: 0 done, 1 failed, 64 wrong command line, 78 wrong configuration.");
  try {
    declare_options(app, line, flags);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants it
    app.parse(reversed);
    if (app.count("--canned") > 0) line.canned_shards = flags.canned_shards;
    line.action = action_of(flags);
    if (app.count("--hash-password") > 0) line.action = CommandLine::Action::hash_password;
    if (line.action == CommandLine::Action::version)
      line.output = "spillway " SPILLWAY_VERSION "\n";
    if (line.action == CommandLine::Action::print_config) {
      line.output = flags.print_man         ? print_man(SPILLWAY_VERSION)
                    : flags.print_reference ? print_reference()
                                            : print_config();
    }
  } catch (const CLI::CallForHelp&) {
    line.action = CommandLine::Action::help;
    line.output = app.help();
  } catch (const std::exception& e) {  // CLI::ParseError, or out of memory
    line.action = CommandLine::Action::usage_error;
    line.output = std::string("spillway: ") + e.what() + "\nTry: spillway --help\n";
  }
  return line;
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return parse_command_line(arguments);
}

}  // namespace spillway::server
