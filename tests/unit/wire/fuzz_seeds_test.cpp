// The seeds of the wire's fuzz targets. `wire_test "[.seeds]"` writes them into the build's copy of the
// corpus, `tests/fuzz/run --pack` into the stored one; the ordinary test says when they are out of date.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "proxy/wire/compression.h"
#include "proxy/wire/op_query.h"
#include "tests/support/op_msg_sequence.h"
#include "tests/support/op_query_client.h"
#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

using Seeds = std::map<std::string, ByteVector>;

constexpr const char* op_msg_corpus = SPILLWAY_CORPUS "/op_msg_fuzz";
constexpr const char* frame_reader_corpus = SPILLWAY_CORPUS "/frame_reader_fuzz";
constexpr const char* hello_json =
    R"({"hello": 1, "helloOk": true, "compression": ["snappy", "zstd"], "$db": "admin",
        "client": {"driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"}},
        "topologyVersion": {"processId": {"$oid": "0102030405060708090a0b0c"},
                            "counter": {"$numberLong": "0"}}, "maxAwaitTimeMS": 10000})";

Seeds op_msg_seeds() {
  Seeds seeds;
  seeds["hello"] = message(hello_json);
  seeds["find_checksum"] = message(R"({"find": "c", "filter": {"a": 1}, "$db": "d"})", 0, true);
  ByteVector insert;
  begin_op_msg(insert, 7, 3, flags::more_to_come);
  append_body(insert, doc(R"({"insert": "c", "$db": "d"})"));
  const BsonDoc one = doc(R"({"_id": 1, "s": "text"})");
  const DocView documents[] = {one, one};
  append_sequence(insert, "documents", documents);
  append_sequence(insert, "more", Bytes());
  finish_op_msg(insert);
  seeds["insert_sequences"] = insert;
  encode_op_query(seeds["query"], 1, "admin.$cmd", doc(R"({"$query": {"isMaster": 1}})"));
  encode_op_reply(seeds["reply"], 1, 2, doc(R"({"ok": 1})"));
  for (Compressor each :
       {Compressor::noop, Compressor::snappy, Compressor::zlib, Compressor::zstd}) {
    ByteVector packed(compressed_message_size_max(each, insert.size()));
    packed.resize(compress_message(each, insert, packed).value());
    seeds["compressed_" + std::string(compressor_name(each))] = packed;
  }
  return seeds;
}

// The first byte says how the rest is cut.
ByteVector cut(std::uint8_t step, const ByteVector& stream) {
  ByteVector seed = {step};
  seed.insert(seed.end(), stream.begin(), stream.end());
  return seed;
}

Seeds frame_reader_seeds() {
  Seeds seeds;
  ByteVector pipelined = message(R"({"ping": 1})");
  const ByteVector second = message(R"({"ok": 0, "code": 43, "errmsg": "cursor not found"})");
  pipelined.insert(pipelined.end(), second.begin(), second.end());
  seeds["pipelined"] = cut(3, pipelined);
  seeds["too_short_for_a_body"] = cut(1, raw_message(0, {}));
  seeds["batch_first"] =
      cut(1, message(
                 R"({"cursor": {"firstBatch": [{"_id": 1}, {"_id": 2}], "id": {"$numberLong": "5"},
          "ns": "d.c"}, "ok": 1})"));
  seeds["batch_last"] =
      cut(40, message(R"({"ok": 1, "cursor": {"id": 0, "ns": "d.c", "nextBatch": []}})"));
  seeds["batch_middle"] = cut(7, message(
                                     R"({"operationTime": {"$timestamp": {"t": 1, "i": 1}},
          "cursor": {"id": 0, "nextBatch": [{"a": {"b": [1, 2]}}], "partialResultsReturned": true,
          "ns": "d.c"}, "ok": 1})"));
  return seeds;
}

ByteVector read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_files(const std::filesystem::path& folder, const Seeds& seeds) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, bytes] : seeds) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    REQUIRE(file.good());
  }
}

}  // namespace

TEST_CASE("write_the_seeds_of_the_fuzz_targets", "[.seeds]") {
  write_files(op_msg_corpus, op_msg_seeds());
  write_files(frame_reader_corpus, frame_reader_seeds());
}

TEST_CASE("the_seeds_of_the_fuzz_targets_are_up_to_date") {
  for (const auto& [name, bytes] : op_msg_seeds()) {
    INFO(name);
    const ByteVector stored = read_file(std::filesystem::path(op_msg_corpus) / name);
    // What a compressor emits may differ between versions of its library.
    CHECK((name.starts_with("compressed_") ? !stored.empty() : stored == bytes));
  }
  for (const auto& [name, bytes] : frame_reader_seeds()) {
    INFO(name);
    CHECK(read_file(std::filesystem::path(frame_reader_corpus) / name) == bytes);
  }
}

}  // namespace spillway::wire
