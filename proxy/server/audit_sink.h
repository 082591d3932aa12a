// AuditSink: takes the audit log's lines to where they go, on a thread of its own: a disk that is slow
// or stuck keeps nobody else waiting. What waits for it is at most `waiting_bytes_max`; beyond, lines
// are refused, and whoever asked counts them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cursor/error.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/log_pace.h"
#include "proxy/exec/pipeline/match.h"
#include "proxy/server/config.h"

namespace spillway::server {

class AuditSink {
 public:
  static constexpr std::size_t default_waiting_bytes_max = 4UL << 20;

  // Opens the file. Throws std::runtime_error when that fails.
  explicit AuditSink(const AuditConfig& config, std::size_t waiting_bytes_max = default_waiting_bytes_max);
  ~AuditSink();

  // Any thread. False: too much waits already, or it was stopped.
  bool offer(std::string line);
  // Any thread: goes on in a new file of the same name; `rename`: the old one is renamed before.
  void reopen(bool rename);
  // Writes what waits, for two seconds at most if the disk is stuck.
  void stop();
  // Lines that were taken and could not be written.
  std::uint64_t failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

 private:
  enum class Reopen : std::uint8_t { no, plain, rename };
  void run();
  void write(const std::string& line);
  void open_anew(Reopen how);

  const AuditConfig config_;
  const std::size_t waiting_bytes_max_;
  FileDescriptor file_;
  bool mid_line_ = false;  // the last write was cut short
  std::atomic<std::uint64_t> failed_{0};
  log::LogPace log_pace_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  Reopen reopen_ = Reopen::no;
  bool stopped_ = false;
  bool ended_ = false;
  std::thread thread_;
};

// Null: there is none, and everything is wanted.
Result<std::unique_ptr<const pipeline::Filter>> make_audit_filter(const std::string& text);

}  // namespace spillway::server
