// ProcessFacts: what is fixed at start, for status commands and logs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/clock.h"

namespace spillway::exec {

struct ProcessFacts {
  std::string version = "0.1.0";
  std::string host_name;                   // "host:port", as serverStatus names it
  std::vector<std::string> arguments;      // argv, passwords censored
  BsonDoc parsed_options;                  // getCmdLineOpts
  std::uint64_t memory_limit_bytes = 0;    // memory.limit; 0: none
  std::uint64_t base_bytes = 0;            // resident before the first client
  std::array<std::uint8_t, 12> process_id{};  // topologyVersion
  std::array<std::uint8_t, 12> cluster_id{};
  std::int64_t start_wall_ms = 0;
  TimePoint start_time{};
  std::size_t workers = 1;
};

}  // namespace spillway::exec
