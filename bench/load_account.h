// What a Spillway says of its own memory while a load runs: before, at most, and after. On a thread
// and a connection of its own, so that the load does not notice.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "bench/load_options.h"

namespace spillway::bench {

class ProxyAccount {
 public:
  // Asks once. Nothing is sampled if the endpoint does not answer as a Spillway does.
  explicit ProxyAccount(const LoadOptions& options);
  ~ProxyAccount();
  ProxyAccount(const ProxyAccount&) = delete;
  ProxyAccount& operator=(const ProxyAccount&) = delete;

  bool known() const noexcept { return known_; }
  // Waits until memory had the time to go back, takes the last sample, and tells; blocks for 2 s.
  // One line that says why there is none where the endpoint is another program.
  std::string finish();

  // Bytes and counts by the words they are shown with, in the order of the words.
  using Figures = std::map<std::string, std::int64_t>;

 private:
  void sample_until_stopped();

  LoadOptions options_;
  int fd_ = -1;
  bool known_ = false;
  Figures before_, most_;
  std::uint64_t samples_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The figures in an answer to serverStatus; nullopt: it is not a Spillway's.
std::optional<ProxyAccount::Figures> figures_of(std::string_view server_status);

}  // namespace spillway::bench
