// The UUID that names a logical session: the field `id` of its lsid document.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/hash/hash.h"
#include "cursor/bson_view.h"

namespace spillway {

inline constexpr std::size_t session_uuid_bytes = 16;

// Empty when there is none.
inline std::string_view session_uuid(DocView lsid) noexcept {
  const ValueView id = lsid["id"];
  if (id.type != BsonType::binary) return {};
  const Bytes data = id.as_binary().data;
  if (data.size() != session_uuid_bytes) return {};
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

// The key of a session in tables. An lsid without a UUID gets a hash.
using SessionId = std::array<std::uint64_t, 2>;

// REQUIRES session_uuid_bytes.
inline SessionId session_id_of(std::string_view uuid) noexcept {
  SessionId key;
  std::memcpy(key.data(), uuid.data(), sizeof key);
  return key;
}

inline SessionId session_id_of_lsid(std::string_view lsid) {
  const auto document = DocView::parse({reinterpret_cast<const std::uint8_t*>(lsid.data()), lsid.size()});
  const std::string_view uuid = document.has_value() ? session_uuid(*document) : std::string_view();
  return uuid.empty() ? SessionId{absl::HashOf(lsid), 0} : session_id_of(uuid);
}

}  // namespace spillway
