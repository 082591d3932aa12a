// CallCountsList: the CallCounts of every shard that a worker knows. Grows on the worker's thread while others read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "proxy/shard/gateway.h"

namespace spillway::shard {

class CallCountsList {
  static constexpr std::size_t block_size = 16;
  // Never moves. A reader follows `next` only to a shard that it saw counted in size_.
  struct Block {
    std::array<CallCounts, block_size> counts;
    std::unique_ptr<Block> next;
  };
  template <class B>
  static auto& at(B& block, std::size_t shard) noexcept {
    B* holder = &block;
    for (; shard >= block_size; shard -= block_size) holder = holder->next.get();
    return holder->counts[shard];
  }

 public:
  // --- the worker's thread
  void add_shard() {
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size > 0 && size % block_size == 0) {
      Block* last = &first_;
      while (last->next) last = last->next.get();
      last->next = std::make_unique<Block>();
    }
    size_.store(size + 1, std::memory_order_release);
  }
  CallCounts& operator[](std::size_t shard) noexcept { return at(first_, shard); }

  // --- any thread. Null: there is no such shard.
  const CallCounts* find(std::size_t shard) const noexcept {
    return shard < size_.load(std::memory_order_acquire) ? &at(first_, shard) : nullptr;
  }

 private:
  Block first_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace spillway::shard
