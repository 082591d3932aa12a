// MetricsText: metrics in Prometheus' text format (version 0.0.4), in buffers of a budget.
//
//   text.family("spillway_cursors_open", MetricType::gauge, "Open cursors.");
//   text.value({{"targets", "single"}}, 3);
//
// A family's values follow its head. Values of labels are escaped; the caller passes valid names, or an empty one for
// no label. When the budget refuses, the rest is dropped: complete() is false. Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
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
  void value(Labels labels, std::integral auto value) { sample({}, labels, {}, std::to_string(value)); }
  void value(Labels labels, double value);
  // In seconds: _bucket, _sum and _count.
  void histogram(Labels labels, const LatencyReading& reading);
  // One bucket for each doubling, from 4 us to a minute.
  void histogram(Labels labels, const FineReading& reading);

  bool complete() const noexcept { return !refused_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::vector<Buffer> take() { return std::move(pieces_); }

 private:
  void add(std::string_view text);
  void sample(std::string_view suffix, Labels labels, std::string_view bound, std::string_view value);
  void buckets_end(Labels labels, std::uint64_t count, std::string_view sum);

  MemoryBudget& budget_;
  std::string name_;
  std::vector<Buffer> pieces_;
  std::size_t bytes_ = 0;
  bool refused_ = false;
};

}  // namespace spillway::exec
