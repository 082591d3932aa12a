// The small types of gateway.h.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "proxy/shard/connection.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/pool.h"
#include "proxy/shard/shard_list.h"
#include "proxy/wire/op_msg.h"

namespace spillway::shard {

namespace {
constexpr std::uint8_t body_kind = 0;
constexpr std::uint8_t sequence_kind = 1;
iovec piece(const void* data, std::size_t size) noexcept { return {const_cast<void*>(data), size}; }

// The bytes from `at` on, which may lie in several pieces. REQUIRES that they are there.
void copy_at(const Command& command, std::size_t at, std::span<std::uint8_t> to) noexcept {
  for (std::size_t i = 0; i < command.section_count && !to.empty(); ++i) {
    const iovec& each = command.sections[i];
    if (at >= each.iov_len) {
      at -= each.iov_len;
      continue;
    }
    const std::size_t taken = std::min(to.size(), each.iov_len - at);
    std::copy_n(static_cast<const std::uint8_t*>(each.iov_base) + at, taken, to.begin());
    to = to.subspan(taken);
    at = 0;
  }
}
}  // namespace

std::string HostAddress::text() const {
  const std::string& name = host.str();
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port)
                                             : fmt::format("[{}]:{}", name, port);
}

bool HeldReplies::leave_room(const MemoryBudget& budget, std::size_t bytes) const noexcept {
  const std::uint64_t charged = Buffer::charged_bytes(bytes), ceiling = budget.ceiling_bytes();
  if (ceiling == 0 || of_budget + charged <= ceiling) return true;
  return budget.queue() != nullptr && of_reserve + charged <= budget.queue()->large_bytes();
}

std::size_t Command::bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < section_count; ++i) sum += sections[i].iov_len;
  return sum + suffix.size();
}

std::optional<Command::BodyPlace> Command::find_body() const noexcept {
  const std::size_t end = bytes() - suffix.size();
  constexpr std::size_t head_bytes = 1 + 4;
  // As most clients send it: the body first, in the first piece.
  if (section_count > 0 && sections[0].iov_len > head_bytes) {
    const auto* const first = static_cast<const std::uint8_t*>(sections[0].iov_base);
    const std::size_t size = load_le<std::uint32_t>(first + 1);
    if (first[0] == body_kind && size >= 5 && size < end) return BodyPlace{1, size};
  }
  for (std::size_t at = 0; end - at >= head_bytes;) {
    std::array<std::uint8_t, head_bytes> head;
    copy_at(*this, at, head);
    const std::size_t size = load_le<std::uint32_t>(head.data() + 1);
    if (size < 4 || size > end - at - 1) return std::nullopt;
    if (head[0] == body_kind) return size < 5 ? std::nullopt : std::optional(BodyPlace{at + 1, size});
    if (head[0] != sequence_kind) return std::nullopt;
    at += 1 + size;
  }
  return std::nullopt;
}

std::string Command::name(std::size_t bytes_max) const {
  const auto body = find_body();
  constexpr std::size_t before_name = 4 + 1;  // the document's length, the first element's type
  if (!body || body->size <= before_name) return {};
  std::string name(std::min(bytes_max, body->size - before_name), '\0');
  copy_at(*this, body->offset + before_name, {reinterpret_cast<std::uint8_t*>(name.data()), name.size()});
  name.resize(std::min(name.find('\0'), name.size()));
  return name;
}

Command Command::of_body(DocView body) noexcept {
  Command command;
  command.sections[0] = piece(&body_kind, 1);
  command.sections[1] = piece(body.data(), body.size());
  command.section_count = 2;
  return command;
}

Command Command::of_sections(Bytes sections) noexcept {
  Command command;
  command.sections[0] = piece(sections.data(), sections.size());
  command.section_count = 1;
  return command;
}

DocView Reply::body() const noexcept {
  return DocView::trusted(bytes.data() + wire::op_msg_prefix_bytes);
}

ValueView Reply::operation_time() const noexcept {
  if (operation_time_at == 0) return {};
  ValueView value;
  value.type = BsonType::timestamp;
  value.bytes = bytes.bytes().subspan(operation_time_at, 8);
  return value;
}

DocView Reply::cluster_time() const noexcept {
  return cluster_time_at == 0 ? DocView() : DocView::trusted(bytes.data() + cluster_time_at);
}

Result<std::uint16_t> Gateway::add_shard(ShardAddress address, ShardCredentials) {
  return Error(ErrorCode::illegal_operation, fmt::format("shard {} cannot be added: the set is fixed", address.name));
}

SharedShards::SharedShards() : list_(std::make_shared<ShardList>()) {}

Lease::Lease(Pool* pool, std::unique_ptr<Connection> connection) noexcept
    : pool_(pool), connection_(connection.release()) {}

void Lease::mark_bulk() noexcept {
  if (pool_ != nullptr && connection_ != nullptr) pool_->became_bulk(*connection_);
}

void Lease::release() noexcept {
  if (connection_ != nullptr) {
    pool_->give_back(std::unique_ptr<Connection>(std::exchange(connection_, nullptr)));
  }
  pool_ = nullptr;
}

}  // namespace spillway::shard
