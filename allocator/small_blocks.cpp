#include "allocator/small_blocks.h"

#include <array>

namespace spillway::small_blocks {

namespace {

// Free blocks that a thread keeps: enough for some hundred operations under way.
constexpr std::size_t kept_bytes_max = 512 * 1024;
// AddressSanitizer must know at once that a block is free.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool recycles = false;
#else
constexpr bool recycles = true;
#endif

struct Free {
  Free* next;
};

struct Lists {
  std::array<Free*, detail::classes> heads{};
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

void* detail::take(std::size_t size_class, std::size_t rounded_bytes) noexcept {
  if (recycles && !closed) {
    Free*& head = lists.heads[size_class];
    if (head != nullptr) {
      Free* const block = head;
      head = block->next;
      lists.bytes -= rounded_bytes;
      return block;
    }
  }
  return std::malloc(rounded_bytes);
}

void detail::give_back(void* block, std::size_t size_class, std::size_t rounded_bytes) noexcept {
  if (block == nullptr) return;
  if (!recycles || closed || lists.bytes + rounded_bytes > kept_bytes_max) {
    std::free(block);
    return;
  }
  Free*& head = lists.heads[size_class];
  auto* const node = static_cast<Free*>(block);
  node->next = head;
  head = node;
  lists.bytes += rounded_bytes;
}

std::size_t kept_bytes() noexcept { return closed ? 0 : lists.bytes; }

}  // namespace spillway::small_blocks
