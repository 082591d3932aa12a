// The store, driven by hand over a disk that fails when told to.
#include "allocator/spill.h"

#include <catch2/catch.hpp>
#include <future>

#include "tests/unit/allocator/spill_support.h"
#include "tests/support/units.h"

namespace spillway {
namespace {

using test::buffer_of;
using test::ByteVector;
using test::FakeDisk;
using test::FakeFile;
using test::random_bytes;
using test::text_bytes;

using test::mib;
constexpr std::int64_t second = 1'000'000'000;

// Cuts after about `wanted` bytes, at a multiple of 1,000.
std::size_t thousands(std::span<const std::uint8_t> rest, std::size_t wanted) noexcept {
  return std::min(rest.size(), std::max<std::size_t>(wanted / 1'000, 1) * 1'000);
}

struct World {
  explicit World(bool with_file = true, SpillOptions given = {.limit_bytes = 64 * mib})
      : options(given),
        store(options, spill, with_file ? std::make_unique<FakeFile>(disk) : nullptr,
              SpillStore::Drive::manual) {}

  SpillTicket park(const ByteVector& bytes, std::int64_t now = 0) {
    Buffer buffer = buffer_of(raw, bytes);
    auto ticket = store.park(buffer, 0, bytes.size(), thousands, now);
    REQUIRE(ticket);
    return *std::move(ticket);
  }
  void run() {
    while (store.run_one()) {
    }
  }
  SpillFetched fetch(SpillTicket& ticket) {
    std::optional<SpillFetched> result = store.fetch(ticket, raw, [&](SpillFetched fetched) {
      REQUIRE_FALSE(result);
      result = std::move(fetched);
    });
    run();
    REQUIRE(result);
    return *std::move(result);
  }
  // Everything that is left of a ticket; REQUIRES that no error comes.
  ByteVector fetch_all(SpillTicket& ticket) {
    ByteVector all;
    while (!ticket.empty()) {
      const SpillFetched fetched = fetch(ticket);
      REQUIRE(fetched.error == SpillError::none);
      REQUIRE(fetched.end > fetched.begin);
      all.insert(all.end(), fetched.buffer.data() + fetched.begin,
                 fetched.buffer.data() + fetched.end);
    }
    return all;
  }
  void check_nothing_is_left() {
    run();
    CHECK(raw.usage().used_bytes == 0);
    CHECK(spill.usage().used_bytes == 0);
    const SpillStats stats = store.stats();
    CHECK(stats.parked_bytes == 0);
    CHECK(stats.memory_bytes == 0);
    CHECK(stats.disk_bytes == 0);
    CHECK(disk.bytes.empty());
  }

  FakeDisk disk;
  MemoryBudget process{"process", 0};
  MemoryBudget raw{"raw", 0, &process}, spill{"spill", 0, &process};
  SpillOptions options;
  SpillStore store;
};

}  // namespace

TEST_CASE("parked_bytes_go_to_the_file_and_come_back", "[spill]") {
  World world;
  for (const ByteVector& bytes :
       {text_bytes(3'000'000, 1), random_bytes(1'000'001, 2), ByteVector(1, 7)}) {
    SpillTicket ticket = world.park(bytes);
    CHECK(ticket.memory_bytes() >= bytes.size());
    CHECK_FALSE(ticket.settled());
    world.run();
    CHECK(ticket.settled());
    CHECK(world.process.usage().used_bytes == 0);  // nothing of it is in memory
    CHECK(ticket.memory_bytes() == 0);
    CHECK(ticket.disk_bytes() > 0);
    CHECK(ticket.left_bytes() == bytes.size());
    CHECK(world.store.stats().disk_bytes == ticket.disk_bytes());
    CHECK(world.fetch_all(ticket) == bytes);
    CHECK(ticket.empty());
    CHECK(ticket.disk_bytes() == 0);
    world.check_nothing_is_left();
  }
  const SpillStats stats = world.store.stats();
  CHECK(stats.parks == 3);
  CHECK(stats.raw_bytes == 4'000'002);
  CHECK(stats.stored_bytes < 2'000'000);
  CHECK(stats.written_bytes == stats.stored_bytes);
  CHECK(stats.read_bytes == stats.stored_bytes);
  CHECK(stats.has_file);
}

TEST_CASE("without_a_file_compressed_bytes_stay_in_memory_charged_exactly", "[spill]") {
  World world(false);
  const ByteVector bytes = text_bytes(2'000'000, 3);
  SpillTicket ticket = world.park(bytes);
  world.run();
  CHECK(world.raw.usage().used_bytes == 0);
  CHECK(world.spill.usage().used_bytes == ticket.memory_bytes());
  CHECK(world.store.stats().memory_bytes == ticket.memory_bytes());
  CHECK(ticket.memory_bytes() < 1'000'000);
  CHECK(ticket.disk_bytes() == 0);
  CHECK(world.fetch_all(ticket) == bytes);
  world.check_nothing_is_left();
}

TEST_CASE("what_compression_cannot_shrink_stays_as_it_is_without_a_file", "[spill]") {
  World world(false);
  const ByteVector bytes = random_bytes(500'000, 4);
  SpillTicket ticket = world.park(bytes);
  const std::uint8_t* place = nullptr;
  world.run();
  CHECK(world.spill.usage().used_bytes == 0);
  CHECK(ticket.settled());
  CHECK(ticket.memory_bytes() >= bytes.size());
  CHECK(world.store.stats().given_up == 1);
  const SpillFetched fetched = world.fetch(ticket);  // the buffer itself, not a copy
  place = fetched.buffer.data();
  REQUIRE(fetched.end - fetched.begin == bytes.size());
  CHECK(std::equal(bytes.begin(), bytes.end(), place + fetched.begin));
  CHECK(ticket.empty());
}

TEST_CASE("only_the_named_part_of_a_buffer_is_parked", "[spill]") {
  World world;
  const ByteVector bytes = text_bytes(700'000, 5);
  Buffer buffer = buffer_of(world.raw, bytes);
  auto ticket = world.store.park(buffer, 100'001, 600'000, nullptr, 0);
  REQUIRE(ticket);
  SECTION("fetched before it is stored") {}
  SECTION("and after") { world.run(); }
  CHECK(world.fetch_all(*ticket) == ByteVector(bytes.begin() + 100'001, bytes.begin() + 600'000));
}

TEST_CASE("pieces_end_where_the_splitter_says_and_need_room_one_by_one", "[spill]") {
  World world(true, {.limit_bytes = 64 * mib, .piece_bytes = 10'500});
  const ByteVector bytes = text_bytes(95'500, 6);
  SpillTicket ticket = world.park(bytes);
  world.run();
  std::size_t pieces = 0;
  for (std::uint64_t left = bytes.size(); !ticket.empty(); ++pieces) {
    CHECK(ticket.left_bytes() == left);
    const SpillFetched fetched = world.fetch(ticket);
    REQUIRE(fetched.error == SpillError::none);
    CHECK(fetched.end - fetched.begin == std::min<std::uint64_t>(left, 10'000));
    CHECK(world.raw.usage().used_bytes == fetched.buffer.capacity());
    left -= fetched.end - fetched.begin;
  }
  CHECK(pieces == 10);
  world.check_nothing_is_left();
}

TEST_CASE("a_piece_larger_than_a_block_comes_back_in_one", "[spill]") {
  World world(true, {.limit_bytes = 64 * mib, .piece_bytes = 5 * mib});
  const ByteVector bytes = random_bytes(3 * mib + 5, 7);
  SpillTicket ticket = world.park(bytes);
  world.run();
  const SpillFetched fetched = world.fetch(ticket);
  CHECK(fetched.end == bytes.size());
  CHECK(std::equal(fetched.buffer.data(), fetched.buffer.data() + fetched.end, bytes.begin()));
}

TEST_CASE("without_room_in_the_budget_a_fetch_is_refused_and_may_be_repeated", "[spill]") {
  World world;
  MemoryBudget small("small", 100'000);
  const ByteVector bytes = text_bytes(400'000, 8);
  SpillTicket ticket = world.park(bytes);
  world.run();
  const auto refused = world.store.fetch(ticket, small, [](SpillFetched) { FAIL(); });
  REQUIRE(refused);
  CHECK(refused->error == SpillError::no_memory);
  CHECK(ticket.left_bytes() == bytes.size());
  CHECK(world.fetch_all(ticket) == bytes);
}

TEST_CASE("short_and_interrupted_calls_are_continued", "[spill]") {
  World world;
  world.disk.step_max = 777;
  world.disk.interruptions = 5;
  const ByteVector bytes = random_bytes(300'000, 9);
  SpillTicket ticket = world.park(bytes);
  world.run();
  CHECK(world.disk.writes > 300);
  world.disk.interruptions = 5;
  CHECK(world.fetch_all(ticket) == bytes);
  CHECK(world.store.stats().write_errors == 0);
}

TEST_CASE("a_disk_that_cannot_be_written_leaves_the_bytes_in_memory", "[spill]") {
  World world;
  const ByteVector random = random_bytes(800'000, 10), text = text_bytes(800'000, 11);
  SECTION("it is full at once") { world.disk.room = 0; }
  SECTION("it fills up in the middle") { world.disk.room = 300'000; }
  SECTION("it fails at once") { world.disk.write_error = EIO; }
  SECTION("it fails later") {
    world.disk.writes_left = 2;
    world.disk.write_error_later = EIO;
  }
  SpillTicket whole = world.park(random, second), packed = world.park(text, second);
  world.run();
  CHECK(world.store.stats().write_errors >= 1);
  CHECK(whole.disk_bytes() == 0);
  CHECK(whole.memory_bytes() >= random.size());
  CHECK(packed.memory_bytes() < text.size() / 2);  // compressed at least
  CHECK(packed.disk_bytes() == 0);
  CHECK(world.store.stats().given_up == 1);
  CHECK(world.fetch_all(whole) == random);
  CHECK(world.fetch_all(packed) == text);
  world.check_nothing_is_left();
}

TEST_CASE("a_disk_that_failed_is_left_alone_for_a_while_then_tried_again", "[spill]") {
  World world;
  world.disk.write_error = ENOSPC;
  const ByteVector bytes = random_bytes(300'000, 12);
  SpillTicket first = world.park(bytes, second);
  world.run();
  world.disk.write_error = 0;
  SpillTicket early = world.park(bytes, 5 * second);
  CHECK_FALSE(world.store.park_again(first, 5 * second));
  world.run();
  CHECK(world.disk.writes == 0);
  CHECK(early.disk_bytes() == 0);
  CHECK(first.settled());
  CHECK(world.store.park_again(first, 12 * second));
  CHECK_FALSE(first.settled());
  CHECK_FALSE(world.store.park_again(first, 12 * second));  // it waits already
  world.run();
  CHECK(first.disk_bytes() > 0);
  CHECK(first.memory_bytes() == 0);
  CHECK_FALSE(world.store.park_again(first, 90 * second));
  CHECK(world.fetch_all(first) == bytes);
  CHECK(world.fetch_all(early) == bytes);
  world.check_nothing_is_left();
}

TEST_CASE("the_limit_holds_and_room_is_used_again", "[spill]") {
  World world(true, {.limit_bytes = 1 * mib});
  const ByteVector bytes = random_bytes(600'000, 13);
  SpillTicket first = world.park(bytes), second_one = world.park(bytes);
  world.run();
  CHECK(first.disk_bytes() > 0);
  CHECK(second_one.disk_bytes() == 0);
  SpillStats stats = world.store.stats();
  CHECK(stats.no_room >= 1);
  CHECK(stats.write_errors == 0);
  CHECK(stats.disk_bytes <= 1 * mib);
  first = SpillTicket();
  world.run();
  CHECK(world.store.stats().disk_bytes == 0);
  CHECK(world.store.park_again(second_one, 20 * second));
  world.run();
  CHECK(second_one.disk_bytes() > 0);
  CHECK(world.disk.bytes.size() <= mib);
  CHECK(world.fetch_all(second_one) == bytes);
  world.check_nothing_is_left();
}

TEST_CASE("dropped_bytes_are_punched_out_of_the_file", "[spill]") {
  World world;
  SpillTicket first = world.park(random_bytes(500'000, 14)),
              last = world.park(random_bytes(500'000, 15));
  world.run();
  const std::size_t length = world.disk.bytes.size();
  first = SpillTicket();
  world.run();
  CHECK(world.disk.bytes.size() == length);
  CHECK(world.disk.punched_bytes >= 500'000);
  CHECK(world.store.stats().disk_bytes == last.disk_bytes());
  last = SpillTicket();
  world.check_nothing_is_left();
}

TEST_CASE("read_errors_are_told_and_lose_nothing_that_the_disk_gives_later", "[spill]") {
  World world;
  const ByteVector bytes = random_bytes(600'000, 16);
  SpillTicket ticket = world.park(bytes);
  world.run();
  world.disk.read_error = EIO;
  CHECK(world.fetch(ticket).error == SpillError::io);
  CHECK(world.fetch(ticket).error == SpillError::io);
  CHECK(world.store.stats().read_errors == 2);
  CHECK(world.raw.usage().used_bytes == 0);
  world.disk.read_error = 0;
  CHECK(world.fetch_all(ticket) == bytes);
  world.check_nothing_is_left();
}

TEST_CASE("a_piece_that_is_being_read_is_not_read_twice", "[spill]") {
  World world;
  const ByteVector bytes = text_bytes(100'000, 5);
  {
    SpillTicket ticket = world.park(bytes);
    world.run();
    int answers = 0;
    // The holder has stopped waiting for the first answer.
    CHECK_FALSE(world.store.fetch(ticket, world.raw, [&](SpillFetched) { ++answers; }));
    const std::uint64_t used = world.raw.usage().used_bytes;
    const auto again = world.store.fetch(ticket, world.raw, [&](SpillFetched) { ++answers; });
    REQUIRE(again);
    CHECK(again->error == SpillError::io);
    CHECK(world.raw.usage().used_bytes == used);
    world.run();
    CHECK(answers == 1);
  }
  world.check_nothing_is_left();
}

TEST_CASE("bytes_that_are_being_stored_are_promised_to_one_fetch", "[spill]") {
  FakeDisk disk;
  MemoryBudget raw("raw", 0), spill("spill", 0);
  SpillStore store({.limit_bytes = 64 * mib}, spill, std::make_unique<FakeFile>(disk));
  {
    disk.set_stuck(true);
    const ByteVector bytes = text_bytes(100'000, 6);
    Buffer buffer = buffer_of(raw, bytes);
    auto ticket = store.park(buffer, 0, bytes.size(), nullptr, 0);
    REQUIRE(ticket);
    disk.wait_until_stuck();
    std::promise<SpillError> answer;
    CHECK_FALSE(store.fetch(*ticket, raw, [&](SpillFetched fetched) { answer.set_value(fetched.error); }));
    const auto again = store.fetch(*ticket, raw, [](SpillFetched) {});
    REQUIRE(again);
    CHECK(again->error == SpillError::io);
    disk.set_stuck(false);
    CHECK(answer.get_future().get() == SpillError::none);
  }
  store.stop();
}

TEST_CASE("a_file_that_lost_its_end_is_an_error", "[spill]") {
  World world;
  SpillTicket ticket = world.park(random_bytes(200'000, 17));
  world.run();
  world.disk.bytes.resize(100'000);
  CHECK(world.fetch(ticket).error == SpillError::io);
}

TEST_CASE("other_bytes_than_were_written_are_an_error", "[spill]") {
  World world;
  const ByteVector random = random_bytes(200'000, 18), text = text_bytes(200'000, 19);
  SpillTicket one = world.park(random), other = world.park(text);
  world.run();
  world.disk.bytes[100'000] ^= 1;
  CHECK(world.fetch(one).error == SpillError::corrupt);
  const std::size_t text_at = one.disk_bytes();
  world.disk.bytes[text_at + 1'000] ^= 0x80;
  CHECK(world.fetch(other).error == SpillError::corrupt);
  CHECK(world.store.stats().corrupt == 2);
  one = SpillTicket();
  other = SpillTicket();
  world.check_nothing_is_left();
}

TEST_CASE("a_fetch_that_comes_first_gets_the_buffer_at_once", "[spill]") {
  World world;
  const ByteVector bytes = random_bytes(300'000, 20);
  SpillTicket ticket = world.park(bytes);
  const auto fetched = world.store.fetch(ticket, world.raw, [](SpillFetched) { FAIL(); });
  REQUIRE(fetched);
  CHECK(fetched->end == bytes.size());
  CHECK(ticket.empty());
  world.run();
  CHECK(world.disk.writes == 0);
  CHECK(world.store.stats().withdrawn == 1);
  CHECK(world.store.stats().given_up == 0);
}

TEST_CASE("a_full_queue_refuses_and_leaves_the_buffer", "[spill]") {
  World world(true, {.limit_bytes = 64 * mib, .queue_max = 2});
  const ByteVector bytes = random_bytes(50'000, 21);
  SpillTicket first = world.park(bytes), second_one = world.park(bytes);
  Buffer third = buffer_of(world.raw, bytes);
  CHECK_FALSE(world.store.park(third, 0, bytes.size(), thousands, 0));
  CHECK(third.size() == bytes.size());
  CHECK(world.store.stats().refused == 1);
  CHECK(world.store.stats().queued == 2);
  world.run();
  CHECK(world.store.park(third, 0, bytes.size(), thousands, 0));
}

TEST_CASE("tickets_are_dropped_at_any_time", "[spill]") {
  World world;
  SpillTicket waiting = world.park(random_bytes(100'000, 22));
  waiting = SpillTicket();
  SpillTicket stored = world.park(random_bytes(100'000, 23));
  world.run();
  stored = SpillTicket();
  SpillTicket fetched = world.park(random_bytes(600'000, 24));
  world.run();
  int calls = 0;
  SpillError error = SpillError::none;
  CHECK_FALSE(world.store.fetch(fetched, world.raw, [&](SpillFetched got) {
    ++calls;
    error = got.error;
  }));
  fetched = SpillTicket();
  world.run();
  CHECK(calls == 1);
  CHECK(error == SpillError::stopped);
  world.check_nothing_is_left();
}

TEST_CASE("a_stopped_store_gives_back_what_is_in_memory_and_refuses_the_rest", "[spill]") {
  World world;
  const ByteVector bytes = random_bytes(300'000, 25);
  SpillTicket stored = world.park(bytes), fetching = world.park(bytes);
  world.run();
  SpillTicket waiting = world.park(bytes);
  SpillError error = SpillError::none;
  CHECK_FALSE(world.store.fetch(fetching, world.raw, [&](SpillFetched got) { error = got.error; }));
  world.store.stop();
  CHECK(error == SpillError::stopped);
  CHECK(world.fetch(waiting).end == bytes.size());
  CHECK(world.fetch(stored).error == SpillError::stopped);
  Buffer more = buffer_of(world.raw, bytes);
  CHECK_FALSE(world.store.park(more, 0, bytes.size(), thousands, 0));
  more.reset();
  stored = SpillTicket();
  fetching = SpillTicket();
  CHECK(world.process.usage().used_bytes == 0);
}

TEST_CASE("a_file_in_memory_is_noted", "[spill]") {
  FakeDisk disk;
  MemoryBudget budget("budget", 0);
  const SpillStore store({.limit_bytes = mib}, budget, std::make_unique<FakeFile>(disk, true),
                         SpillStore::Drive::manual);
  CHECK(store.stats().on_tmpfs);
  CHECK(store.stats().limit_bytes == mib);
}

}  // namespace spillway
