// The only door to the logging library. A line is an event and its fields, one sentence; nothing is
// logged per request at info. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace spdlog {
class logger;
}

namespace spillway::log {

enum class Level : std::uint8_t { debug, info, warning, error };

struct Options {
  std::string path;  // empty: standard error
  bool syslog = false;
  bool json = false;  // a line is a document, in the format of MongoDB 4.4's log
  bool rename_to_rotate = true;  // rotate() renames the file; false: another program already has
};

// A log that is ready for use; until open() nothing changes.
struct Prepared {
  Options options;
  std::shared_ptr<spdlog::logger> logger;  // of a file; other logs cannot fail and are made on first use
};
// Throws std::runtime_error when the file cannot be opened.
Prepared prepare(const Options& options);
void use(Prepared prepared);
// Both at once: called by main. Before the first call lines go to standard error.
void open(const Options& options);
// Goes on in a new file of the same name; the old one is renamed <path>.<time> before, as
// rename_to_rotate says. Without a file nothing happens: false. Throws as open() does.
bool rotate();
// > 0 logs debug lines, too; 0 at first. A later open() keeps it.
void set_verbosity(int verbosity);
bool enabled(Level level) noexcept;
// Names the calling thread in JSON lines; else it is "main".
void name_thread(std::string name);

// One line. `format`: what it was made from, the same for every line of its kind; a JSON line's id
// is computed from it.
void write(Level level, std::string_view format, std::string_view line);
// One line with fields for programs. `attributes`: a JSON object; `component` and `id` are
// MongoDB's.
void write_event(Level level, std::string_view component, int id, std::string_view message,
                 std::string_view attributes);

// The last lines written (at most 1,024, of 1 MiB together), oldest first, and how many were written in all: getLog.
struct Recent {
  std::vector<std::string> lines;
  std::uint64_t total = 0;
};
Recent recent();
// The last warnings and errors (at most 16, of at most 500 bytes), newest first, each with its time.
std::vector<std::string> last_warnings();

namespace detail {
inline std::string_view text_of(fmt::string_view format) noexcept {
  return {format.data(), format.size()};
}
}  // namespace detail

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) 
    write(Level::debug, detail::text_of(format), fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) 
    write(Level::info, detail::text_of(format), fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  
    write(Level::warning, detail::text_of(format), fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  
    write(Level::error, detail::text_of(format), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace spillway::log
