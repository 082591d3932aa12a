// CPUs and memory of a cgroup, read from made-up /proc and /sys trees.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "proxy/config/config.h"
#include "proxy/config/system_limits.h"

using namespace spillway;

namespace {

constexpr std::uint64_t mib = 1ULL << 20;

class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-root-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    write("/proc/meminfo", "MemFree: 1 kB\nMemTotal:       1048576 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path whole = path_.string() + file;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  SystemLimits read(int mask_cpus) const { return read_system_limits(path_.string(), mask_cpus); }

 private:
  std::filesystem::path path_;
};

int workers_of(const SystemLimits& limits) { return worker_count(Config{}, limits); }

}  // namespace

TEST_CASE("without_a_cgroup_the_machine_is_the_limit") {
  FakeRoot root;
  const SystemLimits limits = root.read(8);
  CHECK(limits.cpus == 8);
  CHECK(limits.memory_bytes == 1024 * mib);
  CHECK_FALSE(limits.cgroup_memory_bytes.has_value());
  CHECK(workers_of(limits) == 8);
  CHECK(memory_limit_bytes({}, limits) / mib == 255);  // a quarter
}

TEST_CASE("version_2_takes_the_lowest_limit_on_the_way_to_the_root") {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/a/b\n");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  root.write("/sys/fs/cgroup/a/b/memory.max", "536870912\n");
  root.write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  root.write("/sys/fs/cgroup/a/memory.max", "268435456\n");
  root.write("/sys/fs/cgroup/memory.max", "max\n");
  const SystemLimits limits = root.read(8);
  CHECK(limits.cpus == 1.5);
  CHECK(limits.cgroup_memory_bytes == 256 * mib);
  CHECK(workers_of(limits) == 2);
  CHECK(memory_limit_bytes({}, limits) / mib == 127);  // half
  CHECK(memory_limit_bytes({MemoryLimit::Kind::percent, 75}, limits) / mib == 191);
}

TEST_CASE("in_a_container_the_limits_stand_at_the_root_of_the_mount") {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  root.write("/sys/fs/cgroup/memory.max", "134217728\n");
  const SystemLimits limits = root.read(4);
  CHECK(limits.cpus == 0.5);
  CHECK(workers_of(limits) == 1);
  CHECK(limits.cgroup_memory_bytes == 128 * mib);
}

TEST_CASE("version_1_has_a_folder_per_controller") {
  FakeRoot root;
  root.write("/proc/self/cgroup",
             "9:name=systemd:/x\n4:memory:/x/y\n3:cpuacct,cpu:/x\n1:cpuset:/\nnonsense\n");
  root.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "210000\n");
  root.write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  root.write("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "402653184\n");
  const SystemLimits limits = root.read(8);
  CHECK(limits.cpus == Approx(2.1));
  CHECK(workers_of(limits) == 3);
  CHECK(limits.cgroup_memory_bytes == 384 * mib);
}

TEST_CASE("the_cpu_mask_limits_a_larger_quota") {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/cpu.max", "1600000 100000\n");
  CHECK(workers_of(root.read(2)) == 2);
}

TEST_CASE("broken_files_count_as_no_limit") {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/\n4:memory:/\n:\n0::\n");
  root.write("/sys/fs/cgroup/cpu.max", "-1 0\n");
  root.write("/sys/fs/cgroup/memory.max", "many\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
  const SystemLimits limits = root.read(3);
  CHECK(limits.cpus == 3);
  CHECK_FALSE(limits.cgroup_memory_bytes.has_value());
}

TEST_CASE("written_values_go_before_what_was_found") {
  SystemLimits limits;
  limits.cpus = 4;
  limits.memory_bytes = 4096 * mib;
  Config config;
  config.workers = 7;
  CHECK(worker_count(config, limits) == 7);
  CHECK(memory_limit_bytes({MemoryLimit::Kind::bytes, 100 * mib}, limits) == 100 * mib);
  const std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  CHECK(memory_limit_bytes({MemoryLimit::Kind::unlimited, 0}, limits) == unlimited);
}

TEST_CASE("a_limit_is_never_below_the_least_and_unknown_memory_is_no_limit") {
  SystemLimits limits;
  limits.memory_bytes = 100 * mib;
  CHECK(memory_limit_bytes({}, limits) == memory_limit_bytes_min);
  // A cgroup that allows more than the machine has is none.
  limits.memory_bytes = 1000 * mib;
  limits.cgroup_memory_bytes = 5000 * mib;
  CHECK(memory_limit_bytes({}, limits) / mib == 250);
  CHECK(memory_limit_bytes({}, SystemLimits{}) == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("mounts_elsewhere_are_found_and_memory_high_is_a_limit") {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/pod\n");
  root.write("/proc/self/mountinfo", "41 31 0:38 / /groups rw,relatime - cgroup2 cgroup2 rw\n");
  root.write("/groups/pod/cpu.max", "350000 100000\n");
  root.write("/groups/pod/memory.max", "536870912\n");
  root.write("/groups/pod/memory.high", "402653184\n");
  const SystemLimits limits = root.read(16);
  CHECK(workers_of(limits) == 4);
  CHECK(limits.cgroup_memory_bytes == 384 * mib);
  CHECK(memory_limit_bytes({}, limits) / mib == 191);
}

TEST_CASE("the_limit_is_told_with_what_it_was_derived_from") {
  SystemLimits limits;
  CHECK(describe_memory_limit({}, limits) == "none");
  limits.memory_bytes = 1000 * mib;
  CHECK(describe_memory_limit({}, limits) == "250 MiB (25 % of the machine's 1000 MiB, at least 96 MiB)");
  limits.cgroup_memory_bytes = 400 * mib;
  CHECK(describe_memory_limit({}, limits) == "200 MiB (50 % of the cgroup's 400 MiB, at least 96 MiB)");
  CHECK(describe_memory_limit({MemoryLimit::Kind::bytes, 96 * mib}, limits) == "96 MiB");
  CHECK(describe_memory_limit({MemoryLimit::Kind::unlimited, 0}, limits) == "none");
  CHECK(memory_beyond_cgroup({MemoryLimit::Kind::bytes, 401 * mib}, limits) ==
        "401 MiB is more than the cgroup allows (400 MiB): the kernel would slow the process down or kill it first");
  CHECK_FALSE(memory_beyond_cgroup({MemoryLimit::Kind::bytes, 400 * mib}, limits));
  CHECK_FALSE(memory_beyond_cgroup({}, limits));
  CHECK_FALSE(memory_beyond_cgroup({MemoryLimit::Kind::unlimited, 0}, limits));
}

TEST_CASE("this_machine_has_cpus_and_memory") {
  const SystemLimits limits = read_system_limits();
  CHECK(limits.cpus > 0);
  CHECK(limits.memory_bytes > 64 * mib);
}
