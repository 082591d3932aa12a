// AuditSink: writes the audit log's lines, on a thread of its own: a slow or stuck disk delays no other thread. At
// most `waiting_bytes_max` wait for it; beyond, lines are refused, and the caller counts them. Where lines are missing,
// refused ones or ones that could not be written, an eventsLost line says how many.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "proxy/config/config.h"

namespace spillway::server {

class AuditSink {
 public:
  struct Bounds {
    std::size_t waiting_bytes_max = 4UL << 20;
    std::chrono::milliseconds stop_wait_max{2000};
  };

  // Opens the file. Throws std::runtime_error when that fails.
  explicit AuditSink(const AuditConfig& config) : AuditSink(config, Bounds()) {}
  AuditSink(const AuditConfig& config, const Bounds& bounds);
  ~AuditSink();
  AuditSink(const AuditSink&) = delete;
  AuditSink& operator=(const AuditSink&) = delete;

  // Any thread. False: too much waits already, or it was stopped.
  bool offer(std::string line);
  // Any thread: goes on in a new file of the same name; `rename`: the old one is renamed before.
  void reopen(bool rename);
  // Writes the waiting lines, for stop_wait_max at most: then the disk is stuck, the lines are lost, and the thread
  // is left behind with the disk.
  void stop();
  // Lines that were accepted but could not be written.
  std::uint64_t failed() const noexcept;

 private:
  class Writer;  // the thread's data; a thread that is left behind keeps it

  Bounds bounds_;
  std::shared_ptr<Writer> writer_;
  std::thread thread_;
};

}  // namespace spillway::server
