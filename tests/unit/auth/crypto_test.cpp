#include "proxy/auth/crypto.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "proxy/auth/saslprep.h"

namespace spillway::auth {
namespace {

std::string hex(Bytes bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

TEST_CASE("hashes are those of the standards", "[auth]") {
  CHECK(hex(digest(Hash::sha1, bytes_of("abc")).view()) ==
        "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(hex(digest(Hash::sha256, bytes_of("abc")).view()) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // RFC 2202, RFC 4231: test case 2
  CHECK(hex(hmac(Hash::sha1, bytes_of("Jefe"), bytes_of("what do ya want for nothing?")).view()) ==
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
  CHECK(
      hex(hmac(Hash::sha256, bytes_of("Jefe"), bytes_of("what do ya want for nothing?")).view()) ==
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // RFC 6070
  CHECK(hex(pbkdf2(Hash::sha1, "password", bytes_of("salt"), 4096).view()) ==
        "4b007901b765489abead49d926f721d065a429c1");
  CHECK(md5_hex("abc") == "900150983cd24fb0d6963f7d28e17f72");
  CHECK(hmac(Hash::sha256, {}, bytes_of("a")) != hmac(Hash::sha256, bytes_of("k"), bytes_of("a")));
  CHECK(hmac(Hash::sha256, {}, bytes_of("a")) == hmac(Hash::sha256, {}, bytes_of("a")));
}

TEST_CASE("base64 is taken in one form only", "[auth]") {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    const std::string encoded = to_base64(bytes_of(text));
    const auto decoded = from_base64(encoded);
    REQUIRE(decoded);
    CHECK(text_of(*decoded) == text);
  }
  CHECK(to_base64(bytes_of("foobar")) == "Zm9vYmFy");
  for (const char* wrong :
       {"Zg", "Zg=", "Zg=a", "Zh==", "Zm9=", "====", "Zm9v\n", "Z m9v===", "=m9v", "Zm-v"}) {
    INFO(wrong);
    CHECK(!from_base64(wrong));
  }
}

TEST_CASE("secrets compare whole", "[auth]") {
  CHECK(same_secret(bytes_of("abc"), bytes_of("abc")));
  CHECK(!same_secret(bytes_of("abc"), bytes_of("abd")));
  CHECK(!same_secret(bytes_of("abc"), bytes_of("ab")));
  CHECK(same_secret({}, {}));
}

TEST_CASE("a secret stands in pages that no core dump holds", "[auth]") {
  const auto secret = Secret::make("a password of some length");
  CHECK(secret->text() == "a password of some length");
  const auto place = reinterpret_cast<std::uintptr_t>(secret->text().data());
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  bool excluded = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-');
    if (dash != std::string::npos && line.find(':') > line.find(' ')) {
      const auto from = std::stoull(line, nullptr, 16);
      const auto to = std::stoull(line.substr(dash + 1), nullptr, 16);
      inside = from <= place && place < to;
    }
    if (inside && line.starts_with("VmFlags:")) excluded = line.find(" dd") != std::string::npos;
  }
  CHECK(excluded);
}

TEST_CASE("SASLprep, by the examples of RFC 4013", "[auth]") {
  CHECK(saslprep("I\u00adX") == "IX");
  CHECK(saslprep("user") == "user");
  CHECK(saslprep("USER") == "USER");
  CHECK(saslprep("\u00aa") == "a");
  CHECK(saslprep("\u2168") == "IX");
  CHECK(saslprep("p\u00a0w") == "p w");
  CHECK(!saslprep("\x07"));
  CHECK(!saslprep("\u0627\u0031"));
  CHECK(!saslprep("\xff\xfe"));
  CHECK(!saslprep(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace spillway::auth
