#include "allocator/spill_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

namespace spillway {

namespace {

std::string folder_error(const std::string& folder, const char* what) {
  return folder + ": " + what + ": " + std::strerror(errno);
}

class UnnamedFile final : public SpillFile {
 public:
  UnnamedFile(int fd, bool on_tmpfs) : fd_(fd), on_tmpfs_(on_tmpfs) {}
  ~UnnamedFile() override { ::close(fd_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  ssize_t write(std::span<const std::uint8_t> from, std::uint64_t offset) override {
    return result(::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset)));
  }
  ssize_t read(std::span<std::uint8_t> into, std::uint64_t offset) override {
    return result(::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset)));
  }
  int punch(std::uint64_t offset, std::uint64_t bytes) override {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const int done = ::fallocate(fd_, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    return done == 0 ? 0 : -errno;
  }
  int truncate(std::uint64_t bytes) override {
    return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : -errno;
  }
  bool on_tmpfs() const override { return on_tmpfs_; }

 private:
  // Interrupted: nothing was moved, try again.
  static ssize_t result(ssize_t moved) { return moved >= 0 ? moved : -errno; }

  int fd_;
  bool on_tmpfs_;
};

// Some file systems do not support files without a name: then a file whose name is removed at once.
int open_unnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = folder + "/.spillway-spill-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

std::string try_out(SpillFile& file, const std::string& folder) {
  std::array<std::uint8_t, 4096> out{}, in{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint8_t>(i * 7 + 1);
  errno = 0;
  const ssize_t written = file.write(out, 0);
  if (written < 0) errno = static_cast<int>(-written);
  if (written != static_cast<ssize_t>(out.size())) return folder_error(folder, "cannot be written to");
  const ssize_t read = file.read(in, 0);
  if (read < 0) errno = static_cast<int>(-read);
  if (read != static_cast<ssize_t>(in.size())) return folder_error(folder, "cannot be read from");
  if (in != out) return folder + ": does not give back what was written";
  file.truncate(0);
  return {};
}

}  // namespace

OpenedSpillFile open_spill_file(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {nullptr, folder_error(folder, "cannot be used"), 0};
  if (!S_ISDIR(status.st_mode)) return {nullptr, folder + ": is no folder", 0};
  const int fd = open_unnamed(folder);
  if (fd < 0) return {nullptr, folder_error(folder, "no file can be made in it"), 0};
  struct statfs system {};
  const bool known = ::fstatfs(fd, &system) == 0;
  const bool in_memory = known && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
  auto file = std::make_unique<UnnamedFile>(fd, in_memory);
  if (std::string error = try_out(*file, folder); !error.empty())
    return {nullptr, std::move(error), 0};
  std::uint64_t free_bytes = std::numeric_limits<std::uint64_t>::max();
  if (known)
    free_bytes = std::uint64_t{system.f_bavail} * static_cast<std::uint64_t>(system.f_bsize);
  return {std::move(file), {}, free_bytes};
}

}  // namespace spillway
