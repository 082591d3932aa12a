// Spans of traced commands in OpenTelemetry's protocol: an ExportTraceServiceRequest in its JSON encoding, as a
// collector takes it with POST /v1/traces (OTLP 1.0). Attributes are those of the semantic conventions for databases.
//
// JSON, and not Protocol Buffers: every collector takes both on the same path, and JSON needs no other library.
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proxy/exec/core/tracer.h"

namespace spillway::server {

// What sends the spans.
struct TraceSource {
  std::string version;
  std::string instance;  // "host:port"
};

// Numbers for spans: unlikely to meet another's, never 0 (SplitMix64).
class SpanIds {
 public:
  explicit SpanIds(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept;

 private:
  std::uint64_t state_;
};

// Reserved for a span, its JSON included: names have bounds.
inline constexpr std::size_t otlp_span_bytes_max = 3 * 1024;

std::string otlp_request(const TraceSource& source, std::span<const std::unique_ptr<exec::TracedCommand>> commands,
                         SpanIds& ids);
// How many spans a collector says that it has refused; 0: none.
std::uint64_t rejected_spans(std::string_view answer) noexcept;

}  // namespace spillway::server
