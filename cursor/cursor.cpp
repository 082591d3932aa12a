#include "cursor/cursor.h"

namespace spillway {

bool ClusterCursor::exhausted() const noexcept {
  if (stashed) return false;
  if (stage) return stage_finished && stage->exhausted();
  if (limit_remaining && *limit_remaining <= 0) return true;
  for (const RemoteCursor& remote : remotes) {
    if (!remote.finished()) return false;
  }
  return true;
}

std::size_t ClusterCursor::buffered_bytes() const noexcept {
  std::size_t bytes = stashed ? stashed->size() : 0;
  for (const RemoteCursor& remote : remotes) {
    for (const Batch& batch : remote.batches) bytes += batch.held_bytes();
  }
  return bytes;
}

std::size_t ClusterCursor::open_remotes() const noexcept {
  std::size_t open = 0;
  for (const RemoteCursor& remote : remotes) open += remote.id != 0 ? 1 : 0;
  return open;
}

}  // namespace spillway
