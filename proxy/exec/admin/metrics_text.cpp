#include "proxy/exec/admin/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "allocator/limits.h"

namespace spillway::exec {

namespace {

constexpr std::size_t piece_bytes = 64 * limits::kib;

std::string_view type_name(MetricType type) noexcept {
  switch (type) {
    case MetricType::counter:
      return "counter";
    case MetricType::gauge:
      return "gauge";
    case MetricType::histogram:
      break;
  }
  return "histogram";
}

// The shortest text that reads back as the same number.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

constexpr int octave_first = 2;

// Exact: microseconds have six digits.
std::string seconds_text(std::uint64_t us) {
  std::string text = fmt::format("{}.{:06}", us / 1'000'000, us % 1'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string escape_label(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

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
  add(fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type_name(type)));
}

void MetricsText::add_labels(Labels labels, std::string_view bound) {
  if (labels.size() == 0 && bound.empty()) return;
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    if (text.size() > 1) text += ',';
    text += fmt::format("{}=\"{}\"", name, escape_label(value));
  }
  if (!bound.empty()) text += fmt::format("{}le=\"{}\"", text.size() > 1 ? "," : "", bound);
  text += '}';
  add(text);
}

void MetricsText::sample(std::string_view suffix, Labels labels, std::string_view bound,
                         std::string_view value) {
  add(name_);
  add(suffix);
  add_labels(labels, bound);
  add(fmt::format(" {}\n", value));
}

void MetricsText::value(Labels labels, std::uint64_t value) {
  sample({}, labels, {}, fmt::format("{}", value));
}
void MetricsText::value(Labels labels, std::int64_t value) {
  sample({}, labels, {}, fmt::format("{}", value));
}
void MetricsText::value(Labels labels, double value) { sample({}, labels, {}, number(value)); }

void MetricsText::histogram(Labels labels, const LatencyReading& reading) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < latency_bounds_us.size(); ++i) {
    below += reading.counts[i];
    sample("_bucket", labels, seconds_text(latency_bounds_us[i]), fmt::format("{}", below));
  }
  below += reading.counts.back();
  sample("_bucket", labels, "+Inf", fmt::format("{}", below));
  sample("_sum", labels, {}, seconds_text(reading.sum_us));
  sample("_count", labels, {}, fmt::format("{}", below));
}

void MetricsText::histogram(Labels labels, const FineReading& reading) {
  for (int octave = octave_first; octave <= fine_octave_last; ++octave) {
    sample("_bucket", labels, seconds_text(std::uint64_t{1} << octave),
           fmt::format("{}", reading.up_to_octave(octave)));
  }
  const std::uint64_t total = reading.total();
  sample("_bucket", labels, "+Inf", fmt::format("{}", total));
  sample("_sum", labels, {}, number(static_cast<double>(reading.sum_ns) / 1e9));
  sample("_count", labels, {}, fmt::format("{}", total));
}

}  // namespace spillway::exec
