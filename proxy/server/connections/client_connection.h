// ClientConnection: one client connection. A coroutine reads a message, runs it, writes the reply, and so
// on, on one worker for the connection's whole life. Requests are answered strictly in order; bytes
// that a client pipelines wait.
//
// An idle connection holds no buffer: it waits for the socket, reads into the worker's scratch, and
// takes a buffer of the message's own size once that is known and checked.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/buffer.h"
#include "proxy/base/tls_transport.h"
#include "proxy/base/transport.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/commands/connection_end.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/server/connections/moved_client.h"
#include "proxy/server/connections/socket_buffers.h"
#include "proxy/wire/compression.h"
#include "proxy/wire/hello.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"
#include "proxy/wire/op_query.h"
#include "proxy/wire/proxy_header.h"

namespace spillway::server {

// Shared by the connections of one worker.
struct ConnectionEnvironment {
  exec::Context& context;
  MutableBytes scratch;  // for first reads; content is lost at the next suspension
  std::span<const wire::Compressor> compressors;  // enabled towards clients
  SocketBuffers socket_buffers;
  PlainText plain_text = PlainText::allowed;
  // The process that this one replaces; null: none.
  std::shared_ptr<OlderProcess> older = nullptr;
  // Gives clients to the process that replaces this one; empty: there is none.
  std::function<void(MovedClient)> leave_to = {};
  // Requests of relayed connections that are under way. Any thread reads it.
  std::atomic<std::int64_t> relayed_requests{0};
};
// The port through which a connection came.
enum class Entrance : std::uint8_t { clients, load_balancers };

class ClientConnection {
 public:
  ClientConnection(ConnectionEnvironment& environment, std::unique_ptr<Transport> transport,
          std::int64_t connection_id, Entrance entrance = Entrance::clients);
  // Goes on with a client of another process.
  ClientConnection(ConnectionEnvironment& environment, std::unique_ptr<Transport> transport, const MovedClient& moved);
  ~ClientConnection();

  // Serves until the client leaves, breaks the protocol, or close() is called.
  Task<void> run();
  // Makes run() come to its end: for a shutdown. With `drain` the request under way is finished first; a hello that
  // waits for a change is answered at once.
  void close(bool drain);
  // Answers a hello that waits for a change: the change has come. (A client that leaves is asked in its turn.)
  void wake_hello();
  // The environment's leave_to is there: after the request under way, if any, the client leaves by it, if it can.
  void ask_to_leave();
  // Does not speak TLS, and is not in the middle of logging in.
  bool may_leave() const noexcept;
  bool relayed() const noexcept { return relayed_; }
  // Has it waited so long for its next request?
  bool idle_for(Duration time) const noexcept { return idle_ && Clock::now() - std::max(received_, begun_) >= time; }
  // For a shutdown whose grace period has ended: reads end at once, writes before their next statement.
  void interrupt(Error why) { client_.interrupt.request(std::move(why)); }
  // Ends the reads of a long operation if its client has left. Called now and then.
  void notice_absent_client(TimePoint now);
  // Whether its client has been silent for too long. Called now and then: compares with the last call.
  enum class Silence : std::uint8_t { none, never_spoke, stopped_sending, idle };
  Silence notice_silence(TimePoint now);
  // Closes the connection for that reason.
  void close_silent(Silence silence);

 private:
  // A reply as it leaves: must not move until it is written.
  struct Framed {
    std::array<std::uint8_t, wire::op_msg_prefix_bytes> prefix;
    std::uint32_t crc = 0;
    absl::InlinedVector<iovec, 6, RecyclingAllocator<iovec>> pieces;
    std::span<iovec> pieces_span() noexcept { return {pieces.data(), pieces.size()}; }
  };

  // How long a client that is refused by its address has to read the reason.
  static constexpr Duration refused_patience = std::chrono::seconds(2);

  // When the first message must be complete; never: it is complete, or has no limit.
  TimePoint handshake_end() const noexcept;
  bool balanced() const noexcept { return entrance_ == Entrance::load_balancers; }
  void attach_presence();
  Task<bool> answer_refused();

  // client_connection_balanced.cpp. Reads the load balancer's header, if there is one. False: the connection must
  // end.
  Task<bool> read_proxy_header();

  // client_connection_moved.cpp
  BsonDoc state() const;
  bool go_on_here();
  bool leaves() const noexcept;
  // After a refused message: was it asked to close, or to leave, meanwhile?
  bool ends_between_requests() noexcept {
    rests_ = !closing_ && leaves();
    return closing_ || rests_;
  }
  bool leave(DocView stream = {}, std::int32_t response_to = 0);
  Task<bool> go_on_streaming();
  bool reaches_older() const noexcept;
  bool is_unknown_cursor(std::int64_t id) const;
  bool belongs_to_older(const exec::Request& request) const;
  bool open_relay();
  void end_in_older();
  Task<bool> relay_can_be_read(TimePoint until);
  Task<bool> read_relay(MutableBytes into, TimePoint until);
  // What the client has got: the whole answer, nothing, or a part of it.
  enum class Relayed : std::uint8_t { answered, unanswered, broken };
  Task<Relayed> relay(bool silent, TimePoint until);
  // For commands that only end what there is: the older process may hang.
  static constexpr Duration ending_patience = std::chrono::seconds(10);
  static TimePoint older_until(const exec::Request& request);
  Task<bool> write_to_older(std::span<iovec> pieces, TimePoint until);
  bool is_wanted() const noexcept { return !closing_ && !transport_->peer_hung_up(); }
  Task<std::optional<Buffer>> take_relay_room(std::size_t bytes);
  Task<Result<wire::OpMsg>> ask_older(DocView command, MutableBytes room, TimePoint until);
  static bool ends_sessions(const exec::Request& request) noexcept;
  Task<Result<void>> end_sessions_in_older(const exec::Request& request);
  Task<Result<void>> kill_in_older(const exec::Request& request, std::vector<std::int64_t>& killed);
  Task<Result<void>> kill_some_in_older(const exec::Request& request, std::vector<std::int64_t> ids,
                                        std::vector<std::int64_t>& killed, TimePoint until);
  static exec::Response with_killed(const exec::Response& response, std::vector<std::int64_t> killed);

  // client_connection_read.cpp. Both fill message_ with one whole message, decompressed.
  // `part`: it goes on in read_message(). REQUIRES that no bytes are kept.
  enum class FirstRead : std::uint8_t { whole, part, gone };
  FirstRead read_first(std::size_t& have);
  // False: the connection must end.
  Task<bool> read_message(std::size_t have);
  MutableBytes room_for_first_read() const noexcept;
  enum class Admission : std::uint8_t { taken, refused, gone };
  bool is_stranger() const noexcept;
  bool too_large_for_a_stranger(std::size_t message_bytes) const noexcept;
  MemoryBudget& memory_for(std::size_t message_bytes, std::size_t have_bytes) const noexcept;
  Admission take_message(std::size_t message_bytes, Bytes have);
  bool keep_for_later(Bytes bytes);
  Task<Admission> wait_for_room(std::size_t message_bytes, Bytes have);
  class MessageStart;
  Task<Admission> refuse_message(std::size_t message_bytes, MessageStart start, std::size_t seen, Error why);
  Task<bool> answer_refusal(Bytes start, Error why);
  Task<bool> read_rest(std::size_t message_bytes);
  void grow_receive_buffer(std::size_t message_bytes);
  bool is_in_enabled_compressor(Bytes compressed_message) const noexcept;
  Task<Admission> decompress();

  // client_connection.cpp
  Task<bool> begin();
  Task<bool> begin_tls(TlsContext::Ptr tls);
  bool refuse_connection();
  Task<bool> handle_message();
  Task<bool> handle_op_msg();
  Task<bool> refuse(const Error& why, bool silent);
  Task<bool> handle_kill_cursors();
  Task<void> kill_cursors(std::string_view ns, std::span<const std::int64_t> ids);
  Task<bool> handle_unknown();

  // client_connection_hello.cpp
  Task<bool> handle_op_query();
  void encode_query_error(std::vector<std::uint8_t>& out, const wire::OpQuery& query, const Error& error);
  Task<Result<BsonDoc>> answer_query_command(const wire::OpQuery& query, DocView command, Reservation& copies);
  Task<bool> answer_hello(const exec::Request& request, bool exhaust);
  Result<wire::HelloRequest> take_hello(DocView command, bool exhaust);
  bool ends_connection(const Error& refused) const noexcept;
  Task<std::optional<exec::PlannedFailure>> fail_hello(const wire::HelloRequest& hello);
  BsonDoc hello_reply(const wire::HelloRequest& hello);
  void count_hello(std::string_view name, bool answered);
  Task<bool> stream_hello(const wire::HelloRequest& hello, DocView command, bool exhaust);
  Task<bool> wait_for_topology(std::int64_t seen, TimePoint until, bool& exhaust);

  // client_connection_reply.cpp
  void frame(const exec::Response& response, Framed& framed);
  Task<bool> write_response(exec::Response& response, TimePoint* first_tried = nullptr);
  Task<bool> write_watched(std::span<iovec> pieces, TimePoint* first_tried = nullptr);
  Task<bool> write_compressed(const exec::Response& response, TimePoint* first_tried);
  void note_inside(const shard::ShardTime& shards, TimePoint first_tried, std::size_t request_bytes,
                   std::size_t reply_bytes);
  bool is_compressed_request() const noexcept { return request_compressor_.has_value(); }
  bool compresses_replies() const noexcept {
    return is_compressed_request() && *request_compressor_ != wire::Compressor::noop;
  }

  ConnectionEnvironment& environment_;
  std::unique_ptr<Transport> transport_;
  exec::Client client_;
  Buffer message_;    // the request under way
  TimePoint received_{};  // when it was complete
  TimePoint arrived_{};   // the same, or the end of its wait for memory
  Buffer pipelined_;  // bytes behind it
  Reservation room_;            // the connection's memory outside of buffers
  Reservation receive_growth_;  // of the socket's receive buffer; kept, because the buffer cannot shrink
  wire::MessageHeader header_;
  std::optional<wire::Compressor> request_compressor_;
  wire::CompressorList negotiated_;
  Entrance entrance_;
  bool first_hello_ = true;
  exec::BegunTransactions transactions_, older_transactions_;  // in this process; in the one before
  bool checksum_ = false;
  bool closing_ = false;
  bool idle_ = false;
  bool in_header_ = false;  // waits for the rest of a message's header
  std::optional<Error> refused_;  // the connection is refused: the answer to its first message
  TimePoint begun_{};  // the start, later by the time that its first message waited for memory
  bool served_ = false;  // begin() is over
  std::uint64_t messages_ = 0;
  // The state that notice_silence() saw last, and since when.
  std::uint64_t seen_messages_ = 0;
  bool seen_idle_ = false, seen_in_header_ = false;
  TimePoint quiet_since_{};
  bool awaiting_hello_ = false;
  const bool moved_ = false, relayed_ = false;  // it comes from another process; by a relay
  bool lost_user_ = false;                      // which knew its user
  BsonDoc stream_;  // the hello whose stream it was in the middle of; {}: none
  bool asked_to_leave_ = false;  // while idle
  bool rests_ = false;           // asked_to_leave_ has ended a wait for the next request
  bool left_ = false;
  std::unique_ptr<Transport> relay_;  // to the older process; null: not needed yet
  std::string relay_user_;            // whose requests pass through it
  // Of the messages to the client: 1 comes after the largest.
  std::int32_t new_request_id() noexcept {
    return next_request_id_ == INT32_MAX ? std::exchange(next_request_id_, 1) : next_request_id_++;
  }

  std::int32_t next_request_id_ = 1;
};

}  // namespace spillway::server
