// What happened in a simulation, in order: a line each, and the hash of all of them. Two runs of
// one seed must give the same hash, so lines never hold values that are random by design (cursor ids, addresses).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "proxy/base/clock.h"

namespace spillway::test {

class SimLog {
 public:
  void add(std::string_view line) {
    if (!recording_) return;
    std::string text = std::to_string((Clock::now() - start_).count()) + "ns " + std::string(line);
    for (const char c : text) hash_ = (hash_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
    ++lines_;
    last_.push_back(std::move(text));
    if (last_.size() > kept_max) last_.pop_front();
  }
  void stop() noexcept { recording_ = false; }
  std::uint64_t hash() const noexcept { return hash_; }
  std::size_t lines() const noexcept { return lines_; }
  // The last lines, for a failure's message.
  std::string tail() const {
    std::string all;
    for (const std::string& line : last_) all += line + "\n";
    return all;
  }

 private:
  static constexpr std::size_t kept_max = 60;
  TimePoint start_ = Clock::now();
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  std::size_t lines_ = 0;
  std::deque<std::string> last_;
  bool recording_ = true;
};

}  // namespace spillway::test
