#include "proxy/wire/document_counter.h"

#include <algorithm>
#include <cstring>

#include "allocator/limits.h"

namespace spillway::wire {
namespace {

// Indexes of a batch have at most eight digits.
constexpr std::uint8_t name_bytes_max = 16;
constexpr std::int32_t array_size_min = 5;

Error bad_array(const char* what) {
  return Error(ErrorCode::invalid_bson, std::string("malformed batch: ") + what);
}

}  // namespace

Result<void> DocumentCounter::feed(Bytes piece) {
  while (!piece.empty()) {
    Result<void> step;
    switch (state_) {
      case State::array_length:
        if (!fill_length(piece)) {
          return {};
        }
        step = on_array_length();
        break;
      case State::type:
        hop_whole(piece);
        if (piece.empty()) {
          return {};
        }
        [[fallthrough]];
      case State::name: {
        const std::uint8_t byte = piece[0];
        piece = piece.subspan(1);
        ++passed_bytes_;
        step = state_ == State::type ? on_type(byte) : on_name_byte(byte);
        break;
      }
      case State::document_length:
        if (!fill_length(piece)) {
          return {};
        }
        step = on_document_length();
        break;
      case State::document: {
        const std::size_t hop = std::min(document_left_, piece.size());
        document_left_ -= hop;
        passed_bytes_ += hop;
        if (document_left_ == 0) {
          if (piece[hop - 1] != 0) return bad_array("a document does not end with a zero byte");
          ++count_;
          state_ = State::type;
        }
        piece = piece.subspan(hop);
        break;
      }
      case State::done:
        return bad_array("bytes after the array's end");
    }
    if (!step) return step;
  }
  return {};
}

// Hops over complete, valid elements: nearly all are. The states handle the others.
void DocumentCounter::hop_whole(Bytes& piece) noexcept {
  constexpr std::size_t head_bytes_max = 1 + name_bytes_max + 1 + sizeof(std::int32_t);
  const std::uint8_t* at = piece.data();
  const std::uint8_t* const end = at + piece.size();
  std::size_t array_left = total_bytes_ - passed_bytes_;
  while (static_cast<std::size_t>(end - at) >= head_bytes_max &&
         *at == static_cast<std::uint8_t>(BsonType::document)) {
    const std::uint8_t* nul = detail::find_nul(at + 1, name_bytes_max + 1);
    if (nul == nullptr) break;
    const std::size_t document_bytes = load_le<std::uint32_t>(nul + 1);
    const auto room = static_cast<std::size_t>(end - (nul + 1));
    if (document_bytes < static_cast<std::size_t>(array_size_min) || document_bytes > room) break;
    const std::size_t element_bytes = static_cast<std::size_t>(nul + 1 - at) + document_bytes;
    // The array's terminator follows, at least.
    if (element_bytes >= array_left || at[element_bytes - 1] != 0) break;
    at += element_bytes;
    array_left -= element_bytes;
    ++count_;
  }
  passed_bytes_ = total_bytes_ - array_left;
  piece = {at, end};
}

// Takes bytes of a length from the piece's front; true when the length is complete.
bool DocumentCounter::fill_length(Bytes& piece) {
  const std::size_t taken = std::min(length_.size() - length_filled_, piece.size());
  std::memcpy(length_.data() + length_filled_, piece.data(), taken);
  length_filled_ = static_cast<std::uint8_t>(length_filled_ + taken);
  passed_bytes_ += taken;
  piece = piece.subspan(taken);
  if (length_filled_ < length_.size()) return false;
  length_filled_ = 0;
  return true;
}

Result<void> DocumentCounter::on_array_length() {
  const auto length = load_le<std::int32_t>(length_.data());
  if (length < array_size_min || static_cast<std::size_t>(length) > limits::message_bytes_max) {
    return bad_array("the array's length is wrong");
  }
  total_bytes_ = static_cast<std::size_t>(length);
  state_ = State::type;
  return {};
}

Result<void> DocumentCounter::on_type(std::uint8_t type) {
  if (type == static_cast<std::uint8_t>(BsonType::eoo)) {
    if (passed_bytes_ != total_bytes_) return bad_array("the array ends before its length");
    state_ = State::done;
    return {};
  }
  if (type != static_cast<std::uint8_t>(BsonType::document)) return bad_array("an element is not a document");
  if (passed_bytes_ == total_bytes_) return bad_array("the array does not end with a zero byte");
  name_bytes_ = 0;
  state_ = State::name;
  return {};
}

Result<void> DocumentCounter::on_name_byte(std::uint8_t byte) {
  if (passed_bytes_ == total_bytes_ || (byte != 0 && ++name_bytes_ > name_bytes_max)) {
    return bad_array("an index does not end");
  }
  if (byte == 0) state_ = State::document_length;
  return {};
}

Result<void> DocumentCounter::on_document_length() {
  const auto length = load_le<std::int32_t>(length_.data());
  // What is left must hold the document's other bytes and the array's terminator. (passed_bytes_
  // may stand beyond the end here, when the length itself did not fit.)
  if (length < array_size_min ||
      passed_bytes_ + static_cast<std::size_t>(length) - length_.size() >= total_bytes_) {
    return bad_array("a document's length is wrong");
  }
  document_left_ = static_cast<std::size_t>(length) - length_.size();
  state_ = State::document;
  return {};
}

}  // namespace spillway::wire
