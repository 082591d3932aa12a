// A client in the simulated network: one connection at a time, requests in order. Checks what every
// client may rely on (one reply for each request, to that request, well-formed) and records each violation in
// violations().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/transport.h"
#include "proxy/wire/compression.h"

namespace spillway::test {

class SimClient {
 public:
  using Dial = std::function<std::unique_ptr<Transport>()>;
  explicit SimClient(Dial dial) : dial_(std::move(dial)) {}

  // Sends a command, connecting first if need be, and reads its reply. nullopt: the connection
  // ended. The command is kept until the reply is there.
  Task<std::optional<BsonDoc>> call(BsonDoc command);
  // The halves, for pipelining and for leaving between them.
  Task<bool> send(BsonDoc command);
  Task<std::optional<BsonDoc>> receive();
  // Sends the first bytes of a command and no more.
  Task<bool> send_part(BsonDoc command, std::size_t bytes);
  // Sends a command without a reply (moreToCome).
  Task<bool> tell(BsonDoc command);
  // Sends an OP_KILL_CURSORS, which has no reply.
  Task<bool> kill_cursors(std::vector<std::int64_t> ids);
  // Reads this many bytes of a reply and no more.
  Task<bool> read_bytes(std::size_t bytes);

  void close();
  void reset();
  bool connected() const noexcept { return transport_ != nullptr; }
  // Set: requests leave compressed; replies are taken as they come.
  std::optional<wire::Compressor> compressor;
  // Slow clients: pauses between two reads of this many bytes.
  std::size_t pace_bytes = 0;
  Duration pace_pause{};
  bool holds = false;  // reads nothing meanwhile; only with pace_bytes

  bool waiting() const noexcept { return waiting_; }  // for a reply
  bool last_was_compressed() const noexcept { return last_was_compressed_; }
  const std::vector<std::string>& violations() const noexcept { return violations_; }

 private:
  Task<bool> send_first(BsonDoc command, std::size_t bytes, std::uint32_t flags = 0);
  Task<bool> write(std::vector<std::uint8_t> message, std::size_t bytes);
  void check_nothing_came();
  Task<bool> read(MutableBytes into);
  std::optional<BsonDoc> broken(std::string what);

  Dial dial_;
  std::unique_ptr<Transport> transport_;
  std::deque<std::int32_t> expected_;  // request ids without a reply
  std::int32_t next_request_id_ = 1;
  bool waiting_ = false;
  bool last_was_compressed_ = false;
  std::vector<std::string> violations_;
};

}  // namespace spillway::test
