// churn_layer HEAP: the churn through the proxy's own memory layer: pieces of 16 KiB and more are
// blocks of the buffer heap that memory.allocator names, smaller ones come from plain malloc, and
// what is free goes back as the proxy's releases decide.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "allocator/buffer_heaps.h"
#include "allocator/heaps.h"
#include "allocator/memory_layer.h"
#include "bench/experiments/churn.h"

namespace {

using spillway::Block;
using spillway::bench::Piece;

class Layer final : public spillway::bench::MemorySource {
 public:
  explicit Layer(spillway::AllocatorChoice choice) {
    spillway::MemoryLayerSettings settings;
    settings.choice = choice;
    const auto problem = layer_.start(
        settings, [](const auto&) {}, nullptr);
    if (problem) {
      std::fprintf(stderr, "churn_layer: %s\n", problem->c_str());
      std::exit(2);
    }
  }
  ~Layer() override { layer_.stop(); }

  Piece take(std::size_t bytes) override {
    Piece piece{.bytes = bytes};
    if (bytes >= spillway::block_bytes_min) {
      const Block block = spillway::BufferHeaps::current().take(bytes);
      piece.data = block.data;
      piece.block_bytes = block.bytes;
      piece.heap = block.heap;
      piece.span = block.span;
    } else {
      piece.data = std::malloc(bytes);
    }
    if (piece.data == nullptr) {
      std::fprintf(stderr, "churn_layer: no memory\n");
      std::exit(1);
    }
    return piece;
  }
  void give_back(const Piece& piece) override {
    if (piece.heap == nullptr) return std::free(piece.data);
    auto* heap = static_cast<spillway::Heap*>(piece.heap);
    heap->give_back({static_cast<std::uint8_t*>(piece.data), piece.block_bytes, heap,
                     static_cast<spillway::Span*>(piece.span)});
  }
  void tick() override {
    if (++ticks_ % 10 == 0) {
      layer_.tick(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
    }
  }

 private:
  spillway::MemoryLayer layer_;
  int ticks_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto choice = argc > 1 ? spillway::find_allocator_choice(argv[1]) : std::nullopt;
  if (!choice) {
    std::fprintf(stderr, "usage: churn_layer auto|jemalloc|tcmalloc|system [--ticks N ...]\n");
    return 2;
  }
  Layer source(*choice);
  return spillway::bench::churn_main(argc - 1, argv + 1, source);
}
