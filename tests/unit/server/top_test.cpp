// `spillway top`: the picture and the command line. tests/integration/test_top.py has the program.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/tools/top_picture.h"

namespace spillway::server {
namespace {

BsonDoc document(std::string json) {
  std::replace(json.begin(), json.end(), '\'', '"');
  auto parsed = BsonDoc::from_json(json);
  REQUIRE(parsed.has_value());
  return *std::move(parsed);
}

std::string live(int seconds, int calls) {
  const std::string n = std::to_string(calls);
  return "{'version': '1', 'host': 'router:27017', 'upMillis': " + std::to_string(seconds * 1'000) +
         ", 'workers': 2, 'answered': 2, 'cpuMicros': " + std::to_string(seconds * 250'000) +
         ", 'details': true, 'memory': {'limit': 1048576, 'resident': 524288, 'level': 'normal', 'releases': 3,"
         " 'budgets': [{'name': 'requests', 'used': 2048, 'limit': 4096, 'peak': 4096, 'refusals': 1},"
         " {'name': 'spill', 'used': 0, 'limit': 0, 'peak': 0, 'refusals': 0}]},"
         " 'operations': {'query': " + n + "}, 'inside': {'point': {'count': " + n + ", 'sumMicros': " + n +
         "0, 'p50': 40, 'p99': 130}},"
         " 'shards': [{'name': 's0', 'reachable': true, 'writable': true, 'calls': " + n + ", 'micros': " + n +
         "000, 'chunks': 7, 'hosts': [{'host': 'db0:27018', 'is': 'primary'}]},"
         " {'name': 's1', 'reachable': false, 'calls': 0}],"
         " 'operationsByAge': [{'ageMicros': 2500000, 'client': '10.0.0.9:5', 'command': 'find', 'ns': 'town.people',"
         " 'shape': '{find: ?}'}], 'idleCursors': {'byClient': [{'name': '10.0.0.8', 'bytes': 3072, 'cursors': 2}]},"
         " 'slowShapes': {'shapes': [{'ns': 'town.people', 'shape': '{count: ?}',"
         " 'count': 3, 'totalMicros': 900000, 'maxMicros': 500000, 'shardMicros': 800000}]}, 'warnings': ['it rains']}";
}

}  // namespace

TEST_CASE("rates are those between two looks", "[top]") {
  const BsonDoc before = document(live(100, 1'000)), now = document(live(102, 1'500));
  const DocView earlier = before.view();
  const std::string picture = draw_top(now.view(), &earlier, {.rows = 100, .columns = 500});
  for (const char* part : {"up 102.0 s, cpu 25 %", "[####################....................] 512 KiB of 1.0 MiB",
                           "query 250", "requests                  2.0 KiB", "db0:27018 primary", "UNREACHABLE",
                           "2.5 s  10.0.0.9:5", "{find: ?}", "900.0 ms in       3, at most  500.0 ms", "{count: ?}",
                           "3.0 KiB in      2 cursors of client 10.0.0.8", "it rains"}) {
    INFO(picture);
    CHECK(picture.find(part) != std::string::npos);
  }
  CHECK(picture.find("s0                         250    1.0 ms") != std::string::npos);
  CHECK(picture.find("point                      250     10 us") != std::string::npos);
  CHECK(picture.find("\nspill") == std::string::npos);  // it was never used
  // Since the start, if there was no look before, or it was at another process.
  const std::string first = draw_top(now.view(), nullptr, {.rows = 100, .columns = 500});
  CHECK(first.find("query 15 ") != std::string::npos);
  const DocView later = now.view();
  CHECK(draw_top(before.view(), &later, {.rows = 100, .columns = 500}).find("query 10 ") != std::string::npos);
}

TEST_CASE("a picture keeps to the screen and sends it no commands", "[top]") {
  const BsonDoc nasty = document(
      "{'details': true, 'host': 'a\\u001b]0;x\\u0007é', 'warnings': ['\\u001b[2J', 'ééééééééééééééééééééé']}");
  const std::string picture = draw_top(nasty.view(), nullptr, {.rows = 12, .columns = 20});
  CHECK(picture.find('\x1b') == std::string::npos);
  CHECK(std::count(picture.begin(), picture.end(), '\n') <= 12);
  std::size_t begin = 0;
  for (std::size_t end = picture.find('\n'); end != std::string::npos; end = picture.find('\n', begin = end + 1)) {
    const auto columns = std::count_if(picture.begin() + static_cast<std::ptrdiff_t>(begin),
                                       picture.begin() + static_cast<std::ptrdiff_t>(end),
                                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
    CHECK(columns <= 20);
  }
}

TEST_CASE("a document of another version is drawn as far as it is known", "[top]") {
  for (const char* json : {"{}", "{'memory': 7, 'shards': {'a': 1}, 'inside': [1], 'operations': 'x', 'details': 1}",
                           "{'memory': {'resident': -5, 'limit': 1}, 'upMillis': 'x', 'warnings': {'a': {}}}"}) {
    const BsonDoc odd = document(json);
    const DocView earlier = odd.view();
    CHECK(draw_top(odd.view(), &earlier, {}).starts_with("spillway "));
  }
}

TEST_CASE("top is a word of the command line", "[top]") {
  const CommandLine line = parse_command_line({"top", "--set", "net.admin.port=9216", "--once", "--json"});
  CHECK(line.action == CommandLine::Action::top);
  CHECK(line.overrides == std::vector<std::string>{"net.admin.port=9216"});
  CHECK((line.once && line.json));
  CHECK_FALSE(parse_command_line({"top"}).once);
  for (const char* other : {"doctor", "--healthcheck", "--check-config", "--version"}) {
    CHECK(parse_command_line({"top", other}).action == CommandLine::Action::usage_error);
  }
  CHECK(parse_command_line({"--once"}).action == CommandLine::Action::usage_error);
}

}  // namespace spillway::server
