#include "proxy/base/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "proxy/base/number.h"

namespace spillway {

namespace {
constexpr std::array<std::uint8_t, 12> v4_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int v4_prefix_bits = 96;
constexpr int address_bits = 128;

std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}
}  // namespace

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  text = text.substr(0, text.find('%'));  // an interface is no part of the address
  std::array<char, INET6_ADDRSTRLEN + 1> copy{};
  if (text.size() >= copy.size()) return std::nullopt;
  std::copy(text.begin(), text.end(), copy.begin());
  IpAddress address;
  if (in_addr v4{}; ::inet_pton(AF_INET, copy.data(), &v4) == 1) {
    std::copy(v4_prefix.begin(), v4_prefix.end(), address.bytes.begin());
    std::memcpy(address.bytes.data() + v4_prefix.size(), &v4, sizeof v4);
    return address;
  }
  if (::inet_pton(AF_INET6, copy.data(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

bool IpAddress::is_v4() const noexcept { return std::equal(v4_prefix.begin(), v4_prefix.end(), bytes.begin()); }

bool IpAddress::is_loopback() const noexcept {
  constexpr std::array<std::uint8_t, 16> v6_loopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return is_v4() ? bytes[v4_prefix.size()] == 127 : bytes == v6_loopback;
}

std::string IpAddress::to_text() const {
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = is_v4();
  ::inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data() + (v4 ? v4_prefix.size() : 0), text, sizeof text);
  return text;
}

std::string_view without_port(std::string_view peer) noexcept {
  peer = peer.substr(0, peer.rfind(':'));
  if (peer.starts_with('[') && peer.ends_with(']')) peer = peer.substr(1, peer.size() - 2);
  return peer;
}

std::optional<AddressRange> AddressRange::parse(std::string_view text) {
  text = trimmed(text);
  const std::size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  if (!address) return std::nullopt;
  AddressRange range{*address, address_bits, std::string(text)};
  if (slash == std::string_view::npos) return range;
  const bool v4 = text.find(':') == std::string_view::npos;
  const auto length = parse_number<int>(text.substr(slash + 1));
  const int most = v4 ? address_bits - v4_prefix_bits : address_bits;
  if (!length || *length < 0 || *length > most) return std::nullopt;
  range.bits = v4 ? v4_prefix_bits + *length : *length;
  return range;
}

bool AddressRange::contains(const IpAddress& address) const noexcept {
  const auto whole = static_cast<std::size_t>(bits / 8);
  if (!std::equal(first.bytes.begin(), first.bytes.begin() + static_cast<std::ptrdiff_t>(whole),
                  address.bytes.begin())) {
    return false;
  }
  const int rest = bits % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
  return ((first.bytes[whole] ^ address.bytes[whole]) & mask) == 0;
}

}  // namespace spillway
