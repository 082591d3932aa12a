#include "cursor/cursor_id.h"

#include <sys/random.h>

#include <array>

namespace spillway {

// From the kernel's generator, fetched in blocks.
std::int64_t random_cursor_id() {
  struct RandomBlock {
    std::array<std::uint64_t, 64> words;
    std::size_t used = 64;
  };
  thread_local RandomBlock block;
  for (;;) {
    if (block.used == block.words.size()) {
      std::size_t have = 0;
      auto* bytes = reinterpret_cast<std::uint8_t*>(block.words.data());
      while (have < sizeof block.words) {
        const ssize_t n = ::getrandom(bytes + have, sizeof block.words - have, 0);
        if (n > 0) have += static_cast<std::size_t>(n);
      }
      block.used = 0;
    }
    const auto id = static_cast<std::int64_t>(block.words[block.used++] >> 1);
    if (id != 0) return id;
  }
}

}  // namespace spillway
