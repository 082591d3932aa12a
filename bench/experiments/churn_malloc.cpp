// churn_malloc: the churn through malloc, whichever library serves it: LD_PRELOAD decides.
#include <cstdio>
#include <cstdlib>

#include "bench/experiments/churn.h"

namespace {

class Malloc final : public spillway::bench::MemorySource {
 public:
  spillway::bench::Piece take(std::size_t bytes) override {
    void* data = std::malloc(bytes);
    if (data == nullptr) {
      std::fprintf(stderr, "churn_malloc: no memory\n");
      std::exit(1);
    }
    return {.data = data, .bytes = bytes};
  }
  void give_back(const spillway::bench::Piece& piece) override { std::free(piece.data); }
};

}  // namespace

int main(int argc, char** argv) {
  Malloc source;
  return spillway::bench::churn_main(argc, argv, source);
}
