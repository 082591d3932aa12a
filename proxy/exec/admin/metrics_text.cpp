#include "proxy/exec/admin/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "allocator/limits.h"

namespace spillway::exec {

namespace {

constexpr std::size_t piece_bytes = 64 * limits::kib;

constexpr std::string_view type_names[] = {"counter", "gauge", "histogram"};

// The shortest text that reads back as the same number.
std::string number(double value) {
  if (std::isfinite(value)) return fmt::format("{}", value);
  return std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

constexpr int octave_first = 2;

// Exact: microseconds have six digits.
std::string seconds_text(std::uint64_t us) {
  std::string text = fmt::format("{}.{:06}", us / 1'000'000, us % 1'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// For use between quotes.
std::string escape_label(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n' || c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? 'n' : c;
  }
  return text;
}

}  // namespace

void MetricsText::add(std::string_view text) {
  while (!text.empty() && !refused_) {
    if (pieces_.empty() || pieces_.back().room() == 0) {
      auto piece = Buffer::allocate(budget_, piece_bytes);
      if (!piece) {
        refused_ = true;
        return;
      }
      pieces_.push_back(*std::move(piece));
    }
    const std::size_t count = std::min(text.size(), pieces_.back().room());
    pieces_.back().append(text.data(), count);
    bytes_ += count;
    text.remove_prefix(count);
  }
}

void MetricsText::family(std::string_view name, MetricType type, std::string_view help) {
  name_ = name;
  add(fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type_names[static_cast<std::size_t>(type)]));
}

void MetricsText::sample(std::string_view suffix, Labels labels, std::string_view bound, std::string_view value) {
  std::string text;
  for (const auto& [name, label] : labels) {
    if (!name.empty()) text += fmt::format(",{}=\"{}\"", name, escape_label(label));
  }
  if (!bound.empty()) text += fmt::format(",le=\"{}\"", bound);
  if (!text.empty()) text = fmt::format("{{{}}}", std::string_view(text).substr(1));
  add(fmt::format("{}{}{} {}\n", name_, suffix, text, value));
}

void MetricsText::value(Labels labels, double value) { sample({}, labels, {}, number(value)); }

void MetricsText::buckets_end(Labels labels, std::uint64_t count, std::string_view sum) {
  sample("_bucket", labels, "+Inf", std::to_string(count));
  sample("_sum", labels, {}, sum);
  sample("_count", labels, {}, std::to_string(count));
}

void MetricsText::histogram(Labels labels, const LatencyReading& reading) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < latency_bounds_us.size(); ++i) {
    below += reading.counts[i];
    sample("_bucket", labels, seconds_text(latency_bounds_us[i]), std::to_string(below));
  }
  buckets_end(labels, reading.total(), seconds_text(reading.sum_us));
}

void MetricsText::histogram(Labels labels, const FineReading& reading) {
  for (int octave = octave_first; octave <= fine_octave_last; ++octave) {
    sample("_bucket", labels, seconds_text(std::uint64_t{1} << octave), std::to_string(reading.up_to_octave(octave)));
  }
  buckets_end(labels, reading.total(), number(static_cast<double>(reading.sum_ns) / 1e9));
}

}  // namespace spillway::exec
