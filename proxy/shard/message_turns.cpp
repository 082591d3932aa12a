#include "proxy/shard/message_turns.h"

#include <algorithm>
#include <utility>

#include "allocator/limits.h"
#include "cursor/bson_validator.h"
#include "proxy/base/time_slice.h"
#include "proxy/wire/message_packer.h"

namespace spillway::shard {

namespace {
constexpr std::size_t elements_per_step = 256;
}  // namespace

using wire::MessagePacker;
using wire::MessageUnpacker;

Task<Result<void>> unpack_in_turns(Pump& pump, MemoryBudget& budget, wire::MessageHeader outer,
                                   const wire::CompressedHeader& envelope, MutableBytes into) {
  const wire::Compressor compressor = envelope.compressor;
  // No compressor makes a message so much longer; blocks without content take as much time as others.
  constexpr std::size_t longer_max = 64 * limits::kib;
  if (envelope.payload.size() > 2 * into.size() + longer_max) {
    co_return Error(ErrorCode::bad_value, "a compressed message is far longer than what it holds");
  }
  std::optional<Reservation> scratch;
  if (std::max(into.size(), envelope.payload.size()) > MessageUnpacker::at_once_bytes_max(compressor)) {
    scratch = budget.try_reserve(MessageUnpacker::scratch_bytes(compressor));
  }
  if (!scratch) co_return wire::decompress_message(outer, envelope, into);
  MessageUnpacker unpacker(outer, envelope, into);
  TimeSlice slice(pump);
  for (;;) {
    const auto stepped = unpacker.step();
    if (stepped.has_error()) co_return stepped.error();
    if (*stepped) co_return Result<void>();
    if (slice.is_over(MessageUnpacker::step_bytes)) co_await slice.next();
  }
}

Task<std::optional<Buffer>> pack_in_turns(Pump& pump, MemoryBudget& budget, wire::Compressor compressor,
                                          std::span<const iovec> pieces, wire::MessageHeader header) {
  const auto bytes = static_cast<std::size_t>(header.message_length);
  const std::size_t packed_max = wire::compressed_message_size_max(compressor, bytes);
  if (packed_max > limits::message_bytes_max) co_return std::nullopt;
  auto packed = Buffer::allocate(budget, packed_max);
  if (!packed) co_return std::nullopt;
  Result<std::size_t> done = std::size_t{0};
  if (bytes <= MessagePacker::at_once_bytes_max(compressor)) {
    auto plain = Buffer::allocate(budget, bytes);
    if (!plain) co_return std::nullopt;
    for (const iovec& piece : pieces) plain->append(piece.iov_base, piece.iov_len);
    done = wire::compress_message(compressor, plain->bytes(), {packed->data(), packed_max});
  } else {
    const auto scratch = budget.try_reserve(MessagePacker::scratch_bytes(compressor));
    if (!scratch) co_return std::nullopt;
    MessagePacker packer(compressor, header, {packed->data(), packed_max});
    TimeSlice slice(pump);
    std::size_t skip = limits::message_header_bytes;  // the first piece has it
    for (const iovec& piece : pieces) {
      Bytes rest =
          Bytes(static_cast<const std::uint8_t*>(piece.iov_base), piece.iov_len).subspan(std::exchange(skip, 0));
      while (!rest.empty()) {
        const Bytes now = rest.first(std::min(rest.size(), MessagePacker::step_bytes));
        rest = rest.subspan(now.size());
        if (!packer.add(now)) co_return std::nullopt;
        if (slice.is_over(now.size())) co_await slice.next();
      }
    }
    done = packer.finish();
  }
  if (done.has_error()) co_return std::nullopt;
  packed->set_size(*done);
  co_return std::move(packed);
}

Task<bool> is_valid_in_turns(Pump& pump, DocView document) {
  TimeSlice slice(pump);
  BsonValidator validator(document);
  for (;;) {
    const auto stepped = validator.step(elements_per_step);
    if (stepped.has_error()) co_return false;
    if (*stepped) co_return true;
    if (slice.is_over(4 * limits::kib)) co_await slice.next();
  }
}

}  // namespace spillway::shard
