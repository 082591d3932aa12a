// Addresses and ranges of them, as clients' and in the configuration.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// IPv6, or IPv4 as IPv6 maps it.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  // "10.0.0.1", "::1", "[::1]"; nullopt: something else.
  static std::optional<IpAddress> parse(std::string_view text);
  bool is_v4() const noexcept;
  bool is_loopback() const noexcept;  // 127.0.0.0/8, ::1
  std::string to_text() const;
  bool operator==(const IpAddress&) const = default;
};

// Of "10.0.0.1:5000" and "[::1]:5000": the address alone, without brackets.
std::string_view without_port(std::string_view peer) noexcept;

// "10.0.0.0/8", "2001:db8::/32"; without a length one address.
struct AddressRange {
  IpAddress first;
  int bits = 128;  // of the IPv6 form
  std::string text;

  static std::optional<AddressRange> parse(std::string_view text);
  bool contains(const IpAddress& address) const noexcept;
  bool operator==(const AddressRange&) const = default;
};

}  // namespace spillway
