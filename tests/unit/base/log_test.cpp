#include "proxy/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/utf8.h"

namespace spillway {
namespace {

// A folder with a log file in it; the log goes back to standard error at the end.
struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spillway-log-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() {
    log::open({});
    std::filesystem::remove_all(path);
  }
  std::string file() const { return (path / "log").string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::filesystem::path path;
};

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a JSON line is a document with MongoDB's fields") {
  Folder folder;
  log::Options options;
  options.path = folder.file();
  options.json = true;
  log::open(options);
  log::info("a \"quoted\" {} \\ line\nof {}", 7, "two\ttabs");
  log::info("a \"quoted\" {} \\ line\nof {}", 8, "others");
  log::warning("something else");
  std::thread([] {
    log::name_thread("worker7");
    log::write_event(log::Level::info, "COMMAND", 51803, "Slow query", R"({"durationMillis":5})");
  }).join();
  const auto lines = lines_of(folder.file());
  REQUIRE(lines.size() == 4);
  std::vector<BsonDoc> documents;
  for (const std::string& line : lines) {
    INFO(line);
    // The zone is written as MongoDB does, "+00:00"; BSON's own JSON knows Z alone.
    constexpr std::string_view start = R"({"t":{"$date":"2026-11-21T16:00:00.123)";
    REQUIRE(line.size() > start.size() + 6);
    CHECK((line[start.size()] == '+' || line[start.size()] == '-'));
    CHECK(line[start.size() + 3] == ':');
    auto document = BsonDoc::from_json(std::string(line).replace(start.size(), 6, "Z"));
    REQUIRE(document.has_value());
    CHECK(document->view()["t"].type == BsonType::date);
    documents.push_back(*std::move(document));
  }
  const DocView first = documents[0];
  CHECK(first["s"].as_string() == "I");
  CHECK(first["c"].as_string() == "-");
  CHECK(first["ctx"].as_string() == "main");
  CHECK(first["msg"].as_string() == "a \"quoted\" 7 \\ line\nof two\ttabs");
  CHECK_FALSE(first["attr"].exists());
  // A kind of line has an id.
  CHECK(documents[1].view()["id"].to_int64() == first["id"].to_int64());
  CHECK(documents[2].view()["id"].to_int64() != first["id"].to_int64());
  CHECK(documents[2].view()["s"].as_string() == "W");
  const DocView slow = documents[3];
  CHECK(slow["c"].as_string() == "COMMAND");
  CHECK(slow["id"].to_int64() == 51803);
  CHECK(slow["ctx"].as_string() == "worker7");
  CHECK(slow.find_path("attr.durationMillis").to_int64() == 5);
}

TEST_CASE("what clients say stays within its line") {
  const std::string name = "root\"}\n2026-11-22T00:00:00.000+0000 I all is well\x1b[2J\x7f";
  const std::string bytes = "caf\xe9";
  Folder folder;
  log::Options options;
  options.path = folder.file();
  options.json = GENERATE(false, true);
  log::open(options);
  log::warning("a login as {} was refused", name);
  log::warning("a login as {} was refused", bytes);
  log::write_event(log::Level::info, "ACCESS", 1, "Failed to authenticate", "<malformed document of 7 bytes>");
  log::write_event(log::Level::info, "ACCESS", 1, "Failed to authenticate", R"({"user":"roo...)");
  const auto lines = lines_of(folder.file());
  REQUIRE(lines.size() == 4);
  for (const std::string& line : lines) {
    CHECK(is_utf8(line));
    CHECK(std::none_of(line.begin(), line.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }));
  }
  CHECK(lines[1].find("\\xe9") != std::string::npos);
  if (!options.json) return;
  std::vector<BsonDoc> documents;
  for (std::string line : lines) {
    constexpr std::size_t zone_at = 38;
    auto document = BsonDoc::from_json(line.replace(zone_at, 6, "Z"));
    INFO(line);
    REQUIRE(document.has_value());
    documents.push_back(*std::move(document));
  }
  CHECK(documents[0].view()["msg"].as_string() == "a login as " + name + " was refused");
  CHECK(documents[2].view().find_path("attr.text").as_string() == "<malformed document of 7 bytes>");
  CHECK(documents[3].view().find_path("attr.text").as_string() == R"({"user":"roo...)");
}

TEST_CASE("the last lines take a bounded place") {
  Folder folder;
  log::open({.path = folder.file()});
  const std::uint64_t before = log::recent().total;
  for (int i = 0; i < 40; ++i) log::info("line {} {}", i, std::string(100'000, 'x'));
  log::info("the last");
  const log::Recent recent = log::recent();
  std::size_t bytes = 0;
  for (const std::string& line : recent.lines) bytes += line.size();
  CHECK(bytes <= 1 << 20);
  CHECK(bytes > 900'000);
  CHECK(recent.lines.back() == "the last");
  CHECK(recent.total == before + 41);
  for (int i = 0; i < 3'000; ++i) log::debug("unseen");
  for (int i = 0; i < 3'000; ++i) log::info("short");
  CHECK(log::recent().lines.size() == 1024);
}

TEST_CASE("the last warnings are kept, newest first, whatever else is logged") {
  Folder folder;
  log::Options options;
  options.path = folder.file();
  options.json = GENERATE(false, true);
  log::open(options);
  for (int i = 0; i < 40; ++i) log::warning("warning {}", i);
  log::error("a\nlong {}", std::string(10'000, 'x'));
  log::write_event(log::Level::info, "ACCESS", 1, "all is well", "");
  log::info("all is well");
  const auto last = log::last_warnings();
  REQUIRE(last.size() == 16);
  CHECK(last[0].find(" a?long xxx") != std::string::npos);
  CHECK(last[0].size() == 500);
  CHECK(last[1].ends_with(" warning 39"));
  CHECK(last[15].ends_with(" warning 25"));
}

TEST_CASE("a log is rotated by renaming its file, or by another program") {
  Folder folder;
  log::Options options;
  options.path = folder.file();
  log::open(options);
  log::info("one");
  CHECK(log::rotate());
  log::info("two");
  CHECK(lines_of(folder.file()).size() == 1);
  auto files = folder.files();
  REQUIRE(files.size() == 2);
  CHECK(files[0] == "log");
  CHECK(files[1].starts_with("log.2"));
  CHECK(files[1].find(':') == std::string::npos);
  CHECK(lines_of(folder.path / files[1]).size() == 1);

  options.rename_to_rotate = false;
  log::open(options);
  log::rotate();
  log::info("three");
  CHECK(lines_of(folder.file()).size() == 2);
  std::filesystem::rename(folder.file(), folder.path / "moved");
  log::info("four");
  log::rotate();
  log::info("five");
  CHECK(lines_of(folder.path / "moved").size() == 3);
  CHECK(lines_of(folder.file()).size() == 1);
}

TEST_CASE("a log that cannot be opened leaves the old one") {
  Folder folder;
  log::Options options;
  options.path = folder.file();
  log::open(options);
  log::Options bad;
  bad.path = folder.path.string();
  CHECK_THROWS_AS(log::open(bad), std::runtime_error);
  log::info("still here");
  CHECK(lines_of(folder.file()).size() == 1);
  // One that was opened and is not used leaves it, too.
  bad.path = folder.file() + "2";
  log::prepare(bad);
  log::info("and here");
  CHECK(lines_of(folder.file()).size() == 2);
  CHECK(lines_of(bad.path).empty());
  log::open({});
  CHECK_FALSE(log::rotate());  // standard error: nothing to do
}

}  // namespace spillway
