// SpillFile: the file behind a spill store, as an interface, so that tests can let a disk fail.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace spillway {

// Used by one thread at a time; its calls may block for as long as the disk does.
class SpillFile {
 public:
  virtual ~SpillFile() = default;
  // How many bytes were moved, which may be fewer than asked for (of a read: 0 at the file's end),
  // or -errno.
  virtual ssize_t write(std::span<const std::uint8_t> from, std::uint64_t offset) = 0;
  virtual ssize_t read(std::span<std::uint8_t> into, std::uint64_t offset) = 0;
  // 0 or -errno. punch() gives the space of a range back and keeps the file's length.
  virtual int punch(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual int truncate(std::uint64_t bytes) = 0;
  // Its bytes stay in memory and are charged to the cgroup: only compression gains.
  virtual bool on_tmpfs() const = 0;
};

struct OpenedSpillFile {
  std::unique_ptr<SpillFile> file;  // null: `error` says why
  std::string error;                // "<folder>: what is wrong"
  std::uint64_t free_bytes = 0;     // of the file system
};
// A file without a name in `folder`: it disappears with the process, however that ends. Writes and reads a block to
// see that it works.
OpenedSpillFile open_spill_file(const std::string& folder);

}  // namespace spillway
