// MetricsText: metrics in Prometheus' text format (version 0.0.4), in buffers of a budget.
//
//   text.family("spillway_cursors_open", MetricType::gauge, "Open cursors.");
//   text.value({{"targets", "single"}}, 3);
//
// A family's values follow its head. Values of labels are escaped; the caller passes valid names. When the budget
// refuses, the rest is dropped: complete() is false. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/buffer.h"
#include "proxy/base/fine_latency.h"
#include "proxy/base/latency.h"

namespace spillway::exec {

enum class MetricType : std::uint8_t { counter, gauge, histogram };

class MetricsText {
 public:
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::initializer_list<Label>;

  // The budget outlives the buffers.
  explicit MetricsText(MemoryBudget& budget) : budget_(budget) {}

  void family(std::string_view name, MetricType type, std::string_view help);
  void value(Labels labels, std::uint64_t value);
  void value(Labels labels, std::int64_t value);
  void value(Labels labels, double value);
  // In seconds: _bucket, _sum and _count.
  void histogram(Labels labels, const LatencyReading& reading);
  // One bucket for each doubling, from 4 us to a minute.
  void histogram(Labels labels, const FineReading& reading);

  // A family of one value.
  template <class Value>
  void counter(std::string_view name, std::string_view help, Value counted) {
    family(name, MetricType::counter, help);
    value({}, counted);
  }
  template <class Value>
  void gauge(std::string_view name, std::string_view help, Value measured) {
    family(name, MetricType::gauge, help);
    value({}, measured);
  }

  bool complete() const noexcept { return !refused_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::vector<Buffer> take() { return std::move(pieces_); }

 private:
  void add(std::string_view text);
  void add_labels(Labels labels, std::string_view bound);
  void sample(std::string_view suffix, Labels labels, std::string_view bound,
              std::string_view value);

  MemoryBudget& budget_;
  std::string name_;
  std::vector<Buffer> pieces_;
  std::size_t bytes_ = 0;
  bool refused_ = false;
};

// A label's value for use between quotes: \, " and line breaks escaped.
std::string escape_label(std::string_view value);

}  // namespace spillway::exec
