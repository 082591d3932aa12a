#include "proxy/exec/read/distinct_merge.h"

#include <algorithm>

#include "allocator/limits.h"
#include "cursor/bson_order.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

namespace {

std::size_t cost_of(ValueView value) noexcept { return 1 + value.bytes.size() / DistinctMerge::bytes_of_value; }

}  // namespace

DistinctMerge::DistinctMerge(std::vector<DocView> arrays, MemoryBudget& budget)
    : arrays_(std::move(arrays)),
      meter_(budget, "distinct values", pipeline::any_number_of_bytes) {
  if (!arrays_.empty()) at_ = arrays_.front().begin();
  out_.begin_array("values");
}

Result<bool> DistinctMerge::step() {
  std::size_t left = values_per_step;
  while (left > 0 && array_ < arrays_.size()) {
    SPILLWAY_TRY(read, read_run(left));
    left -= std::min(left, *read);
  }
  while (left > 0 && array_ == arrays_.size() && !heap_.empty()) {
    left -= std::min(left, cost_of(runs_[heap_.front()].first()));
    if (auto given = give_out(); given.has_error()) return given.error();
  }
  return array_ < arrays_.size() || !heap_.empty();
}

BsonDoc DistinctMerge::reply(std::uint64_t at_cluster_time) && {
  out_.end();
  if (at_cluster_time != 0) out_.append_timestamp("atClusterTime", at_cluster_time);
  return ok_document(std::move(out_));
}

// Reads up to values_max next values of one shard. Returns their cost.
Result<std::size_t> DistinctMerge::read_run(std::size_t values_max) {
  constexpr std::size_t element_bytes_min = 2;
  const std::size_t room = std::min(values_max, arrays_[array_].size() / element_bytes_min);
  const std::size_t bytes = sizeof(Run) + room * sizeof(ValueView);
  if (auto charged = meter_.charge(bytes); charged.has_error()) return charged.error();
  Run run;
  run.values.reserve(room);
  std::size_t cost = 0;
  for (; run.values.size() < room && cost < values_max && !at_.done(); ++at_) {
    run.values.push_back(*at_);
    cost += cost_of(*at_);
  }
  if (at_.done() && ++array_ < arrays_.size()) at_ = arrays_[array_].begin();
  if (run.values.empty()) {
    meter_.credit(bytes);
    return std::size_t{0};
  }
  std::stable_sort(run.values.begin(), run.values.end(),
                   [](ValueView a, ValueView b) { return compare_values(a, b) < 0; });
  runs_.push_back(std::move(run));
  heap_.push_back(runs_.size() - 1);
  std::push_heap(heap_.begin(), heap_.end(), [this](std::size_t a, std::size_t b) { return comes_later(a, b); });
  return cost;
}

Result<void> DistinctMerge::give_out() {
  const auto later = [this](std::size_t a, std::size_t b) { return comes_later(a, b); };
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Run& run = runs_[heap_.back()];
  const ValueView value = run.first();
  if (++run.at == run.values.size()) {
    heap_.pop_back();
  } else {
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  if (last_.exists() && compare_values(last_, value) == 0) return {};
  last_ = value;
  out_.append_item(value);
  if (out_.size() > limits::document_bytes_max) {
    return Error(ErrorCode::bson_object_too_large, "distinct too big, 16mb cap");
  }
  return {};
}

bool DistinctMerge::comes_later(std::size_t a, std::size_t b) const noexcept {
  const auto order = compare_values(runs_[a].first(), runs_[b].first());
  return order != 0 ? order > 0 : a > b;
}

}  // namespace spillway::exec
