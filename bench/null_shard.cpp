// null_shard: one canned shard as a program. Prints its address on one line, runs until SIGINT or
// SIGTERM. See bench/README.md.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "proxy/canned/canned.h"

namespace {

constexpr const char* usage =
    "usage: null_shard [--port N] [--host IPV4] [--index I --of N] [--max-wire-version V]\n"
    "                  [--set-name NAME] [--pool-kib KIB]\n"
    "  --port 0              a free one (default)\n"
    "  --index 0 --of 1      this shard of so many: it holds the documents congruent to the index\n"
    "  --max-wire-version 21 what hello says\n"
    "  --set-name NAME       hello answers as the primary of a replica set of one\n"
    "  --pool-kib 2048       how much random payload before it repeats\n";

// False if `text` is no whole number of [least, most].
bool parse_whole(const char* text, long least, long most, long& value) {
  char* end = nullptr;
  value = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && value >= least && value <= most;
}

bool parse_option(std::string_view name, const char* text,
                  spillway::bench::CannedOptions& options) {
  long value = 0;
  if (name == "--host") {
    options.host = text;
  } else if (name == "--set-name") {
    options.set_name = text;
  } else if (name == "--port" && parse_whole(text, 0, 65535, value)) {
    options.port = static_cast<std::uint16_t>(value);
  } else if (name == "--index" && parse_whole(text, 0, 9999, value)) {
    options.index = static_cast<int>(value);
  } else if (name == "--of" && parse_whole(text, 1, 10000, value)) {
    options.shard_count = static_cast<int>(value);
  } else if (name == "--max-wire-version" && parse_whole(text, 0, 99, value)) {
    options.max_wire_version = static_cast<int>(value);
  } else if (name == "--pool-kib" && parse_whole(text, 1, 1 << 20, value)) {
    options.pool_bytes = static_cast<std::size_t>(value) * 1024;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  spillway::bench::CannedOptions options;
  for (int at = 1; at < argc; at += 2) {
    if (std::strcmp(argv[at], "--help") == 0) {
      std::fputs(usage, stdout);
      return 0;
    }
    if (at + 1 >= argc || !parse_option(argv[at], argv[at + 1], options)) {
      std::fprintf(stderr, "null_shard: bad option or value: %s\n%s", argv[at], usage);
      return 2;
    }
  }
  // Blocked before the shard's thread starts, so that only sigwait below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::string error;
  const auto shard = spillway::bench::CannedShard::start(options, error);
  if (!shard) {
    std::fprintf(stderr, "null_shard: %s\n", error.c_str());
    return 1;
  }
  std::printf("null_shard ready: %s\n", shard->uri().c_str());
  std::fflush(stdout);
  int received = 0;
  sigwait(&signals, &received);
  shard->stop();
  return 0;
}
