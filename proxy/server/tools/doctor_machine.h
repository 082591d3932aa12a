// What of this machine and this user would hinder a router with this configuration.
#pragma once

#include <cstdint>
#include <string>

#include "proxy/config/config.h"
#include "proxy/config/system_limits.h"
#include "proxy/server/tools/findings.h"

namespace spillway::server {

struct MachineFacts {
  SystemLimits limits;
  std::int64_t files_max = 0;                  // 0: no limit
  std::uint64_t memory_available_bytes = 0;    // 0: not known, as for the others
  std::int64_t connections_queued_max = 0;     // net.core.somaxconn
  std::int64_t ports_first = 0, ports_last = 0;  // net.ipv4.ip_local_port_range
  std::int64_t overcommit = 0;                 // vm.overcommit_memory
  bool huge_pages_always = false;              // transparent ones
};
// `root` stands before /proc and /sys, so that a test can bring its own.
MachineFacts read_machine(const std::string& root, const SystemLimits& limits, std::int64_t files_max);

// Pure.
Findings check_machine(const Config& config, const MachineFacts& facts);

// Whether the files that the service writes can be written by this process. Looks at folders, changes nothing.
Findings check_places(const Config& config);

// What the administrator has changed of the service's unit, as text. nullopt: systemd does not run here.
std::optional<std::string> read_units(const std::string& root);
// Paths that systemd/spillway.service makes read-only, unless a ReadWritePaths= of `units` names them. Pure.
Findings check_sandbox(const Config& config, const std::string& units);

// What helps when a start refuses to listen; `why` are its words. Pure.
std::string remedy_for_port(const NetConfig& net, const std::string& why);

}  // namespace spillway::server
