// A folder of a test's own, gone with the test.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace spillway::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  // `file` begins with a slash; its folders are made.
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path whole = path_ + file;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

}  // namespace spillway::test
