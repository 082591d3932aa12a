// The audit log's file: its mode, its rotation, and a disk that is stuck (a pipe without a reader).
#include "proxy/server/system/audit_sink.h"

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "proxy/base/file_descriptor.h"

namespace spillway::server {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-audit-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* name) const { return (path_ / name).string(); }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

AuditConfig to_file(const std::string& path) {
  AuditConfig config;
  config.destination = AuditDestination::file;
  config.path = path;
  return config;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

TEST_CASE("lines are written in order, for the owner alone", "[audit]") {
  Folder folder;
  const std::string path = folder.file("audit.json");
  std::ofstream(path) << "before\n";
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  std::string expected = "before\n";
  {
    AuditSink sink(to_file(path));
    for (int i = 0; i < 1'000; ++i) {
      REQUIRE(sink.offer("line " + std::to_string(i)));
      expected += "line " + std::to_string(i) + "\n";
    }
    sink.stop();
    CHECK_FALSE(sink.offer("late"));
  }
  CHECK(content(path) == expected);
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("it goes on in a new file, renamed by itself or by others", "[audit]") {
  Folder folder;
  const std::string path = folder.file("audit.json");
  AuditSink sink(to_file(path));
  REQUIRE(sink.offer("one"));
  sink.reopen(true);
  const auto wait_for = [](const auto& done) {
    for (int i = 0; i < 5'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(done());
  };
  wait_for([&] { return folder.count() == 2; });
  REQUIRE(sink.offer("two"));
  wait_for([&] { return content(path) == "two\n"; });
  std::filesystem::rename(path, folder.file("elsewhere"));
  sink.reopen(false);
  wait_for([&] { return folder.count() == 3; });
  REQUIRE(sink.offer("three"));
  sink.stop();
  CHECK(content(path) == "three\n");
  CHECK(sink.failed() == 0);
}

TEST_CASE("a disk that is stuck keeps no client waiting, and the waiting lines have a limit", "[audit]") {
  Folder folder;
  const std::string path = folder.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(reader);
  constexpr std::size_t waiting_max = 64'000;
  AuditSink sink(to_file(path), {.waiting_bytes_max = waiting_max});
  const std::string line(999, 'x');
  std::size_t taken = 0;
  while (taken < 10'000 && sink.offer(line)) ++taken;
  const auto pipe_bytes = static_cast<std::size_t>(::fcntl(reader.get(), F_GETPIPE_SZ));
  CHECK(taken >= waiting_max / 1'000);
  CHECK(taken <= (waiting_max + pipe_bytes) / 1'000 + 1);
  // Read on, and all that was taken arrives.
  std::size_t read_bytes = 0;
  std::vector<char> room(65'536);
  for (int i = 0; i < 10'000 && read_bytes < taken * 1'000; ++i) {
    const ssize_t got = ::read(reader.get(), room.data(), room.size());
    if (got > 0) read_bytes += static_cast<std::size_t>(got);
    if (got <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(read_bytes == taken * 1'000);
  CHECK(sink.offer("one more"));
  sink.stop();
}

TEST_CASE("a disk that stays stuck does not hold up the end", "[audit]") {
  std::signal(SIGPIPE, SIG_IGN);  // as the program does
  Folder folder;
  const std::string path = folder.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(reader);
  {
    AuditSink sink(to_file(path), {.waiting_bytes_max = 64'000, .stop_wait_max = std::chrono::milliseconds(10)});
    const std::string line(999, 'x');
    const auto pipe_bytes = static_cast<std::size_t>(::fcntl(reader.get(), F_GETPIPE_SZ));
    for (std::size_t taken = 0; taken * 1'000 < pipe_bytes + 2'000;) {
      if (sink.offer(line)) ++taken;
      std::this_thread::yield();
    }
    sink.stop();
    CHECK_FALSE(sink.offer(line));
  }
  // The thread that was left behind ends once its disk does anything: here, a pipe without a reader.
  reader.reset();
}

TEST_CASE("a disk that is full is told of, and the next line is whole", "[audit]") {
  AuditConfig config = to_file("/dev/full");
  if (::access("/dev/full", W_OK) != 0) return;
  AuditSink sink(config);
  for (int i = 0; i < 10; ++i) REQUIRE(sink.offer("line"));
  sink.stop();
  CHECK(sink.failed() == 10);
}

// "count" of an eventsLost line; any other line as it is.
std::vector<std::string> events(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t count = line.find(R"("param":{"count":)");
    found.push_back(line.find("eventsLost") == line.npos ? line : "lost " + line.substr(count + 17, 1));
  }
  return found;
}

TEST_CASE("lines that could not be written are told of before the next one", "[audit]") {
  std::signal(SIGPIPE, SIG_IGN);  // as the program does
  Folder folder;
  const std::string path = folder.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto open_reader = [&] { return FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)); };
  FileDescriptor reader = open_reader();
  REQUIRE(reader);
  AuditSink sink(to_file(path));
  reader.reset();
  for (int i = 0; i < 3; ++i) REQUIRE(sink.offer("gone"));
  for (int i = 0; i < 5'000 && sink.failed() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(sink.failed() == 3);
  reader = open_reader();
  REQUIRE(sink.offer("one"));
  REQUIRE(sink.offer("two"));
  sink.stop();
  char text[4096];
  const ssize_t got = ::read(reader.get(), text, sizeof text);
  REQUIRE(got > 0);
  CHECK(events({text, static_cast<std::size_t>(got)}) == std::vector<std::string>{"lost 3", "one", "two"});
  CHECK(sink.failed() == 3);
}

TEST_CASE("lines that were refused are told of where they are missing, at the end, too", "[audit]") {
  Folder folder;
  const std::string path = folder.file("audit.json");
  AuditSink sink(to_file(path), {.waiting_bytes_max = 10});
  for (int i = 0; i < 2; ++i) CHECK_FALSE(sink.offer("too long to wait"));
  REQUIRE(sink.offer("one"));
  CHECK_FALSE(sink.offer("too long to wait"));
  sink.stop();
  CHECK(events(content(path)) == std::vector<std::string>{"lost 2", "one", "lost 1"});
}

TEST_CASE("a file that cannot be opened is told of at once", "[audit]") {
  CHECK_THROWS_AS(AuditSink(to_file("/nowhere/audit.json")), std::runtime_error);
}

}  // namespace
}  // namespace spillway::server
