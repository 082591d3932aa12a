// cold_buffers: what it costs to page idle buffers out (MADV_PAGEOUT) beside a working set that
// stays: operations a second on the working set before, meanwhile and after, resident bytes, and
// the time to touch the buffers again. Needs swap; the caller sees to that. Prints one JSON object.
//
//   cold_buffers COLD_MIB HOT_MIB SECONDS
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/experiments/small_tools.h"

namespace {

using spillway::bench::next_random;
using Clock = std::chrono::steady_clock;
constexpr std::size_t mib = std::size_t{1} << 20, buffer_bytes = mib, page_bytes = 4096;

double rss_mib() {
  return static_cast<double>(spillway::bench::rss_bytes()) / static_cast<double>(mib);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

char* map_random(std::size_t bytes, std::uint64_t& random) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::exit(2);
  auto* data = static_cast<char*>(mapped);
  for (std::size_t at = 0; at < bytes; at += sizeof random) {
    const std::uint64_t value = next_random(random);
    std::memcpy(data + at, &value, sizeof value);
  }
  return data;
}

// Reads and writes a word in a random page, over and over.
double operations_per_s(char* hot, std::size_t bytes, double seconds, std::uint64_t& random) {
  const auto start = Clock::now();
  std::uint64_t operations = 0;
  while (seconds_since(start) < seconds) {
    for (int batch = 0; batch < 1000; ++batch, ++operations) {
      hot[next_random(random) % (bytes / page_bytes) * page_bytes] += 1;
    }
  }
  return static_cast<double>(operations) / seconds_since(start);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t cold_mib = argc == 4 ? std::strtoul(argv[1], nullptr, 10) : 0;
  const std::size_t hot_bytes = argc == 4 ? std::strtoul(argv[2], nullptr, 10) * mib : 0;
  const double seconds = argc == 4 ? std::strtod(argv[3], nullptr) : 0;
  if (cold_mib == 0 || hot_bytes == 0 || !(seconds > 0)) {
    std::fprintf(stderr, "usage: cold_buffers COLD_MIB HOT_MIB SECONDS\n");
    return 2;
  }
  std::uint64_t random = 88172645463325252ULL;
  char* hot = map_random(hot_bytes, random);
  std::vector<char*> cold;
  for (std::size_t at = 0; at < cold_mib; ++at) cold.push_back(map_random(buffer_bytes, random));
  const double rss_before = rss_mib();
  const double before = operations_per_s(hot, hot_bytes, seconds, random);
  const auto start = Clock::now();
  for (char* buffer : cold) {
    if (madvise(buffer, buffer_bytes, MADV_PAGEOUT) != 0) {
      std::perror("cold_buffers: MADV_PAGEOUT");
      return 1;
    }
  }
  const double pageout_s = seconds_since(start);
  const double rss_after = rss_mib();
  const double after = operations_per_s(hot, hot_bytes, seconds, random);
  const auto touch = Clock::now();
  std::uint64_t sum = 0;
  for (const char* buffer : cold) {
    for (std::size_t at = 0; at < buffer_bytes; at += page_bytes) {
      sum += static_cast<unsigned char>(buffer[at]);
    }
  }
  std::printf(
      "{\"cold_mib\": %zu, \"rss_before_mib\": %.1f, \"rss_after_mib\": %.1f, \"pageout_s\": %.4f, "
      "\"ops_per_s_before\": %.0f, \"ops_per_s_after\": %.0f, \"touch_again_s\": %.4f, "
      "\"checksum\": %llu}\n",
      cold_mib, rss_before, rss_after, pageout_s, before, after, seconds_since(touch),
      static_cast<unsigned long long>(sum));
  return 0;
}
