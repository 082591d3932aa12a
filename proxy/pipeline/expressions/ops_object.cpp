// Documents.

#include <utility>

#include "proxy/pipeline/expressions/ops.h"
#include "proxy/pipeline/values/merge_objects.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

Result<Value> merge_objects(Operands operands, EvalContext& context) {
  FieldMerger merged(context.meter);
  const auto add = [&](ValueView value) -> Result<void> {
    if (!value.exists() || value.is_null() || value.type == BsonType::undefined) {
      return {};
    }
    if (!value.is_document()) {
      return Error(40400, join("$mergeObjects requires object inputs, but input ", to_json(value),
                               " is of type ", bson_type_name(value.type)));
    }
    return merged.add(value.as_document());
  };
  if (operands.size() == 1 && operands[0].is_array()) {
    for (const Element& element : operands[0].as_document()) {
      if (auto added = add(element); !added) return added.error();
    }
  } else {
    for (const Value& operand : operands) {
      if (auto added = add(operand.view()); !added) return added.error();
    }
  }
  return merged.build();
}

Result<Value> object_to_array(Operands operands, EvalContext& context) {
  if (!operands[0].is_document()) {
    return Error(40390,
                 join("$objectToArray requires a document input, found: ", type_name(operands[0])));
  }
  ArrayBuilder out;
  for (const Element& element : operands[0].as_document()) {
    const BsonDoc doc = BsonWriter().append("k", element.name)
                                    .append("v", static_cast<const ValueView&>(element)).finish();
    out.add(ValueView{BsonType::document, doc.view().bytes()});
    if (out.overflowed()) break;
  }
  return std::move(out).finish(context.meter);
}

Result<std::pair<std::string_view, ValueView>> key_value(ValueView item) {
  if (item.is_document()) {
    const DocView doc = item.as_document();
    const ValueView key = doc["k"];
    const ValueView value = doc["v"];
    if (doc.count() != 2) {
      return Error(40392, join("$arrayToObject requires an object keys of 'k' and 'v'. "
                               "Found incorrect number of keys:",
                               doc.count()));
    }
    if (!key.exists() || !value.exists()) {
      return Error(40393, "$arrayToObject requires an object with keys 'k' and 'v'.");
    }
    if (!key.is_string()) {
      return Error(40394, join("$arrayToObject requires an object with keys 'k' and 'v', "
                               "where the value of 'k' must be of type string. Found type: ",
                               bson_type_name(key.type)));
    }
    return std::pair(key.as_string(), value);
  }
  if (!item.is_array()) {
    return Error(40398, join("Unrecognised input type format for $arrayToObject: ",
                             bson_type_name(item.type)));
  }
  const DocView array = item.as_document();
  if (array.count() != 2) {
    return Error(40397, join("$arrayToObject requires an array of size 2 arrays,found array "
                             "of size: ",
                             array.count()));
  }
  DocIterator at = array.begin();
  const ValueView key = *at;
  ++at;
  if (!key.is_string()) {
    return Error(40395, join("$arrayToObject requires an array of key-value pairs, where the "
                             "key must be of type string. Found key type: ",
                             bson_type_name(key.type)));
  }
  return std::pair(key.as_string(), ValueView(*at));
}

Result<Value> array_to_object(Operands operands, EvalContext& context) {
  if (!operands[0].is_array()) {
    return Error(40386,
                 join("$arrayToObject requires an array input, found: ", type_name(operands[0])));
  }
  FieldMerger merged(context.meter);
  BsonType format = BsonType::eoo;
  for (const Element& element : operands[0].as_document()) {
    if (format != BsonType::eoo && element.type != format) {
      return Error(format == BsonType::array ? 40396 : 40391,
                   join("$arrayToObject requires a consistent input format. Elements must "
                        "all be arrays or all be objects. Found: ",
                        bson_type_name(element.type)));
    }
    format = element.type;
    SPILLWAY_TRY(pair, key_value(element));
    if (pair->first.find('\0') != std::string_view::npos) {
      return Error(4940400, "Key field cannot contain an embedded null byte");
    }
    if (auto set = merged.set(pair->first, pair->second); !set) return set.error();
  }
  return merged.build();
}

constexpr OperatorSpec object_table[] = {{"$mergeObjects", 0, -1, merge_objects},
                                  {"$objectToArray", 1, 1, object_to_array, null_of_null},
                                  {"$arrayToObject", 1, 1, array_to_object, null_of_null}};

}  // namespace

std::span<const OperatorSpec> object_operators() noexcept { return object_table; }

}  // namespace spillway::pipeline
