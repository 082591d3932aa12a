#include "proxy/wire/proxy_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "proxy/base/number.h"
#include "proxy/wire/crc32c.h"

namespace spillway::wire {

namespace {

constexpr std::string_view text_start = "PROXY ";
constexpr std::size_t text_bytes_max = 107;  // with the line's end
constexpr std::string_view binary_start("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr std::size_t binary_fixed_bytes = 16;
constexpr std::uint8_t crc_field = 0x03;

// The second half of byte 12, and the halves of byte 13.
enum Command : std::uint8_t { command_local, command_proxy };
enum Family : std::uint8_t { family_none, family_ipv4, family_ipv6, family_unix };
enum Kind : std::uint8_t { kind_none, kind_stream, kind_datagram };

ProxyHeader bad_header(std::string_view why) {
  ProxyHeader result;
  result.kind = ProxyHeader::Kind::bad;
  result.why = why;
  return result;
}

std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t big_endian(Bytes two) noexcept { return std::size_t{two[0]} << 8 | two[1]; }

// `address` as the network has it.
std::string end_text(bool v6, const void* address, std::size_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, address, text.data(), text.size());
  const std::string number = std::to_string(port);
  return v6 ? "[" + std::string(text.data()) + "]:" + number : text.data() + (":" + number);
}

std::optional<std::string> text_end(bool v6, std::string_view address, std::string_view port) {
  std::array<std::uint8_t, sizeof(in6_addr)> parsed{};
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, std::string(address).c_str(), parsed.data()) != 1) return std::nullopt;
  const auto number = parse_number<std::uint16_t>(port);
  return number ? std::optional(end_text(v6, parsed.data(), *number)) : std::nullopt;
}

// PROXY TCP4 192.0.2.1 198.51.100.2 56324 27017, between single spaces.
ProxyHeader read_text(std::string_view have) {
  const std::size_t end = have.substr(0, text_bytes_max).find("\r\n");
  if (end == std::string_view::npos) {
    if (have.size() >= text_bytes_max) return bad_header("its line does not end within 107 bytes");
    return {};
  }
  ProxyHeader result;
  result.kind = ProxyHeader::Kind::header;
  result.bytes = end + 2;
  std::string_view rest = have.substr(text_start.size(), end - text_start.size());
  std::vector<std::string_view> words;
  for (std::size_t space = 0; space != std::string_view::npos;) {
    space = rest.find(' ');
    words.push_back(rest.substr(0, space));
    if (space != std::string_view::npos) rest.remove_prefix(space + 1);
  }
  if (words.front() == "UNKNOWN") return result;
  const bool v6 = words.front() == "TCP6";
  if (!v6 && words.front() != "TCP4") return bad_header("its protocol is none of TCP4, TCP6 and UNKNOWN");
  if (words.size() != 5) return bad_header("it does not hold two addresses and two ports");
  auto source = text_end(v6, words[1], words[3]);
  auto destination = text_end(v6, words[2], words[4]);
  if (!source || !destination) return bad_header("an address or a port cannot be read");
  result.source = *std::move(source);
  result.destination = *std::move(destination);
  return result;
}

// The fields behind the addresses; one of them may be a checksum over the whole header.
std::string_view check_fields(Bytes header, std::size_t at) {
  while (at < header.size()) {
    constexpr std::size_t field_start = 3;
    if (header.size() - at < field_start) return "its last field is cut";
    const std::size_t bytes = big_endian(header.subspan(at + 1));
    if (header.size() - at - field_start < bytes) return "its last field is cut";
    if (header[at] == crc_field) {
      constexpr std::array<std::uint8_t, 4> zeros{};
      if (bytes != zeros.size()) return "its checksum is not of 4 bytes";
      const Bytes sum = header.subspan(at + field_start, zeros.size());
      std::uint32_t found = crc32c(header.first(at + field_start));
      found = crc32c(header.subspan(at + field_start + zeros.size()), crc32c(zeros, found));
      const std::uint32_t told = std::uint32_t{sum[0]} << 24 | std::uint32_t{sum[1]} << 16 |
                                 std::uint32_t{sum[2]} << 8 | sum[3];
      if (found != told) return "its checksum differs";
    }
    at += field_start + bytes;
  }
  return {};
}

ProxyHeader read_binary(Bytes have) {
  if (have.size() < binary_fixed_bytes) return {};
  const std::uint8_t command = have[12] & 0x0f;
  const std::uint8_t family = have[13] >> 4;
  const std::uint8_t kind = have[13] & 0x0f;
  if (have[12] >> 4 != 2) return bad_header("its version is not 2");
  if (command > command_proxy) return bad_header("its command is none of LOCAL and PROXY");
  const std::size_t total = binary_fixed_bytes + big_endian(have.subspan(14));
  if (total > proxy_header_bytes_max) return bad_header("it is of more than 4096 bytes");
  if (have.size() < total) return {};
  ProxyHeader result;
  result.kind = ProxyHeader::Kind::header;
  result.bytes = total;
  if (command == command_local) return result;
  if (family > family_unix || kind > kind_datagram) return bad_header("its address family is unknown");
  if (family == family_none) return result;
  constexpr std::array<std::size_t, 4> address_bytes{0, 12, 36, 216};
  const Bytes header = have.first(total);
  const std::size_t fields = binary_fixed_bytes + address_bytes[family];
  if (fields > total) return bad_header("its addresses are cut");
  if (const std::string_view why = check_fields(header, fields); !why.empty()) return bad_header(why);
  if (kind != kind_stream || family == family_unix) return result;
  const bool v6 = family == family_ipv6;
  const std::size_t size = v6 ? sizeof(in6_addr) : sizeof(in_addr);
  const Bytes ends = header.subspan(binary_fixed_bytes);
  result.source = end_text(v6, ends.data(), big_endian(ends.subspan(2 * size)));
  result.destination = end_text(v6, ends.data() + size, big_endian(ends.subspan(2 * size + 2)));
  return result;
}

}  // namespace

ProxyHeader read_proxy_header(Bytes have) {
  const std::string_view text = text_of(have);
  const auto begins = [&](std::string_view start) {
    return text.substr(0, start.size()) == start.substr(0, text.size());
  };
  if (have.empty()) return {};
  if (begins(text_start)) return text.size() < text_start.size() ? ProxyHeader{} : read_text(text);
  if (begins(binary_start)) return read_binary(have);
  ProxyHeader result;
  result.kind = ProxyHeader::Kind::none;
  return result;
}

}  // namespace spillway::wire
