// CPU and memory of another process, read from /proc. Linux only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace spillway::bench {

struct PeerSample {
  double cpu_s = 0;  // user and system, all threads
  std::uint64_t rss_bytes = 0;
};

// nullopt if there is no such process. REQUIRES nothing; any thread.
std::optional<PeerSample> sample_peer(pid_t pid);

}  // namespace spillway::bench
