#include "proxy/server/reload/reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proxy/config/parameters.h"
#include "proxy/config/table.h"
#include "proxy/exec/admin/local_parameters.h"
#include "proxy/exec/core/life_cycle.h"
#include "proxy/exec/tables/failed_logins.h"
#include "proxy/exec/tables/limits.h"

namespace spillway::server {

namespace {

// How long a reload waits for commands that began with the old routing table.
constexpr auto old_table_wait_max = std::chrono::seconds(10);

log::Options log_options(const SystemLogConfig& config) {
  log::Options options;
  if (config.destination == LogDestination::file) options.path = config.path;
  options.syslog = config.destination == LogDestination::syslog;
  options.json = config.format == LogFormat::json;
  options.rename_to_rotate = config.rotation == LogRotation::rename;
  return options;
}

}  // namespace

void open_log(const Config& config) {
  try {
    log::open(log_options(config.system_log));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("systemLog.path: {}", error.what()));
  }
  log::set_verbosity(static_cast<int>(config.parameters.log_level.load()));
}

Reload::Reload(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Config config, Table table,
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

void Reload::request_here() {
  here_next_ = true;
  request();
}

void Reload::begin() {
  running_ = true;
  here_ = std::exchange(here_next_, false);
  if (options_.began) options_.began();
  log::info("reload: reading the configuration");
  if (options_.drive == Loop::Drive::manual) {
    take(read());
    return;
  }
  if (reader_.joinable()) reader_.join();
  try {
    reader_ = std::thread([this] {
      auto done = std::make_shared<Read>(read());
      loop_.post([this, done] { take(std::move(*done)); });
    });
  } catch (const std::system_error& error) {  // a limit of processes
    refuse({fmt::format("no thread can be started: {}", error.what())});
  }
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
  plan_ = plan_reload(config_, options_.in_cluster ? nullptr : table_.get(), loaded_);
  prepare_log();
  if (!plan_.refusals.empty()) {
    if (!replace()) refuse(plan_.refusals);
  } else if (plan_.routing && options_.check_shards) {
    Worker& worker = *workers_.front();
    worker.loop().post([this, &worker, after = loaded_.routing] { worker.loop().spawn(check_table(after)); });
  } else {
    apply(plan_.routing ? loaded_.routing : nullptr);
  }
}

void Reload::prepare_log() {
  log_.reset();
  if (!plan_.refusals.empty() || !plan_.changes("systemLog")) return;
  try {
    log_ = log::prepare(log_options(loaded_.config.system_log));
  } catch (const std::exception& error) {
    plan_.refusals.push_back(fmt::format("systemLog: {}", error.what()));
  }
}

// On the first worker.
Task<void> Reload::check_table(Table after) {
  auto checked = co_await check_new_table(workers_.front()->context(), table_, after);
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
  std::shared_ptr<const Replaced> replaced;
  if (table) replaced = replace_table(table);
  config_ = next;
  std::string outcome = describe_changes(table.get());
  if (!replaced || !options_.check_shards || !may_leave_strays(*replaced->table, *table)) {
    end(outcome);
    return;
  }
  Worker& worker = *workers_.front();
  worker.loop().post([this, &worker, replaced, table, outcome = std::move(outcome)]() mutable {
    worker.context().background.start(look_for_strays(replaced, table, std::move(outcome)));
  });
}

// Files are read again, even if they have not changed.
std::string Reload::describe_changes(const catalog::RoutingSnapshot* table) const {
  std::vector<std::string> what(plan_.changed.begin(), plan_.changed.end());
  if (table != nullptr) what.push_back(fmt::format("routing of {} collections", table->collections().size()));
  std::string text = fmt::format("reloaded: {}", fmt::join(what, ", "));
  const std::string files = credentials_->read_from_files();
  if (!files.empty()) return text + fmt::format("{}{} were read anew", what.empty() ? "" : "; ", files);
  return what.empty() ? "reloaded: nothing has changed" : text;
}

bool Reload::Replaced::in_use() const {
  if (untaken.load(std::memory_order_acquire) > 0) return true;
  return std::any_of(references.begin(), references.end(), [](const auto& reference) { return !reference.expired(); });
}

std::shared_ptr<const Reload::Replaced> Reload::replace_table(Table table) {
  auto replaced = std::make_shared<Replaced>(std::exchange(table_, table), workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i]->use_table(table, [replaced, i](std::weak_ptr<const catalog::RoutingSnapshot> before) {
      replaced->references[i] = std::move(before);
      replaced->untaken.fetch_sub(1, std::memory_order_release);
    });
  }
  return replaced;
}

// On the first worker, which waits for it when it stops.
Task<void> Reload::look_for_strays(std::shared_ptr<const Replaced> replaced, Table after, std::string outcome) {
  exec::Context& context = workers_.front()->context();
  const TimePoint wait_end = Clock::now() + old_table_wait_max;
  const auto waits = [&] { return replaced->in_use() && Clock::now() < wait_end && !context.shared.life.stopping; };
  while (waits()) co_await context.loop.sleep_for(look_interval);
  if (context.shared.life.stopping) co_return;
  if (replaced->in_use()) {
    log::warning(
        "reload: commands that began with the old routing table are still running; what they write from now on "
        "where the new one does not look is not noticed");
  }
  const std::vector<std::string> strays = co_await find_strays(context, replaced->table, after);
  if (!strays.empty()) outcome += fmt::format("; documents are out of sight of {}", fmt::join(strays, ", "));
  loop_.post([this, outcome = std::move(outcome)] {
    if (!stopped_) end(outcome);
  });
}

void Reload::apply_parameters(const Config& next) {
  use_changes(shared_.parameters, config_, next);
  // The configuration's check has made sure that it is there.
  if (const auto missing = exec::take_parameters_into_use(shared_)) log::error("{}", *missing);
  shared_.failed_logins->allowed = next.failed_logins_allowed;
  if (config_.limits != next.limits) shared_.limits.configure(next.limits);
}

// The configuration is right, and changes what only a process that starts takes.
bool Reload::replace() {
  if (!plan_.needs_start || here_ || !options_.replace || !options_.replace()) return false;
  for (const std::string& reason : plan_.refusals) log::info("reload: {}: another process takes it", reason);
  forget();
  if (std::exchange(again_, false)) options_.replace();
  return true;
}

void Reload::refuse(const std::vector<std::string>& reasons) {
  for (const std::string& reason : reasons) log::error("reload refused: {}", reason);
  end(fmt::format("reload refused, the old configuration stays: {}", reasons.front()));
}

void Reload::end(const std::string& outcome) {
  log::info("{}", outcome);
  forget();
  if (options_.ended) options_.ended(outcome);
  if (std::exchange(again_, false)) request();
}

void Reload::forget() {
  loaded_ = {};
  credentials_ = nullptr;
  log_.reset();
  running_ = false;
}

}  // namespace spillway::server
