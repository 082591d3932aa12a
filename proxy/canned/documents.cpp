#include "proxy/canned/documents.h"

#include <algorithm>
#include <cstring>

#include "proxy/base/number.h"
#include "proxy/wire/crc32c.h"

namespace spillway::bench {
namespace {

constexpr std::string_view id_head("\x12_id\0", 5);
constexpr std::string_view crc_head(
    "\x10"
    "crc\0",
    5);
constexpr std::string_view payload_head("\x05payload\0", 9);
// {$sortKey: {"": number}}, as servers to 4.2 send it, and {$sortKey: [number]}: up to the number, after which a zero
// ends the value.
constexpr std::string_view sort_key_document_head("\x03$sortKey\0\x0f\0\0\0\x12\0", 16);
constexpr std::string_view sort_key_array_head(
    "\x04$sortKey\0\x10\0\0\0\x12"
    "0\0",
    17);

std::string_view head_of(DocumentImages::SortKey form) noexcept {
  switch (form) {
    case DocumentImages::SortKey::document: return sort_key_document_head;
    case DocumentImages::SortKey::array: return sort_key_array_head;
    case DocumentImages::SortKey::none: break;
  }
  return {};
}

constexpr std::size_t number_at = 4 + 5;  // within a document
constexpr std::size_t crc_at = number_at + 8 + 5;
constexpr std::size_t payload_length_at = crc_at + 4 + 9;
constexpr std::size_t payload_at = payload_length_at + 5;
static_assert(payload_at + 1 == doc_overhead_bytes);

constexpr std::array<std::size_t, 10> powers_of_ten{
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};

std::size_t digits_of(std::size_t index) noexcept {
  std::size_t digits = 1;
  while (digits < 9 && index >= powers_of_ten[digits]) ++digits;
  return digits;
}

// The bytes of an element of this key width before its document: type, digits, NUL.
constexpr std::size_t key_bytes(std::size_t width) noexcept { return width == 0 ? 0 : width + 2; }

void write_digits(char* at, std::size_t width, std::size_t index) noexcept {
  for (std::size_t left = width; left > 0; --left) {
    at[left - 1] = static_cast<char>('0' + index % 10);
    index /= 10;
  }
}

// splitmix64: seeded, and its bytes do not compress.
void fill_random(char* at, std::size_t size, std::uint64_t seed) noexcept {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL;
  while (size > 0) {
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t value = state;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    value ^= value >> 31;
    const std::size_t part = std::min(size, sizeof value);
    std::memcpy(at, &value, part);
    at += part;
    size -= part;
  }
}

std::uint32_t crc_of(const void* bytes, std::size_t size, std::uint32_t before = 0) noexcept {
  return wire::crc32c({static_cast<const std::uint8_t*>(bytes), size}, before);
}

void append(char*& at, std::string_view bytes) noexcept {
  std::memcpy(at, bytes.data(), bytes.size());
  at += bytes.size();
}

}  // namespace

std::optional<Shape> parse_shape(std::string_view collection) {
  std::string_view rest = collection;
  if (rest.starts_with("docs_")) {
    rest.remove_prefix(5);
  } else if (rest.starts_with("point_")) {
    rest.remove_prefix(6);
  } else {
    return std::nullopt;
  }
  const auto cross = rest.find('x');
  const auto size = parse_number<std::uint64_t>(rest.substr(0, cross));
  if (!size || *size < doc_overhead_bytes || *size > doc_bytes_max) return std::nullopt;
  Shape shape{static_cast<std::size_t>(*size), point_count_default};
  if (cross != std::string_view::npos) {
    const auto count = parse_number<std::uint64_t>(rest.substr(cross + 1));
    if (!count || *count > (std::uint64_t{1} << 40)) return std::nullopt;
    shape.count = static_cast<std::int64_t>(*count);
  }
  return shape;
}

std::optional<ReadDocument> read_document(std::string_view document) noexcept {
  const std::size_t size = document.size();
  if (size < doc_overhead_bytes) return std::nullopt;
  const char* at = document.data();
  const auto payload_size =
      static_cast<std::int64_t>(load_le<std::int32_t>(at + payload_length_at));
  const bool frame_good = load_le<std::int32_t>(at) == static_cast<std::int64_t>(size) &&
                          payload_size == static_cast<std::int64_t>(size - doc_overhead_bytes) &&
                          at[payload_length_at + 4] == 0 && at[size - 1] == 0;
  const bool names_good =
      std::memcmp(at + 4, id_head.data(), id_head.size()) == 0 &&
      std::memcmp(at + crc_at - 5, crc_head.data(), crc_head.size()) == 0 &&
      std::memcmp(at + crc_at + 4, payload_head.data(), payload_head.size()) == 0;
  if (!frame_good || !names_good) return std::nullopt;
  return ReadDocument{load_le<std::int64_t>(at + number_at),
                      load_le<std::uint32_t>(at + crc_at),
                      document.substr(payload_at, size - doc_overhead_bytes)};
}

std::uint32_t document_crc(std::string_view payload, std::int64_t number) noexcept {
  return crc_of(&number, sizeof number, crc_of(payload.data(), payload.size()));
}

DocumentImages::DocumentImages(const Options& options)
    : options_(options),
      sort_key_head_(head_of(options.sort_key)),
      document_bytes_(options.doc_bytes + (sort_key_head_.empty() ? 0 : sort_key_head_.size() + 8 + 1)) {
  const std::size_t slots = std::max<std::size_t>(1, options.pool_bytes / document_bytes_);
  payload_crcs_.resize(slots);
}

void DocumentImages::build_block(std::size_t width) {
  const std::size_t element_bytes = key_bytes(width) + document_bytes_;
  const std::size_t payload_bytes = options_.doc_bytes - doc_overhead_bytes;
  auto& block = blocks_[width];
  block.resize(slots() * element_bytes);
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    char* at = block.data() + slot * element_bytes;
    if (width > 0) {
      *at = static_cast<char>(BsonType::document);
      at[width + 1] = '\0';
      at += key_bytes(width);
    }
    store_le(at, static_cast<std::int32_t>(document_bytes_));
    at += 4;
    append(at, id_head);
    at += 8;
    append(at, crc_head);
    at += 4;
    append(at, payload_head);
    store_le(at, static_cast<std::int32_t>(payload_bytes));
    at[4] = '\0';
    at += 5;
    fill_random(at, payload_bytes, options_.seed * 1'000'003 + slot);
    payload_crcs_[slot] = crc_of(at, payload_bytes);
    at += payload_bytes;
    if (!sort_key_head_.empty()) {
      append(at, sort_key_head_);
      at += 8;
      *at++ = '\0';
    }
    *at = '\0';
  }
}

void DocumentImages::stamp_one(char* element, std::size_t width, std::size_t slot,
                               std::int64_t number, std::size_t index) const noexcept {
  if (width > 0) write_digits(element + 1, width, index);
  char* document = element + key_bytes(width);
  store_le(document + number_at, number);
  store_le(document + crc_at, crc_of(&number, sizeof number, payload_crcs_[slot]));
  if (!sort_key_head_.empty()) {
    store_le(document + options_.doc_bytes - 1 + sort_key_head_.size(), number);
  }
}

ImageRun DocumentImages::stamp_block(std::size_t width, std::int64_t local, std::size_t index,
                                     std::size_t count) {
  if (blocks_[width].empty()) build_block(width);
  const std::size_t element_bytes = key_bytes(width) + document_bytes_;
  const std::size_t first_slot = static_cast<std::size_t>(local) % slots();
  count = std::max<std::size_t>(1, std::min(count, slots() - first_slot));
  char* const first = blocks_[width].data() + first_slot * element_bytes;
  std::int64_t number = options_.first_number + local * options_.number_stride;
  for (std::size_t done = 0; done < count; ++done) {
    stamp_one(first + done * element_bytes, width, first_slot + done, number, index + done);
    number += options_.number_stride;
  }
  return {first, count, element_bytes};
}

ImageRun DocumentImages::stamp(std::int64_t local, std::size_t index, std::size_t count_max,
                               std::size_t bytes_max) {
  const std::size_t width = digits_of(index);
  count_max = std::min(count_max, powers_of_ten[width] - index);
  count_max = std::min(count_max, bytes_max / (key_bytes(width) + document_bytes_));
  return stamp_block(width, local, index, count_max);
}

ImageRun DocumentImages::stamp_bare(std::int64_t local, std::size_t count_max,
                                    std::size_t bytes_max) {
  return stamp_block(0, local, 0, std::min(count_max, bytes_max / document_bytes_));
}

std::uint64_t DocumentImages::elements_bytes(std::size_t count) const noexcept {
  std::uint64_t bytes = 0;
  std::size_t from = 0;
  for (std::size_t width = 1; from < count; ++width) {
    const std::size_t to = std::min(count, powers_of_ten[width]);
    bytes += static_cast<std::uint64_t>(to - from) * (key_bytes(width) + document_bytes_);
    from = to;
  }
  return bytes;
}

std::size_t DocumentImages::elements_within(std::size_t count_max,
                                            std::uint64_t bytes_max) const noexcept {
  constexpr std::uint64_t array_frame_bytes = 5;
  std::uint64_t left = bytes_max > array_frame_bytes ? bytes_max - array_frame_bytes : 0;
  std::size_t count = 0;
  for (std::size_t width = 1; count < count_max && width <= 8; ++width) {
    const std::uint64_t element_bytes = key_bytes(width) + document_bytes_;
    const std::size_t here = std::min(count_max, powers_of_ten[width]) - count;
    const std::size_t fit = std::min<std::uint64_t>(here, left / element_bytes);
    count += fit;
    left -= fit * element_bytes;
    if (fit < here) break;
  }
  return std::max<std::size_t>(count, count_max > 0 ? 1 : 0);
}

}  // namespace spillway::bench
