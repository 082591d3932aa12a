#include "proxy/server/reload.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "allocator/memory_layer.h"
#include "proxy/base/log.h"
#include "proxy/server/parameters.h"

namespace spillway::server {

namespace {

log::Options log_options(const SystemLogConfig& config) {
  log::Options options;
  if (config.destination == LogDestination::file) options.path = config.path;
  options.syslog = config.destination == LogDestination::syslog;
  options.append = config.append;
  options.verbosity = config.verbosity;
  options.quiet = config.quiet;
  options.json = config.format == LogFormat::json;
  options.rename_to_rotate = config.rotation == LogRotation::rename;
  return options;
}

}  // namespace

void open_log(const SystemLogConfig& config) { log::open(log_options(config)); }

Reload::Reload(Loop& loop, exec::Shared& shared, std::vector<Worker*> workers, Config config, Table table,
               Options options)
    : loop_(loop),
      shared_(shared),
      workers_(std::move(workers)),
      config_(std::move(config)),
      table_(std::move(table)),
      options_(std::move(options)) {}

Reload::~Reload() {
  if (reader_.joinable()) reader_.join();
}

void Reload::request() {
  if (stopped_) return;
  if (running_) {
    again_ = true;
  } else {
    begin();
  }
}

void Reload::begin() {
  running_ = true;
  if (options_.began) options_.began();
  log::info("reload: reading the configuration");
  if (options_.drive == Loop::Drive::manual) {
    take(read());
    return;
  }
  if (reader_.joinable()) reader_.join();
  reader_ = std::thread([this] {
    auto done = std::make_shared<Read>(read());
    loop_.post([this, done] { take(std::move(*done)); });
  });
}

// On a thread of its own. The shards are those of the table in use: others are refused.
Reload::Read Reload::read() const {
  Read result{options_.load(), nullptr};
  if (!result.loaded.ok()) return result;
  auto credentials = read_credentials(result.loaded.config, *table_);
  if (credentials.has_error()) {
    result.loaded.errors.push_back(credentials.error().message);
  } else {
    result.credentials = *std::move(credentials);
  }
  return result;
}

void Reload::take(Read read) {
  loaded_ = std::move(read.loaded);
  credentials_ = std::move(read.credentials);
  if (stopped_) return;
  for (const std::string& warning : loaded_.warnings) log::warning("reload: {}", warning);
  plan_ = plan_reload(config_, table_.get(), loaded_);
  prepare_log();
  if (!plan_.refusals.empty()) {
    refuse(plan_.refusals);
  } else if (plan_.routing && options_.check_shards) {
    Worker& worker = *workers_.front();
    worker.loop().post([this, &worker, after = loaded_.routing] { worker.loop().spawn(check_table(after)); });
  } else {
    apply(plan_.routing ? loaded_.routing : nullptr);
  }
}

// What is in its file already stays.
void Reload::prepare_log() {
  log_.reset();
  if (!plan_.refusals.empty() || !plan_.changes("systemLog")) return;
  log::Options options = log_options(loaded_.config.system_log);
  options.append = true;
  try {
    log_ = log::prepare(options);
  } catch (const std::exception& error) {
    plan_.refusals.push_back(fmt::format("systemLog: {}", error.what()));
  }
}

// On the first worker.
Task<void> Reload::check_table(Table after) {
  auto checking = check_new_table(workers_.front()->context(), table_, after);
  auto checked = co_await checking;
  std::string refusal = checked.has_error() ? "routing: " + checked.error().message : "";
  loop_.post([this, after, refusal = std::move(refusal)] {
    if (stopped_) return;
    if (refusal.empty()) {
      apply(after);
    } else {
      refuse({refusal});
    }
  });
}

// `table`: the new one, which the shards keep already; null: it does not change. Nothing here may refuse.
void Reload::apply(Table table) {
  const Config& next = loaded_.config;
  if (log_) log::use(*std::move(log_));
  apply_parameters(next);
  for (const std::string& warning : credentials_->warnings()) log::warning("reload: {}", warning);
  for (Worker* worker : workers_) worker->use_credentials(credentials_);
  if (options_.apply) options_.apply(next);
  if (table) {
    table_ = table;
    for (Worker* worker : workers_) worker->use_table(table);
  }
  config_ = next;
  std::string what;
  for (const std::string_view key : plan_.changed) what += fmt::format("{}{}", what.empty() ? "" : ", ", key);
  if (table) what += fmt::format("{}routing of {} collections", what.empty() ? "" : ", ", table->collections().size());
  end(fmt::format("reloaded: {}", what.empty() ? "nothing has changed" : what));
}

void Reload::apply_parameters(const Config& next) {
  take_parameters(shared_.parameters, &config_, next);
  take_limits(shared_, &config_, next);
  if (config_.memory.allocator != next.memory.allocator) {
    // The configuration's check has seen that it is there.
    if (const auto missing = shared_.memory_layer->choose(next.memory.allocator)) log::error("{}", *missing);
  }
}

void Reload::refuse(const std::vector<std::string>& reasons) {
  for (const std::string& reason : reasons) log::error("reload refused: {}", reason);
  end(fmt::format("reload refused, the old configuration stays: {}", reasons.front()));
}

void Reload::end(const std::string& outcome) {
  log::info("{}", outcome);
  loaded_ = {};
  credentials_ = nullptr;
  log_.reset();
  running_ = false;
  if (options_.ended) options_.ended(outcome);
  if (std::exchange(again_, false)) request();
}

}  // namespace spillway::server
