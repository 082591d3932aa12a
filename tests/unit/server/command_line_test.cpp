#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proxy/config/table.h"
#include "proxy/server/tools/command_line.h"

using namespace spillway;
using namespace spillway::server;
using Action = CommandLine::Action;

namespace {
CommandLine parse(std::vector<std::string> arguments) { return parse_command_line(arguments); }
}  // namespace

TEST_CASE("no_argument_runs_with_defaults") {
  const CommandLine line = parse({});
  CHECK(line.action == Action::run);
  CHECK(line.config_path.empty());
  CHECK(line.overrides.empty());
  CHECK_FALSE(line.canned_shards.has_value());
}

TEST_CASE("file_sets_and_canned_shards_are_taken_in_order") {
  const CommandLine line = parse({"--config", "a.yaml", "--set", "net.port=0", "--canned", "3",
                                  "--set=x={a: 1, b: 2}", "--set", "memory.limit=64MiB"});
  CHECK(line.action == Action::run);
  CHECK(line.config_path == "a.yaml");
  CHECK(line.overrides ==
        std::vector<std::string>{"net.port=0", "x={a: 1, b: 2}", "memory.limit=64MiB"});
  CHECK(line.canned_shards == 3);
  CHECK(parse({"-f", "b.yaml"}).config_path == "b.yaml");
}

TEST_CASE("a_set_keeps_brackets_commas_and_quotes") {
  for (const std::string set : {"routing.shards=[{name: a, uri: \"mongodb://h/\"}]", "a=[1,2]",
                                "net.bindIp=127.0.0.1,::1", "a='x y'", "a="}) {
    CAPTURE(set);
    const CommandLine line = parse({"--set", set});
    CHECK(line.action == Action::run);
    CHECK(line.overrides == std::vector<std::string>{set});
  }
}

TEST_CASE("actions_other_than_running") {
  CHECK(parse({"--check-config", "-f", "a"}).action == Action::check_config);
  CHECK(parse({"--check-config", "-f", "a"}).config_path == "a");
  const CommandLine version = parse({"--version"});
  CHECK(version.action == Action::version);
  CHECK(version.output.starts_with("spillway 0."));
  const CommandLine print = parse({"--print-config"});
  CHECK(print.action == Action::print_config);
  CHECK(print.output == print_config());
  const CommandLine help = parse({"--help"});
  CHECK(help.action == Action::help);
  for (const char* option :
       {"--config", "--check-config", "--print-config", "--version", "--set", "--canned", "78"}) {
    CAPTURE(option);
    CHECK(help.output.find(option) != std::string::npos);
  }
  for (const char* command : {"doctor", "top"}) {
    const CommandLine of_command = parse({command, "--help"});
    CHECK(of_command.action == Action::help);
    for (const char* option : {"--json", "--config FILE", "--set KEY=VALUE"}) {
      CAPTURE(command, option);
      CHECK(of_command.output.find(option) != std::string::npos);
    }
  }
}

TEST_CASE("wrong_command_lines_are_usage_errors") {
  const std::vector<std::vector<std::string>> cases = {
      {"--confg", "a"},
      {"--config"},
      {"stray"},
      {"--set"},
      {"--canned", "0"},
      {"--canned", "1025"},
      {"--canned", "many"},
      {"--canned", "99999999999999999999"},
      {"--config", "a", "--config", "b"},
      {"--check-config", "--print-config"},
      {"--version", "--check-config"},
      {"--print-config", "--canned", "2"},
  };
  for (const auto& arguments : cases) {
    CAPTURE(arguments);
    const CommandLine line = parse(arguments);
    CHECK(line.action == Action::usage_error);
    CHECK(line.output.starts_with("spillway: "));
  }
}

TEST_CASE("argv_is_read_without_the_programs_name") {
  const char* argv[] = {"spillway", "-f", "x"};
  CHECK(parse_command_line(3, argv).config_path == "x");
  CHECK(parse_command_line(0, argv).action == Action::run);
}
