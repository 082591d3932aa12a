// Cutting blocks from spans, over a source that can be counted and run dry.
#include "allocator/span_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "tests/unit/allocator/heap_support.h"

namespace spillway {
namespace {

class CountedSource final : public SpanSource {
 public:
  void* take_span() noexcept override {
    if (spans >= spans_max) return nullptr;
    ++spans;
    return std::aligned_alloc(4096, span_bytes);
  }
  void give_back_span(void* base) noexcept override {
    --spans;
    std::free(base);
  }
  std::size_t spans = 0, spans_max = SIZE_MAX;
};

TEST_CASE("classes are parts of a span, from 16 to 512 KiB", "[span_pool]") {
  CHECK(SpanPool::class_bytes(SpanPool::class_of(1)) == 16 * 1024);
  CHECK(SpanPool::class_bytes(SpanPool::class_of(16 * 1024)) == 16 * 1024);
  CHECK(SpanPool::class_bytes(SpanPool::class_of(16 * 1024 + 1)) == 24 * 1024);
  CHECK(SpanPool::class_bytes(SpanPool::class_of(64 * 1024)) == 64 * 1024);
  CHECK(SpanPool::class_bytes(SpanPool::class_of(168'000)) == 168 * 1024);
  CHECK(SpanPool::class_bytes(SpanPool::class_of(512 * 1024)) == 512 * 1024);
  for (std::size_t index = 0; index < SpanPool::classes; ++index) {
    CHECK(SpanPool::class_bytes(index) % 4096 == 0);
    // Little of a span is left over.
    CHECK(span_bytes % SpanPool::class_bytes(index) < span_bytes / 25);
  }
  CHECK_FALSE(SpanPool::serves(512 * 1024 + 1));
  for (std::size_t bytes = 1; SpanPool::serves(bytes); bytes += 1111) {
    const std::size_t size_class = SpanPool::class_of(bytes);
    CHECK(SpanPool::class_bytes(size_class) >= bytes);
    if (size_class > 0) CHECK(SpanPool::class_bytes(size_class - 1) < bytes);
  }
}

TEST_CASE("a span is cut completely before the next is taken", "[span_pool]") {
  CountedSource source;
  SpanPool pool(source);
  for (std::size_t size_class = 0; size_class < SpanPool::classes; ++size_class) {
    const std::size_t blocks = span_bytes / SpanPool::class_bytes(size_class);
    std::vector<SpanPool::Cut> cuts;
    std::set<std::uint8_t*> seen;
    for (std::size_t i = 0; i < blocks; ++i) {
      cuts.push_back(pool.take(size_class));
      REQUIRE(cuts.back().data != nullptr);
      std::memset(cuts.back().data, 7, SpanPool::class_bytes(size_class));
      CHECK(seen.insert(cuts.back().data).second);
    }
    CHECK(pool.spans() == 1);
    cuts.push_back(pool.take(size_class));
    CHECK(pool.spans() == 2);
    for (const auto& cut : cuts) pool.give_back(cut.data, cut.span);
    CHECK(pool.spans() == 1);  // one empty span is kept per class
    RecordingPacer pacer;
    pool.release(pacer);
    CHECK(pool.spans() == 0);
    CHECK(pool.kept_bytes() == 0);
  }
  CHECK(source.spans == 0);
}

TEST_CASE("a pool without memory says so and goes on later", "[span_pool]") {
  CountedSource source;
  source.spans_max = 1;
  SpanPool pool(source);
  const auto first = pool.take(SpanPool::classes - 1), second = pool.take(SpanPool::classes - 1);
  REQUIRE((first.data && second.data));
  CHECK(pool.take(SpanPool::classes - 1).data == nullptr);
  CHECK(pool.take(0).data == nullptr);
  pool.give_back(first.data, first.span);
  const auto third = pool.take(SpanPool::classes - 1);
  CHECK(third.data == first.data);
  pool.give_back(third.data, third.span);
  pool.give_back(second.data, second.span);
}

TEST_CASE("free blocks are counted as kept until a release cleans them", "[span_pool]") {
  CountedSource source;
  SpanPool pool(source);
  std::vector<SpanPool::Cut> cuts;
  for (int i = 0; i < 64; ++i) cuts.push_back(pool.take(0));
  for (int i = 0; i < 10; ++i) pool.give_back(cuts[static_cast<std::size_t>(i)].data, cuts[0].span);
  CHECK(pool.kept_bytes() == 10 * 16 * 1024);
  RecordingPacer pacer;
  pool.release(pacer);
  CHECK(pacer.slices == 1);  // neighbours go together
  CHECK(pacer.total == 10 * 16 * 1024);
  CHECK(pool.kept_bytes() == 0);
  CHECK(pool.given_back_bytes() == 10 * 16 * 1024);
  RecordingPacer again;
  pool.release(again);
  CHECK(again.slices == 0);
  // A clean block is taken last: its pages cost a fault.
  pool.give_back(cuts[40].data, cuts[40].span);
  CHECK(pool.take(0).data == cuts[40].data);
  for (std::size_t i = 10; i < 64; ++i) pool.give_back(cuts[i].data, cuts[i].span);
}

TEST_CASE("random use and releases lose and share no block", "[span_pool]") {
  CountedSource source;
  SpanPool pool(source);
  struct Held {
    SpanPool::Cut cut;
    std::size_t size_class;
    std::uint8_t mark;
  };
  std::vector<Held> held;
  std::mt19937 random(4711);
  std::uint64_t in_use = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 400 == 0) {
      RecordingPacer pacer;
      pacer.slices_max = random() % 2 == 0 ? UINT64_MAX : random() % 5;
      pool.release(pacer);
    } else if (held.size() < 200 && random() % 2 == 0) {
      const std::size_t size_class = random() % SpanPool::classes;
      const auto cut = pool.take(size_class);
      REQUIRE(cut.data != nullptr);
      const auto mark = static_cast<std::uint8_t>(random());
      // Both ends of the block are enough to notice another owner.
      cut.data[0] = cut.data[SpanPool::class_bytes(size_class) - 1] = mark;
      held.push_back({cut, size_class, mark});
      in_use += SpanPool::class_bytes(size_class);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      const Held last = held.back();
      held.pop_back();
      REQUIRE(last.cut.data[0] == last.mark);
      REQUIRE(last.cut.data[SpanPool::class_bytes(last.size_class) - 1] == last.mark);
      pool.give_back(last.cut.data, last.cut.span);
      in_use -= SpanPool::class_bytes(last.size_class);
    }
    REQUIRE(in_use + pool.kept_bytes() <= source.spans * span_bytes);
  }
  for (const Held& last : held) pool.give_back(last.cut.data, last.cut.span);
  RecordingPacer pacer;
  pool.release(pacer);
  CHECK(source.spans == 0);
  CHECK(pool.kept_bytes() == 0);
}

}  // namespace
}  // namespace spillway
