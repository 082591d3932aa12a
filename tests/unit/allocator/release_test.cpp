// When free memory is given back, and what a release reports.
#include "allocator/release.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "allocator/buffer.h"
#include "allocator/buffer_heaps.h"
#include "allocator/heaps.h"
#include "tests/unit/allocator/heap_support.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

constexpr std::int64_t ms = 1'000'000;
using test::mib;

ReleaseSchedule::Counters counters(std::uint64_t taken, std::uint64_t freed, bool decays = false) {
  return {freed, taken, decays};
}

TEST_CASE("a release is due once much was freed and the load is over", "[release]") {
  ReleaseSchedule schedule({});
  CHECK(schedule.step(0, counters(100 * mib, 0)) == 0);
  CHECK(schedule.step(100 * ms, counters(100 * mib, 100 * mib)) == 0);   // busy a moment ago
  CHECK(schedule.step(1000 * ms, counters(109 * mib, 108 * mib)) == 0);  // still busy
  CHECK(schedule.step(1700 * ms, counters(110 * mib, 110 * mib)) == 0);
  CHECK(schedule.step(1900 * ms, counters(110 * mib, 110 * mib)) ==
        reason_bit(ReleaseReason::exhaustion));
  CHECK(schedule.step(2000 * ms, counters(110 * mib, 110 * mib)) == 0);  // under way
  schedule.finished(2500 * ms);
  CHECK(schedule.step(9000 * ms, counters(110 * mib, 110 * mib)) == 0);  // nothing new was freed
}

TEST_CASE("little freed memory is let be", "[release]") {
  ReleaseSchedule schedule({});
  CHECK(schedule.step(0, counters(7 * mib, 7 * mib)) == 0);
  CHECK(schedule.step(60'000 * ms, counters(7 * mib, 7 * mib)) == 0);
  CHECK(schedule.step(60'100 * ms, counters(8 * mib, 8 * mib)) == 0);
  CHECK(schedule.step(62'000 * ms, counters(8 * mib, 8 * mib)) != 0);
}

TEST_CASE("ends of cursors release at once, coalesced and rate-limited", "[release]") {
  ReleaseSchedule schedule({});
  schedule.request(ReleaseReason::kill);
  schedule.request(ReleaseReason::expiry);
  schedule.request(ReleaseReason::kill);
  const auto both = static_cast<ReleaseReasons>(reason_bit(ReleaseReason::kill) |
                                                reason_bit(ReleaseReason::expiry));
  CHECK(schedule.step(10 * ms, counters(50 * mib, 50 * mib)) == both);
  schedule.request(ReleaseReason::orphan);
  CHECK(schedule.step(20 * ms, counters(90 * mib, 90 * mib)) == 0);  // one is under way
  schedule.finished(100 * ms);
  CHECK(schedule.step(150 * ms, counters(90 * mib, 90 * mib)) == 0);  // too soon
  CHECK((schedule.step(350 * ms, counters(90 * mib, 90 * mib)) &
         reason_bit(ReleaseReason::orphan)) != 0);
}

TEST_CASE("ends of cursors that held little release once in a while", "[release]") {
  ReleaseSchedule schedule({});
  schedule.request(ReleaseReason::kill);
  CHECK(schedule.step(0, counters(0, 0)) == reason_bit(ReleaseReason::kill));
  schedule.finished(0);
  schedule.request(ReleaseReason::kill);
  CHECK(schedule.step(1000 * ms, counters(0, 0)) == 0);
  CHECK(schedule.waiting());
  CHECK(schedule.step(5000 * ms, counters(0, 0)) == reason_bit(ReleaseReason::kill));
  CHECK_FALSE(schedule.waiting());
}

TEST_CASE("a command is not made to wait for the interval", "[release]") {
  ReleaseSchedule schedule({});
  schedule.request(ReleaseReason::command);
  CHECK(schedule.step(0, counters(0, 0)) == reason_bit(ReleaseReason::command));
  schedule.finished(1 * ms);
  schedule.request(ReleaseReason::command);
  CHECK(schedule.step(2 * ms, counters(0, 0)) == reason_bit(ReleaseReason::command));
}

TEST_CASE("under a heap that decays, memory goes back while the load goes on", "[release]") {
  for (const bool decays : {false, true}) {
    ReleaseSchedule schedule({});
    std::uint64_t total = 0;
    int releases = 0;
    for (std::int64_t now = 0; now < 60'000 * ms; now += 250 * ms) {
      total += 50 * mib;
      if (schedule.step(now, counters(total, total - mib, decays)) == 0) continue;
      ++releases;
      schedule.finished(now);
    }
    CHECK(releases == (decays ? 12 : 0));
  }
}

TEST_CASE("the histogram's buckets hold what their bounds say", "[release]") {
  SliceHistogram histogram;
  for (const std::uint64_t us : {0, 49, 50, 99, 999, 1000, 4999, 5000, 70'000}) histogram.add(us, us / 2);
  CHECK(histogram.counts == std::array<std::uint64_t, 8>{2, 2, 0, 0, 1, 1, 1, 2});
  CHECK(histogram.longest_us == 70'000);
  CHECK(histogram.longest_cpu_us == 35'000);
}

class HeapRestored {
 public:
  ~HeapRestored() { BufferHeaps::select(before_); }
  Heap& before_ = BufferHeaps::current();
};

void use_and_free(std::uint64_t bytes) {
  MemoryBudget budget("budget", 0);
  std::vector<Buffer> buffers;
  for (std::uint64_t at = 0; at < bytes; at += mib) {
    buffers.push_back(*Buffer::allocate(budget, mib));
    std::memset(buffers.back().data(), 3, mib);
  }
}

// Waits until a release has ended that began after this call. nullopt: not in time.
std::optional<ReleaseRecord> release_now(Releaser& releaser, ReleaseReason reason, std::chrono::milliseconds at_most) {
  // Shared with the callback, which may run after the wait has ended.
  struct Answer {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<ReleaseRecord> record;
  };
  auto answer = std::make_shared<Answer>();
  releaser.request(reason, [answer](const ReleaseRecord& record) {
    const std::lock_guard lock(answer->mutex);
    answer->record = record;
    answer->came.notify_all();
  });
  std::unique_lock lock(answer->mutex);
  answer->came.wait_for(lock, at_most, [&] { return answer->record.has_value(); });
  return answer->record;
}

TEST_CASE("a release gives back what every heap keeps, and says so", "[release]") {
  const HeapRestored restored;
  Releaser releaser({});
  releaser.start(nullptr);
  REQUIRE(release_now(releaser, ReleaseReason::command, std::chrono::seconds(20)));
  for (Heap* heap : linked_heaps()) {
    INFO(heap->name());
    BufferHeaps::select(*heap);
    use_and_free(64 * mib);
    const std::uint64_t number = releaser.statistics().releases;
    const auto record = release_now(releaser, ReleaseReason::command, std::chrono::seconds(20));
    REQUIRE(record);
    CHECK(record->number > number);
    CHECK((record->reasons & reason_bit(ReleaseReason::command)) != 0);
    CHECK(heap->usage().kept_bytes < 4 * mib);
    if (sanitized || heap->name() == "system") continue;  // nothing was kept
    CHECK(record->given_back_bytes >= 60 * mib);
    CHECK(record->resident_before_bytes > record->resident_after_bytes + 56 * mib);
    CHECK(record->slices.longest_us <= record->total_us);
    std::uint64_t slices = 0;
    for (const std::uint64_t count : record->slices.counts) slices += count;
    CHECK(slices >= 60);
  }
  const ReleaserStatistics statistics = releaser.statistics();
  CHECK(statistics.by_reason[static_cast<std::size_t>(ReleaseReason::command)] ==
        statistics.releases);
  CHECK(statistics.history.size() == statistics.releases);
  releaser.stop();
  CHECK_FALSE(release_now(releaser, ReleaseReason::command, std::chrono::milliseconds(1)));
}

TEST_CASE("the history keeps the latest releases", "[release]") {
  Releaser releaser({});
  releaser.start(nullptr);
  for (std::size_t i = 0; i < Releaser::history_max + 5; ++i) {
    REQUIRE(release_now(releaser, ReleaseReason::command, std::chrono::seconds(20)));
  }
  const ReleaserStatistics statistics = releaser.statistics();
  CHECK(statistics.history.size() == Releaser::history_max);
  CHECK(statistics.history.back().number == statistics.releases);
  CHECK(statistics.history.front().number == statistics.releases - Releaser::history_max + 1);
}

TEST_CASE("threads' caches are flushed before the heaps are purged", "[release]") {
  Releaser releaser({});
  std::atomic<int> flushed{0};
  std::vector<std::thread> threads;
  releaser.start([&] {
    auto round = std::make_shared<CacheFlush>(2);
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([round, &flushed] {
        round->flush_here();
        ++flushed;
      });
    }
    return round;
  });
  const auto record = release_now(releaser, ReleaseReason::command, std::chrono::seconds(20));
  REQUIRE(record);
  releaser.stop();
  for (std::thread& thread : threads) thread.join();
  CHECK(flushed.load() == 2);
}

TEST_CASE("a thread that does not answer does not hold a release up", "[release]") {
  Releaser releaser({});
  releaser.start([] { return std::make_shared<CacheFlush>(1); });
  const auto record = release_now(releaser, ReleaseReason::command, std::chrono::seconds(20));
  REQUIRE(record);
  CHECK(record->flush_us >= 90'000);
}

TEST_CASE("releases run beside threads that use the heaps", "[release][thread]") {
  const HeapRestored restored;
  Releaser releaser({});
  releaser.start(nullptr);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) use_and_free(8 * mib);
    });
  }
  for (int round = 0; round < 12; ++round) {
    BufferHeaps::select(*linked_heaps()[static_cast<std::size_t>(round) % linked_heaps().size()]);
    releaser.request(ReleaseReason::kill);
    CHECK(release_now(releaser, ReleaseReason::pressure, std::chrono::seconds(20)));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(releaser.statistics().releases >= 12);
  for (Heap* heap : linked_heaps()) CHECK(heap->usage().in_use_bytes == 0);
}

TEST_CASE("stopping in the middle of a release ends it", "[release][thread]") {
  for (int round = 0; round < 5; ++round) {
    Releaser releaser({});
    releaser.start(nullptr);
    use_and_free(64 * mib);
    releaser.request(ReleaseReason::expiry);
    releaser.stop();
  }
}

TEST_CASE("a request that the end overtakes is answered all the same", "[release][thread]") {
  for (int round = 0; round < 5; ++round) {
    Releaser releaser({});
    releaser.start(nullptr);
    use_and_free(64 * mib);
    releaser.request(ReleaseReason::expiry);
    std::atomic<int> answers = 0;
    for (int i = 0; i < 3; ++i) releaser.request(ReleaseReason::command, [&](const ReleaseRecord&) { ++answers; });
    releaser.stop();
    CHECK(answers == 3);
  }
}

}  // namespace
}  // namespace spillway
