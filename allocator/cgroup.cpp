#include "allocator/cgroup.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

namespace spillway {

namespace {

constexpr std::size_t small_file_bytes_max = 64UL * 1024;
// The mount table of a machine with many containers is long.
constexpr std::size_t mount_table_bytes_max = 4UL * 1024 * 1024;
constexpr std::size_t group_depth_max = 64;
// Version 1 writes "no limit" as 2^63 rounded down to pages.
constexpr std::uint64_t limit_bytes_max = 1ULL << 62;

std::string read_file(const std::string& path, std::size_t bytes_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  std::string text;
  char piece[4096];
  while (text.size() < bytes_max) {
    const ssize_t got = ::read(fd, piece, std::min(sizeof piece, bytes_max - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  ::close(fd);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::optional<std::uint64_t> number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
    return {};
  return value;
}

// Calls `each` with every piece of `text` between separators.
template <class Each>
void for_each_piece(std::string_view text, char separator, Each each) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool has_word(std::string_view list, std::string_view word) {
  bool found = false;
  for_each_piece(list, ',', [&](std::string_view one) { found = found || one == word; });
  return found;
}

struct Mount {
  std::string root, point;  // which part of the file system is mounted where
  std::string type, options;
};

// mountinfo writes blanks, tabs, line ends and backslashes as \ooo.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7';
    };
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "<id> <parent> <device> <root> <point> <options> [<optional>...] - <type> <source> <options>"
std::vector<Mount> cgroup_mounts(const std::string& table) {
  std::vector<Mount> mounts;
  for_each_piece(table, '\n', [&](std::string_view line) {
    std::vector<std::string_view> words;
    for_each_piece(line, ' ', [&](std::string_view word) { words.push_back(word); });
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) return;
    const std::string_view type = dash[1];
    if (type != "cgroup" && type != "cgroup2") return;
    mounts.push_back(
        {unescaped(words[3]), unescaped(words[4]), std::string(type), std::string(dash[3])});
  });
  return mounts;
}

struct Membership {
  std::string controllers, path;  // version 2's line has no controllers
};

// "<id>:<controllers>:<path>"; the path may hold colons.
std::vector<Membership> memberships(const std::string& text) {
  std::vector<Membership> found;
  for_each_piece(text, '\n', [&](std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos || !line.substr(second + 1).starts_with('/')) return;
    found.push_back({std::string(line.substr(first + 1, second - first - 1)),
                     std::string(line.substr(second + 1))});
  });
  return found;
}

// The group's path below a mount of `mount_root`; nullopt: it is not below it. Outside of its
// namespace a process sees "/..".
std::optional<std::string> below(const std::string& path, const std::string& mount_root) {
  if (path.find("/..") != std::string::npos) return std::nullopt;
  if (mount_root == "/") return path == "/" ? "" : path;
  if (path == mount_root) return "";
  if (path.starts_with(mount_root + "/")) return path.substr(mount_root.size());
  return std::nullopt;
}

// The group's folder and its ancestors' up to the mount: a limit anywhere on the way holds. In a
// container the group's own path may not exist below the mount; the mount itself does then.
std::vector<std::string> with_ancestors(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (path.size() > 1 && folders.size() < group_depth_max) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

struct Found {
  Cgroup::Version version = Cgroup::Version::none;
  std::vector<std::string> folders;
};

class Finder {
 public:
  explicit Finder(const std::string& root)
      : root_(root),
        groups_(memberships(read_file(root + "/proc/self/cgroup", small_file_bytes_max))) {
    const std::string table = read_file(root + "/proc/self/mountinfo", mount_table_bytes_max);
    table_known_ = !table.empty();
    mounts_ = cgroup_mounts(table);
  }

  // A controller lives in one hierarchy only: in its own of version 1 if that is mounted, else in
  // version 2's if `sign` (a file) is there.
  Found find(std::string_view controller, const std::vector<std::string_view>& signs) const {
    for (const Membership& group : groups_) {
      if (!has_word(group.controllers, controller)) continue;
      const auto is_its_own = [&](const Mount& mount) {
        return mount.type == "cgroup" && has_word(mount.options, controller);
      };
      auto folders = folders_of(group, is_its_own, "/sys/fs/cgroup/" + std::string(controller));
      if (!folders.empty()) return {Cgroup::Version::v1, std::move(folders)};
    }
    for (const Membership& group : groups_) {
      if (!group.controllers.empty()) continue;
      const auto is_unified = [](const Mount& mount) { return mount.type == "cgroup2"; };
      auto folders = folders_of(group, is_unified, "/sys/fs/cgroup");
      for (const std::string& folder : folders) {
        for (const std::string_view sign : signs) {
          if (::access((folder + "/" + std::string(sign)).c_str(), F_OK) == 0) {
            return {Cgroup::Version::v2, std::move(folders)};
          }
        }
      }
    }
    return {};
  }

 private:
  std::vector<std::string> folders_of(const Membership& group,
                                      const std::function<bool(const Mount&)>& matches,
                                      const std::string& usual_place) const {
    // Without a mount table only the usual path is left.
    if (!table_known_)
      return with_ancestors(root_ + usual_place, below(group.path, "/").value_or(""));
    const Mount* any = nullptr;
    for (const Mount& mount : mounts_) {
      if (!matches(mount)) continue;
      if (any == nullptr) any = &mount;
      if (const auto path = below(group.path, mount.root)) {
        return with_ancestors(root_ + mount.point, *path);
      }
    }
    if (any == nullptr) return {};
    return with_ancestors(root_ + any->point, "");
  }

  std::string root_;
  std::vector<Membership> groups_;
  std::vector<Mount> mounts_;
  bool table_known_ = false;
};

std::optional<std::uint64_t> read_limit(const std::string& path) {
  const auto bytes = number(read_small_file(path));  // "max" is no number
  if (!bytes || *bytes == 0 || *bytes >= limit_bytes_max) return std::nullopt;
  return bytes;
}

// One line "<name> <number>" of a memory.stat.
std::uint64_t stat_value(std::string_view stat, std::string_view name) {
  std::uint64_t value = 0;
  for_each_piece(stat, '\n', [&](std::string_view line) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) {
      value = number(line.substr(name.size() + 1)).value_or(0);
    }
  });
  return value;
}

void lower(std::optional<std::uint64_t>& limit, const std::optional<std::uint64_t>& other) {
  if (other) limit = std::min(limit.value_or(*other), *other);
}

double share(std::uint64_t used, std::uint64_t limit) {
  return static_cast<double>(used) / static_cast<double>(limit);
}

// The value of "avg10=" in a line of a pressure file.
std::optional<double> avg10(std::string_view line) {
  constexpr std::string_view name = "avg10=";
  const std::size_t at = line.find(name);
  if (at == line.npos) return std::nullopt;
  const char* const begin = line.data() + at + name.size();
  double value = 0;
  const auto result = std::from_chars(begin, line.data() + line.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
  return std::clamp(value, 0.0, 100.0);
}

}  // namespace

std::string read_small_file(const std::string& path) {
  return read_file(path, small_file_bytes_max);
}

std::optional<Psi> parse_psi(std::string_view text) noexcept {
  Psi psi;
  bool found = false;
  for_each_piece(text, '\n', [&](std::string_view line) {
    const bool some = line.starts_with("some ");
    if (!some && !line.starts_with("full ")) return;
    const auto value = avg10(line);
    if (!value) return;
    (some ? psi.some_avg10 : psi.full_avg10) = *value;
    found = found || some;
  });
  if (!found) return std::nullopt;
  return psi;
}

Cgroup Cgroup::find(const std::string& root) {
  Cgroup group;
  group.root_ = root;
  const Finder finder(root);
  Found memory = finder.find("memory", {"memory.current", "memory.max"});
  group.memory_version_ = memory.version;
  group.memory_folders_ = std::move(memory.folders);
  Found cpu = finder.find("cpu", {"cpu.max"});
  group.cpu_version_ = cpu.version;
  group.cpu_folders_ = std::move(cpu.folders);
  return group;
}

std::optional<std::uint64_t> Cgroup::memory_limit_bytes() const {
  std::optional<std::uint64_t> lowest;
  for (const std::string& folder : memory_folders_) {
    if (memory_version_ == Version::v1) {
      lower(lowest, read_limit(folder + "/memory.limit_in_bytes"));
    } else {
      lower(lowest, read_limit(folder + "/memory.max"));
      lower(lowest, read_limit(folder + "/memory.high"));
    }
  }
  return lowest;
}

std::optional<double> Cgroup::cpu_quota() const {
  std::optional<double> lowest;
  const auto lower_to = [&](std::optional<std::uint64_t> quota,
                            std::optional<std::uint64_t> period) {
    if (!quota || !period || *quota == 0 || *period == 0) return;
    lowest = std::min(lowest.value_or(share(*quota, *period)), share(*quota, *period));
  };
  for (const std::string& folder : cpu_folders_) {
    if (cpu_version_ == Version::v1) {
      // "-1" is no quota.
      lower_to(number(read_small_file(folder + "/cpu.cfs_quota_us")),
               number(read_small_file(folder + "/cpu.cfs_period_us")));
      continue;
    }
    const std::string cpu_max =
        read_small_file(folder + "/cpu.max");  // "max 100000", "150000 100000"
    const std::size_t blank = cpu_max.find(' ');
    if (blank == std::string::npos) continue;
    lower_to(number(std::string_view(cpu_max).substr(0, blank)),
             number(std::string_view(cpu_max).substr(blank + 1)));
  }
  return lowest;
}

CgroupMemory Cgroup::read_memory() const {
  CgroupMemory memory;
  const bool v1 = memory_version_ == Version::v1;
  bool own = true;
  for (const std::string& folder : memory_folders_) {
    const std::uint64_t usage =
        number(read_small_file(folder + (v1 ? "/memory.usage_in_bytes" : "/memory.current")))
            .value_or(0);
    const bool is_own = std::exchange(own, false);
    if (is_own) memory.usage_bytes = usage;
    const auto max = read_limit(folder + (v1 ? "/memory.limit_in_bytes" : "/memory.max"));
    // Version 1 has no such file.
    const auto high = read_limit(folder + "/memory.high");
    if (!max && !high) continue;
    const std::string stat = read_small_file(folder + "/memory.stat");
    const std::uint64_t cache = stat_value(stat, v1 ? "total_inactive_file" : "inactive_file");
    const std::uint64_t used = usage - std::min(usage, cache);
    lower(memory.max_bytes, max);
    lower(memory.high_bytes, high);
    const std::uint64_t active = is_own ? 0 : stat_value(stat, "active_file");
    const double max_share = max ? share(used, *max) : 0;
    const double high_share = high ? share(used - std::min(used, active), *high) : 0;
    memory.max_share = std::max(memory.max_share, max_share);
    memory.high_share = std::max(memory.high_share, high_share);
    if (!is_own) continue;
    memory.own_max_share = max_share;
    memory.own_high_share = high_share;
  }
  return memory;
}

std::string Cgroup::psi_file() const {
  if (memory_version_ == Version::v2) {
    const std::string own = memory_folders_.front() + "/memory.pressure";
    if (parse_psi(read_small_file(own))) return own;
  }
  const std::string machine = root_ + "/proc/pressure/memory";
  return parse_psi(read_small_file(machine)) ? machine : std::string();
}

std::optional<Psi> Cgroup::read_psi() const {
  const std::string file = psi_file();
  if (file.empty()) return std::nullopt;
  return parse_psi(read_small_file(file));
}

std::string_view cgroup_version_name(Cgroup::Version version) noexcept {
  constexpr std::string_view names[] = {"none", "v1", "v2"};
  return names[static_cast<std::size_t>(version)];
}

}  // namespace spillway
