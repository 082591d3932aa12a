// Reload: takes a new configuration while serving, all of it or nothing.
//
// The file, and those that it names (certificates, passwords), are read and checked on a thread of their own, and its
// log is opened; then its routing table is compared with the shards, on a worker, and kept there: nothing that comes
// after may fail. What cannot be applied is refused with the reasons in the log, and the old configuration stays. What
// is applied is what has changed since the last reload: a setting that setParameter changed stays if its key did not.
// It ends when commands that began with the old table have ended, for what they wrote is looked for then.
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
#include "proxy/server/table_check.h"
#include "proxy/server/worker.h"

namespace spillway::server {

class Reload {
 public:
  struct Options {
    std::function<LoadResult()> load;  // called on a thread of its own
    bool check_shards = true;
    // For what neither Shared nor the log holds. May be empty.
    std::function<void(const Config& config)> apply{};
    std::function<void()> began{};
    std::function<void(const std::string& outcome)> ended{};
    Loop::Drive drive = Loop::Drive::real_time;  // manual: a simulation's, read on the loop's own thread
  };
  // `loop`, `shared` and the workers outlive it.
  Reload(Loop& loop, exec::Shared& shared, std::vector<Worker*> workers, Config config, Table table, Options options);
  // REQUIRES that the loop does not run any more, or that none is under way.
  ~Reload();

  // One that is asked for while another is under way follows it.
  void request();
  // From now on none begins, and none is applied.
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
  // What commands still hold of a table that was replaced.
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
  void refuse(const std::vector<std::string>& reasons);
  void end(const std::string& outcome);

  Loop& loop_;
  exec::Shared& shared_;
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
  bool stopped_ = false;
};

// How the log is opened at the start. Throws std::runtime_error.
void open_log(const Config& config);

}  // namespace spillway::server
