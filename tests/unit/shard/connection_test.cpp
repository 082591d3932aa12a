#include "proxy/shard/connection.h"

#include <catch2/catch.hpp>

#include "allocator/limits.h"
#include "allocator/memory_queue.h"
#include "proxy/shard/handshake.h"
#include "proxy/wire/crc32c.h"
#include "proxy/wire/op_msg.h"
#include "tests/support/clock_manual.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

struct Exchange {
  std::optional<Result<Reply>> result;
  bool sent = false;
};

Task<void> talk(Connection* connection, BsonDoc command, MemoryBudget* budget, bool stream,
                TimePoint deadline, Exchange* exchange, ReplyRoom* room = nullptr) {
  const Command outgoing = Command::of_body(command.view());
  auto sending = connection->send(outgoing, deadline);
  exchange->sent = co_await sending;
  if (!exchange->sent) {
    exchange->result.emplace(connection->failure());
    co_return;
  }
  auto receiving = connection->receive(*budget, stream, deadline, room);
  exchange->result.emplace(co_await receiving);
}

// One server and one connection to it.
struct Line {
  explicit Line(const FaultOptions& faults = {})
      : network(loop, faults), server(loop, network, "a", 1) {
    connection = std::make_unique<Connection>(network.connect_client("a", 1), HostAddress{"a", 1}, &pump);
  }
  ~Line() {
    connection->fail(Error(ErrorCode::host_unreachable, "the test has ended"));
    loop.poll_until_idle();  // requests that still wait on it are told
    connection.reset();
    run_for(loop, 1min);
  }
  Exchange& exchange(std::string_view command, bool stream = false,
                     TimePoint deadline = time_point_never) {
    last = Exchange();
    loop.spawn(talk(connection.get(), json(command), &budget, stream, deadline, &last));
    test::run_until(
        loop, [&] { return last.result.has_value(); }, 10min);
    REQUIRE(last.result.has_value());
    return last;
  }
  // The error of an exchange after which the connection must not be used again.
  Error failed(std::string_view command) {
    Exchange& ended = exchange(command);
    REQUIRE(ended.result->has_error());
    CHECK_FALSE(connection->clean());
    CHECK(budget.usage().used_bytes == 0);
    return ended.result->error();
  }

  MemoryBudget budget{"test", 64 * limits::mib};
  Loop loop{Loop::Drive::manual};
  Pump pump{loop};
  SimNetwork network;
  ScriptedServer server;
  std::unique_ptr<Connection> connection;
  Exchange last;
};

BsonDoc document_of(std::size_t bytes) {
  BsonWriter writer;
  writer.append("ok", 1.0).append("text", std::string_view(std::string(bytes - 32, 'x')));
  BsonDoc document = std::move(writer).finish();
  return document;
}

}  // namespace

TEST_CASE("a command and its reply, cut at every byte") {
  for (const std::size_t piece : {std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
    FaultOptions faults;
    faults.read_bytes_max = faults.write_bytes_max = piece;
    Line line(faults);
    line.server.answer = [](DocView command) {
      BsonWriter writer;
      writer.append("echo", command).append("ok", 1.0);
      return std::move(writer).finish();
    };
    for (int i = 0; i < 3; ++i) {
      auto& ended = line.exchange(R"({"ping": 1, "$db": "admin"})");
      REQUIRE(ended.result->has_value());
      const Reply& reply = **ended.result;
      CHECK(reply.body().find_path("echo.$db").as_string() == "admin");
      CHECK(reply.message_bytes == reply.bytes.size());
      CHECK(reply.host == HostAddress{"a", 1});
      CHECK(line.connection->clean());
    }
  }
}

TEST_CASE("large replies are whole, whatever their size") {
  for (const std::size_t size : std::initializer_list<std::size_t>{16'300u, 16'363u, 16'384u,
                                                                   16'400u, 300'000u, 5'000'000u}) {
    Line line;
    line.server.answer = [size](DocView) { return document_of(size); };
    auto& ended = line.exchange(R"({"find": "c"})");
    REQUIRE(ended.result->has_value());
    CHECK((*ended.result)->body()["ok"].truthy());
    CHECK((*ended.result)->body().size() == document_of(size).size());
    CHECK(line.connection->clean());
  }
}

TEST_CASE("a long reply streams if asked") {
  Line line;
  const BsonDoc document = document_of(1'000'000);
  line.server.answer = [&](DocView) { return document; };
  auto& ended = line.exchange(R"({"find": "c"})", true);
  REQUIRE(ended.result->has_value());
  Reply reply = *std::move(*ended.result);
  CHECK(reply.streaming());
  CHECK(reply.bytes.size() == limits::reply_complete_bytes_max);
  CHECK(reply.message_bytes == 21 + document.size());
  CHECK_FALSE(line.connection->clean());
  std::vector<std::uint8_t> all(reply.bytes.bytes().begin(), reply.bytes.bytes().end());
  std::vector<std::uint8_t> piece(limits::stream_piece_bytes);
  while (line.connection->remaining() > 0) {
    const IoResult got = line.connection->try_read_rest(piece);
    REQUIRE((got.ok() || got.would_block()));
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    line.loop.poll_until_idle();
  }
  CHECK(line.connection->clean());
  CHECK(std::equal(all.begin() + 21, all.end(), document.view().data()));
  // A short one does not.
  line.server.answer = [&](DocView) { return document_of(200'000); };
  reply = *std::move(*line.exchange(R"({"find": "c"})", true).result);
  CHECK_FALSE(reply.streaming());
}

TEST_CASE("replies that break the protocol break the connection") {
  Line line;
  const char* const command = R"({"ping": 1})";
  const auto mangle = [&](std::size_t at, std::int32_t value) {
    line.server.mangle = [at, value](std::vector<std::uint8_t>& message) {
      store_le(message.data() + at, value);
    };
  };
  SECTION("a length beyond the limit") {
    mangle(0, static_cast<std::int32_t>(limits::shard_reply_bytes_max + 1));
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a length below the header") {
    mangle(0, 15);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a length below the smallest message") {
    mangle(0, 20);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a negative length") {
    mangle(0, -1);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("the answer to another request") {
    mangle(8, 4711);
    CHECK(line.failed(command).message == "a reply answers another request");
  }
  SECTION("another opcode") {
    mangle(12, 1);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("compressed without agreement") {
    mangle(12, 2012);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("more to come") {
    mangle(16, 2);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a document that is longer than the message") {
    mangle(21, 1000);
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a document that is shorter than any, behind a checksum's flag") {
    const auto bytes = static_cast<std::uint8_t>(GENERATE(0, 1, 2, 3, 4));
    line.server.mangle = [bytes](std::vector<std::uint8_t>& message) {
      message.resize(21U + bytes + 4);
      message[16] = 1;
      message[0] = static_cast<std::uint8_t>(message.size());
      message[1] = message[2] = message[3] = 0;
      message[21] = bytes;
      message[22] = message[23] = message[24] = 0;
      if (bytes > 0) message[20U + bytes] = 0;
      const auto sum = wire::crc32c(Bytes(message).first(message.size() - 4));
      if (bytes >= 4) std::memcpy(message.data() + message.size() - 4, &sum, 4);
    };
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("bytes after the message") {
    line.server.mangle = [](std::vector<std::uint8_t>& message) { message.push_back(0); };
    CHECK(line.failed(command).is(ErrorCode::protocol_error));
  }
  SECTION("a wrong checksum, and a right one") {
    const auto with_checksum = [](std::vector<std::uint8_t>& message, std::uint32_t error) {
      message[16] |= 1;
      message.resize(message.size() + 4);
      store_le(message.data(), static_cast<std::int32_t>(message.size()));
      const auto sum = wire::crc32c(Bytes(message).first(message.size() - 4));
      store_le(message.data() + message.size() - 4, sum ^ error);
    };
    line.server.mangle = [&](std::vector<std::uint8_t>& message) { with_checksum(message, 0); };
    CHECK(line.exchange(command).result->has_value());
    line.last = Exchange();
    line.server.mangle = [&](std::vector<std::uint8_t>& message) { with_checksum(message, 1); };
    CHECK(line.failed(command).is(ErrorCode::checksum_mismatch));
  }
}

TEST_CASE("a connection that breaks at any byte of the reply is an error") {
  for (std::size_t bytes = 1; bytes < 34; ++bytes) {
    Line line;
    line.server.cut_after = bytes;
    CHECK(line.failed(R"({"ping": 1})").is(ErrorCode::host_unreachable));
  }
}

TEST_CASE("a reply that the budget has no room for") {
  Line line;
  line.server.answer = [](DocView) { return document_of(10'000'000); };
  MemoryBudget small("small", 1'000'000);
  line.loop.spawn(talk(line.connection.get(), json(R"({"find": "c"})"), &small, false,
                       time_point_never, &line.last));
  run_for(line.loop, 1s);
  REQUIRE(line.last.result);
  CHECK(line.last.result->error().is(ErrorCode::exceeded_memory_limit));
  CHECK_FALSE(line.connection->clean());
}

TEST_CASE("a deadline closes the connection") {
  Line line;
  line.server.delay = 5s;
  const TimePoint start = Clock::now();
  auto& ended = line.exchange(R"({"ping": 1})", false, start + 2s);
  CHECK(ended.result->error().is(ErrorCode::max_time_ms_expired));
  CHECK(Clock::now() - start == 2s);
  CHECK_FALSE(line.connection->clean());
}

TEST_CASE("fail() tells all requests that wait") {
  Line line;
  line.server.delay = 5s;
  line.loop.spawn(talk(line.connection.get(), json(R"({"ping": 1})"), &line.budget, false,
                       time_point_never, &line.last));
  run_for(line.loop, 1s);
  line.connection->fail(Error(ErrorCode::network_timeout, "silent"));
  line.loop.poll_until_idle();
  REQUIRE(line.last.result);
  CHECK(line.last.result->error().message == "silent");
}

Task<void> introduce_to(Connection* connection, MemoryBudget* budget, bool* done) {
  const Introduction introduction{
      "test", {wire::Compressor::zstd, wire::Compressor::snappy, wire::Compressor::zlib}};
  auto introducing =
      introduce(*connection, introduction, LinkBudgets{*budget, *budget}, time_point_never);
  *done = (co_await introducing).has_value();
}

void agree_on_compression(Line& line) {
  bool done = false;
  line.loop.spawn(introduce_to(line.connection.get(), &line.budget, &done));
  run_for(line.loop, 1s);
  REQUIRE(done);
}

std::string text_of(const Result<Reply>& result) {
  return result.has_error() ? result.error().message : std::string("a reply");
}

TEST_CASE("a compressed reply and scarce memory") {
  constexpr std::size_t reply_bytes = 100'000;
  Line line;
  line.server.compression = {"zstd"};
  line.server.answer = [](DocView) { return document_of(reply_bytes); };
  agree_on_compression(line);
  // A shard compresses its answer where the command came compressed.
  const std::string long_command = R"({"find": "c", "text": ")" + std::string(2000, 'y') + R"("})";
  MemoryBudget small("small", 150'000);
  MemoryQueue queue("small");
  small.set_queue(&queue);
  Exchange last;
  SECTION("the room kept for a reply is for what it holds, not for its envelope") {
    auto paid = small.try_reserve(Buffer::charged_bytes(reply_bytes + 1000));
    REQUIRE(paid);
    ReplyRoom room{*std::move(paid)};
    line.loop.spawn(talk(line.connection.get(), json(long_command), &small, false,
                         time_point_never, &last, &room));
    run_for(line.loop, 1s);
    REQUIRE(last.result);
    REQUIRE(text_of(*last.result) == "a reply");
    CHECK(room.paid.bytes() < reply_bytes);
  }
  SECTION("it waits for memory as others do") {
    auto others = Buffer::allocate(small, 100'000);
    REQUIRE(others);
    line.loop.spawn(talk(line.connection.get(), json(long_command), &small, false,
                         time_point_never, &last));
    run_for(line.loop, 1s);
    REQUIRE_FALSE(last.result);
    others.reset();
    run_for(line.loop, 1s);
    REQUIRE(last.result);
    REQUIRE(text_of(*last.result) == "a reply");
  }
  CHECK((*last.result)->body().size() == document_of(reply_bytes).size());
  CHECK(line.server.compressed_messages == 1);
  CHECK(line.connection->clean());
  last = Exchange();
  CHECK(small.usage().used_bytes == 0);
}

// The envelope of a long reply and what comes out of it are there together.
Task<void> fail_while_unpacking(Line* line, std::size_t reply_bytes) {
  while (line->budget.usage().used_bytes < reply_bytes) co_await line->loop.sleep_for(1ms);
  line->connection->fail(Error(ErrorCode::network_timeout, "silent"));
}

TEST_CASE("a connection that fails while its reply is unpacked is an error") {
  Line line;
  line.server.compression = {"zlib"};
  line.server.answer = [](DocView) { return document_of(4'000'000); };
  agree_on_compression(line);
  advance_time_at_each_look(1ms);
  line.loop.spawn(talk(line.connection.get(), json(R"({"find": "c", "text": ")" + std::string(2000, 'y') + R"("})"),
                       &line.budget, false, time_point_never, &line.last));
  line.loop.spawn(fail_while_unpacking(&line, 4'000'000));
  test::run_until(
      line.loop, [&] { return line.last.result.has_value(); }, 1min);
  advance_time_at_each_look({});
  REQUIRE(line.last.result);
  CHECK(text_of(*line.last.result) == "silent");
  line.last = Exchange();
  CHECK(line.budget.usage().used_bytes == 0);
}

TEST_CASE("compression, where both sides agreed") {
  for (const char* name : {"snappy", "zlib", "zstd"}) {
    Line line;
    line.server.compression = {name};
    line.server.answer = [](DocView) { return document_of(100'000); };
    agree_on_compression(line);
    const std::string long_command = R"({"ping": 1, "text": ")" + std::string(2000, 'y') + R"("})";
    const auto& ended = line.exchange(long_command);
    REQUIRE(ended.result->has_value());
    CHECK((*ended.result)->body().size() == document_of(100'000).size());
    CHECK(line.server.compressed_messages == 1);
    CHECK(line.exchange(R"({"ping": 1})").result->has_value());
    CHECK(line.server.compressed_messages == 1);  // too short to be worth it
    line.last = Exchange();
    CHECK(line.budget.usage().used_bytes == 0);
  }
}
