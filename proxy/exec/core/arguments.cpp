#include "proxy/exec/core/arguments.h"

#include <fmt/format.h>

namespace spillway::exec {

Error wrong_type(std::string_view field, ValueView value, std::string_view expected) {
  return Error(ErrorCode::type_mismatch, fmt::format("BSON field '{}' is the wrong type '{}', expected type '{}'",
                                                     field, bson_type_name(value.type), expected));
}

Error missing_field(std::string_view field) {
  return Error(40414, fmt::format("BSON field '{}' is missing but a required field", field));
}

Error unknown_field(std::string_view field) {
  return Error(40415, fmt::format("BSON field '{}' is an unknown field.", field));
}

Error negative_argument(std::string_view field, std::int64_t value) {
  return Error(51024, fmt::format("BSON field '{}' value must be >= 0, actual value '{}'", field, value));
}

Error no_collection(ValueView first) {
  return Error(ErrorCode::invalid_namespace,
               fmt::format("collection name has invalid type {}", bson_type_name(first.type)));
}

Result<std::string_view> collection_argument(DocView body) {
  const Element first = body.first();
  if (!first.is_string()) return no_collection(first);
  if (first.as_string().empty()) return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
  return first.as_string();
}

Result<void> check_explained_database(std::string_view db, DocView explained) {
  const ValueView named = explained["$db"];
  if (!named.exists() || (named.is_string() && named.as_string() == db)) return {};
  return Error(ErrorCode::invalid_namespace,
               fmt::format("Mismatched $db in explain command. Expected {} but got {}", db, to_json(named)));
}

Result<std::optional<std::int64_t>> number_argument(std::string_view field, ValueView value) {
  if (!value.exists() || value.is_null()) return std::nullopt;
  if (!value.is_number()) {
    return Error(ErrorCode::type_mismatch,
                 fmt::format("BSON field '{}' is the wrong type '{}', expected types '[long, int, decimal, double]'",
                             field, bson_type_name(value.type)));
  }
  return value.truncated_int64();
}

Result<DocView> document_argument(std::string_view field, ValueView value) {
  if (!value.exists() || value.is_null()) return DocView();
  if (!value.is_document()) return wrong_type(field, value, "object");
  return value.as_document();
}

}  // namespace spillway::exec
