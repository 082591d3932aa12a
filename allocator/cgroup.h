// Cgroup: where the kernel bounds this process, and what it says about it: memory and CPU limits of
// cgroup version 1 or 2, usage, pressure stall information (PSI).
//
// All values come from files outside this program: a missing, truncated or non-numeric value counts as "no limit",
// never as an error. Reading does system calls; not for a worker's hot path. Const methods may be called from several
// threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Shares of time in which tasks waited for memory, in percent of the last ten seconds.
struct Psi {
  double some_avg10 = 0;  // at least one task waited
  double full_avg10 = 0;  // all of them did
};
// The text of a memory.pressure file; nullopt: it is none.
std::optional<Psi> parse_psi(std::string_view text) noexcept;

// Memory of the process's group and its ancestors at one moment. A share is usage divided by the limit, of the group
// nearest to its own limit: that group is in trouble first. Usage excludes inactive page cache, which the kernel
// takes back before it kills. Beyond memory.high the kernel also takes back active page cache; an ancestor's share of
// memory.high therefore excludes it.
struct CgroupMemory {
  std::uint64_t usage_bytes = 0;            // of the process's own group, page cache included
  std::optional<std::uint64_t> max_bytes;   // the lowest on the way to the root; nullopt: none
  std::optional<std::uint64_t> high_bytes;  // version 2 only
  double max_share = 0;                     // 0 without a limit
  double high_share = 0;
  double own_max_share = 0;  // of the process's own group alone
  double own_high_share = 0;
};

class Cgroup {
 public:
  enum class Version : std::uint8_t { none, v1, v2 };

  // The groups of this process, by /proc/self/cgroup and /proc/self/mountinfo. `root` stands before
  // /proc and before mount points, so that a test can bring a tree of its own.
  static Cgroup find(const std::string& root = "");

  Version memory_version() const noexcept { return memory_version_; }
  // Of the process's own group, of the group that a container sees as root last; empty: none.
  const std::vector<std::string>& memory_folders() const noexcept { return memory_folders_; }
  // The lowest of memory.max and memory.high, or memory.limit_in_bytes, on the way to the root.
  std::optional<std::uint64_t> memory_limit_bytes() const;
  // CPUs by the lowest quota on the way to the root; may be a fraction.
  std::optional<double> cpu_quota() const;
  CgroupMemory read_memory() const;
  // Of the own group, of the whole machine where groups have none; nullopt: the kernel has no PSI.
  std::optional<Psi> read_psi() const;
  // The file that read_psi() reads; empty: none. A trigger can be written to it.
  std::string psi_file() const;

 private:
  std::string root_;
  Version memory_version_ = Version::none;
  Version cpu_version_ = Version::none;
  std::vector<std::string> memory_folders_;  // own group first
  std::vector<std::string> cpu_folders_;
};

std::string_view cgroup_version_name(Cgroup::Version version) noexcept;

// The first bytes of a small file, without white space at its end; empty if it cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace spillway
