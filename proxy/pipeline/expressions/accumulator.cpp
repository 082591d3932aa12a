#include "proxy/pipeline/expressions/accumulator.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <string>
#include <utility>

#include "allocator/small_blocks.h"
#include "cursor/bson_order.h"
#include "proxy/pipeline/values/merge_objects.h"
#include "proxy/pipeline/values/number.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// The cost of a kept value besides its bytes.
constexpr std::uint64_t kept_overhead_bytes = 64;

// A value kept across documents.
class Kept {
 public:
  Result<void> keep(const Value& value, Meter& meter) {
    const std::uint64_t bytes = value.view().bytes.size() + kept_overhead_bytes;
    if (auto charged = meter.charge(bytes); !charged) return charged;
    meter.credit(bytes_);
    bytes_ = bytes;
    // A copy: a shared owner could be much larger than the kept part.
    value_ = Value::borrowed(value.view()).retained();
    seen_ = true;
    return {};
  }
  bool seen() const noexcept { return seen_; }
  const Value& value() const noexcept { return value_; }

 private:
  Value value_;
  std::uint64_t bytes_ = 0;
  bool seen_ = false;
};

class Sum final : public Accumulator {
 public:
  Result<void> add(const Value& input, const Value&, Meter&) override {
    if (input.is_number()) sum_.add(input.view());
    return {};
  }
  Result<Value> result(Meter&) override { return sum_.total(); }

 private:
  NumberSum sum_;
};

class Count final : public Accumulator {
 public:
  Result<void> add(const Value&, const Value&, Meter&) override {
    ++count_;
    return {};
  }
  Result<Value> result(Meter&) override { return Value::integer(count_); }

 private:
  std::int64_t count_ = 0;
};

class Average final : public Accumulator {
 public:
  explicit Average(bool partial) : partial_(partial) {}
  Result<void> add(const Value& input, const Value& second, Meter&) override {
    if (!input.is_number()) {
      return {};
    }
    std::int64_t count = 1;
    if (partial_) count = second.is_number() ? whole_int64(second.view()).value_or(0) : 0;
    if (count > 0) {
      sum_.add(input.view());
      count_ += count;
    }
    return {};
  }
  Result<Value> result(Meter&) override {
    return count_ == 0 ? Value::null() : sum_.average(count_);
  }

 private:
  bool partial_;
  NumberSum sum_;
  std::int64_t count_ = 0;
};

class Extreme final : public Accumulator {
 public:
  explicit Extreme(bool largest) : largest_(largest) {}
  Result<void> add(const Value& input, const Value&, Meter& meter) override {
    if (input.nullish()) {
      return {};
    }
    if (best_.seen()) {
      const auto order = compare(input, best_.value());
      if (largest_ ? order <= 0 : order >= 0) {
        return {};
      }
    }
    return best_.keep(input, meter);
  }
  Result<Value> result(Meter&) override { return best_.seen() ? best_.value() : Value::null(); }

 private:
  bool largest_;
  Kept best_;
};

class End final : public Accumulator {
 public:
  explicit End(bool last) : last_(last) {}
  Result<void> add(const Value& input, const Value&, Meter& meter) override {
    return last_ || !kept_.seen() ? kept_.keep(input, meter) : Result<void>();
  }
  Result<Value> result(Meter&) override {
    return kept_.value().missing() ? Value::null() : kept_.value();
  }

 private:
  bool last_;
  Kept kept_;
};

// An array that a group keeps. Charged is the room of the builder, which doubles, and not what is in it.
class KeptArray {
 public:
  // The builder's first block, which whoever makes this pays for.
  static constexpr std::uint64_t first_bytes = 256;
  static constexpr std::uint64_t header_bytes = 12;  // of an element, at most

  Result<void> add(ValueView value, Meter& meter) {
    const std::uint64_t wanted = array_.size_bytes() + header_bytes + value.bytes.size();
    if (wanted > room_bytes_) {
      const std::uint64_t room = std::max(wanted, 2 * room_bytes_);
      if (auto charged = meter.charge(room - room_bytes_); !charged) return charged;
      room_bytes_ = room;
    }
    array_.add(value);
    return array_.overflowed() ? Result<void>(too_large_error()) : Result<void>();
  }
  Result<Value> finish(Meter& meter) { return std::move(array_).finish(meter); }
  // Without the first block.
  std::uint64_t charged_bytes() const noexcept { return room_bytes_ - first_bytes; }

 private:
  ArrayBuilder array_;
  std::uint64_t room_bytes_ = first_bytes;
};

Error not_partial_array(const Value& input) {
  return {ErrorCode::internal_error, join("a shard's partial result should be an array, but "
                                          "is of type ",
                                          type_name(input))};
}

// Calls `add` with the input, or with each element of a shard's partial array.
template <class Add>
Result<void> add_each(const Value& input, bool partial, Add add) {
  if (!partial) return input.missing() ? Result<void>() : add(input.view());
  if (!input.is_array()) return not_partial_array(input);
  for (const Element& element : input.as_document()) {
    if (auto added = add(element); !added) return added;
  }
  return {};
}

class Push final : public Accumulator {
 public:
  explicit Push(bool partial) : partial_(partial) {}
  Result<void> add(const Value& input, const Value&, Meter& meter) override {
    return add_each(input, partial_, [&](ValueView value) { return array_.add(value, meter); });
  }
  Result<Value> result(Meter& meter) override { return array_.finish(meter); }

 private:
  bool partial_;
  KeptArray array_;
};

class AddToSet final : public Accumulator {
 public:
  explicit AddToSet(bool partial) : partial_(partial) {}
  Result<void> add(const Value& input, const Value&, Meter& meter) override {
    return add_each(input, partial_, [&](ValueView value) { return add_one(value, meter); });
  }
  Result<Value> result(Meter& meter) override { return array_.finish(meter); }

 private:
  Result<void> add_one(ValueView value, Meter& meter) {
    std::string key;
    append_order_key(key, value);
    if (keys_.contains(key)) {
      return {};
    }
    if (auto charged = meter.charge(entry_bytes(key)); !charged) return charged;
    keys_.insert(std::move(key));
    return array_.add(value, meter);
  }

  // Its place in a set that is half full, and its heap memory.
  static std::uint64_t entry_bytes(const std::string& key) noexcept {
    const bool on_heap = key.capacity() > std::string().capacity();
    return 2 * (sizeof key + 1) + (on_heap ? small_blocks::rounded(key.capacity() + 1) : 0);
  }

  bool partial_;
  absl::flat_hash_set<std::string> keys_;
  KeptArray array_;
};

class MergeObjects final : public Accumulator {
 public:
  Result<void> add(const Value& input, const Value&, Meter& meter) override {
    if (input.nullish()) {
      return {};
    }
    if (!input.is_document()) {
      return Error(40400, join("$mergeObjects requires object inputs, but input ",
                               to_json(input.view()), " is of type ", type_name(input)));
    }
    // Several at once, so that a field is laid over others a few times only, however many inputs there are.
    const std::uint64_t bytes = input.view().bytes.size() + KeptArray::header_bytes;
    if (pending_bytes_ + bytes >= std::max<std::uint64_t>(pending_bytes_least, merged_bytes())) {
      return merge(input.as_document(), meter);
    }
    if (auto added = pending_.add(input.view(), meter); !added) return added;
    pending_bytes_ += bytes;
    return {};
  }
  Result<Value> result(Meter& meter) override {
    if (pending_bytes_ > 0) {
      if (auto merged = merge(DocView(), meter); !merged) return merged.error();
    }
    return merged_.seen() ? merged_.value() : Value::document(BsonDoc());
  }

 private:
  static constexpr std::uint64_t pending_bytes_least = KeptArray::first_bytes;
  static constexpr std::uint64_t bytes_per_step = 16;

  std::uint64_t merged_bytes() const noexcept { return merged_.seen() ? merged_.value().view().bytes.size() : 0; }

  // Of what was merged before, the pending ones, and `last`.
  Result<void> merge(DocView last, Meter& meter) {
    const std::uint64_t bytes = merged_bytes() + pending_bytes_ + last.size();
    if (!meter.spend(bytes / bytes_per_step)) return too_many_steps_error();
    const std::uint64_t charged_bytes = pending_.charged_bytes();
    Value pending;
    {
      const MeterScope scope(meter);
      SPILLWAY_TRY(inputs, std::exchange(pending_, KeptArray()).finish(meter));
      pending = std::move(*inputs);
    }
    FieldMerger merger(meter);
    if (merged_.seen()) {
      if (auto added = merger.add(merged_.value().as_document()); !added) return added;
    }
    for (const Element& input : pending.as_document()) {
      if (auto added = merger.add(input.as_document()); !added) return added;
    }
    if (auto added = merger.add(last); !added) return added;
    Value merged;
    {
      const MeterScope scope(meter);
      SPILLWAY_TRY(built, merger.build());
      merged = std::move(*built);
    }
    if (auto kept = merged_.keep(merged, meter); !kept) return kept;
    meter.credit(charged_bytes);
    pending_bytes_ = 0;
    return {};
  }

  Kept merged_;
  KeptArray pending_;  // later inputs
  std::uint64_t pending_bytes_ = 0;
};

constexpr std::pair<std::string_view, AccumulatorKind> accumulator_names[] = {
    {"$sum", AccumulatorKind::sum},
    {"$count", AccumulatorKind::count},
    {"$avg", AccumulatorKind::average},
    {"$min", AccumulatorKind::min},
    {"$max", AccumulatorKind::max},
    {"$first", AccumulatorKind::first},
    {"$last", AccumulatorKind::last},
    {"$push", AccumulatorKind::push},
    {"$addToSet", AccumulatorKind::add_to_set},
    {"$mergeObjects", AccumulatorKind::merge_objects}};

}  // namespace

std::optional<AccumulatorKind> find_accumulator(std::string_view name) noexcept {
  for (const auto& [known, kind] : accumulator_names) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::uint64_t accumulator_bytes(AccumulatorKind kind) noexcept {
  const auto with_malloc = [](std::size_t bytes) { return small_blocks::rounded(bytes + sizeof(void*)); };
  switch (kind) {
    case AccumulatorKind::sum:
      return with_malloc(sizeof(Sum));
    case AccumulatorKind::count:
      return with_malloc(sizeof(Count));
    case AccumulatorKind::average:
    case AccumulatorKind::merge_average:
      return with_malloc(sizeof(Average));
    case AccumulatorKind::min:
    case AccumulatorKind::max:
      return with_malloc(sizeof(Extreme));
    case AccumulatorKind::first:
    case AccumulatorKind::last:
      return with_malloc(sizeof(End));
    case AccumulatorKind::push:
    case AccumulatorKind::concat:
      return with_malloc(sizeof(Push)) + KeptArray::first_bytes;
    case AccumulatorKind::add_to_set:
    case AccumulatorKind::set_union:
      return with_malloc(sizeof(AddToSet)) + KeptArray::first_bytes;
    case AccumulatorKind::merge_objects:
      break;
  }
  return with_malloc(sizeof(MergeObjects)) + KeptArray::first_bytes;
}

std::unique_ptr<Accumulator> make_accumulator(AccumulatorKind kind) {
  switch (kind) {
    case AccumulatorKind::sum:
      return std::make_unique<Sum>();
    case AccumulatorKind::count:
      return std::make_unique<Count>();
    case AccumulatorKind::average:
    case AccumulatorKind::merge_average:
      return std::make_unique<Average>(kind == AccumulatorKind::merge_average);
    case AccumulatorKind::min:
    case AccumulatorKind::max:
      return std::make_unique<Extreme>(kind == AccumulatorKind::max);
    case AccumulatorKind::first:
    case AccumulatorKind::last:
      return std::make_unique<End>(kind == AccumulatorKind::last);
    case AccumulatorKind::push:
    case AccumulatorKind::concat:
      return std::make_unique<Push>(kind == AccumulatorKind::concat);
    case AccumulatorKind::add_to_set:
    case AccumulatorKind::set_union:
      return std::make_unique<AddToSet>(kind == AccumulatorKind::set_union);
    case AccumulatorKind::merge_objects:
      break;
  }
  return std::make_unique<MergeObjects>();
}

}  // namespace spillway::pipeline
