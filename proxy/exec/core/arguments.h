// The arguments of commands, and what servers say to wrong ones. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "allocator/limits.h"
#include "cursor/bson_view.h"
#include "cursor/error.h"

namespace spillway::exec {

// TypeMismatch(14). `expected`: one type.
Error wrong_type(std::string_view field, ValueView value, std::string_view expected);
// 40414: the field is required.
Error missing_field(std::string_view field);
// 40415
Error unknown_field(std::string_view field);
// 51024: the field must not be negative.
Error negative_argument(std::string_view field, std::int64_t value);
// InvalidNamespace(73): the first element is no collection.
Error no_collection(ValueView first);

// The collection that a command names first: it may not be empty. InvalidNamespace(73).
Result<std::string_view> collection_argument(DocView body);
// An explained command may name the database of the explain only. InvalidNamespace(73).
Result<void> check_explained_database(std::string_view db, DocView explained);
// A number; nullopt: it is missing or null. Beyond 64 bits: the nearest of them. TypeMismatch(14) for another type.
Result<std::optional<std::int64_t>> number_argument(std::string_view field, ValueView value);
// A document; {}: it is missing or null. TypeMismatch(14) for another type.
Result<DocView> document_argument(std::string_view field, ValueView value);

// The first batch that a command asks for.
struct FirstBatch {
  std::optional<std::int64_t> size{};  // batchSize; nullopt: none given
  bool single = false;                 // singleBatch

  std::int64_t documents_max() const noexcept { return size.value_or(limits::first_batch_documents_default); }
};

}  // namespace spillway::exec
