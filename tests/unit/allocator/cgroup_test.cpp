// Cgroups of made-up /proc and /sys trees, and one real memory cgroup.
#include "allocator/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "tests/unit/allocator/temporary_folder.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

using test::TemporaryFolder;
using Version = Cgroup::Version;

using test::mib;
constexpr const char* no_limit_v1 = "9223372036854771712\n";

std::string v2_mount(const std::string& root, const std::string& point) {
  return "41 31 0:38 " + root + " " + point +
         " rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
}

std::string v1_mount(const std::string& root, const std::string& point,
                     const std::string& controllers) {
  return "35 31 0:32 " + root + " " + point + " rw,relatime - cgroup cgroup rw," + controllers +
         "\n";
}

std::string mib_text(std::uint64_t count) { return std::to_string(count * mib) + "\n"; }

}  // namespace

TEST_CASE("without_files_there_is_no_cgroup", "[cgroup]") {
  const TemporaryFolder root;
  const Cgroup group = Cgroup::find(root.path());
  CHECK(group.memory_version() == Version::none);
  CHECK(group.memory_folders().empty());
  CHECK_FALSE(group.memory_limit_bytes());
  CHECK_FALSE(group.cpu_quota());
  CHECK_FALSE(group.read_psi());
  CHECK(group.psi_file().empty());
  CHECK(group.read_memory().usage_bytes == 0);
  CHECK(group.read_memory().max_share == 0);
}

TEST_CASE("version_2_is_found_by_its_mount_and_the_lowest_limit_holds", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "0::/system.slice/spillway.service\n");
  root.write("/proc/self/mountinfo",
             "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + v2_mount("/", "/mnt/groups"));
  const std::string own = "/mnt/groups/system.slice/spillway.service";
  root.write(own + "/memory.max", mib_text(400));
  root.write(own + "/memory.high", mib_text(300));
  root.write(own + "/memory.current", mib_text(200));
  root.write(own + "/memory.stat", "anon 1\ninactive_file " + mib_text(50) + "active_file 7\n");
  root.write(own + "/memory.pressure",
             "some avg10=12.50 avg60=1.00 avg300=0.10 total=12345\nfull avg10=3.25 avg60=0 "
             "avg300=0 total=1\n");
  root.write(own + "/cpu.max", "max 100000\n");
  root.write("/mnt/groups/system.slice/memory.max", mib_text(1000));
  root.write("/mnt/groups/system.slice/memory.current", mib_text(950));
  root.write("/mnt/groups/system.slice/memory.high", mib_text(900));
  root.write("/mnt/groups/system.slice/memory.stat", "inactive_file 0\nactive_file " + mib_text(860));
  root.write("/mnt/groups/system.slice/cpu.max", "250000 100000\n");
  root.write("/proc/pressure/memory", "some avg10=99.00 avg60=0 avg300=0 total=0\n");

  const Cgroup group = Cgroup::find(root.path());
  CHECK(group.memory_version() == Version::v2);
  REQUIRE(group.memory_folders().size() == 3);
  CHECK(group.memory_folders().front() == root.path() + own);
  CHECK(group.memory_limit_bytes() == 300 * mib);  // memory.high is the lower
  CHECK(group.cpu_quota() == 2.5);
  const CgroupMemory memory = group.read_memory();
  CHECK(memory.usage_bytes == 200 * mib);
  CHECK(memory.max_bytes == 400 * mib);
  CHECK(memory.high_bytes == 300 * mib);
  CHECK(memory.high_share == Approx(0.5));  // (200 - 50) / 300
  CHECK(memory.max_share == Approx(0.95));  // the slice is nearer to its limit than we are to ours
  CHECK(memory.own_high_share == Approx(0.5));
  CHECK(memory.own_max_share == Approx(0.375));
  const auto psi = group.read_psi();
  REQUIRE(psi);
  CHECK(psi->some_avg10 == 12.5);
  CHECK(psi->full_avg10 == 3.25);
}

TEST_CASE("version_1_counts_its_own_files", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/a\n0::/\n");
  root.write("/proc/self/mountinfo",
             v1_mount("/", "/sys/fs/cgroup/memory", "memory") +
                 v1_mount("/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"));
  root.write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", no_limit_v1);
  root.write("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", mib_text(90));
  root.write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", mib_text(160));
  root.write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", mib_text(120));
  root.write("/sys/fs/cgroup/memory/a/memory.stat",
             "inactive_file 9\ntotal_inactive_file " + mib_text(40));
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", no_limit_v1);
  root.write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "120000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.write("/proc/pressure/memory", "some avg10=1.50 avg60=0 avg300=0 total=0\n");

  const Cgroup group = Cgroup::find(root.path());
  CHECK(group.memory_version() == Version::v1);
  CHECK(group.memory_limit_bytes() == 160 * mib);
  CHECK(group.cpu_quota() == 1.2);
  const CgroupMemory memory = group.read_memory();
  CHECK(memory.usage_bytes == 90 * mib);
  CHECK(memory.max_bytes == 160 * mib);
  CHECK_FALSE(memory.high_bytes);
  CHECK(memory.max_share == Approx(0.5));
  REQUIRE(group.read_psi());
  CHECK(group.read_psi()->some_avg10 ==
        1.5);  // version 1 has no pressure of its own: the machine's
}

TEST_CASE("in_a_hybrid_tree_memory_is_where_its_controller_is", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "4:memory:/x\n1:name=systemd:/u\n0::/u\n");
  const std::string unified = v2_mount("/", "/sys/fs/cgroup/unified");
  root.write("/sys/fs/cgroup/unified/u/cpu.max", "300000 100000\n");
  root.write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", mib_text(70));
  SECTION("in version 1") {
    root.write("/proc/self/mountinfo", unified + v1_mount("/", "/sys/fs/cgroup/memory", "memory"));
    const Cgroup group = Cgroup::find(root.path());
    CHECK(group.memory_version() == Version::v1);
    CHECK(group.memory_limit_bytes() == 70 * mib);
    CHECK(group.cpu_quota() == 3);  // the cpu controller is version 2's
  }
  SECTION("nowhere: version 2 is mounted without it") {
    root.write("/proc/self/mountinfo", unified);
    const Cgroup group = Cgroup::find(root.path());
    CHECK(group.memory_version() == Version::none);
    CHECK_FALSE(group.memory_limit_bytes());
  }
}

TEST_CASE("in_a_container_the_mount_shows_only_its_own_part", "[cgroup]") {
  const TemporaryFolder root;
  SECTION("without a namespace the group's path has the mount's root in front") {
    root.write("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
    root.write("/proc/self/mountinfo", v1_mount("/docker/abc", "/sys/fs/cgroup/memory", "memory"));
  }
  SECTION("a path that the mount does not show") {
    root.write("/proc/self/cgroup", "4:memory:/kubepods/pod1\n");
    root.write("/proc/self/mountinfo", v1_mount("/docker/abc", "/sys/fs/cgroup/memory", "memory"));
  }
  SECTION("a group outside of the namespace") {
    root.write("/proc/self/cgroup", "4:memory:/../../other\n");
    root.write("/proc/self/mountinfo", v1_mount("/", "/sys/fs/cgroup/memory", "memory"));
  }
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", mib_text(128));
  const Cgroup group = Cgroup::find(root.path());
  CHECK(group.memory_limit_bytes() == 128 * mib);
  CHECK(group.memory_folders().back() == root.path() + "/sys/fs/cgroup/memory");
}

TEST_CASE("names_with_blanks_and_colons_are_read", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "0::/a b:c\n");
  root.write("/proc/self/mountinfo", v2_mount("/", "/sys/c\\040g"));
  root.write("/sys/c g/a b:c/memory.max", mib_text(64));
  CHECK(Cgroup::find(root.path()).memory_limit_bytes() == 64 * mib);
}

TEST_CASE("numbers_that_are_none_count_as_no_limit", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/proc/self/mountinfo", v2_mount("/", "/sys/fs/cgroup"));
  for (const char* text : {"max\n", "", "-1", "12 34", "0x10", "0", "99999999999999999999999999",
                           "18446744073709551615", "9223372036854771712", "1e9", " 7"}) {
    root.write("/sys/fs/cgroup/memory.max", text);
    root.write("/sys/fs/cgroup/memory.high", text);
    root.write("/sys/fs/cgroup/memory.current", text);
    root.write("/sys/fs/cgroup/cpu.max", std::string(text) + " " + text);
    const Cgroup group = Cgroup::find(root.path());
    CHECK_FALSE(group.memory_limit_bytes());
    CHECK(group.read_memory().max_share == 0);
    if (const auto quota = group.cpu_quota()) CHECK(*quota > 0);
  }
}

TEST_CASE("usage_beyond_the_limit_and_page_cache_beyond_usage_are_taken_as_they_come", "[cgroup]") {
  const TemporaryFolder root;
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/proc/self/mountinfo", v2_mount("/", "/sys/fs/cgroup"));
  root.write("/sys/fs/cgroup/memory.max", mib_text(10));
  root.write("/sys/fs/cgroup/memory.current", mib_text(20));
  const Cgroup group = Cgroup::find(root.path());
  CHECK(group.read_memory().max_share == Approx(2));
  root.write("/sys/fs/cgroup/memory.stat", "inactive_file 18446744073709551615\n");
  CHECK(group.read_memory().max_share == 0);
}

TEST_CASE("garbage_in_every_file_is_survived", "[cgroup]") {
  const TemporaryFolder root;
  std::mt19937 dice(20240611);
  const std::vector<std::string> files = {
      "/proc/self/cgroup",         "/proc/self/mountinfo",          "/proc/pressure/memory",
      "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat",
      "/sys/fs/cgroup/cpu.max"};
  const std::string seeds[] = {"0::/a/b\n4:memory:/x\n",
                               v2_mount("/", "/sys/fs/cgroup"),
                               v1_mount("/x", "/sys/fs/cgroup/memory", "memory"),
                               "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
                               "12345678\n",
                               "inactive_file 44\n",
                               "150000 100000\n"};
  for (int round = 0; round < 300; ++round) {
    for (const std::string& file : files) {
      std::string text = seeds[dice() % std::size(seeds)] + seeds[dice() % std::size(seeds)];
      for (int hits = static_cast<int>(dice() % 6); hits > 0; --hits) {
        text[dice() % text.size()] = static_cast<char>(dice());
      }
      text.resize(dice() % (text.size() + 1));
      root.write(file, text);
    }
    const Cgroup group = Cgroup::find(root.path());
    const CgroupMemory memory = group.read_memory();
    CHECK(memory.max_share >= 0);
    if (const auto limit = group.memory_limit_bytes()) CHECK(*limit > 0);
    if (const auto psi = group.read_psi()) CHECK((psi->some_avg10 >= 0 && psi->some_avg10 <= 100));
  }
}

TEST_CASE("pressure_texts", "[cgroup]") {
  CHECK_FALSE(parse_psi(""));
  CHECK_FALSE(parse_psi("some"));
  CHECK_FALSE(parse_psi("some avg10="));
  CHECK_FALSE(parse_psi("some avg10=nan avg60=0"));
  CHECK_FALSE(parse_psi("full avg10=1.00"));
  CHECK(parse_psi("some avg10=1e300 total=1")->some_avg10 == 100);
  CHECK(parse_psi("some avg10=-5 total=1")->some_avg10 == 0);
  CHECK(parse_psi("some avg10=7.5")->full_avg10 == 0);
}

namespace {

// A memory cgroup of version 1 below this process's own one.
class RealGroup {
 public:
  explicit RealGroup(const Cgroup& parent) {
    if (parent.memory_version() != Version::v1) return;
    path_ = parent.memory_folders().front() + "/spillway-test-" + std::to_string(::getpid());
    if (::mkdir(path_.c_str(), 0755) != 0) path_.clear();
  }
  ~RealGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  RealGroup(const RealGroup&) = delete;
  RealGroup& operator=(const RealGroup&) = delete;

  bool made() const noexcept { return !path_.empty(); }
  const std::string& path() const noexcept { return path_; }
  bool write(const std::string& file, const std::string& text) const {
    const int fd = ::open((path_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    return written;
  }

 private:
  std::string path_;
};

#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t taken_bytes = 20 * mib;  // and four times as much of the sanitizer's
#else
constexpr std::uint64_t taken_bytes = 80 * mib;
#endif

// What a process inside of the group saw.
struct Seen {
  bool found_v1 = false, folder_right = false;
  std::uint64_t limit_bytes = 0, usage_before = 0, usage_after = 0;
  double share_after = 0;
};

void look_from_inside(const std::string& folder, std::size_t take_bytes, int to) {
  const Cgroup group = Cgroup::find();
  Seen seen;
  seen.found_v1 = group.memory_version() == Version::v1;
  seen.folder_right = !group.memory_folders().empty() && group.memory_folders().front() == folder;
  seen.limit_bytes = group.memory_limit_bytes().value_or(0);
  seen.usage_before = group.read_memory().usage_bytes;
  std::vector<char> taken(take_bytes, 'x');
  const CgroupMemory after = group.read_memory();
  seen.usage_after = after.usage_bytes;
  seen.share_after = after.max_share;
  if (taken[take_bytes / 2] != 'x') ::_exit(3);
  ::_exit(::write(to, &seen, sizeof seen) == sizeof seen ? 0 : 2);
}

}  // namespace

TEST_CASE("a_real_memory_cgroup_is_found_with_its_limit_and_usage", "[cgroup]") {
  const RealGroup group(Cgroup::find());
  if (!group.made()) {
    WARN("SKIPPED: no memory cgroup of version 1 can be made here (needs root and that hierarchy)");
    return;
  }
  REQUIRE(group.write("memory.limit_in_bytes", std::to_string(160 * mib)));
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!group.write("cgroup.procs", std::to_string(::getpid()))) ::_exit(4);
    look_from_inside(group.path(), taken_bytes, pipe_ends[1]);
  }
  REQUIRE(child > 0);
  ::close(pipe_ends[1]);
  Seen seen;
  CHECK(::read(pipe_ends[0], &seen, sizeof seen) == sizeof seen);
  ::close(pipe_ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(seen.found_v1);
  CHECK(seen.folder_right);
  CHECK(seen.limit_bytes == 160 * mib);
  CHECK(seen.usage_before < 40 * mib);
  CHECK(seen.usage_after >= seen.usage_before + taken_bytes - 5 * mib);
  CHECK(seen.share_after > 0.9 * static_cast<double>(taken_bytes) / (160 * mib));
  CHECK(seen.share_after < 0.95);
}

}  // namespace spillway
