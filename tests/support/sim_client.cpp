#include "tests/support/sim_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"

namespace spillway::test {

namespace {

std::vector<std::uint8_t> packed(wire::Compressor compressor, const std::vector<std::uint8_t>& plain) {
  std::vector<std::uint8_t> out(wire::compressed_message_size_max(compressor, plain.size()));
  out.resize(wire::compress_message(compressor, plain, out).value());
  return out;
}

Result<std::vector<std::uint8_t>> unpacked(const wire::MessageHeader& outer,
                                           const std::vector<std::uint8_t>& message) {
  auto header = wire::parse_compressed(message);
  if (header.has_error()) return header.error();
  std::vector<std::uint8_t> out(limits::message_header_bytes + header->uncompressed_size);
  if (auto done = wire::decompress_message(outer, *header, out); done.has_error()) return done.error();
  return out;
}

}  // namespace

// Bytes that arrive while no request is under way break the protocol.
void SimClient::check_nothing_came() {
  if (!transport_ || waiting_ || !expected_.empty()) return;
  std::uint8_t byte = 0;
  if (transport_->try_read(MutableBytes(&byte, 1)).ok()) violations_.push_back("a reply came that nobody waits for");
}

void SimClient::close() {
  check_nothing_came();
  holds = false;
  if (transport_) transport_->close();
  if (waiting_) return;  // the waiting coroutine notices, and releases it
  transport_.reset();
  expected_.clear();
}

void SimClient::reset() {
  holds = false;
  if (transport_) transport_->reset();
  if (waiting_) return;
  transport_.reset();
  expected_.clear();
}

std::optional<BsonDoc> SimClient::broken(std::string what) {
  if (!what.empty()) violations_.push_back(std::move(what));
  waiting_ = false;
  reset();
  return std::nullopt;
}

Task<std::optional<BsonDoc>> SimClient::call(BsonDoc command) {
  auto sending = send(std::move(command));
  const bool sent = co_await sending;
  if (!sent) co_return std::nullopt;
  auto receiving = receive();
  co_return co_await receiving;
}

Task<bool> SimClient::send(BsonDoc command) { return send_first(std::move(command), SIZE_MAX); }

Task<bool> SimClient::tell(BsonDoc command) {
  return send_first(std::move(command), SIZE_MAX, wire::flags::more_to_come);
}

Task<bool> SimClient::send_part(BsonDoc command, std::size_t bytes) {
  return send_first(std::move(command), bytes);
}

Task<bool> SimClient::send_first(BsonDoc command, std::size_t bytes, std::uint32_t flags) {
  check_nothing_came();
  if (!transport_) transport_ = dial_();
  if (!transport_) co_return false;
  const std::int32_t id = next_request_id_++;
  if ((flags & wire::flags::more_to_come) == 0) expected_.push_back(id);
  std::vector<std::uint8_t> message;
  wire::begin_op_msg(message, id, 0, flags);
  wire::append_body(message, command);
  wire::finish_op_msg(message);
  if (compressor) message = packed(*compressor, message);
  auto writing = write(std::move(message), bytes);
  co_return co_await writing;
}

Task<bool> SimClient::kill_cursors(std::vector<std::int64_t> ids) {
  check_nothing_came();
  if (!transport_) transport_ = dial_();
  if (!transport_) co_return false;
  std::vector<std::uint8_t> message(limits::message_header_bytes + 8 + 8 * ids.size());
  wire::write_header(message.data(), {static_cast<std::int32_t>(message.size()), next_request_id_++, 0,
                                      static_cast<std::int32_t>(wire::OpCode::kill_cursors)});
  store_le(message.data() + 20, static_cast<std::int32_t>(ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) store_le(message.data() + 24 + 8 * i, ids[i]);
  auto writing = write(std::move(message), SIZE_MAX);
  co_return co_await writing;
}

Task<bool> SimClient::write(std::vector<std::uint8_t> message, std::size_t bytes) {
  iovec piece{message.data(), std::min(bytes, message.size())};
  waiting_ = true;
  auto writing = write_all(*transport_, {&piece, 1});
  const bool written = co_await writing;
  waiting_ = false;
  if (!written) broken("");
  co_return written;
}

Task<bool> SimClient::read(MutableBytes into) {
  while (!into.empty()) {
    const std::size_t size = pace_bytes > 0 ? std::min(pace_bytes, into.size()) : into.size();
    auto reading = read_exactly(*transport_, into.first(size));
    const bool complete = co_await reading;
    if (!complete) co_return false;
    into = into.subspan(size);
    if (pace_bytes > 0) co_await transport_->loop().sleep_for(pace_pause);
    while (holds) co_await transport_->loop().sleep_for(std::chrono::milliseconds(10));
  }
  co_return true;
}

Task<bool> SimClient::read_bytes(std::size_t bytes) {
  std::vector<std::uint8_t> ignored(bytes);
  auto reading = read(ignored);
  co_return co_await reading;
}

Task<std::optional<BsonDoc>> SimClient::receive() {
  if (!transport_ || expected_.empty()) co_return std::nullopt;
  waiting_ = true;
  std::vector<std::uint8_t> message(limits::message_header_bytes);
  auto reading_header = read(message);
  const bool has_header = co_await reading_header;
  if (!has_header) co_return broken("");
  const auto header = wire::parse_header(message);
  if (header.has_error()) co_return broken("a reply's header is wrong: " + header.error().message);
  if (header->response_to != expected_.front()) {
    co_return broken(
        fmt::format("a reply to {} came for {}", header->response_to, expected_.front()));
  }
  message.resize(static_cast<std::size_t>(header->message_length));
  auto reading = read(MutableBytes(message).subspan(limits::message_header_bytes));
  const bool complete = co_await reading;
  if (!complete) co_return broken("");
  last_was_compressed_ = header->is(wire::OpCode::compressed);
  if (last_was_compressed_) {
    auto plain = unpacked(*header, message);
    if (plain.has_error()) co_return broken("a compressed reply is wrong: " + plain.error().message);
    message = *std::move(plain);
  }
  const auto parsed = wire::parse_op_msg_reply(message);
  if (parsed.has_error()) co_return broken("a reply does not parse: " + parsed.error().message);
  if (parsed->has_flag(wire::flags::more_to_come)) co_return broken("a reply announces more");
  const auto valid = parsed->body.validate();
  if (valid.has_error()) co_return broken("a reply is not well-formed: " + valid.error().message);
  expected_.pop_front();
  waiting_ = false;
  co_return BsonDoc(parsed->body);
}

}  // namespace spillway::test
