#include "proxy/wire/document_counter.h"

#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

ByteVector batch(int documents) {
  BsonWriter writer;
  writer.begin_array("b");
  for (int i = 0; i < documents; ++i) {
    writer.begin_document_item();
    writer.append("_id", i).append("s", std::string(static_cast<std::size_t>(i), 's'));
    writer.end();
  }
  writer.end();
  const BsonDoc document = std::move(writer).finish();
  return exact(document.view()["b"].bytes);
}

bool counts(const ByteVector& bytes, std::size_t expected) {
  DocumentCounter counter;
  const Result<void> fed = counter.feed(bytes);
  return fed.has_value() && counter.done() && counter.count() == expected;
}

}  // namespace

TEST_CASE("documents_are_counted_at_every_two_cuts") {
  const ByteVector bytes = batch(4);
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      DocumentCounter counter;
      REQUIRE(counter.feed(Bytes(bytes).first(first)));
      REQUIRE(counter.feed(exact(Bytes(bytes).subspan(first, second - first))));
      REQUIRE(counter.done() == (second == bytes.size()));
      REQUIRE(counter.feed(Bytes(bytes).subspan(second)));
      REQUIRE(counter.done());
      REQUIRE(counter.count() == 4);
      REQUIRE(counter.total_bytes() == bytes.size());
      REQUIRE(counter.passed_bytes() == bytes.size());
    }
  }
}

TEST_CASE("documents_are_counted_byte_by_byte_as_they_end") {
  const ByteVector bytes = batch(12);
  DocumentCounter counter;
  std::size_t before = 0;
  for (std::uint8_t byte : bytes) {
    REQUIRE_FALSE(counter.done());
    REQUIRE(counter.feed({&byte, 1}));
    REQUIRE(counter.count() >= before);
    REQUIRE(counter.count() <= before + 1);
    before = counter.count();
  }
  CHECK(counter.done());
  CHECK(counter.count() == 12);
}

TEST_CASE("empty_and_large_batches_are_counted") {
  CHECK(counts(batch(0), 0));
  CHECK(counts(batch(1), 1));
  CHECK(counts(batch(1'234), 1'234));
}

TEST_CASE("malformed_batches_are_errors") {
  const ByteVector good = batch(2);
  const auto with = [&](std::size_t at, std::uint8_t byte) {
    ByteVector bytes = good;
    bytes[at] = byte;
    return bytes;
  };
  CHECK_FALSE(counts(with(0, static_cast<std::uint8_t>(good[0] + 1)), 2));
  CHECK_FALSE(counts(with(0, static_cast<std::uint8_t>(good[0] - 1)), 2));
  CHECK_FALSE(counts(with(3, 0xff), 2));  // negative
  CHECK_FALSE(counts(with(0, 4), 2));     // too short
  CHECK_FALSE(counts(with(4, 0x10), 2));  // not a document
  CHECK_FALSE(counts(with(4, 0), 2));     // ends early
  CHECK_FALSE(counts(with(7, 4), 2));     // the first document's length
  CHECK_FALSE(counts(with(10, 0xff), 2));
  CHECK_FALSE(counts(with(9, 0xff), 2));
  CHECK_FALSE(counts(with(good.size() - 1, 3), 2));
  CHECK_FALSE(counts(with(good.size() - 2, 1), 2));  // the last document's terminator
  ByteVector longer = good;
  longer.push_back(0);
  CHECK_FALSE(counts(longer, 2));
}

TEST_CASE("an_index_that_does_not_end_is_an_error") {
  ByteVector bytes(100, '1');
  store_le(bytes.data(), 100);
  bytes[4] = 3;
  CHECK_FALSE(counts(bytes, 0));
}

TEST_CASE("no_single_changed_byte_of_the_framing_is_accepted_with_the_wrong_count") {
  const ByteVector good = batch(3);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      ByteVector bytes = good;
      bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1 << bit));
      DocumentCounter counter;
      const Result<void> fed = counter.feed(bytes);
      REQUIRE((!fed.has_value() || !counter.done() || counter.count() <= 3));
    }
  }
}

}  // namespace spillway::wire
