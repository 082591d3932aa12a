// The documents of the benches: numbered, checksummed, incompressible, and cheap to make.
//
//   {_id: int64 number, crc: int32, payload: binary}      exactly `doc_bytes` bytes of BSON
//
// `crc` is the CRC-32C of the payload followed by the number (eight bytes, little-endian): the
// payload's part is computed once, the number's part is one instruction. The name of a collection
// is its shape: docs_1024x300000 holds 300,000 documents of 1,024 bytes; point_200 a million of
// 200.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace spillway::bench {

constexpr std::size_t doc_bytes_max = 16 * 1024 * 1024;
constexpr std::size_t batch_bytes_max = 16 * 1024 * 1024;  // of the batch array, as MongoDB caps it
// Everything but the payload: frame 5, _id 13, crc 9, payload's head 14.
constexpr std::size_t doc_overhead_bytes = 41;
constexpr std::int64_t point_count_default = 1'000'000;

struct Shape {
  std::size_t doc_bytes = 0;
  std::int64_t count = 0;  // documents over all shards: numbers 0 to count - 1
};

// The shape that a collection's name stands for: nullopt if it names none.
std::optional<Shape> parse_shape(std::string_view collection);

// The fields of a document that was read.
struct ReadDocument {
  std::int64_t number = 0;
  std::uint32_t crc = 0;     // as stored
  std::string_view payload;  // the input of the crc
};
// Reads one document of the layout above: nullopt if a byte of the layout differs.
std::optional<ReadDocument> read_document(std::string_view document) noexcept;
std::uint32_t document_crc(std::string_view payload, std::int64_t number) noexcept;

// A run of array elements (or bare documents) that lies ready in memory.
struct ImageRun {
  const char* bytes = nullptr;
  std::size_t elements = 0;
  std::size_t element_bytes = 0;
};

// Images of documents of one size, laid out as a reply carries them, so that a reply is sent from
// here and only key, number and CRC are stamped. For every number of key digits there is one block
// of `slots()` elements with seeded payloads; the document at local position L always uses slot L
// mod slots(), so that its payload never depends on the batch. A block spans `pool_bytes` (at least
// one document), so that compressors find no repetition within a window of that size.
//
// Not thread-safe. A run is valid until the next stamp().
class DocumentImages {
 public:
  // What each document ends with: nothing, $sortKey: {"": number} or $sortKey: [number].
  enum class SortKey { none, document, array };
  struct Options {
    std::size_t doc_bytes = 1024;  // REQUIRES doc_overhead_bytes to doc_bytes_max
    std::size_t pool_bytes = 2 << 20;
    std::uint64_t seed = 1;
    std::int64_t first_number = 0;   // the number of the document at local position L is
    std::int64_t number_stride = 1;  // first_number + L * number_stride
    SortKey sort_key = SortKey::none;
  };
  explicit DocumentImages(const Options& options);

  std::size_t slots() const noexcept { return payload_crcs_.size(); }
  // The size of a document as sent: doc_bytes, and 25 or 26 more with a sort key.
  std::size_t document_bytes() const noexcept { return document_bytes_; }

  // Stamps up to `count_max` elements from local position `local` on, keyed `index` and up; fewer
  // where the block or the number of digits ends, or `bytes_max` is reached. At least one.
  ImageRun stamp(std::int64_t local, std::size_t index, std::size_t count_max,
                 std::size_t bytes_max);
  // The same without keys, as a document sequence carries them.
  ImageRun stamp_bare(std::int64_t local, std::size_t count_max, std::size_t bytes_max);

  // The bytes of elements 0 to count - 1 of a batch array.
  std::uint64_t elements_bytes(std::size_t count) const noexcept;
  // The most elements, up to `count_max`, whose array is within `bytes_max`: at least one if
  // count_max is.
  std::size_t elements_within(std::size_t count_max, std::uint64_t bytes_max) const noexcept;

 private:
  ImageRun stamp_block(std::size_t width, std::int64_t local, std::size_t index, std::size_t count);
  void build_block(std::size_t width);
  void stamp_one(char* element, std::size_t width, std::size_t slot, std::int64_t number,
                 std::size_t index) const noexcept;

  Options options_;
  std::string_view sort_key_head_;  // of the last element up to its number; empty: there is none
  std::size_t document_bytes_ = 0;
  std::vector<std::uint32_t> payload_crcs_;  // per slot
  std::array<std::vector<char>, 9> blocks_;  // by the number of key digits; 0: bare
};

}  // namespace spillway::bench
