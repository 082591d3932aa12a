#include "allocator/pressure_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/unit/allocator/temporary_folder.h"

namespace spillway {
namespace {

using test::TemporaryFolder;

bool ready(const PressureWatch& watch) {
  pollfd waiting{watch.fd(), watch.events(), 0};
  return ::poll(&waiting, 1, 0) == 1;
}

// A Unix stream socket that a service manager would listen on.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd_, 1) == 0);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int accept() const { return ::accept(fd_, nullptr, nullptr); }

 private:
  int fd_;
};

}  // namespace

TEST_CASE("base64_is_decoded_or_refused", "[pressure]") {
  CHECK(decode_base64("") == "");
  CHECK(decode_base64("c29tZSAxNTAwMDAgMTAwMDAwMA==") == "some 150000 1000000");
  CHECK(decode_base64("c29tZSAyMDAwMDAgMjAwMDAwMAA=") == std::string("some 200000 2000000\0", 20));
  CHECK(decode_base64("YQ==") == "a");
  CHECK(decode_base64("YQ") == "a");
  CHECK(decode_base64("YWI=") == "ab");
  CHECK(decode_base64("YW Jj\n") == "abc");
  CHECK(decode_base64("/+8=") == "\xff\xef");
  for (const char* bad : {"Y", "YQ=", "YQ===", "YWJj=", "Y*==", "YQ==YQ==", "=", "\xff\xff"}) {
    CHECK_FALSE(decode_base64(bad));
  }
}

TEST_CASE("without_a_watch_in_the_environment_there_is_none", "[pressure]") {
  for (const char* path : {static_cast<const char*>(nullptr), "", "/dev/null"}) {
    const auto opened = PressureWatch::open_from_environment(path, "c29tZQ==");
    CHECK(opened.watch == nullptr);
    CHECK(opened.error.empty());
  }
}

TEST_CASE("a_watch_that_cannot_be_says_why", "[pressure]") {
  const TemporaryFolder folder;
  folder.write("/plain", "some avg10=0.00\n");
  const std::string plain = folder.path() + "/plain";
  const auto error_of = [](const std::string& path, const char* write) {
    const auto opened = PressureWatch::open_from_environment(path.c_str(), write);
    CHECK(opened.watch == nullptr);
    return opened.error;
  };
  CHECK_THAT(error_of("relative/file", ""), Catch::Contains("no absolute path"));
  CHECK_THAT(error_of(folder.path() + "/missing", ""), Catch::Contains("No such file"));
  CHECK_THAT(error_of(folder.path(), ""), Catch::Contains("no file, FIFO or socket"));
  CHECK_THAT(error_of(plain, "%%%"), Catch::Contains("Base64"));
  CHECK_THAT(error_of(plain, "c29tZQ=="), Catch::Contains("nothing of memory pressure"));
  CHECK_THAT(error_of(plain, nullptr), Catch::Contains("nothing of memory pressure"));
}

TEST_CASE("a_fifo_signals_by_bytes", "[pressure]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto opened = PressureWatch::open_from_environment(path.c_str(), "aGVsbG8=");
  INFO(opened.error);
  REQUIRE(opened.watch);
  CHECK_FALSE(ready(*opened.watch));
  CHECK_FALSE(opened.watch->take_signal());
  for (int turn = 0; turn < 2; ++turn) {
    const int writer = ::open(path.c_str(), O_WRONLY | O_NONBLOCK);
    REQUIRE(writer >= 0);
    REQUIRE(::write(writer, "xyz", 3) == 3);
    ::close(writer);
    CHECK(ready(*opened.watch));
    CHECK(opened.watch->take_signal());
    CHECK_FALSE(ready(*opened.watch));
    CHECK_FALSE(opened.watch->take_signal());
    CHECK_FALSE(opened.watch->ended());  // the writer's end is not the FIFO's
  }
}

TEST_CASE("a_socket_gets_our_words_and_signals_by_bytes_until_it_closes", "[pressure]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/socket";
  const Listener listener(path);
  auto opened = PressureWatch::open_from_environment(path.c_str(), "aGVsbG8=");
  INFO(opened.error);
  REQUIRE(opened.watch);
  const int peer = listener.accept();
  REQUIRE(peer >= 0);
  char words[16] = {};
  CHECK(::read(peer, words, sizeof words) == 5);
  CHECK(std::string(words) == "hello");
  CHECK_FALSE(opened.watch->take_signal());
  const std::string many(100'000, 'z');
  CHECK(::send(peer, many.data(), many.size(), MSG_DONTWAIT) > 0);
  CHECK(ready(*opened.watch));

  PressureSource source(Cgroup::find(folder.path()), std::move(opened.watch));
  CHECK(source.read().signalled);
  ::close(peer);
  while (source.watch()->take_signal()) {
  }
  CHECK(source.watch()->ended());
  CHECK_FALSE(source.read().signalled);
}

TEST_CASE("a_trigger_on_the_machines_pressure_file_can_be_waited_for", "[pressure]") {
  const std::string file = "/proc/pressure/memory";
  const auto opened = PressureWatch::open(file, "some 200000 2000000\n");
  if (!opened.watch) {
    WARN("SKIPPED: no trigger can be set here: " << opened.error);
    return;
  }
  CHECK(opened.watch->events() == POLLPRI);
  opened.watch->take_signal();  // whatever the machine is doing
  CHECK_FALSE(opened.watch->ended());
}

}  // namespace spillway
