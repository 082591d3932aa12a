#include "proxy/server/tools/command_line.h"

#include <CLI/CLI.hpp>
#include <exception>

#include "allocator/limits.h"
#include "proxy/config/table.h"
#include "proxy/config/environment.h"

namespace spillway::server {

namespace {

void declare_options(CLI::App& app, CommandLine& line) {
  using Action = CommandLine::Action;
  const auto act = [&line](Action action) { return [&line, action] { line.action = action; }; };
  const auto print = [&line](Action action, auto make) {
    return [&line, action, make] {
      line.action = action;
      line.output = make();
    };
  };
  app.add_option("-f,--config", line.config_path, "The configuration file (YAML)")
      ->type_name("FILE");
  app.add_option("--set", line.overrides, "A key that goes before the file's: --set net.port=0")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* check = app.add_flag_callback("--check-config", act(Action::check_config),
                                      "Load the configuration, report every error, exit 0 or 78");
  auto* config = app.add_flag_callback("--print-config", print(Action::print_config, print_config),
                                       "Print every key: meaning, unit, range, default; itself a valid file");
  auto* hash = app.add_option("--hash-password", line.user_name,
                              "Read a password from standard input, print an entry of security.users");
  hash->type_name("NAME")->excludes(check)->excludes(config);
  auto* health = app.add_flag_callback("--healthcheck", act(Action::health_check),
                                       "Say hello to the process that serves with this configuration; exit 0 or 1");
  health->excludes(check)->excludes(config)->excludes(hash);
  auto* version = app.add_flag_callback(
      "--version", print(Action::version, [] { return "spillway " SPILLWAY_VERSION "\n"; }), "Print the version");
  auto* canned = app.add_option("--canned", line.canned_shards,
                                "Serve N canned shards from inside, for load tests");
  canned->type_name("N")->check(CLI::Range(1, static_cast<int>(limits::shards_max)));
  health->excludes(version)->excludes(canned);
  // For the build and the manual; not in --help.
  const auto print_page = [] { return print_man(SPILLWAY_VERSION); };
  app.add_flag_callback("--print-man", print(Action::print_config, print_page), "")->group("");
  app.add_flag_callback("--print-reference", print(Action::print_config, print_reference), "")->group("");
  check->excludes(config)->excludes(version);
  config->excludes(version)->excludes(canned);
  version->excludes(canned);
  // Options before and after the word are the same.
  auto* doctor = app.add_subcommand("doctor", "Say what would fail with this configuration, and what "
                                              "mends it; exit 0, 1 or 78");
  doctor->fallthrough()->parse_complete_callback(act(Action::doctor));
  doctor->add_flag("--json", line.json, "For scripts: one document");
  auto* top = app.add_subcommand("top", "Watch the process that serves with this configuration; q ends it");
  top->fallthrough()->parse_complete_callback(act(Action::top));
  top->add_flag("--once", line.once, "One look");
  top->add_flag("--json", line.json, "For scripts: a document a line");
  for (auto* command : {doctor, top}) {
    command->footer("And those of spillway itself:\n"
                    "  -f,--config FILE            The configuration file (YAML)\n"
                    "  --set KEY=VALUE ...         A key that goes before the file's\n");
    command->excludes(check)->excludes(config)->excludes(hash)->excludes(health)->excludes(version)->excludes(canned);
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

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  CLI::App app("A routing proxy for MongoDB with bounded memory", "spillway");
  app.footer(
      "Prints \"spillway ready: mongodb://HOST:PORT/\" when it listens; SIGTERM and SIGINT end "
      "it.\n" +
      variables_help() +
      "Exit codes: 0 done, 1 failed, 64 wrong command line, 78 wrong configuration.");
  try {
    declare_options(app, line);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants it
    app.parse(reversed);
    if (app.count("--hash-password") > 0) line.action = CommandLine::Action::hash_password;
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
