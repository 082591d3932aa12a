#include "allocator/small_blocks.h"

#include <array>
#include <bit>
#include <cstdlib>

namespace spillway::small_blocks {

namespace {

constexpr std::size_t step_bytes = 16;        // between the first classes,
constexpr std::size_t even_bytes_max = 64;    // up to here
// Free blocks that a thread keeps: enough for some hundred operations under way.
constexpr std::size_t kept_bytes_max = 256 * 1024;
// AddressSanitizer must know at once that a block is free.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool recycles = false;
#else
constexpr bool recycles = true;
#endif

// The class of a rounded size: 16, 32, 48, 64, 80, 96, 112, 128, 160, …
constexpr std::size_t class_of(std::size_t rounded_bytes) noexcept {
  if (rounded_bytes <= even_bytes_max) return rounded_bytes / step_bytes - 1;
  const auto doubling = static_cast<std::size_t>(std::bit_width((rounded_bytes - 1) / even_bytes_max));
  const std::size_t start = even_bytes_max << (doubling - 1);
  return 3 + (doubling - 1) * 4 + (rounded_bytes - start) / (start / 4);
}
constexpr std::size_t classes = class_of(block_bytes_max) + 1;
static_assert(class_of(64) == 3 && class_of(80) == 4 && class_of(160) == 8 && classes == 36);

struct Free {
  Free* next;
};

struct Lists {
  std::array<Free*, classes> heads{};
  std::size_t bytes = 0;

  ~Lists();
};

thread_local Lists lists;
// Has no destructor: blocks that come back after the lists are gone still read it.
thread_local bool closed = false;

Lists::~Lists() {
  closed = true;
  for (Free* head : heads) {
    while (head != nullptr) {
      Free* const next = head->next;
      std::free(head);
      head = next;
    }
  }
}

}  // namespace

std::size_t rounded(std::size_t bytes) noexcept {
  if (bytes <= even_bytes_max) {
    return bytes == 0 ? step_bytes : (bytes + step_bytes - 1) / step_bytes * step_bytes;
  }
  const std::size_t step = std::bit_ceil(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

void* take(std::size_t bytes) noexcept {
  if (bytes > block_bytes_max) return std::malloc(bytes);
  const std::size_t whole = rounded(bytes);
  if (recycles && !closed) {
    Free*& head = lists.heads[class_of(whole)];
    if (head != nullptr) {
      Free* const block = head;
      head = block->next;
      lists.bytes -= whole;
      return block;
    }
  }
  return std::malloc(whole);
}

void give_back(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const std::size_t whole = bytes > block_bytes_max ? bytes : rounded(bytes);
  if (!recycles || closed || whole > block_bytes_max || lists.bytes + whole > kept_bytes_max) {
    std::free(block);
    return;
  }
  Free*& head = lists.heads[class_of(whole)];
  auto* const node = static_cast<Free*>(block);
  node->next = head;
  head = node;
  lists.bytes += whole;
}

std::size_t kept_bytes() noexcept { return closed ? 0 : lists.bytes; }

}  // namespace spillway::small_blocks
