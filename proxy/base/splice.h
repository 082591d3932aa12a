// Pipes through which bytes pass from one socket to another without being copied: splice(2).
//
// Bytes in a pipe belong to the kernel: they are neither seen nor counted here. On loopback a spliced byte costs half
// as much as one that is received and sent. A process that splices ignores SIGPIPE.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "allocator/limits.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/transport.h"

namespace spillway {

// An empty pipe may be reused for any transfer; destroying a pipe drops its bytes. Move-only; one thread at a time.
class SplicePipe {
 public:
  static constexpr std::size_t bytes_max = 256 * limits::kib;  // at most; the kernel may grant less

  // nullopt: the kernel grants none.
  static std::optional<SplicePipe> make() noexcept;
  SplicePipe(SplicePipe&&) noexcept = default;
  SplicePipe& operator=(SplicePipe&&) noexcept = default;

  // Without waiting. REQUIRES empty() and from.can_splice().
  IoResult fill(Transport& from, std::size_t most) noexcept;
  // REQUIRES !empty() and to.can_splice().
  IoResult drain(Transport& to) noexcept;
  // Copies all that lies in it out; false: the kernel failed. REQUIRES into.size() == bytes().
  bool take(MutableBytes into) noexcept;
  std::size_t bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_ == 0; }

 private:
  SplicePipe(FileDescriptor out, FileDescriptor in) noexcept : out_(std::move(out)), in_(std::move(in)) {}

  FileDescriptor out_, in_;
  std::size_t bytes_ = 0;
};

// A loop's unused pipes. Its thread only.
class SplicePipes {
 public:
  std::optional<SplicePipe> take() noexcept;
  void give_back(SplicePipe pipe);  // one that is not empty is closed

 private:
  static constexpr std::size_t idle_max = 4;
  std::vector<SplicePipe> idle_;
};

}  // namespace spillway
