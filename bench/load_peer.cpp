#include "bench/load_peer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

namespace spillway::bench {
namespace {

// The fields of /proc/PID/stat that follow the name (which may hold spaces and brackets) count from
// the third: state. Source: proc(5).
constexpr int utime_field = 14;
constexpr int stime_field = 15;
constexpr int rss_field = 24;

}  // namespace

std::optional<PeerSample> sample_peer(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::array<char, 2048> text{};
  const ssize_t got = read(fd, text.data(), text.size() - 1);
  close(fd);
  if (got <= 0) return std::nullopt;
  const char* at = std::strrchr(text.data(), ')');
  if (at == nullptr) return std::nullopt;
  PeerSample sample;
  int field = 2;
  static const double ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  while (*at != '\0' && field < rss_field) {
    while (*at != '\0' && *at != ' ') ++at;
    while (*at == ' ') ++at;
    ++field;
    const auto value = std::strtoull(at, nullptr, 10);
    if (field == utime_field || field == stime_field) {
      sample.cpu_s += static_cast<double>(value) / ticks_per_s;
    }
    if (field == rss_field) {
      sample.rss_bytes = value * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }
  }
  return sample;
}

}  // namespace spillway::bench
