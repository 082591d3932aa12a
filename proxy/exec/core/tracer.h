// Tracer: which commands are traced, and what is kept of them for spans.
//
// A command is traced if it brings a sampled traceparent (W3C Trace Context): the application decides. Spans are
// bounded a second and in bytes; what goes beyond is dropped and counted. Kept are names, times, sizes and codes; no
// value of a filter, a document or an error's text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/base/clock.h"
#include "proxy/base/token_bucket.h"
#include "proxy/exec/core/request.h"
#include "proxy/shard/call_trace.h"

namespace spillway::exec {

struct Metrics;  // metrics.h

struct TraceParent {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  bool sampled = false;
};

// "00-<32 hex>-<16 hex>-<2 hex>"; of a later version the fields of version 00. nullopt: malformed, or an id is zero.
std::optional<TraceParent> parse_traceparent(std::string_view text) noexcept;
// What a command brings: $traceCtx: {traceparent}; else its comment: a traceparent, a text with "traceparent" before
// one, or a document with this field. What is malformed counts as missing.
std::optional<TraceParent> trace_parent_of(const Request& request) noexcept;

// A command that is traced, or was: without views, for any thread.
struct TracedCommand {
  explicit TracedCommand(Reservation memory) noexcept : calls(std::move(memory)) {}

  TraceParent parent;
  std::string name, db, collection;  // empty: it names none
  std::string server;                // the address that its client has connected to
  TimePoint began{}, ended{};        // its last byte was there; its reply's last byte was sent
  std::int64_t began_wall_ns = 0;
  std::optional<Duration> inside;  // inside_times.h; none: without a reply
  std::uint64_t reply_bytes = 0;
  std::int32_t error = 0;  // 0: ok: 1
  shard::CallTrace calls;

  std::size_t spans() const noexcept { return 1 + calls.calls().size(); }
};

// Any thread; takes no lock.
class Tracer {
 public:
  // Takes a finished command; false: there was no room.
  using Sink = std::function<bool(std::unique_ptr<TracedCommand>)>;
  static constexpr double spans_per_second_max = 2'000;
  // For a command without its calls, texts included.
  static constexpr std::size_t command_bytes = 1'536;

  // All outlive it.
  Tracer(MemoryBudget& budget, Metrics& metrics, Sink sink);
  // Null: there is no room for it.
  std::unique_ptr<TracedCommand> begin(const TraceParent& parent, TimePoint now);
  void end(std::unique_ptr<TracedCommand> command);

 private:
  MemoryBudget& budget_;
  Metrics& metrics_;
  Sink sink_;
  const BucketPace pace_ = BucketPace::of(spans_per_second_max, spans_per_second_max);
  TokenBucket bucket_;
};

}  // namespace spillway::exec
