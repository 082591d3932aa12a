#include "proxy/exec/cursors/batch_builder.h"

#include <algorithm>
#include <cstring>

#include "proxy/base/memory_wait.h"

namespace spillway::exec {

namespace {

// Slightly below the smallest block of a heap: the thread recycles such a block for the next reply.
constexpr std::size_t first_chunk_bytes = 14 * limits::kib;
static_assert(first_chunk_bytes < block_bytes_min);
constexpr std::size_t chunk_bytes_max = limits::mib;
constexpr std::size_t index_name_bytes_max = 12;
constexpr std::size_t frame_bytes_usual = 128;

void put(RecycledBytes& out, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  out.insert(out.end(), from, from + bytes);
}
void put_name(RecycledBytes& out, BsonType type, std::string_view name) {
  out.push_back(static_cast<std::uint8_t>(type));
  put(out, name.data(), name.size());
  out.push_back(0);
}
template <class T>
void put_le(RecycledBytes& out, T value) {
  put(out, &value, sizeof value);
}

constexpr std::string_view partial_name = "partialResultsReturned";

}  // namespace

std::size_t BatchBuilder::room_for(std::size_t document_bytes) noexcept {
  return 1 + index_name_bytes_max + 1 + document_bytes;
}

bool BatchBuilder::fits(std::size_t document_bytes) const noexcept {
  return count_ == 0 || document_bytes_ + document_bytes +
                                (count_ + 1) * limits::batch_document_overhead_bytes <=
                            bytes_max_;
}

Result<void> BatchBuilder::append_elements(Bytes elements) {
  const std::size_t document_bytes = 4 + elements.size() + 1;
  const std::size_t need = 1 + name_bytes_ + 1 + document_bytes;
  if (chunks_.empty() || chunks_.back().room() < need) {
    const std::size_t grown =
        chunks_.empty() ? first_chunk_bytes : std::min(chunks_.back().capacity() * 4, chunk_bytes_max);
    auto chunk = allocate_now(budget_, std::max(grown, need));
    if (!chunk && need < grown) chunk = allocate_now(budget_, need);
    if (!chunk) return memory_refused(budget_, need, "a document of the reply");
    chunks_.push_back(std::move(*chunk));
  }
  Buffer& chunk = chunks_.back();
  std::uint8_t* at = chunk.data() + chunk.size();
  *at++ = static_cast<std::uint8_t>(BsonType::document);
  std::memcpy(at, name_.data() + name_.size() - name_bytes_, name_bytes_);
  at += name_bytes_;
  *at++ = 0;
  store_le(at, static_cast<std::uint32_t>(document_bytes));
  at += sizeof(std::uint32_t);
  if (!elements.empty()) std::memcpy(at, elements.data(), elements.size());
  at[elements.size()] = 0;
  chunk.set_size(chunk.size() + need);
  count_up();
  document_bytes_ += document_bytes;
  array_bytes_ += need;
  return {};
}

void BatchBuilder::count_up() noexcept {
  ++count_;
  std::size_t digit = name_.size() - 1;
  for (; name_[digit] == '9'; --digit) name_[digit] = '0';
  ++name_[digit];
  name_bytes_ = std::max(name_bytes_, name_.size() - digit);
}

CursorReplyFrame frame_cursor_reply(std::string_view batch_name, std::size_t array_bytes, std::int64_t id,
                                    std::string_view ns, bool partial, DocView more, CursorFacts facts) {
  CursorReplyFrame frame;
  frame.before.reserve(frame_bytes_usual);
  frame.after.reserve(frame_bytes_usual);
  if (partial) {
    put_name(frame.after, BsonType::boolean, partial_name);
    frame.after.push_back(1);
  }
  put_name(frame.after, BsonType::int64, "id");
  put_le(frame.after, id);
  put_name(frame.after, BsonType::string, "ns");
  put_le(frame.after, static_cast<std::int32_t>(ns.size() + 1));
  put(frame.after, ns.data(), ns.size());
  frame.after.push_back(0);
  if (!facts.resume_token.empty()) {
    put_name(frame.after, BsonType::document, "postBatchResumeToken");
    put(frame.after, facts.resume_token.data(), facts.resume_token.size());
  }
  if (facts.at_cluster_time != 0) {
    put_name(frame.after, BsonType::timestamp, "atClusterTime");
    put_le(frame.after, facts.at_cluster_time);
  }
  frame.after.push_back(0);  // end of cursor
  const std::size_t cursor_bytes =
      4 + 1 + batch_name.size() + 1 + array_bytes + frame.after.size();
  put_name(frame.after, BsonType::double_, "ok");
  put_le(frame.after, 1.0);
  put(frame.after, more.data() + 4, more.size() - 4);  // the end of the reply

  put_le(frame.before, std::int32_t{0});
  put_name(frame.before, BsonType::document, "cursor");
  put_le(frame.before, static_cast<std::int32_t>(cursor_bytes));
  put_name(frame.before, BsonType::array, batch_name);
  store_le(frame.before.data(),
           static_cast<std::int32_t>(frame.before.size() + array_bytes + frame.after.size()));
  return frame;
}

std::size_t frame_id_offset(bool partial) noexcept {
  return (partial ? 1 + partial_name.size() + 1 + 1 : 0) + 1 + 3;
}

Response BatchBuilder::finish(std::string_view batch_name, std::int64_t id, std::string_view ns,
                              bool partial, CursorFacts facts) && {
  const std::size_t array_bytes = 4 + array_bytes_ + 1;
  CursorReplyFrame frame = frame_cursor_reply(batch_name, array_bytes, id, ns, partial, {}, facts);
  RecycledBytes head = std::move(frame.before);
  put_le(head, static_cast<std::int32_t>(array_bytes));
  const std::size_t before_bytes = head.size();
  head.push_back(0);  // end of the array
  head.insert(head.end(), frame.after.begin(), frame.after.end());
  Response response;
  response.set_head(std::move(head));
  const auto own = response.pieces();  // so far only the head
  const auto* bytes = static_cast<const std::uint8_t*>(own[0].iov_base);
  const std::size_t all = own[0].iov_len;
  response.add_piece(bytes, before_bytes);
  for (Buffer& chunk : chunks_) response.add_piece(chunk.data(), chunk.size());
  response.add_piece(bytes + before_bytes, all - before_bytes);
  for (Buffer& chunk : chunks_) response.hold(std::move(chunk));
  chunks_.clear();
  return response;
}

}  // namespace spillway::exec
