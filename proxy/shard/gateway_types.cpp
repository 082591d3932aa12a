// The small types of gateway.h.
#include <fmt/format.h>

#include "proxy/shard/connection.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/pool.h"
#include "proxy/wire/op_msg.h"

namespace spillway::shard {

namespace {
constexpr std::uint8_t body_kind = 0;
iovec piece(const void* data, std::size_t size) noexcept { return {const_cast<void*>(data), size}; }
}  // namespace

std::string HostAddress::text() const {
  const std::string& name = host.str();
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port)
                                             : fmt::format("[{}]:{}", name, port);
}

std::size_t Command::bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < section_count; ++i) sum += sections[i].iov_len;
  return sum;
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

Lease::Lease(Pool* pool, std::unique_ptr<Connection> connection) noexcept
    : pool_(pool), connection_(std::move(connection)) {}

Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), connection_(std::move(other.connection_)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    connection_ = std::move(other.connection_);
  }
  return *this;
}

Lease::~Lease() { release(); }

void Lease::mark_bulk() noexcept {
  if (pool_ != nullptr && connection_ != nullptr) pool_->became_bulk(*connection_);
}

void Lease::release() noexcept {
  if (connection_) pool_->give_back(std::move(connection_));
  pool_ = nullptr;
}

}  // namespace spillway::shard
