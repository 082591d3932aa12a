#include "proxy/exec/core/tracer.h"

#include <algorithm>

#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

namespace {

constexpr std::size_t version_at = 0, trace_id_at = 3, span_id_at = 36, flags_at = 53, traceparent_bytes = 55;
constexpr std::uint8_t sampled_flag = 1;
constexpr std::string_view traceparent_field = "traceparent";
// Of a comment that is a text.
constexpr std::size_t looked_through_bytes_max = 1024;

// Capitals are not allowed.
std::optional<std::uint8_t> digit_of(char c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

template <std::size_t N>
bool read_hex(std::string_view text, std::array<std::uint8_t, N>& out) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    const auto high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (!high || !low) return false;
    out[i] = static_cast<std::uint8_t>(*high << 4U | *low);
  }
  return true;
}

template <std::size_t N>
bool all_zero(const std::array<std::uint8_t, N>& id) noexcept {
  return std::all_of(id.begin(), id.end(), [](std::uint8_t byte) { return byte == 0; });
}

std::optional<TraceParent> of_value(ValueView value) noexcept {
  return value.is_string() ? parse_traceparent(value.as_string()) : std::nullopt;
}

// As a comment of its own, or in {"traceparent": "…"}, traceparent='…', traceparent=….
std::optional<TraceParent> of_text(std::string_view text) noexcept {
  if (auto whole = parse_traceparent(text)) return whole;
  text = text.substr(0, looked_through_bytes_max);
  const std::size_t name = text.find(traceparent_field);
  if (name == std::string_view::npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of("\"' :=", name + traceparent_field.size());
  return begin == std::string_view::npos ? std::nullopt : parse_traceparent(text.substr(begin, traceparent_bytes));
}

}  // namespace

std::optional<TraceParent> parse_traceparent(std::string_view text) noexcept {
  if (text.size() < traceparent_bytes) return std::nullopt;
  std::array<std::uint8_t, 1> version{}, flags{};
  TraceParent parent;
  const bool whole = read_hex(text.substr(version_at), version) && text[trace_id_at - 1] == '-' &&
                     read_hex(text.substr(trace_id_at), parent.trace_id) && text[span_id_at - 1] == '-' &&
                     read_hex(text.substr(span_id_at), parent.span_id) && text[flags_at - 1] == '-' &&
                     read_hex(text.substr(flags_at), flags);
  if (!whole || version[0] == 0xff || all_zero(parent.trace_id) || all_zero(parent.span_id)) return std::nullopt;
  const bool longer = text.size() > traceparent_bytes;
  if (longer && (version[0] == 0 || text[traceparent_bytes] != '-')) return std::nullopt;
  parent.sampled = (flags[0] & sampled_flag) != 0;
  return parent;
}

std::optional<TraceParent> trace_parent_of(const Request& request) noexcept {
  if (request.trace_context.is_document()) {
    if (auto found = of_value(request.trace_context.as_document()[traceparent_field])) return found;
  }
  if (request.comment.is_string()) return of_text(request.comment.as_string());
  if (request.comment.is_document()) return of_value(request.comment.as_document()[traceparent_field]);
  return std::nullopt;
}

Tracer::Tracer(MemoryBudget& budget, Metrics& metrics, Sink sink)
    : budget_(budget), metrics_(metrics), sink_(std::move(sink)) {}

std::unique_ptr<TracedCommand> Tracer::begin(const TraceParent& parent, TimePoint now) {
  std::unique_ptr<TracedCommand> command;
  if (bucket_.try_take(now, pace_)) {
    if (auto memory = budget_.try_reserve(command_bytes)) command = std::make_unique<TracedCommand>(*std::move(memory));
  }
  if (!command) {
    metrics_.spans_dropped.add();
    return nullptr;
  }
  command->parent = parent;
  return command;
}

void Tracer::end(std::unique_ptr<TracedCommand> command) {
  const std::size_t recorded = command->calls.calls().size();
  std::size_t allowed = 0;
  while (allowed < recorded && bucket_.try_take(command->ended, pace_)) ++allowed;
  command->calls.cut_to(allowed);
  metrics_.spans_dropped.add(recorded - allowed + command->calls.unrecorded());
  const std::size_t spans = command->spans();
  if (!sink_(std::move(command))) metrics_.spans_dropped.add(spans);
}

}  // namespace spillway::exec
