// HandoverChannel: what a process and the one that replaces it say to each other, over a pair of Unix sockets.
//
// A message is one packet: a BSON document {<kind>: {…}, v: <form>}, and file descriptors. What is longer than
// message_bytes_max, holds more than descriptors_max descriptors, is no such document or has another form ends the
// channel. Descriptors that this process may not open any more are missing. A message that does not fit into the socket
// waits; its sender bounds how many there are.
//
// Belongs to the main thread's loop.
#pragma once

#include <boost/asio/posix/basic_stream_descriptor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/loop.h"

namespace spillway::server {

// Of a message's form: a process refuses to replace one that speaks another.
inline constexpr std::int32_t handover_form = 1;

class HandoverChannel final : private Timer {
 public:
  static constexpr std::size_t message_bytes_max = 16 * 1024;
  static constexpr std::size_t descriptors_max = 128;

  struct Message {
    std::string kind;
    BsonDoc body;
    std::vector<FileDescriptor> descriptors;
    Reservation room;  // pays for it until it has left
  };
  // Both ends; not inherited by other programs. Throws std::runtime_error.
  static std::pair<FileDescriptor, FileDescriptor> make_pair();
  static Message message(std::string_view kind, const BsonDoc& body);

  HandoverChannel(Loop& loop, FileDescriptor socket);
  ~HandoverChannel() override { loop_.disarm(*this); }
  HandoverChannel(const HandoverChannel&) = delete;
  HandoverChannel& operator=(const HandoverChannel&) = delete;

  // Blocks. Throws std::runtime_error: nothing came in time, or no message.
  Message wait_for_message(std::chrono::milliseconds most);
  // From now on each message goes to `heard`; `ended`, once, has why: the other end has gone, or has said what is no
  // message. Neither is called after close(). Both may close the channel, but not destroy it.
  void start(std::function<void(Message)> heard, std::function<void(const std::string& why)> ended);
  // Dropped if the channel has ended.
  void send(Message message);
  // The kernel has all that was sent: the other end gets it, even if this process ends.
  bool all_sent() const noexcept { return unsent_.empty(); }
  void close();

 private:
  enum class Got : std::uint8_t { message, nothing, end };
  Got read_message(Message& message, std::string& why);
  void wait_for_more();
  void write();
  enum class Put : std::uint8_t { done, full, refused };
  Put write_one(const Message& message);
  void on_timer() override;
  void end(const std::string& why);

  Loop& loop_;
  asio::posix::basic_stream_descriptor<asio::io_context::executor_type> socket_;
  std::deque<Message> unsent_;
  bool writes_ = false;  // waits for room in the socket, or for the timer
  std::function<void(Message)> heard_;
  std::function<void(const std::string&)> ended_;
};

}  // namespace spillway::server
