#include "proxy/wire/proxy_header.h"

#include <catch2/catch.hpp>

#include <string>

#include "proxy/wire/crc32c.h"
#include "proxy/wire/frame_reader.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

using Kind = ProxyHeader::Kind;

ByteVector bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

ProxyHeader read(const ByteVector& bytes) { return read_proxy_header(Bytes(bytes)); }
ProxyHeader read(std::string_view text) { return read(bytes_of(text)); }

// A header of version 2; `first` holds version and command, `second` family and kind.
ByteVector binary(std::uint8_t first, std::uint8_t second, const ByteVector& body) {
  ByteVector out = bytes_of(std::string_view("\r\n\r\n\0\r\nQUIT\n", 12));
  out.push_back(first);
  out.push_back(second);
  out.push_back(static_cast<std::uint8_t>(body.size() >> 8));
  out.push_back(static_cast<std::uint8_t>(body.size()));
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

const ByteVector ipv4_ends = {192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x69, 0x89};

ByteVector ipv6_ends() {
  ByteVector ends(36);
  ends[0] = ends[16] = 0x20;
  ends[1] = ends[17] = 0x01;
  ends[15] = 1;
  ends[31] = 2;
  ends[32] = 0xdc;
  ends[33] = 0x04;
  ends[34] = 0x69;
  ends[35] = 0x89;
  return ends;
}

ByteVector with_fields(const ByteVector& fields) {
  ByteVector body = ipv4_ends;
  body.insert(body.end(), fields.begin(), fields.end());
  return binary(0x21, 0x11, body);
}

// What every whole header keeps to: no start of it is one, and what follows changes nothing.
void check_header(const ByteVector& bytes, const std::string& source,
                  const std::string& destination) {
  for (std::size_t have = 0; have < bytes.size(); ++have) {
    const ByteVector part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(have));
    REQUIRE(read(part).kind == Kind::more);
  }
  ByteVector followed = bytes;
  const ByteVector ping = message(R"({"ping": 1, "$db": "admin"})");
  followed.insert(followed.end(), ping.begin(), ping.end());
  for (const ByteVector& each : {bytes, followed}) {
    const ProxyHeader header = read(each);
    INFO(header.why);
    CHECK(header.kind == Kind::header);
    CHECK(header.bytes == bytes.size());
    CHECK(header.source == source);
    CHECK(header.destination == destination);
  }
}

void check_bad(const ByteVector& bytes, std::string_view why) {
  const ProxyHeader header = read(bytes);
  CHECK(header.kind == Kind::bad);
  CHECK(header.bytes == 0);
  CHECK(header.why == why);
}

}  // namespace

TEST_CASE("proxy_header_of_version_1") {
  check_header(bytes_of("PROXY TCP4 192.0.2.1 198.51.100.2 56324 27017\r\n"), "192.0.2.1:56324",
               "198.51.100.2:27017");
  check_header(bytes_of("PROXY TCP6 2001:DB8::1 ::1 1 65535\r\n"), "[2001:db8::1]:1",
               "[::1]:65535");
  check_header(bytes_of("PROXY UNKNOWN\r\n"), "", "");
  check_header(bytes_of("PROXY UNKNOWN ffff::1 ffff::2 65535 65535 whatever\r\n"), "", "");
}

TEST_CASE("proxy_header_of_version_1_that_is_wrong") {
  const std::string_view unreadable = "an address or a port cannot be read";
  for (const char* ends :
       {"192.0.2.256 198.51.100.2 1 2", "192.0.2.1 198.51.100.2 1 65536",
        "192.0.2.1 198.51.100.2 -1 2", "192.0.2.1 198.51.100.2 1 ", "192.0.2.1 2001:db8::1 1 2",
        "192.0.2.1 198.51.100.2 1 2x", " 198.51.100.2 1 2"}) {
    INFO(ends);
    check_bad(bytes_of("PROXY TCP4 " + std::string(ends) + "\r\n"), unreadable);
  }
  const std::string_view counted = "it does not hold two addresses and two ports";
  check_bad(bytes_of("PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n"), counted);
  check_bad(bytes_of("PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n"), counted);
  check_bad(bytes_of("PROXY TCP4\r\n"), counted);
  check_bad(bytes_of("PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n"),
            "its protocol is none of TCP4, TCP6 and UNKNOWN");
  const std::string longest = "PROXY UNKNOWN " + std::string(107 - 14 - 2, 'x');
  check_header(bytes_of(longest + "\r\n"), "", "");
  check_bad(bytes_of(longest + "x\r\n"), "its line does not end within 107 bytes");
  CHECK(read(longest).kind == Kind::more);
}

TEST_CASE("proxy_header_of_version_2") {
  check_header(binary(0x21, 0x11, ipv4_ends), "192.0.2.1:56324", "198.51.100.2:27017");
  check_header(binary(0x21, 0x21, ipv6_ends()), "[2001::1]:56324", "[2001::2]:27017");
  // A balancer's own check, whatever it holds; families without an address of use here.
  check_header(binary(0x20, 0x00, {}), "", "");
  check_header(binary(0x20, 0xff, {1, 2, 3}), "", "");
  check_header(binary(0x21, 0x00, {1, 2, 3}), "", "");
  check_header(binary(0x21, 0x31, ByteVector(216)), "", "");
  check_header(binary(0x21, 0x12, ipv4_ends), "", "");
}

TEST_CASE("proxy_header_of_version_2_with_fields") {
  check_header(with_fields({0x04, 0, 2, 9, 9, 0xea, 0, 0}), "192.0.2.1:56324",
               "198.51.100.2:27017");
  ByteVector summed = with_fields({0x02, 0, 1, 'h', 0x03, 0, 4, 0, 0, 0, 0, 0x04, 0, 0});
  const std::size_t at = summed.size() - 7;
  const std::uint32_t sum = crc32c(Bytes(summed));
  for (std::size_t i = 0; i < 4; ++i) {
    summed[at + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
  }
  check_header(summed, "192.0.2.1:56324", "198.51.100.2:27017");
  for (const std::size_t changed : {std::size_t{16}, at, summed.size() - 3}) {
    ByteVector other = summed;
    other[changed] ^= 1;
    INFO(changed);
    CHECK(read(other).why == "its checksum differs");
  }
  check_bad(with_fields({0x03, 0, 3, 0, 0, 0}), "its checksum is not of 4 bytes");
  check_bad(with_fields({0x02, 0}), "its last field is cut");
  check_bad(with_fields({0x02, 0, 2, 1}), "its last field is cut");
}

TEST_CASE("proxy_header_of_version_2_that_is_wrong") {
  check_bad(binary(0x11, 0x11, ipv4_ends), "its version is not 2");
  check_bad(binary(0x22, 0x11, ipv4_ends), "its command is none of LOCAL and PROXY");
  check_bad(binary(0x21, 0x41, ipv4_ends), "its address family is unknown");
  check_bad(binary(0x21, 0x13, ipv4_ends), "its address family is unknown");
  check_bad(binary(0x21, 0x21, ipv4_ends), "its addresses are cut");
  // Refused by its first 16 bytes, before the rest is read.
  ByteVector longest = binary(0x20, 0, ByteVector(proxy_header_bytes_max - 16));
  check_header(longest, "", "");
  longest.resize(16);
  ++longest[15];
  check_bad(longest, "it is of more than 4096 bytes");
}

TEST_CASE("proxy_header_is_no_message_and_no_message_is_one") {
  const ByteVector ping = message(R"({"ping": 1, "$db": "admin"})");
  CHECK(read(ping).kind == Kind::none);
  CHECK(read(ping).bytes == 0);
  CHECK(read("PROXX").kind == Kind::none);
  CHECK(read("\r\n\r\nGET").kind == Kind::none);
  for (const ByteVector& header :
       {bytes_of("PROXY TCP4 192.0.2.1 198.51.100.2 56324 27017\r\n"), binary(0x20, 0, {})}) {
    CHECK(FrameReader::peek(Bytes(header)).kind == FrameReader::Kind::bad);
  }
}

}  // namespace spillway::wire
