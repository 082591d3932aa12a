// Addresses and ranges of them, as clients' and in the configuration.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/mutex.h"

struct sockaddr_storage;

namespace spillway {

// IPv6, or IPv4 as IPv6 maps it.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  // "10.0.0.1", "::1", "[::1]"; nullopt: something else.
  static std::optional<IpAddress> parse(std::string_view text);
  static std::optional<IpAddress> of(const sockaddr_storage& address);
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

// Separated by commas; the text of an error names the word.
struct AddressRanges {
  std::vector<AddressRange> ranges;
  std::string wrong;  // a word that is no range; empty: all are
};
AddressRanges parse_address_ranges(std::string_view text);

// A list that may be replaced at any time, by any thread.
class AddressList {
 public:
  void set(std::vector<AddressRange> ranges);
  bool contains(const IpAddress& address) const;
  std::vector<AddressRange> ranges() const;

 private:
  std::shared_ptr<const std::vector<AddressRange>> current() const;
  std::atomic<bool> any_{false};  // most lists are empty
  mutable Mutex mutex_;
  std::shared_ptr<const std::vector<AddressRange>> ranges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace spillway
