// Reload: takes a new configuration while serving, all of it or nothing.
//
// A thread of its own reads and checks the configuration file and the files that it names (certificates, passwords),
// and opens its log. Then a worker compares its routing table with the shards and stores it there: no later step may
// fail. A configuration that cannot be applied is refused with the reasons in the log, and the old one stays; if only
// a process that starts can take it, this one is replaced, and it is refused when that fails. Only keys that have
// changed since the last reload are applied: a setting changed by setParameter stays if its key did not change. The
// reload ends when all commands with the old table have ended; then it looks for their stray documents.
//
// Lives on the main thread's loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proxy/base/log.h"
#include "proxy/config/config.h"
#include "proxy/config/reload_plan.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/connections/worker.h"
#include "proxy/server/reload/table_check.h"

namespace spillway::server {

class Reload {
 public:
  struct Options {
    std::function<LoadResult()> load;  // called on a thread of its own
    bool check_shards = true;
    bool in_cluster = false;  // the table is not the configuration's
    // Applies the settings that neither Shared nor the log holds. May be empty.
    std::function<void(const Config& config)> apply{};
    // Has the process replaced; false: it cannot be. May be empty.
    std::function<bool()> replace{};
    std::function<void()> began{};
    std::function<void(const std::string& outcome)> ended{};
    Loop::Drive drive = Loop::Drive::real_time;  // manual: a simulation's, read on the loop's own thread
  };
  // `loop`, `shared` and the workers outlive it.
  Reload(Loop& loop, const exec::Services& shared, std::vector<Worker*> workers, Config config, Table table,
         Options options);
  // REQUIRES that the loop does not run any more, or that no reload is under way.
  ~Reload();

  // A request during a reload starts another one after it.
  void request();
  // The same, and what this process cannot take is refused: Options::replace has failed.
  void request_here();
  // From now on no reload begins, and none is applied.
  void stop() noexcept { stopped_ = true; }

 private:
  void begin();
  struct Read {
    LoadResult loaded;
    Credentials::Ptr credentials;  // null unless all is right
  };

  Read read() const;
  void take(Read read);
  void prepare_log();
  Task<void> check_table(Table after);
  void apply(Table table);
  // The commands that still hold a replaced table.
  struct Replaced {
    Replaced(Table before, std::size_t workers) : table(std::move(before)), untaken(workers), references(workers) {}
    bool in_use() const;

    Table table;
    std::atomic<std::size_t> untaken;  // workers whose commands still begin with it
    std::vector<std::weak_ptr<const catalog::RoutingSnapshot>> references;  // each of the others'
  };
  std::string describe_changes(const catalog::RoutingSnapshot* table) const;
  std::shared_ptr<const Replaced> replace_table(Table table);
  Task<void> look_for_strays(std::shared_ptr<const Replaced> replaced, Table after, std::string outcome);
  void apply_parameters(const Config& next);
  bool replace();
  void refuse(const std::vector<std::string>& reasons);
  void end(const std::string& outcome);
  void forget();

  Loop& loop_;
  const exec::Services shared_;
  std::vector<Worker*> workers_;
  Config config_;
  Table table_;
  Options options_;
  std::thread reader_;
  LoadResult loaded_;
  Credentials::Ptr credentials_;
  ReloadPlan plan_;
  std::optional<log::Prepared> log_;  // if it changes
  bool running_ = false;
  bool again_ = false;
  bool here_ = false, here_next_ = false;  // without Options::replace
  bool stopped_ = false;
};

// Opens the log as at the start. Throws std::runtime_error.
void open_log(const Config& config);

}  // namespace spillway::server
