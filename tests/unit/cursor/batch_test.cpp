// Batches: handing documents out, and letting go of large blocks.
#include "cursor/batch.h"

#include <catch2/catch.hpp>
#include <string>

#include "cursor/bson_writer.h"
#include "cursor/cursor.h"

namespace spillway {
namespace {

// A buffer that holds an array of `count` documents {n: i, pad: …}, with room behind it.
Batch batch_of(MemoryBudget& budget, int count, std::size_t pad_bytes, std::size_t capacity) {
  BsonWriter writer;
  writer.begin_array("batch");
  for (int i = 0; i < count; ++i) {
    BsonWriter document;
    document.append("n", std::int32_t{i}).append("pad", std::string(pad_bytes, 'p'));
    writer.append_item(std::move(document).finish().view());
  }
  writer.end();
  const BsonDoc whole = std::move(writer).finish();
  const DocView array = whole.view()["batch"].as_document();
  auto buffer = Buffer::allocate(budget, capacity);
  REQUIRE(buffer);
  buffer->append(array.data(), array.size());
  const DocView inside = DocView::trusted(buffer->data());
  return Batch(std::move(*buffer), inside);
}

std::int32_t take(Batch& batch) {
  const auto document = batch.peek();
  REQUIRE(document);
  const std::int32_t n = (*document)["n"].as_int32();
  batch.pop();
  return n;
}

TEST_CASE("a nearly read-out batch lets go of its large block", "[batch]") {
  MemoryBudget budget("budget", 0);
  Batch batch = batch_of(budget, 1000, 1000, 2'000'000);
  for (int i = 0; i < 995; ++i) CHECK(take(batch) == i);
  const std::size_t held = batch.held_bytes();
  CHECK(held >= 2'000'000);
  batch.compact(budget);
  CHECK(batch.held_bytes() < 16 * 1024);
  CHECK(budget.usage().used_bytes == batch.held_bytes());
  for (int i = 995; i < 1000; ++i) CHECK(take(batch) == i);
  CHECK_FALSE(batch.peek());
  CHECK_FALSE(batch.malformed());
}

// A client whose batch ended right before the damage was told that all had come.
TEST_CASE("a cursor whose last batch is damaged is not exhausted", "[batch]") {
  MemoryBudget budget("budget", 0);
  BsonWriter writer;
  writer.begin_array("batch");
  for (int i = 0; i < 3; ++i) writer.append_item(BsonDoc::from_json(R"({"n": 1})").value().view());
  writer.end();
  const BsonDoc whole = std::move(writer).finish();
  const DocView array = whole.view()["batch"].as_document();
  auto buffer = Buffer::allocate(budget, array.size());
  REQUIRE(buffer);
  buffer->append(array.data(), array.size());
  const DocView inside = DocView::trusted(buffer->data());
  auto third = inside.begin();
  ++ ++third;
  buffer->data()[third->raw.data() - buffer->data()] = 0;

  ClusterCursor cursor;
  cursor.remotes.emplace_back().batches.emplace_back(std::move(*buffer), inside);
  Batch& batch = cursor.remotes.front().batches.front();
  CHECK_FALSE(cursor.exhausted());
  batch.pop();
  batch.pop();
  CHECK(batch.malformed());
  CHECK_FALSE(batch.peek());
  CHECK_FALSE(cursor.exhausted());
}

TEST_CASE("one large document does not pin the reply it came in", "[batch]") {
  MemoryBudget budget("budget", 0);
  Batch batch = batch_of(budget, 90, 168'000, 16'000'000);
  for (int i = 0; i < 89; ++i) take(batch);
  batch.compact(budget);
  CHECK(batch.held_bytes() <= 256 * 1024);
  CHECK(take(batch) == 89);
}

TEST_CASE("a batch with much left stays where it is", "[batch]") {
  MemoryBudget budget("budget", 0);
  Batch batch = batch_of(budget, 100, 10'000, 1'100'000);
  for (int i = 0; i < 50; ++i) take(batch);
  const std::uint8_t* at = batch.peek()->data();
  batch.compact(budget);
  CHECK(batch.peek()->data() == at);
}

TEST_CASE("a refused copy changes nothing", "[batch]") {
  MemoryBudget budget("budget", 3'000'000);
  Batch batch = batch_of(budget, 1000, 1000, 2'000'000);
  for (int i = 0; i < 999; ++i) take(batch);
  const auto rest = budget.try_reserve(3'000'000 - budget.usage().used_bytes);
  const std::size_t held = batch.held_bytes();
  batch.compact(budget);
  CHECK(batch.held_bytes() == held);
  CHECK(take(batch) == 999);
}

TEST_CASE("compacting a batch without documents is harmless", "[batch]") {
  MemoryBudget budget("budget", 0);
  Batch batch = batch_of(budget, 3, 10, 1'000'000);
  for (int i = 0; i < 3; ++i) take(batch);
  batch.compact(budget);
  CHECK_FALSE(batch.peek());
  CHECK_FALSE(batch.malformed());
  CHECK(batch.held_bytes() < 1'000);
}

}  // namespace
}  // namespace spillway
