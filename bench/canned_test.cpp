#include "proxy/canned/canned.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/reply_reader.h"

using namespace spillway::bench;

namespace {

// A blocking client of one connection; a reply that does not come within ten seconds is a failure.
class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const timeval ten_seconds{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &ten_seconds, sizeof ten_seconds);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void send_bytes(const std::string& bytes) {
    REQUIRE(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void send_command(DocWriter command) {
    const std::string body = command.add_text("$db", "db").take();
    std::string message;
    append_op_msg_prefix(message, body.size(), ++request_id_, 0);
    send_bytes(message + body);
  }
  // The numbers of the next reply's documents; each is checked.
  std::vector<std::int64_t> receive() {
    std::vector<std::int64_t> numbers;
    while (true) {
      const auto step = reader_.step();
      REQUIRE(step != ReplyReader::Step::broken);
      if (step == ReplyReader::Step::reply) return numbers;
      if (step == ReplyReader::Step::document) {
        const auto document = read_document(reader_.document());
        REQUIRE(document);
        REQUIRE(document->crc == document_crc(document->payload, document->number));
        numbers.push_back(document->number);
        continue;
      }
      const auto room = reader_.room();
      const ssize_t got = recv(fd_, room.data(), room.size(), 0);
      REQUIRE(got > 0);
      reader_.received(static_cast<std::size_t>(got));
    }
  }
  bool closed_by_peer() {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) <= 0;
  }
  const ReplySummary& summary() const { return reader_.summary(); }

 private:
  int fd_;
  bool connected_ = false;
  std::int32_t request_id_ = 0;
  ReplyReader reader_;
};

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

std::unique_ptr<CannedShard> start_shard() {
  std::string error;
  auto shard = CannedShard::start({}, error);
  REQUIRE(error.empty());
  REQUIRE(shard);
  return shard;
}

}  // namespace

TEST_CASE("a scan over the socket gives every document once, large batches included", "[canned]") {
  const auto shard = start_shard();
  Client client(shard->port());
  REQUIRE(client.connected());
  client.send_command(DocWriter().add_text("find", "docs_1024x40000").add_int32("batchSize", 2));
  auto all = client.receive();
  while (client.summary().cursor_id != 0) {
    DocWriter more;
    more.add_int64("getMore", client.summary().cursor_id).add_text("collection", "docs_1024x40000");
    client.send_command(std::move(more));
    const auto batch = client.receive();
    all.insert(all.end(), batch.begin(), batch.end());
  }
  REQUIRE(all.size() == 40'000);
  for (std::size_t at = 0; at < all.size(); ++at) {
    REQUIRE(all[at] == static_cast<std::int64_t>(at));
  }
  REQUIRE(shard->open_cursors() == 0);
}

TEST_CASE("requests behind a large reply are answered after it, in order", "[canned]") {
  const auto shard = start_shard();
  Client client(shard->port());
  for (int round = 0; round < 3; ++round) {
    DocWriter large;
    large.add_text("find", "docs_4096x1000").add_int32("batchSize", 1000);
    client.send_command(std::move(large));
    client.send_command(DocWriter().add_text("find", "docs_300000x3").add_int32("batchSize", 3));
    client.send_command(DocWriter().add_int32("ping", 1));
  }
  for (int round = 0; round < 3; ++round) {
    REQUIRE(client.receive().size() == 1000);
    REQUIRE(client.receive().size() == 3);
    REQUIRE(client.receive().empty());
    REQUIRE(client.summary().ok == 1);
    REQUIRE(client.summary().response_to == 3 * round + 3);
  }
}

TEST_CASE("a client that stops reading does not keep another waiting", "[canned]") {
  const auto shard = start_shard();
  Client stalled(shard->port());
  stalled.send_command(
      DocWriter().add_text("find", "docs_1024x40000").add_int32("batchSize", 40'000));
  REQUIRE(eventually([&] { return shard->requests() == 1; }));
  Client other(shard->port());
  for (int at = 0; at < 100; ++at) {
    DocWriter command;
    command.add_text("find", "point_200").open_document("filter").add_int32("_id", at).close();
    other.send_command(std::move(command));
    REQUIRE(other.receive() == std::vector<std::int64_t>{at});
  }
}

TEST_CASE("a malformed message ends its connection and no other", "[canned]") {
  const auto shard = start_shard();
  Client good(shard->port());
  for (const std::string& bytes : {std::string(16, '\xff'), std::string(16, '\0'),
                                   std::string("\x15\0\0\0", 4) + std::string(8, '\0') +
                                       std::string("\xdd\x07\0\0", 4) + std::string(5, '\x7f')}) {
    Client bad(shard->port());
    bad.send_bytes(bytes);
    REQUIRE(bad.closed_by_peer());
  }
  good.send_command(DocWriter().add_int32("ping", 1));
  good.receive();
  REQUIRE(good.summary().ok == 1);
  REQUIRE(eventually([&] { return shard->open_connections() == 1; }));
}

TEST_CASE("stop closes connections in the middle of a reply, and start works again", "[canned]") {
  for (int round = 0; round < 5; ++round) {
    const auto shard = start_shard();
    Client client(shard->port());
    client.send_command(
        DocWriter().add_text("find", "docs_1024x40000").add_int32("batchSize", 40'000));
    REQUIRE(eventually([&] { return shard->requests() == 1; }));
    shard->stop();
    shard->stop();
    REQUIRE(shard->open_cursors() <= 1);
  }
  std::string error;
  CannedOptions impossible;
  impossible.index = 3;
  REQUIRE(CannedShard::start(impossible, error) == nullptr);
  REQUIRE_FALSE(error.empty());
}
