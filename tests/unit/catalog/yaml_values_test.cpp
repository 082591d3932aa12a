#include "proxy/catalog/yaml_values.h"

#include <catch2/catch.hpp>

namespace spillway::catalog {
namespace {

TEST_CASE("plain YAML scalars follow the core schema") {
  const std::pair<const char*, const char*> cases[] = {
      {"5", R"({"$numberInt":"5"})"},
      {"+5", R"({"$numberInt":"5"})"},
      {"-2147483648", R"({"$numberInt":"-2147483648"})"},
      {"2147483648", R"({"$numberLong":"2147483648"})"},
      {"-9223372036854775808", R"({"$numberLong":"-9223372036854775808"})"},
      {"1.5", R"({"$numberDouble":"1.5"})"},
      {"-.5e3", R"({"$numberDouble":"-.5e3"})"},
      {"1e9", R"({"$numberDouble":"1e9"})"},
      {".inf", R"({"$numberDouble":"Infinity"})"},
      {"-.Inf", R"({"$numberDouble":"-Infinity"})"},
      {".nan", R"({"$numberDouble":"NaN"})"},
      {"true", "true"},
      {"False", "false"},
      {"null", "null"},
      {"~", "null"},
      {"", "null"},
      {"no", R"("no")"},
      {"off", R"("off")"},
      {"1.2.3", R"("1.2.3")"},
      {"1e", R"("1e")"},
      {".", R"(".")"},
      {"-", R"("-")"},
      {"eu-west", R"("eu-west")"},
  };
  for (const auto& [text, json] : cases) {
    INFO(text);
    const auto result = json_of_plain_scalar(text);
    REQUIRE(result.has_value());
    CHECK(*result == json);
  }
  CHECK(json_of_plain_scalar("9223372036854775808").has_error());
}

TEST_CASE("JSON strings are escaped") {
  CHECK(json_string("a\"b\\c\n\x01") == R"("a\"b\\c\u000a\u0001")");
}

TEST_CASE("UUIDs become binary") {
  CHECK(*json_of_uuid("00010203-0405-0607-0809-0a0b0c0d0e0f") ==
        R"({"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"04"}})");
  for (const char* bad : {"", "0001", "00010203-0405-0607-0809-0a0b0c0d0e0g",
                          "000102030405-0607-0809-0a0b0c0d0e0f-0"}) {
    CHECK(json_of_uuid(bad).has_error());
  }
}

}  // namespace
}  // namespace spillway::catalog
