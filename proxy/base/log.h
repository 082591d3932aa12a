// The only door to the logging library. A line is an event and its fields, one sentence; nothing is
// logged per request at info. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::log {

enum class Level : std::uint8_t { debug, info, warning, error };

struct Options {
  std::string path;  // empty: standard error
  bool append = true;
  bool syslog = false;
  int verbosity = 0;  // > 0 logs debug lines too
  bool quiet = false;
};

// Called once by main, and again to reopen the file. Before the first call lines go to standard error.
// Throws std::runtime_error when the file cannot be opened.
void open(const Options& options);
void set_verbosity(int verbosity);
bool enabled(Level level) noexcept;
void write(Level level, std::string_view line);

// The last lines written (at most 1,024), oldest first, and how many were written in all: getLog.
struct Recent {
  std::vector<std::string> lines;
  std::uint64_t total = 0;
};
Recent recent();

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace spillway::log
