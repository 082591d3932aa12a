#include "proxy/base/splice.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace spillway {

std::optional<SplicePipe> SplicePipe::make() noexcept {
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return std::nullopt;
  FileDescriptor out(ends[0]);
  FileDescriptor in(ends[1]);
  ::fcntl(in.get(), F_SETPIPE_SZ, static_cast<int>(bytes_max));  // without it: 64 KiB, which is enough, too
  return SplicePipe(std::move(out), std::move(in));
}

IoResult SplicePipe::fill(Transport& from, std::size_t most) noexcept {
  const IoResult got = from.splice_into(in_.get(), most < bytes_max ? most : bytes_max);
  if (got.ok()) bytes_ = got.bytes;
  return got;
}

IoResult SplicePipe::drain(Transport& to) noexcept {
  const IoResult sent = to.splice_from(out_.get(), bytes_);
  if (sent.ok()) bytes_ -= sent.bytes;
  return sent;
}

bool SplicePipe::take(MutableBytes into) noexcept {
  while (!into.empty()) {
    const ssize_t n = ::read(out_.get(), into.data(), into.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(n));
    bytes_ -= static_cast<std::size_t>(n);
  }
  return true;
}

std::optional<SplicePipe> SplicePipes::take() noexcept {
  if (idle_.empty()) return SplicePipe::make();
  std::optional<SplicePipe> pipe(std::move(idle_.back()));
  idle_.pop_back();
  return pipe;
}

void SplicePipes::give_back(SplicePipe pipe) {
  if (pipe.empty() && idle_.size() < idle_max) idle_.push_back(std::move(pipe));
}

}  // namespace spillway
