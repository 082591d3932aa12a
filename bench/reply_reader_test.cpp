#include "bench/reply_reader.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace spillway::bench;

namespace {

std::string reply_message(const std::string& document, std::int32_t response_to) {
  std::string message;
  append_op_msg_prefix(message, document.size(), 1, response_to);
  return message + document;
}

std::string batch_reply() {
  DocWriter reply;
  reply.open_document("cursor").add_int64("before", 1).open_array("nextBatch");
  for (int at = 0; at < 12; ++at) {
    reply.open_document(std::to_string(at)).add_int32("_id", at);
    reply.add_text("text", std::string(static_cast<std::size_t>(at) * 7, 'x')).close();
  }
  reply.close().add_int64("id", 77).add_text("ns", "a.b").close();
  reply.open_document("other").add_int32("n", 5).close();
  return reply.add_double("ok", 1).take();
}

// Feeds `bytes` in parts of up to `part` bytes; returns a trace of what came out.
std::string trace(const std::string& bytes, std::size_t part) {
  ReplyReader reader(64);
  std::string out;
  std::size_t at = 0;
  while (true) {
    const auto step = reader.step();
    if (step == ReplyReader::Step::broken) return out + "broken";
    if (step == ReplyReader::Step::document) {
      out += std::to_string(*find_field(reader.document(), "_id")->integer()) + " ";
    } else if (step == ReplyReader::Step::reply) {
      const auto& summary = reader.summary();
      out += "reply to " + std::to_string(summary.response_to) + " id " +
             std::to_string(summary.cursor_id) + " n " + std::to_string(summary.n) + " ok " +
             std::to_string(static_cast<int>(summary.ok)) + " " + summary.message + "; ";
    } else {
      if (at == bytes.size()) return out + (reader.idle() ? "idle" : "waiting");
      const auto room = reader.room();
      REQUIRE_FALSE(room.empty());
      const std::size_t size = std::min({part, room.size(), bytes.size() - at});
      std::memcpy(room.data(), bytes.data() + at, size);
      reader.received(size);
      at += size;
    }
  }
}

}  // namespace

TEST_CASE("replies are read alike however they are cut", "[reply]") {
  DocWriter failed;
  failed.add_double("ok", 0).add_text("errmsg", "no").add_int32("code", 13);
  const std::string bytes =
      reply_message(batch_reply(), 9) +
      reply_message(DocWriter().add_int32("n", 3).add_double("ok", 1).take(), 10) +
      reply_message(failed.take(), 11);
  const std::string expected =
      "0 1 2 3 4 5 6 7 8 9 10 11 reply to 9 id 77 n -1 ok 1 ; reply to 10 id 0 n 3 ok 1 ; "
      "reply to 11 id 0 n -1 ok 0 no; idle";
  for (std::size_t part = 1; part <= 200; ++part) REQUIRE(trace(bytes, part) == expected);
}

TEST_CASE("a cut reply waits, a damaged one is broken or reads as something else, never crashes",
          "[reply]") {
  const std::string good = reply_message(batch_reply(), 9);
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto out = trace(good.substr(0, size), 33);
    REQUIRE(out.find("reply") == std::string::npos);
    REQUIRE(out.find("broken") == std::string::npos);
  }
  std::mt19937 random(11);
  std::size_t broken = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string bad = good;
    bad[random() % op_msg_prefix_bytes] ^= static_cast<char>(1 << (random() % 8));
    bad[op_msg_prefix_bytes + random() % 60] ^= static_cast<char>(1 + random() % 255);
    ReplyReader reader(64);
    std::size_t at = 0;
    while (true) {
      const auto step = reader.step();
      if (step == ReplyReader::Step::broken) ++broken;
      if (step == ReplyReader::Step::broken || step == ReplyReader::Step::reply) break;
      if (step == ReplyReader::Step::document) continue;
      if (at == bad.size()) break;
      const auto room = reader.room();
      const std::size_t size = std::min(room.size(), bad.size() - at);
      std::memcpy(room.data(), bad.data() + at, size);
      reader.received(size);
      at += size;
    }
  }
  REQUIRE(broken > 1'500);
}
