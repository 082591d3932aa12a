#include "proxy/exec/write/write_batch.h"

#include "tests/unit/exec/write_support.h"

namespace spillway::exec {
namespace {

// "0" one shard, "01" all of two, "?01" chosen, "!" an error.
WriteBatch batch_of(const std::vector<std::string>& ops, bool ordered, std::uint32_t bytes = 100,
                    ChildRoom room = {}) {
  RecycledVector<PlannedWrite> planned;
  for (const std::string& op : ops) {
    PlannedWrite& write = planned.emplace_back();
    write.bytes = bytes;
    if (op == "!") {
      write.refused = true;
      continue;
    }
    for (const char c : op) {
      if (c == '?') {
        write.route = Route::choose;
      } else {
        write.shards.insert(static_cast<catalog::ShardIndex>(c - '0'));
      }
    }
    if (write.shards.size() > 1 && write.route == Route::one)
      write.route = Route::all;
  }
  return {std::move(planned), ordered, room};
}

std::string shown(const WriteRound& round) {
  if (round.failed) return "failed " + std::to_string(*round.failed);
  if (round.special) return "special " + std::to_string(*round.special);
  std::string text;
  for (const ChildBatch& child : round.children) {
    if (!text.empty()) text += ", ";
    text += "s" + std::to_string(child.shard) + ":";
    for (const std::uint32_t op : child.ops) text += " " + std::to_string(op);
  }
  return text;
}

std::vector<std::string> rounds_in_steps(WriteBatch batch) {
  std::vector<std::string> rounds;
  for (;;) {
    WriteRound round;
    while (!batch.fill(round, 1)) {
    }
    if (round.finished()) return rounds;
    rounds.push_back(shown(round));
  }
}

std::vector<std::string> rounds_of(WriteBatch batch) {
  std::vector<std::string> rounds;
  const std::vector<std::string> in_steps = rounds_in_steps(batch);
  for (WriteRound round = batch.next(); !round.finished(); round = batch.next())
    rounds.push_back(shown(round));
  CHECK(in_steps == rounds);
  return rounds;
}

TEST_CASE("ordered batches send neighbours together", "[write]") {
  using Rounds = std::vector<std::string>;
  CHECK(rounds_of(batch_of({"0", "0", "1", "0"}, true)) == Rounds{"s0: 0 1", "s1: 2", "s0: 3"});
  CHECK(rounds_of(batch_of({"0", "01", "0"}, true)) == Rounds{"s0: 0", "s0: 1, s1: 1", "s0: 2"});
  CHECK(rounds_of(batch_of({"0", "?01", "0", "!"}, true)) ==
        Rounds{"s0: 0", "special 1", "s0: 2", "failed 3"});
  auto stopped = batch_of({"0", "1"}, true);
  CHECK(shown(stopped.next()) == "s0: 0");
  stopped.stop();
  CHECK(stopped.next().finished());
}

TEST_CASE("unordered batches send everything at once", "[write]") {
  using Rounds = std::vector<std::string>;
  CHECK(rounds_of(batch_of({"0", "1", "0", "1"}, false)) == Rounds{"s0: 0 2, s1: 1 3"});
  CHECK(rounds_of(batch_of({"?01", "1", "01", "!", "?01"}, false)) ==
        Rounds{"s1: 1 2, s0: 2", "special 0", "failed 3", "special 4"});
}

TEST_CASE("an operation that took steps goes with the others once it takes one", "[write]") {
  auto batch = batch_of({"?01", "1"}, false);
  CHECK(shown(batch.next()) == "s1: 1");
  batch.give_back(1);
  for (const std::size_t i : {0, 1}) {
    PlannedWrite& plan = batch.plan_of(i);
    plan.route = Route::one;
    plan.shards = catalog::ShardSet{0};
  }
  CHECK(shown(batch.next()) == "s0: 0 1");
  CHECK(batch.next().finished());
}

TEST_CASE("a child's size is bounded", "[write]") {
  using Rounds = std::vector<std::string>;
  const std::uint32_t third = limits::message_bytes_max / 3;
  CHECK(rounds_of(batch_of({"0", "0", "0", "0", "1"}, false, third)) ==
        Rounds{"s0: 0 1 2, s1: 4", "s0: 3"});
  CHECK(rounds_of(batch_of({"0", "0", "0", "0", "1"}, true, third)) ==
        Rounds{"s0: 0 1 2", "s0: 3", "s1: 4"});
  ChildRoom room;
  room.bytes = 330;
  room.bytes_per_op = 11;  // its statement id, in the body
  CHECK(rounds_of(batch_of({"0", "0", "0", "1"}, false, 100, room)) ==
        Rounds{"s0: 0 1, s1: 3", "s0: 2"});
  CHECK(rounds_of(batch_of({"0", "0", "0", "1"}, true, 100, room)) ==
        Rounds{"s0: 0 1", "s0: 2", "s1: 3"});
  CHECK(batch_of({"0", "0"}, false, 100, room).fits_one_child());
  CHECK_FALSE(batch_of({"0", "0", "0"}, false, 100, room).fits_one_child());
  CHECK(batch_of({"0"}, false, 1000, room).fits_one_child());
}

TEST_CASE("a child may be bound to one operation", "[write]") {
  using Rounds = std::vector<std::string>;
  ChildRoom room;
  room.ops = 1;
  CHECK(rounds_of(batch_of({"0", "0", "1", "01"}, false, 100, room)) ==
        Rounds{"s0: 0, s1: 2", "s0: 1", "s0: 3, s1: 3"});
  CHECK(rounds_of(batch_of({"0", "0", "1"}, true, 100, room)) == Rounds{"s0: 0", "s0: 1", "s1: 2"});
}

TEST_CASE("a batch knows when one shard is enough", "[write]") {
  CHECK(batch_of({"1", "1"}, true).only_shard() == catalog::ShardIndex{1});
  CHECK_FALSE(batch_of({"1", "0"}, true).only_shard());
  CHECK_FALSE(batch_of({"1", "!"}, true).only_shard());
  CHECK_FALSE(batch_of({"?1"}, true).only_shard());
  CHECK(batch_of({"1", "02"}, true).shards() == catalog::ShardSet{0, 1, 2});
}

TEST_CASE("each of a thousand shards gets its own operations") {
  constexpr std::uint32_t shards = 1'000;
  constexpr std::size_t each = 3;
  RecycledVector<PlannedWrite> planned(shards * each);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    planned[i].shards.insert(static_cast<catalog::ShardIndex>(shards - 1 - i % shards));
  }
  WriteBatch batch(std::move(planned), false);
  const WriteRound round = batch.next();
  REQUIRE(round.children.size() == shards);
  for (std::uint32_t i = 0; i < shards; ++i) {
    CHECK(round.children[i].shard == shards - 1 - i);
    CHECK(round.children[i].ops == std::vector<std::uint32_t>{i, i + shards, i + 2 * shards});
  }
  CHECK(batch.next().finished());
}

}  // namespace
}  // namespace spillway::exec
