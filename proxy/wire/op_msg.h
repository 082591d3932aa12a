// OP_MSG: parsing into views and encoding.
#pragma once

#include <absl/container/inlined_vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "allocator/limits.h"
#include "cursor/bson_view.h"
#include "cursor/element_index.h"
#include "proxy/wire/message.h"

namespace spillway::wire {

namespace flags {
inline constexpr std::uint32_t checksum_present = 1;       // the last 4 bytes are a CRC-32C
inline constexpr std::uint32_t more_to_come = 2;           // request: do not reply at all
inline constexpr std::uint32_t exhaust_allowed = 1 << 16;  // the client takes more_to_come replies
}  // namespace flags

// No command has nearly as many; more are refused, so that the search for duplicates stays cheap.
inline constexpr std::size_t body_fields_max = 4096;
// Header, flags, kind byte: what precedes the body of an OP_MSG whose first section is the body.
inline constexpr std::size_t op_msg_prefix_bytes = 21;

// A kind-1 section: the documents that stand for an array field `name` of the body. The frames of
// the documents have been checked.
struct DocSequence {
  class Iterator {
   public:
    using value_type = DocView;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(const std::uint8_t* at) noexcept : at_(at) {}
    DocView operator*() const noexcept { return DocView::trusted(at_); }
    Iterator& operator++() noexcept {
      at_ += load_le<std::uint32_t>(at_);
      return *this;
    }
    Iterator operator++(int) noexcept {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const noexcept = default;

   private:
    const std::uint8_t* at_ = nullptr;
  };

  std::string_view name;
  Bytes documents;  // back to back
  std::size_t count = 0;

  Iterator begin() const noexcept { return Iterator(documents.data()); }
  Iterator end() const noexcept { return Iterator(documents.data() + documents.size()); }
};

// Views into the message's bytes: valid while those stay where they are.
struct OpMsg {
  std::uint32_t flags = 0;
  DocView body;
  ElementIndex fields;  // of the body, as it was parsed; another body may have taken its place
  absl::InlinedVector<DocSequence, limits::document_sequences_max> sequences;

  const DocSequence* sequence(std::string_view name) const noexcept;  // nullptr: there is none
  bool has_flag(std::uint32_t flag) const noexcept { return (flags & flag) != 0; }
};

// Parses a request: the whole message, header included (already parsed by the caller).
// Checked: flags, section framing, the frames of all documents, the elements of the body's top
// level, duplicate names there, the checksum. Not checked: nested values (DocView::validate).
// Errors that are connection_fatal(): close without a reply. All others get an ordinary error reply
// (unless peek_flags() has more_to_come).
Result<OpMsg> parse_op_msg(Bytes whole_message, bool verify_checksum = true);
// The same, into a message without content: a parsed message is not small.
Result<void> parse_op_msg(OpMsg& into, Bytes whole_message);

// The same for a shard's reply: names are not checked for duplicates.
Result<OpMsg> parse_op_msg_reply(Bytes whole_message, bool verify_checksum = true);

// 223 IllegalOpMsgFlag, 233 TooManyDocumentSequences, 288 ChecksumMismatch.
bool connection_fatal(const Error& error) noexcept;

// The flags of a message that may not parse; 0 when it is too short to have any.
std::uint32_t peek_flags(Bytes whole_message) noexcept;

// Encoding: begin, then one body, then finish. `out` holds this message alone:
// begin_op_msg() clears it (and keeps its capacity).
void begin_op_msg(std::vector<std::uint8_t>& out, std::int32_t request_id, std::int32_t response_to,
                  std::uint32_t flags);
void append_body(std::vector<std::uint8_t>& out, DocView body);
// Sets the length; with `checksum` sets that flag and appends the CRC-32C.
// REQUIRES: out.size() (+ 4) <= message_bytes_max.
void finish_op_msg(std::vector<std::uint8_t>& out, bool checksum = false);

// Header, flags and kind byte of a message whose body lies elsewhere (scatter writes).
// total_length counts the whole message: 21 + the body's size.
std::array<std::uint8_t, op_msg_prefix_bytes> op_msg_prefix(std::size_t total_length,
                                                            std::int32_t request_id,
                                                            std::int32_t response_to,
                                                            std::uint32_t flags) noexcept;

}  // namespace spillway::wire
