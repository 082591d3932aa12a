#include "cursor/utf8.h"

#include <catch2/catch.hpp>

namespace spillway {

TEST_CASE("text_for_a_screen_is_cut_between_characters_and_moves_no_cursor", "[utf8]") {
  CHECK(clean_text("plain", 10) == "plain");
  CHECK(clean_text("plain", 3) == "pla");
  CHECK(clean_text("é…", 2) == "é");
  CHECK(clean_text("é…", 4) == "é");
  CHECK(clean_text("é…", 5) == "é…");
  CHECK(clean_text("a\x1b[2Jb\n\x7f", 20) == "a?[2Jb??");
  CHECK(clean_text("a\xc2\x9b" "2J", 20) == "a??2J");  // CSI in eight bits
  CHECK(clean_text("\xff\xc3", 20) == "??");
  CHECK(clean_text("", 0).empty());
  CHECK(clean_text("\xc3\xa9", 1).empty());
}

}  // namespace spillway
