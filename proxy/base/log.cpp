#include "proxy/base/log.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include "cursor/utf8.h"
#include "proxy/base/clock.h"

namespace spillway::log {

namespace {

constexpr std::size_t recent_lines_max = 1024, recent_bytes_max = 1 << 20;
constexpr std::size_t warnings_max = 16, warning_bytes_max = 500;

struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  Options options;
  std::deque<std::string> recent;
  std::size_t recent_bytes = 0;
  std::deque<std::string> warnings;  // newest first
  std::uint64_t total = 0;
  std::atomic<bool> debug_on{false};
};

State& state() {
  static State instance;
  return instance;
}

// Throws std::runtime_error.
std::shared_ptr<spdlog::logger> make_logger(const Options& options) try {
  spdlog::sink_ptr sink;
  if (options.syslog) {
    sink = std::make_shared<spdlog::sinks::syslog_sink_mt>("spillway", LOG_PID, LOG_DAEMON, false);
  } else if (options.path.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.path);
  }
  auto logger = std::make_shared<spdlog::logger>("spillway", sink);
  logger->set_pattern(options.json ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %L %v");
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  return logger;
} catch (const spdlog::spdlog_ex& error) {
  throw std::runtime_error(error.what());
}

spdlog::level::level_enum to_spdlog(Level level) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                  spdlog::level::err};
  return levels[static_cast<std::size_t>(level)];
}

thread_local std::string thread_name = "main";

// The time as MongoDB writes it, in the local time zone.
std::string timestamp(std::int64_t wall_ms) {
  const std::tm local = fmt::localtime(wall_ms / 1000);
  const long zone_minutes = std::labs(local.tm_gmtoff) / 60;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}{}{:02}:{:02}", local, wall_ms % 1000, local.tm_gmtoff < 0 ? '-' : '+',
                     zone_minutes / 60, zone_minutes % 60);
}

char letter(Level level) noexcept { return "DIWE"[static_cast<std::size_t>(level)]; }

// One line of text: a client's words can neither begin a line of their own nor break the file's encoding.
std::string one_line(std::string_view text) {
  const bool all_utf8 = is_utf8(text);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !all_utf8)) {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

void append_json_text(std::string& out, std::string_view text) {
  if (!is_utf8(text)) return append_json_text(out, one_line(text));
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string json_line(Level level, std::string_view component, int id, std::string_view message,
                      std::string_view attributes) {
  std::string line = fmt::format(R"({{"t":{{"$date":"{}"}},"s":"{}","c":"{}","id":{},"ctx":)",
                                 timestamp(wall_clock_ms()), letter(level), component, id);
  append_json_text(line, thread_name);
  line += R"(,"msg":)";
  append_json_text(line, message);
  if (attributes.starts_with('{') && attributes.ends_with('}')) {
    line.append(R"(,"attr":)").append(attributes);
  } else if (!attributes.empty()) {  // cut, or of bytes that JSON cannot hold
    append_json_text(line += R"(,"attr":{"text":)", attributes);
    line += '}';
  }
  line += '}';
  return line;
}

// Above MongoDB's own ids, the same for every line of a kind.
int id_of(std::string_view format) noexcept {
  constexpr std::uint32_t offset = 2'166'136'261, prime = 16'777'619;  // FNV-1a
  std::uint32_t hash = offset;
  for (const char c : format) hash = (hash ^ static_cast<unsigned char>(c)) * prime;
  return static_cast<int>(100'000'000 + hash % 1'000'000);
}

void emit(Level level, std::string_view line) {
  State& s = state();
  std::shared_ptr<spdlog::logger> logger;
  {
    std::lock_guard lock(s.mutex);
    if (!s.logger) s.logger = make_logger({});
    logger = s.logger;
    ++s.total;
    s.recent.emplace_back(line);
    s.recent_bytes += line.size();
    while (s.recent.size() > recent_lines_max || s.recent_bytes > recent_bytes_max) {
      s.recent_bytes -= s.recent.front().size();
      s.recent.pop_front();
    }
  }
  logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

void keep_warning(Level level, std::string_view line) {
  if (level != Level::warning && level != Level::error) return;
  std::string kept = clean_text(fmt::format("{} {}", timestamp(wall_clock_ms()), line.substr(0, warning_bytes_max)),
                                warning_bytes_max);
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.warnings.push_front(std::move(kept));
  if (s.warnings.size() > warnings_max) s.warnings.pop_back();
}

bool writes_json() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.options.json;
}

}  // namespace

Prepared prepare(const Options& options) {
  const bool to_file = !options.syslog && !options.path.empty();
  return {options, to_file ? make_logger(options) : nullptr};
}

void use(Prepared prepared) {
  if (!prepared.logger) prepared.logger = make_logger(prepared.options);
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.logger = std::move(prepared.logger);
  s.options = std::move(prepared.options);
}

void open(const Options& options) { use(prepare(options)); }

bool rotate() {
  State& s = state();
  Options options;
  {
    std::lock_guard lock(s.mutex);
    options = s.options;
  }
  if (options.path.empty()) return false;
  if (options.rename_to_rotate) {
    std::string old_path = fmt::format("{}.{}", options.path, timestamp(wall_clock_ms()).substr(0, 23));
    std::replace(old_path.end() - 12, old_path.end(), ':', '-');
    if (std::rename(options.path.c_str(), old_path.c_str()) != 0 && errno != ENOENT) {
      throw std::runtime_error(
          fmt::format("cannot rename {} to {}: {}", options.path, old_path, std::generic_category().message(errno)));
    }
  }
  std::shared_ptr<spdlog::logger> logger = make_logger(options);
  std::lock_guard lock(s.mutex);
  s.logger = std::move(logger);
  return true;
}

void name_thread(std::string name) { thread_name = std::move(name); }

void set_verbosity(int verbosity) { state().debug_on = verbosity > 0; }

bool enabled(Level level) noexcept {
  return level != Level::debug || state().debug_on.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view format, std::string_view line) {
  keep_warning(level, line);
  emit(level, writes_json() ? json_line(level, "-", id_of(format), line, {}) : one_line(line));
}

void write_event(Level level, std::string_view component, int id, std::string_view message,
                 std::string_view attributes) {
  keep_warning(level, message);
  emit(level, writes_json() ? json_line(level, component, id, message, attributes)
                            : one_line(fmt::format("{} {}", message, attributes)));
}

std::vector<std::string> last_warnings() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return {s.warnings.begin(), s.warnings.end()};
}

Recent recent() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return {{s.recent.begin(), s.recent.end()}, s.total};
}

}  // namespace spillway::log
