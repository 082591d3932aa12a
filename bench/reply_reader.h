// Reads MongoDB replies from a stream of bytes without holding them: documents of a batch are
// handed out as they become complete, so that checking 30 scans of 16 MB batches takes little
// memory.
//
// A sans-I/O machine: the owner puts received bytes into room(), calls received(), then step()
// until it says that it needs more. Views are valid until the next call of room(). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bson_bytes.h"
#include "bench/message.h"

namespace spillway::bench {

// What a reply says beside its batch.
struct ReplySummary {
  std::int32_t response_to = 0;
  bool has_cursor = false;
  std::int64_t cursor_id = 0;
  std::int64_t documents = 0;
  double ok = 0;
  std::int64_t n = -1;
  std::int64_t code = 0;
  std::string message;  // errmsg, or the first write error's
  bool has_write_errors = false;
  std::string labels;  // errorLabels, with commas
};

class ReplyReader {
 public:
  enum class Step {
    need_bytes,  // put more into room()
    document,    // document() is the next of the batch
    reply,       // the reply is complete: summary() tells the rest
    broken,      // the stream is no MongoDB reply: error() says why; nothing more can be read
  };

  explicit ReplyReader(std::size_t room_bytes = 256 * 1024) : room_bytes_(room_bytes) {}

  // Where to receive into: at least one byte.
  std::span<char> room();
  void received(std::size_t bytes) noexcept { end_ += bytes; }

  Step step();
  std::string_view document() const noexcept { return document_; }
  const ReplySummary& summary() const noexcept { return summary_; }
  const std::string& error() const noexcept { return error_; }
  // True between replies.
  bool idle() const noexcept { return level_ == Level::header && begin_ == end_; }

 private:
  // Where in the reply: before it, among the elements of its document, of `cursor`, of the batch.
  enum class Level { header, top, cursor, batch, broken };

  Step read_header();
  Step read_element();
  Step end_level();
  bool enter(const Field& field, std::size_t head_bytes, std::size_t declared_bytes);
  void note_top(const Field& field);
  Step fail(std::string why);
  Step need(std::size_t bytes);
  std::string_view available() const noexcept { return {buffer_.data() + begin_, end_ - begin_}; }
  void consume(std::size_t bytes) noexcept;

  std::size_t room_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t wanted_ = header_bytes;
  Level level_ = Level::header;
  std::uint64_t message_left_ = 0;    // bytes of this message not consumed yet
  std::uint64_t level_left_[3] = {};  // of top, cursor, batch: until after their final NUL
  ReplySummary summary_;
  std::string_view document_;
  std::string error_;
};

}  // namespace spillway::bench
