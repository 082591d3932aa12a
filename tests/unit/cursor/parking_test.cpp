// Cursors whose batches are parked: cut between documents, in order, whatever is refused.
#include <catch2/catch.hpp>

#include "cursor/registry.h"
#include "tests/unit/allocator/spill_support.h"

namespace spillway {
namespace {

constexpr std::size_t mib = 1UL << 20;

// Documents {n, text} from `first` to `last`.
Batch batch_of(MemoryBudget& budget, int first, int last, std::size_t text_bytes) {
  BsonWriter out;
  out.begin_array("batch");
  for (int n = first; n < last; ++n) {
    BsonWriter document;
    document.append("n", n).append("text",
                                   std::string(text_bytes, static_cast<char>('a' + n % 26)));
    const BsonDoc done = std::move(document).finish();
    out.append_item(done.view());
  }
  out.end();
  const BsonDoc reply = std::move(out).finish();
  auto buffer = Buffer::allocate(budget, reply.size());
  REQUIRE(buffer);
  buffer->append(reply.view().data(), reply.size());
  const DocView array = DocView::trusted(buffer->data())["batch"].as_document();
  return {*std::move(buffer), array};
}

struct World {
  explicit World(std::size_t queue_max = 100) {
    SpillOptions options;
    options.limit_bytes = 64 * mib;
    options.queue_max = queue_max;
    options.piece_bytes = 2'000;
    store.emplace(options, spill, std::make_unique<test::FakeFile>(disk),
                  SpillStore::Drive::manual);
  }
  void run() {
    while (store->run_one()) {
    }
  }
  // What a getMore does when a remote has nothing at hand.
  void unpark(RemoteCursor& remote) {
    REQUIRE(remote.must_unpark());
    SpillTicket& ticket = remote.parked.front();
    std::optional<SpillFetched> got =
        store->fetch(ticket, budget, [&](SpillFetched later) { got = std::move(later); });
    run();
    REQUIRE(got);
    REQUIRE(got->error == SpillError::none);
    remote.unpark(Batch(std::move(got->buffer), got->begin, got->end));
  }
  // Takes up to `most` documents; -1 marks damage. Notes which were the last of their batches.
  std::vector<int> take(RemoteCursor& remote, std::size_t most) {
    std::vector<int> seen;
    while (seen.size() < most && !remote.finished()) {
      if (remote.must_unpark()) {
        unpark(remote);
        if (remote.front()->malformed()) return seen.push_back(-1), seen;
        continue;
      }
      seen.push_back((*remote.front()->peek())["n"].as_int32());
      if (remote.pop()) last_ones.push_back(seen.back());
    }
    return seen;
  }

  test::FakeDisk disk;
  MemoryBudget budget{"cursors", 0}, spill{"spill", 0};
  std::optional<SpillStore> store;
  std::vector<int> last_ones;
};

std::vector<int> from_to(int first, int last) {
  std::vector<int> all;
  for (int n = first; n < last; ++n) all.push_back(n);
  return all;
}

CursorPtr cursor_with(Batch batch) {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->remotes.emplace_back().batches.push_back(std::move(batch));
  return cursor;
}

}  // namespace

TEST_CASE("parked batches come back in order, a few documents at a time", "[parking]") {
  World world;
  ClusterCursor cursor;
  RemoteCursor& remote = cursor.remotes.emplace_back();
  remote.batches.push_back(batch_of(world.budget, 0, 100, 300));
  remote.batches.push_back(batch_of(world.budget, 100, 150, 5'000));  // each is larger than a piece
  CHECK(world.take(remote, 10) == from_to(0, 10));
  CHECK(cursor.parkable_bytes() == cursor.buffered_bytes());
  cursor.park(*world.store, 0);
  CHECK(remote.batches.empty());
  CHECK(remote.parked.size() == 2);
  CHECK_FALSE(cursor.exhausted());
  world.run();
  CHECK(world.budget.usage().used_bytes == 0);
  CHECK(cursor.buffered_bytes() == 0);
  CHECK(cursor.parkable_bytes() == 0);

  CHECK(world.take(remote, 3) == from_to(10, 13));
  CHECK(world.budget.usage().used_bytes < 5'000);  // one piece
  cursor.park(*world.store, 0);  // the rest of that piece goes before what is parked already
  world.run();
  CHECK(world.take(remote, 100) == from_to(13, 113));
  cursor.park(*world.store, 0);
  CHECK(world.take(remote, 1'000) == from_to(113, 150));
  CHECK(world.last_ones == std::vector{99, 149});  // in however many pieces they came back
  CHECK(cursor.exhausted());
  world.run();
  CHECK(world.budget.usage().used_bytes == 0);
  CHECK(world.store->stats().parked_bytes == 0);
  CHECK(world.disk.bytes.empty());
}

TEST_CASE("what a full queue refuses stays where it was", "[parking]") {
  World world(2);
  ClusterCursor cursor;
  RemoteCursor& remote = cursor.remotes.emplace_back();
  for (int i = 0; i < 4; ++i)
    remote.batches.push_back(batch_of(world.budget, i * 10, i * 10 + 10, 300));
  cursor.park(*world.store, 0);
  CHECK(remote.batches.size() == 2);
  CHECK(remote.parked.size() == 2);
  CHECK(world.store->stats().refused == 1);
  world.run();
  CHECK(world.take(remote, 1'000) == from_to(0, 40));
}

TEST_CASE("a damaged batch is found after it was parked, as before", "[parking]") {
  World world;
  ClusterCursor cursor;
  RemoteCursor& remote = cursor.remotes.emplace_back();
  remote.batches.push_back(batch_of(world.budget, 0, 50, 300));
  auto* document = const_cast<std::uint8_t*>(remote.front()->peek()->data());
  document[-3] = 0x42;  // no type of an element: the first is damaged
  Batch damaged = batch_of(world.budget, 50, 60, 300);
  remote.batches.push_back(std::move(damaged));
  SECTION("already seen as such: it is not parked") {
    remote.batches.front() = batch_of(world.budget, 0, 50, 300);
    auto* second = const_cast<std::uint8_t*>(remote.front()->peek()->data());
    const std::size_t size = remote.front()->peek()->size();
    second[size] = 0x42;  // the type of the second element
    remote.batches.front().pop();
    REQUIRE(remote.front()->malformed());
    cursor.park(*world.store, 0);
    CHECK(remote.batches.size() == 1);
    CHECK(remote.front()->malformed());
  }
  SECTION("not seen yet") {
    remote.batches.front() = batch_of(world.budget, 0, 50, 300);
    auto* first = const_cast<std::uint8_t*>(remote.front()->peek()->data());
    first[remote.front()->peek()->size()] = 0x42;
    cursor.park(*world.store, 0);
    world.run();
    CHECK(remote.batches.empty());
    CHECK(world.take(remote, 1) == from_to(0, 1));
    CHECK(world.take(remote, 1) == std::vector{-1});
  }
  cursor.remotes.clear();
}

TEST_CASE("a cursor that ends takes its parked documents with it", "[parking]") {
  World world;
  {
    ClusterCursor cursor;
    cursor.remotes.emplace_back().batches.push_back(batch_of(world.budget, 0, 100, 300));
    cursor.remotes.emplace_back().batches.push_back(batch_of(world.budget, 0, 100, 300));
    cursor.park(*world.store, 0);
    world.store->run_one();  // one is written, one waits
  }
  world.run();
  CHECK(world.budget.usage().used_bytes == 0);
  CHECK(world.store->stats().disk_bytes == 0);
  CHECK(world.store->stats().parked_bytes == 0);
}

TEST_CASE("the registry names its heaviest idle cursors", "[parking]") {
  World world;
  CursorRegistry registry;
  const auto light = registry.insert(cursor_with(batch_of(world.budget, 0, 10, 300)), 100);
  const auto heavy = registry.insert(cursor_with(batch_of(world.budget, 0, 90, 300)), 100);
  const auto medium = registry.insert(cursor_with(batch_of(world.budget, 0, 50, 300)), 100);
  const auto recent = registry.insert(cursor_with(batch_of(world.budget, 0, 200, 300)), 200);
  registry.insert(std::make_unique<ClusterCursor>(), 100);
  using Ids = std::vector<std::int64_t>;
  CHECK(registry.heaviest_idle(150, 1, 10) == Ids{heavy, medium, light});
  CHECK(registry.heaviest_idle(150, 1, 2) == Ids{heavy, medium});
  CHECK(registry.heaviest_idle(150, 10'000, 10) == Ids{heavy, medium});
  CHECK(registry.heaviest_idle(200, 1, 1) == Ids{recent});
  CHECK(registry.heaviest_idle(50, 1, 10).empty());

  auto out = registry.check_out(heavy, "", {});
  REQUIRE(out.has_value());
  CHECK(registry.heaviest_idle(150, 1, 10) == Ids{medium, light});
  const auto must_not = [](ClusterCursor&) { FAIL("it is not idle"); };
  CHECK_FALSE(registry.with_idle(heavy, must_not));
  CHECK_FALSE(registry.with_idle(heavy + 1, must_not));
  CHECK(registry.with_idle(medium, [&](ClusterCursor& cursor) { cursor.park(*world.store, 0); }));
  world.run();
  CHECK(registry.heaviest_idle(150, 1, 10) == Ids{light});
  CHECK(registry.counts().open_total == 5);
  registry.kill_all();
}

}  // namespace spillway
