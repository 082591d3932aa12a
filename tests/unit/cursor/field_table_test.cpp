#include <catch2/catch.hpp>
#include <string>

#include "cursor/field_table.h"

namespace spillway {
namespace {

constexpr FieldTable<5> table({"filter", "sort", "limit", "$db", "x"});

TEST_CASE("every name of a field table is found at its position", "[field_table]") {
  CHECK(table.find("filter") == 0);
  CHECK(table.find("sort") == 1);
  CHECK(table.find("limit") == 2);
  CHECK(table.find("$db") == 3);
  CHECK(table.find("x") == 4);
}

TEST_CASE("a field table knows no other name", "[field_table]") {
  CHECK_FALSE(table.contains(""));
  CHECK_FALSE(table.contains("Filter"));
  CHECK_FALSE(table.contains("fulter"));  // the same characters where the hash looks
  CHECK_FALSE(table.contains("filter1"));
  CHECK_FALSE(table.contains("$d"));
  CHECK_FALSE(table.contains(std::string(100'000, 'x')));
  CHECK_FALSE(table.contains(std::string_view("sort\0", 5)));
}

TEST_CASE("bytes above 127 are looked up as well as others", "[field_table]") {
  constexpr FieldTable<2> words({"\xc3\xa9t\xc3\xa9", "\xff"});
  CHECK(words.find("\xc3\xa9t\xc3\xa9") == 0);
  CHECK(words.find("\xff") == 1);
  CHECK_FALSE(words.contains("\xfe"));
}

}  // namespace
}  // namespace spillway
