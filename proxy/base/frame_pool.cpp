#include "proxy/base/frame_pool.h"

#include <array>
#include <cstdlib>
#include <new>

namespace spillway::frame_pool {

namespace {

constexpr std::size_t class_bytes = 128;
constexpr std::size_t classes = 64;          // frames up to 8 KiB
constexpr std::size_t kept_per_class_max = 256;  // at most 8 MiB a thread if all were full of large frames

struct Free {
  Free* next;
};

struct Pool {
  struct List {
    Free* head = nullptr;
    std::size_t count = 0;
  };
  std::array<List, classes> lists;
  std::size_t misses = 0;

  ~Pool() {
    for (List& list : lists) {
      while (list.head != nullptr) {
        Free* next = list.head->next;
        std::free(list.head);
        list.head = next;
      }
    }
  }
};

thread_local Pool pool;

std::size_t class_of(std::size_t bytes) noexcept { return (bytes + class_bytes - 1) / class_bytes; }

}  // namespace

void* take(std::size_t bytes) {
  const std::size_t index = class_of(bytes);
  if (index < classes) {
    Pool::List& list = pool.lists[index];
    if (list.head != nullptr) {
      Free* frame = list.head;
      list.head = frame->next;
      --list.count;
      return frame;
    }
  }
  ++pool.misses;
  void* frame = std::malloc(index * class_bytes);
  if (frame == nullptr) throw std::bad_alloc();
  return frame;
}

void give(void* frame, std::size_t bytes) noexcept {
  const std::size_t index = class_of(bytes);
  if (index < classes && pool.lists[index].count < kept_per_class_max) {
    Pool::List& list = pool.lists[index];
    auto* node = static_cast<Free*>(frame);
    node->next = list.head;
    list.head = node;
    ++list.count;
    return;
  }
  std::free(frame);
}

std::size_t misses() noexcept { return pool.misses; }

}  // namespace spillway::frame_pool
