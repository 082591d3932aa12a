// FieldTable: a fixed list of field names, looked up without comparing with each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway {

// A perfect hash over a name's length and three of its characters, found while compiling: a name costs a few
// instructions and at most one comparison. Names that these do not tell apart do not compile. At most 254 names.
template <std::size_t N>
class FieldTable {
 public:
  explicit consteval FieldTable(const std::array<std::string_view, N>& names) : names_(names) {
    static_assert(N < 255);
    while (!fill()) {
      multiplier_ += 2;
      if (multiplier_ > multiplier_first + 20'000) throw "no multiplier tells these names apart";
    }
  }

  static constexpr std::size_t absent = static_cast<std::size_t>(-1);

  // The name's position in the list, or `absent`.
  constexpr std::size_t find(std::string_view name) const noexcept {
    if (name.empty()) return absent;
    const std::size_t slot = slots_[slot_of(name)];
    return slot != 0 && names_[slot - 1] == name ? slot - 1 : absent;
  }
  constexpr bool contains(std::string_view name) const noexcept { return find(name) != absent; }

 private:
  static constexpr std::uint32_t multiplier_first = 0x9e3779b1;
  static constexpr std::size_t slot_count = N <= 16 ? 64 : N <= 32 ? 256 : 1024;
  static constexpr int shift = slot_count == 64 ? 26 : slot_count == 256 ? 24 : 22;

  constexpr std::size_t slot_of(std::string_view name) const noexcept {
    const auto byte = [&](std::size_t at) { return static_cast<std::uint32_t>(static_cast<unsigned char>(name[at])); };
    const std::size_t size = name.size();
    const std::uint32_t key = static_cast<std::uint32_t>(size) ^ byte(0) << 8 ^ byte(size / 2) << 16 ^
                              byte(size - 1) << 24;
    return key * multiplier_ >> shift;
  }

  consteval bool fill() {
    slots_ = {};
    for (std::size_t i = 0; i < N; ++i) {
      std::uint8_t& slot = slots_[slot_of(names_[i])];
      if (slot != 0) return false;
      slot = static_cast<std::uint8_t>(i + 1);
    }
    return true;
  }

  std::array<std::string_view, N> names_;
  std::uint32_t multiplier_ = multiplier_first;
  std::array<std::uint8_t, slot_count> slots_{};
};

}  // namespace spillway
