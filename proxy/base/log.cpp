#include "proxy/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "proxy/base/clock.h"

namespace spillway::log {

namespace {

constexpr std::size_t recent_lines_max = 1024;

struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::deque<std::string> recent;
  std::uint64_t total = 0;
  std::atomic<bool> debug_on{false};
  std::atomic<bool> quiet{false};
};

State& state() {
  static State instance;
  return instance;
}

std::shared_ptr<spdlog::logger> make_logger(const Options& options) {
  spdlog::sink_ptr sink;
  if (options.syslog) {
    sink = std::make_shared<spdlog::sinks::syslog_sink_mt>("spillway", LOG_PID, LOG_DAEMON, false);
  } else if (options.path.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.path, !options.append);
  }
  auto logger = std::make_shared<spdlog::logger>("spillway", sink);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %L %v");
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  return logger;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void open(const Options& options) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    logger = make_logger(options);
  } catch (const spdlog::spdlog_ex& error) {
    throw std::runtime_error(error.what());
  }
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.logger = std::move(logger);
  s.debug_on = options.verbosity > 0;
  s.quiet = options.quiet;
}

void set_verbosity(int verbosity) { state().debug_on = verbosity > 0; }

bool enabled(Level level) noexcept {
  if (level == Level::debug) return state().debug_on.load(std::memory_order_relaxed);
  if (level == Level::info) return !state().quiet.load(std::memory_order_relaxed);
  return true;
}

void write(Level level, std::string_view line) {
  State& s = state();
  std::shared_ptr<spdlog::logger> logger;
  {
    std::lock_guard lock(s.mutex);
    if (!s.logger) s.logger = make_logger({});
    logger = s.logger;
    ++s.total;
    s.recent.emplace_back(line);
    if (s.recent.size() > recent_lines_max) s.recent.pop_front();
  }
  logger->log(to_spdlog(level), line);
}

Recent recent() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return {{s.recent.begin(), s.recent.end()}, s.total};
}

}  // namespace spillway::log
