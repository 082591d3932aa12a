#include "allocator/spill_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/unit/allocator/spill_support.h"
#include "tests/unit/allocator/temporary_folder.h"

namespace spillway {

using test::TemporaryFolder;

TEST_CASE("a_spill_file_has_no_name_and_gives_back_what_was_written", "[spill]") {
  const TemporaryFolder folder;
  const OpenedSpillFile opened = open_spill_file(folder.path());
  INFO(opened.error);
  REQUIRE(opened.file);
  CHECK(opened.free_bytes > 0);
  CHECK(std::filesystem::is_empty(folder.path()));
  const test::ByteVector bytes = test::random_bytes(20'000, 1);
  CHECK(opened.file->write(bytes, 8192) == 20'000);
  test::ByteVector back(20'000);
  CHECK(opened.file->read(back, 8192) == 20'000);
  CHECK(back == bytes);
  if (opened.file->punch(8192, 8192) == 0) {
    CHECK(opened.file->read(std::span(back).first(8192), 8192) == 8192);
    CHECK(std::all_of(back.begin(), back.begin() + 8192, [](std::uint8_t b) { return b == 0; }));
  }
  CHECK(opened.file->truncate(0) == 0);
  CHECK(opened.file->read(back, 0) == 0);
}

TEST_CASE("a_folder_that_cannot_be_used_says_why", "[spill]") {
  const TemporaryFolder folder;
  folder.write("/file", "x");
  const auto error_of = [](const std::string& path) {
    const OpenedSpillFile opened = open_spill_file(path);
    CHECK_FALSE(opened.file);
    return opened.error;
  };
  CHECK_THAT(error_of(folder.path() + "/missing"), Catch::Contains("No such file"));
  CHECK_THAT(error_of(folder.path() + "/file"), Catch::Contains("is no folder"));
  CHECK_THAT(error_of(""), Catch::Contains("cannot be used"));
  CHECK_THAT(error_of("/proc"), Catch::StartsWith("/proc: "));
  CHECK_THAT(error_of("/dev/full"), Catch::Contains("is no folder"));
}

TEST_CASE("a_file_system_in_memory_is_known", "[spill]") {
  const OpenedSpillFile opened = open_spill_file("/dev/shm");
  if (!opened.file) {
    WARN("SKIPPED: no tmpfs at /dev/shm: " << opened.error);
    return;
  }
  CHECK(opened.file->on_tmpfs());
}

}  // namespace spillway
