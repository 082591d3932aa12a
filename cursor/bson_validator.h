// DocView::validate() in steps, for documents whose size a peer decides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/limits.h"
#include "cursor/bson_view.h"

namespace spillway {

// A small value that points into the document. Errors: InvalidBSON.
class BsonValidator {
 public:
  explicit BsonValidator(DocView document, int depth_max = limits::bson_depth_max) noexcept
      : depth_max_(depth_max < limits::bson_depth_max ? depth_max : limits::bson_depth_max), next_(document) {}

  // Checks the next elements (the end of a document counts as one). True: the document is complete and valid.
  Result<bool> step(std::size_t elements);

 private:
  bool enter(DocView document) noexcept;

  int depth_max_;
  int depth_ = 0;  // 0: not begun
  DocView next_;
  const std::uint8_t* at_ = nullptr;
  std::array<const std::uint8_t*, limits::bson_depth_max> ends_;  // of the open documents
};

}  // namespace spillway
