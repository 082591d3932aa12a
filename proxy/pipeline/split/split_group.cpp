#include "proxy/pipeline/split/split_group.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "proxy/pipeline/expressions/names.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

// How the partial results of an accumulator are combined, and the text for explain.
struct Combination {
  AccumulatorKind partial;
  AccumulatorKind merge;
  std::string_view text;
};

constexpr Combination combinations[] = {
    {AccumulatorKind::sum, AccumulatorKind::sum, "$sum"},
    {AccumulatorKind::count, AccumulatorKind::sum, "$sum"},
    {AccumulatorKind::average, AccumulatorKind::merge_average, "$divide"},
    {AccumulatorKind::min, AccumulatorKind::min, "$min"},
    {AccumulatorKind::max, AccumulatorKind::max, "$max"},
    {AccumulatorKind::first, AccumulatorKind::first, "$first"},
    {AccumulatorKind::last, AccumulatorKind::last, "$last"},
    {AccumulatorKind::push, AccumulatorKind::concat, "$concatArrays"},
    {AccumulatorKind::add_to_set, AccumulatorKind::set_union, "$setUnion"},
    {AccumulatorKind::merge_objects, AccumulatorKind::merge_objects, "$mergeObjects"}};

const Combination& combination_of(AccumulatorKind kind) noexcept {
  return *std::find_if(std::begin(combinations), std::end(combinations),
                       [&](const Combination& c) { return c.partial == kind; });
}

// Counts the numbers among the values of `input`. Values are ordered across types: null before numbers before
// strings. The comparison uses only operators that every shard has; arrays are excluded because one kind of shard
// compares them by their elements.
void write_number_count(BsonWriter& out, std::string_view name, ValueView input) {
  out.begin_document(name).begin_document("$sum").begin_array("$cond");
  out.begin_document_item().begin_array("$and");
  out.begin_document_item().begin_array("$not").begin_document_item();
  out.begin_array("$isArray").append_item(input);
  out.end().end().end().end();
  out.begin_document_item().begin_array("$gt").append_item(input).append_null("1");
  out.end().end();
  out.begin_document_item().begin_array("$lt").append_item(input).append_item(std::string_view());
  out.end().end();
  out.end().end();  // $and
  out.append_item(std::int32_t{1}).append_item(std::int32_t{0});
  out.end().end().end();
}

class GroupSplitter {
 public:
  explicit GroupSplitter(const std::vector<AccumulatorElement>& elements) : elements_(elements) {
    for (const AccumulatorElement& element : elements) names_.insert(element.name);
  }

  Result<SplitGroup> split(ValueView id) {
    shard_.begin_document("$group").append("_id", id);
    text_.begin_document("$group").append("_id", "$_id");
    auto merge_id = parse_field_path("_id");
    spec_.id = std::move(*merge_id);
    for (const AccumulatorElement& element : elements_) {
      if (auto added = add(element); !added) return added.error();
    }
    shard_.end();
    text_.end();
    return SplitGroup{std::move(shard_).finish(), std::move(spec_), std::move(text_).finish()};
  }

 private:
  Result<void> add(const AccumulatorElement& element) {
    const auto kind = find_accumulator(element.accumulator);
    if (!kind) return no_accumulator(element.accumulator);
    // The client's own accumulator always stands in the shards' $group, also $avg: a shard refuses an unsupported one
    // with its own error.
    shard_.begin_document(element.name).append(element.accumulator, element.argument).end();
    const Combination& combination = combination_of(*kind);
    GroupField field{std::string(element.name), combination.merge, nullptr, nullptr};
    if (*kind == AccumulatorKind::average) return add_average(element, std::move(field));
    // A mongos reads the field as $$ROOT.<name>.
    if (element.name.empty()) return Error(40353, "FieldPath must not end with a '.'.");
    SPILLWAY_TRY(input, parse_field_path(element.name));
    field.input = std::move(*input);
    text_.begin_document(element.name);
    text_.append(combination.text, join("$", element.name)).end();
    spec_.fields.push_back(std::move(field));
    return {};
  }

  Result<void> add_average(const AccumulatorElement& element, GroupField field) {
    const std::string number = join(hidden_count_++);
    const std::string sum = hidden_name(join("_spillway_sum_", number));
    const std::string count = hidden_name(join("_spillway_count_", number));
    shard_.begin_document(sum).append("$sum", element.argument).end();
    write_number_count(shard_, count, element.argument);
    field.input = std::move(*parse_field_path(sum));
    field.second = std::move(*parse_field_path(count));
    text_.begin_document(element.name).begin_array("$divide");
    for (const std::string& name : {sum, count}) text_.begin_document_item().append("$sum", join("$", name)).end();
    text_.end().end();
    spec_.fields.push_back(std::move(field));
    return {};
  }

  // A field name that the client's $group does not use.
  std::string hidden_name(std::string name) const {
    while (names_.contains(name)) name.push_back('_');
    return name;
  }

  const std::vector<AccumulatorElement>& elements_;
  absl::flat_hash_set<std::string_view> names_;  // of elements_
  BsonWriter shard_;
  BsonWriter text_;
  GroupSpec spec_;
  int hidden_count_ = 0;
};

}  // namespace

bool group_needs_order(const std::vector<AccumulatorElement>& elements) noexcept {
  return std::any_of(elements.begin(), elements.end(), [](const AccumulatorElement& element) {
    const auto kind = find_accumulator(element.accumulator);
    return kind == AccumulatorKind::first || kind == AccumulatorKind::last ||
           kind == AccumulatorKind::push || kind == AccumulatorKind::merge_objects;
  });
}

Result<SplitGroup> split_group(ValueView id, const std::vector<AccumulatorElement>& elements) {
  return GroupSplitter(elements).split(id);
}

}  // namespace spillway::pipeline
