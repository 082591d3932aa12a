// Document sequences of OP_MSG, as clients write them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"

namespace spillway::wire {

// Appends a kind-1 section. `documents`: whole documents back to back.
inline void append_sequence(std::vector<std::uint8_t>& out, std::string_view name, Bytes documents) {
  constexpr std::uint8_t kind_sequence = 1;
  out.push_back(kind_sequence);
  const std::size_t size_at = out.size();
  out.resize(out.size() + 4);
  out.insert(out.end(), name.begin(), name.end());
  out.push_back(0);
  out.insert(out.end(), documents.begin(), documents.end());
  store_le(out.data() + size_at, static_cast<std::int32_t>(out.size() - size_at));
}

inline void append_sequence(std::vector<std::uint8_t>& out, std::string_view name,
                            std::span<const DocView> documents) {
  std::vector<std::uint8_t> all;
  for (const DocView document : documents) all.insert(all.end(), document.data(), document.data() + document.size());
  append_sequence(out, name, Bytes(all));
}

}  // namespace spillway::wire
