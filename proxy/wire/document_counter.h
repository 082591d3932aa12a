// Counts the documents of a batch array while its bytes pass by, by hopping over lengths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cursor/bson_view.h"

namespace spillway::wire {

// Fed with the array's bytes from its length to its terminator, in any cuts. Costs a few
// instructions per document, not per byte. Never allocates; not thread-safe.
class DocumentCounter {
 public:
  // An error (InvalidBSON) when the bytes are no array of documents, or go beyond its end; after an
  // error the counter is not to be fed again.
  Result<void> feed(Bytes piece);

  std::size_t count() const noexcept { return count_; }  // documents that have passed completely
  bool done() const noexcept { return state_ == State::done; }
  // Of the array; 0 until its length has been seen.
  std::size_t total_bytes() const noexcept { return total_bytes_; }
  std::size_t passed_bytes() const noexcept { return passed_bytes_; }

 private:
  enum class State : std::uint8_t { array_length, type, name, document_length, document, done };

  Result<void> on_array_length();
  Result<void> on_type(std::uint8_t type);
  Result<void> on_name_byte(std::uint8_t byte);
  Result<void> on_document_length();
  bool fill_length(Bytes& piece);
  void hop_whole(Bytes& piece) noexcept;

  State state_ = State::array_length;
  std::array<std::uint8_t, 4> length_{};  // a length that came in pieces
  std::uint8_t length_filled_ = 0;
  std::uint8_t name_bytes_ = 0;
  std::size_t count_ = 0;
  std::size_t total_bytes_ = 0;
  std::size_t passed_bytes_ = 0;
  std::size_t document_left_ = 0;
};

}  // namespace spillway::wire
