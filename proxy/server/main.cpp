// spillway: reads its command line and configuration, then serves. Exit codes: command_line.h.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "proxy/config/config.h"
#include "proxy/config/environment.h"
#include "proxy/server/life/predecessor.h"
#include "proxy/server/life/server.h"
#include "proxy/server/reload/reload.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/tools/doctor.h"
#include "proxy/server/tools/hash_password.h"
#include "proxy/server/tools/health_check.h"
#include "proxy/server/tools/top.h"

#ifdef SPILLWAY_CANNED
#include "proxy/canned/canned.h"
#endif

namespace {

using spillway::server::CommandLine;
using spillway::Environment;

#ifdef SPILLWAY_CANNED
// Canned shards of this process, and the routing over them as configuration text.
struct Canned {
  std::vector<std::unique_ptr<spillway::bench::CannedShard>> shards;
  std::string overrides;
};

Canned start_canned(int count) {
  Canned canned;
  std::string list;
  for (int i = 0; i < count; ++i) {
    spillway::bench::CannedOptions options;
    options.index = i;
    options.shard_count = count;
    std::string error;
    auto shard = spillway::bench::CannedShard::start(options, error);
    if (!shard) throw std::runtime_error("cannot start a canned shard: " + error);
    canned.shards.push_back(std::move(shard));
    list += fmt::format("{}{{name: canned{}, uri: \"mongodb://127.0.0.1:{}/\"}}", i == 0 ? "" : ", ", i,
                        canned.shards.back()->port());
  }
  canned.overrides = fmt::format("routing={{shards: [{}]{}}}", list,
                                 count > 1 ? ", defaultShardKey: {_id: hashed}" : "");
  return canned;
}
#endif

int serve(CommandLine line, const Environment& environment, spillway::FileDescriptor predecessor, int argc,
          char** argv) {
#ifdef SPILLWAY_CANNED
  Canned canned;
  if (line.canned_shards) {
    canned = start_canned(*line.canned_shards);
    line.overrides.push_back(canned.overrides);
  }
#else
  if (line.canned_shards) {
    std::fputs("spillway: --canned is not part of this build (SPILLWAY_BENCH=OFF)\n", stderr);
    return spillway::server::exit_usage;
  }
#endif
  const auto loaded = spillway::load_config_file(line.config_path, line.overrides, true, environment.values);
  for (const std::string& warning : environment.warnings)
    std::fprintf(stderr, "spillway: warning: %s\n", warning.c_str());
  for (const std::string& warning : loaded.warnings) std::fprintf(stderr, "spillway: warning: %s\n", warning.c_str());
  for (const std::string& error : loaded.errors) std::fprintf(stderr, "spillway: %s\n", error.c_str());
  if (!loaded.ok()) {
    if (line.config_path.empty() && line.overrides.empty() && environment.values.empty()) {
      std::fputs("spillway: start it with --config FILE; --print-config prints every key, --help the options\n",
                 stderr);
    }
    return spillway::server::exit_config;
  }
  // Another machine may have other memory and other processors than this one; these numbers are the same there.
  const bool in_bytes = loaded.config.memory_limit.kind == spillway::MemoryLimit::Kind::bytes;
  if (in_bytes && loaded.config.workers > 0) {
    const auto routing = loaded.config_servers ? spillway::server::table_of_config_servers(loaded) : loaded.routing;
    if (const auto why = spillway::server::refuse_memory(loaded.config, routing)) {
      std::fprintf(stderr, "spillway: %s\n", why->c_str());
      return spillway::server::exit_config;
    }
  }
  if (line.action == CommandLine::Action::check_config) {
    std::puts("the configuration is right");
    return spillway::server::exit_ok;
  }
  spillway::server::open_log(loaded.config);
  spillway::server::ServerOptions options;
  options.predecessor = std::move(predecessor);
  options.config = loaded.config;
  options.routing = loaded.routing;
  if (loaded.config_servers) {
    options.in_cluster = true;
    options.routing = spillway::server::table_of_config_servers(loaded);
  }
  options.arguments.assign(argv, argv + argc);
  options.check_shards = !line.canned_shards;
  options.load = [path = line.config_path, overrides = line.overrides, values = environment.values] {
    return spillway::load_config_file(path, overrides, true, values);
  };
  return spillway::server::run_server(std::move(options));
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a spill file at RLIMIT_FSIZE: writing says EFBIG
  CommandLine line = spillway::server::parse_command_line(argc, argv);
  switch (line.action) {
    case CommandLine::Action::print_config:
    case CommandLine::Action::version:
    case CommandLine::Action::help:
      std::fputs(line.output.c_str(), stdout);
      return spillway::server::exit_ok;
    case CommandLine::Action::usage_error:
      std::fputs(line.output.c_str(), stderr);
      return spillway::server::exit_usage;
    case CommandLine::Action::hash_password:
      try {
        return spillway::server::hash_password(line.user_name);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "spillway: %s\n", error.what());
        return spillway::server::exit_failed;
      }
    case CommandLine::Action::health_check:
    case CommandLine::Action::doctor:
    case CommandLine::Action::top:
    case CommandLine::Action::check_config:
    case CommandLine::Action::run:
      break;
  }
  try {
    auto predecessor = spillway::server::Predecessor::channel_of_environment();
    const Environment environment = spillway::read_environment(environ);
    if (line.config_path.empty()) line.config_path = environment.config_path;
    if (line.action == CommandLine::Action::health_check) {
      return spillway::server::health_check(
          spillway::load_config_file(line.config_path, line.overrides, false, environment.values));
    }
    if (line.action == CommandLine::Action::top) {
      return spillway::server::top(
          spillway::load_config_file(line.config_path, line.overrides, false, environment.values),
          {.once = line.once, .json = line.json});
    }
    if (line.action == CommandLine::Action::doctor) {
      auto loaded = spillway::load_config_file(line.config_path, line.overrides, true, environment.values);
      loaded.warnings.insert(loaded.warnings.begin(), environment.warnings.begin(), environment.warnings.end());
      return spillway::server::doctor(loaded, line.json);
    }
    return serve(std::move(line), environment, std::move(predecessor), argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: %s\n", error.what());
    return spillway::server::exit_failed;
  }
}
