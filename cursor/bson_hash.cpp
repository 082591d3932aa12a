#include "cursor/bson_hash.h"

// The digest objects of OpenSSL 3 allocate anew for every message; MD5 on the stack does not.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/md5.h>

#include <array>
#include <cmath>
#include <limits>

#include "cursor/bson_decimal.h"
#include "cursor/bson_order.h"
#include "cursor/md5_lanes.h"

namespace spillway {

namespace {

// Documents nested deeper are refused long before they are hashed; this only bounds the recursion.
constexpr int hash_depth_max = 256;

// Collects small pieces, so that a scalar costs one update of the digest.
class Stream {
 public:
  Stream() { MD5_Init(&md5_); }

  void put(const void* data, std::size_t size) {
    if (size > buffer_.size() - used_) {
      flush();
      if (size > buffer_.size()) {
        MD5_Update(&md5_, data, size);
        return;
      }
    }
    if (size != 0) std::memcpy(buffer_.data() + used_, data, size);
    used_ += size;
  }
  void put(Bytes bytes) { put(bytes.data(), bytes.size()); }
  template <class T>
  void put_number(T value) {
    put(&value, sizeof value);
  }

  std::int64_t finish() {
    flush();
    std::array<std::uint8_t, MD5_DIGEST_LENGTH> digest;
    MD5_Final(digest.data(), &md5_);
    return load_le<std::int64_t>(digest.data());
  }

 private:
  void flush() {
    MD5_Update(&md5_, buffer_.data(), used_);
    used_ = 0;
  }
  MD5_CTX md5_;
  std::array<std::uint8_t, 256> buffer_;
  std::size_t used_ = 0;
};

std::int64_t hashed_integer(double value) noexcept {
  if (std::isnan(value)) return 0;
  // 2^63 itself overflows to the lowest integer in the server, larger values saturate.
  if (value == two_to_63 || value < -two_to_63) return std::numeric_limits<std::int64_t>::min();
  if (value > two_to_63) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(value);
}

std::int64_t hashed_integer(ValueView value) noexcept {
  switch (value.type) {
    case BsonType::int32:
      return value.as_int32();
    case BsonType::int64:
      return value.as_int64();
    case BsonType::double_:
      return hashed_integer(value.as_double());
    default:
      return Decimal::decode(value).to_int64_saturated();
  }
}

void put_value(Stream& stream, ValueView value, int depth);

void put_elements(Stream& stream, DocView doc, int depth) {
  if (depth < hash_depth_max) {
    for (const Element& element : doc) {
      stream.put_number<std::int32_t>(canonical_type(element.type));
      stream.put(element.name.data(), element.name.size() + 1);  // with its NUL
      put_value(stream, element, depth + 1);
    }
  }
  stream.put_number<std::int32_t>(0);
}

void put_value(Stream& stream, ValueView value, int depth) {
  switch (value.type) {
    case BsonType::double_:
    case BsonType::int32:
    case BsonType::int64:
    case BsonType::decimal128:
      stream.put_number(hashed_integer(value));
      break;
    case BsonType::document:
    case BsonType::array:
      put_elements(stream, value.as_document(), depth);
      break;
    case BsonType::code_with_scope: {
      const std::size_t code = load_le<std::uint32_t>(value.bytes.data() + 4);
      stream.put(value.bytes.subspan(8, code));
      put_elements(stream, DocView::trusted(value.bytes.data() + 8 + code), depth);
      break;
    }
    default:
      stream.put(value.bytes);
      break;  // as it stands; nothing for MinKey, null…
  }
}

// What MD5 gets of a short scalar, with seed 0: at most one block.
class ShortMessage {
 public:
  // False: the value is none.
  bool set(ValueView value) noexcept {
    const bool nested = value.is_document() || value.is_array() || value.type == BsonType::code_with_scope;
    if (nested || value.bytes.size() > bytes_.size() - head_bytes) return false;
    store_le<std::int32_t>(bytes_.data() + 4, canonical_type(value.exists() ? value.type : BsonType::null));
    if (value.is_number()) {
      store_le(bytes_.data() + head_bytes, hashed_integer(value));
      size_ = head_bytes + sizeof(std::int64_t);
      return true;
    }
    if (!value.bytes.empty()) std::memcpy(bytes_.data() + head_bytes, value.bytes.data(), value.bytes.size());
    size_ = head_bytes + value.bytes.size();
    return true;
  }
  Bytes bytes() const noexcept { return {bytes_.data(), size_}; }

 private:
  static constexpr std::size_t head_bytes = 8;

  std::array<std::uint8_t, Md5Lanes::bytes_max> bytes_{};
  std::size_t size_ = 0;
};

// Fewer are faster one after the other.
constexpr std::size_t lanes_worth_it = 3;

void hash_together(const Md5Lanes& lanes, std::span<const std::size_t> which, std::span<const ValueView> values,
                   std::span<std::int64_t> hashes) {
  if (which.size() < lanes_worth_it) {
    for (const std::size_t i : which) hashes[i] = bson_hash64(values[i]);
    return;
  }
  const auto digests = lanes.finish();
  for (std::size_t lane = 0; lane < which.size(); ++lane) hashes[which[lane]] = digests[lane];
}

}  // namespace

void bson_hash64(std::span<const ValueView> values, std::span<std::int64_t> hashes) {
  std::array<std::size_t, Md5Lanes::lanes> which;  // value is in a lane
  for (std::size_t next = 0; next < values.size();) {
    Md5Lanes lanes;
    std::size_t used = 0;
    for (; next < values.size() && used < which.size(); ++next) {
      ShortMessage message;
      if (!message.set(values[next])) {
        hashes[next] = bson_hash64(values[next]);
        continue;
      }
      lanes.put(used, message.bytes());
      which[used++] = next;
    }
    hash_together(lanes, std::span(which).first(used), values, hashes);
  }
}

std::int64_t bson_hash64(ValueView value, std::int32_t seed) {
  if (!value.exists()) value = {BsonType::null, {}};
  Stream stream;
  stream.put_number(seed);
  stream.put_number<std::int32_t>(canonical_type(value.type));
  put_value(stream, value, 0);
  return stream.finish();
}

}  // namespace spillway
