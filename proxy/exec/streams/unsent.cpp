#include "proxy/exec/streams/unsent.h"

#include <algorithm>
#include <array>

#include "allocator/limits.h"
#include "proxy/base/check.h"

namespace spillway::exec {

namespace {
// Blocks of this size are freed one by one while the client reads.
constexpr std::size_t block_bytes = limits::mib;
constexpr std::size_t pieces_max = 8;
}  // namespace

bool Unsent::can_send() const noexcept {
  if (leftover_sent_ < leftover_.size()) return true;
  return !parts_.empty() && parts_.front().left() > 0;
}

void Unsent::set_leftover_room(Buffer room) noexcept {
  leftover_ = std::move(room);
  leftover_.set_size(0);
  leftover_sent_ = 0;
}

void Unsent::hold(Buffer buffer, std::size_t begin, std::size_t end) noexcept {
  leftover_ = std::move(buffer);
  leftover_.set_size(end);
  leftover_sent_ = begin;
  bytes_ = end - begin;
}

void Unsent::keep(Bytes bytes) noexcept {
  leftover_.set_size(0);
  leftover_.append(bytes.data(), bytes.size());
  leftover_sent_ = 0;
  bytes_ = bytes.size();
}

bool Unsent::take_room(MemoryBudget& budget, std::size_t bytes) {
  const std::size_t before = parts_.size();
  while (bytes > 0) {
    const std::size_t size = std::min(bytes, block_bytes);
    auto block = Buffer::allocate(budget, size);
    if (!block) {
      parts_.resize(before);
      return false;
    }
    parts_.push_back({*std::move(block), {}, true, 0});
    bytes -= size;
  }
  return true;
}

Unsent::Part& Unsent::filling() noexcept {
  const auto at = std::find_if(parts_.begin(), parts_.end(), [](const Part& part) { return part.room; });
  SPILLWAY_CHECK(at != parts_.end());
  return *at;
}

MutableBytes Unsent::free_space() noexcept { return filling().buffer.free_space(); }

void Unsent::filled(std::size_t bytes) noexcept {
  Part& part = filling();
  part.buffer.set_size(part.buffer.size() + bytes);
  part.room = part.buffer.room() > 0;
  bytes_ += bytes;
}

void Unsent::add(Buffer buffer) {
  bytes_ += buffer.size();
  parts_.push_back({std::move(buffer), {}, false, 0});
}

SpillTicket& Unsent::add(SpillTicket ticket) {
  ++tickets_;
  parts_.push_back({{}, std::move(ticket), false, 0});
  return parts_.back().ticket;
}

SpillTicket& Unsent::next_ticket() noexcept {
  SPILLWAY_CHECK(!parts_.empty());
  return parts_.front().ticket;
}

void Unsent::put_back(Buffer buffer, std::size_t begin, std::size_t end) {
  if (parts_.front().ticket.empty()) {
    --tickets_;
    parts_.pop_front();
  }
  buffer.set_size(end);
  bytes_ += end - begin;
  parts_.push_front({std::move(buffer), {}, false, begin});
}

IoResult Unsent::send(Transport& client) {
  std::array<iovec, pieces_max> pieces;
  std::size_t count = 0;
  if (leftover_sent_ < leftover_.size()) {
    pieces[count++] = {leftover_.data() + leftover_sent_, leftover_.size() - leftover_sent_};
  }
  for (Part& part : parts_) {
    if (count == pieces.size() || part.left() == 0) break;  // the part is still empty, or in the spill file
    pieces[count++] = {part.buffer.data() + part.sent, part.left()};
  }
  const IoResult wrote = client.try_write({pieces.data(), count});
  if (wrote.ok()) note_sent(wrote.bytes);
  return wrote;
}

void Unsent::note_sent(std::size_t bytes) noexcept {
  bytes_ -= bytes;
  sent_bytes_ += bytes;
  const std::size_t of_leftover = std::min(bytes, leftover_.size() - leftover_sent_);
  leftover_sent_ += of_leftover;
  bytes -= of_leftover;
  while (bytes > 0) {
    Part& part = parts_.front();
    const std::size_t of_part = std::min(bytes, part.left());
    part.sent += of_part;
    bytes -= of_part;
    if (part.left() > 0 || part.room) break;
    parts_.pop_front();
  }
}

}  // namespace spillway::exec
