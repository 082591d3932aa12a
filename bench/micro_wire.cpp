// What reading a request costs: framing and parsing of a driver's point find, and walking a
// document.
#include <benchmark/benchmark.h>

#include <string>

#include "cursor/bson_view.h"
#include "bench/bson_bytes.h"
#include "proxy/canned/documents.h"
#include "bench/message.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/op_msg.h"

namespace {

using spillway::Bytes;
using spillway::bench::DocWriter;

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string point_find() {
  DocWriter command;
  command.add_text("find", "users").open_document("filter").add_int64("_id", 4711).close();
  command.add_int32("limit", 1).add_bool("singleBatch", true).open_document("lsid");
  command.add_raw(spillway::bench::bson::binary_type, "id",
                  std::string("\x10\0\0\0\x04", 5) + std::string(16, 'x'));
  command.close().open_document("$readPreference").add_text("mode", "primary").close();
  const std::string body = command.add_text("$db", "app").take();
  std::string message;
  spillway::bench::append_op_msg_prefix(message, body.size(), 1, 0);
  return message + body;
}

void frame_and_parse_point_find(benchmark::State& state) {
  const std::string message = point_find();
  for (auto _ : state) {
    const auto need = spillway::wire::FrameReader::peek(bytes_of(message));
    if (need.kind != spillway::wire::FrameReader::Kind::message) state.SkipWithError("no frame");
    const auto parsed = spillway::wire::parse_op_msg(bytes_of(message));
    if (!parsed) state.SkipWithError("no message");
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(message.size()));
}
BENCHMARK(frame_and_parse_point_find);

// A document of `range` numbers and as many texts of 20 bytes.
void validate_document(benchmark::State& state) {
  DocWriter writer;
  for (int at = 0; at < state.range(0); ++at) {
    writer.add_int64("number" + std::to_string(at), at);
    writer.add_text("text" + std::to_string(at), std::string(20, 't'));
  }
  const std::string document = writer.take();
  for (auto _ : state) {
    const auto view = spillway::DocView::parse(bytes_of(document));
    if (!view || !view->validate()) state.SkipWithError("invalid");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(document.size()));
}
BENCHMARK(validate_document)->Arg(4)->Arg(100);

}  // namespace

BENCHMARK_MAIN();
