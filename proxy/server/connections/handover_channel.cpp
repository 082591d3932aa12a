#include "proxy/server/connections/handover_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "proxy/base/log.h"

namespace spillway::server {

namespace {

constexpr std::string_view form_name = "v";
constexpr auto retry_pause = std::chrono::milliseconds(5);

std::string error_text() { return std::generic_category().message(errno); }

// Room for the descriptors of one message.
using Control = std::array<char, CMSG_SPACE(HandoverChannel::descriptors_max * sizeof(int))>;

std::vector<FileDescriptor> descriptors_of(msghdr& packet) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&packet); part != nullptr; part = CMSG_NXTHDR(&packet, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      descriptors.emplace_back(number);
    }
  }
  return descriptors;
}

// Why these bytes are no message; empty: they are.
std::string take(Bytes bytes, HandoverChannel::Message& message) {
  const auto whole = DocView::parse(bytes);
  if (whole.has_error() || whole->size() != bytes.size() || whole->validate().has_error()) return "it is no document";
  const ValueView form = (*whole)[form_name];
  if (form.type != BsonType::int32 || form.as_int32() != handover_form) return "its form is another version's";
  const Element content = whole->first();
  if (!content.is_document()) return "it has no content";
  message.kind = content.name;
  message.body = BsonDoc(content.as_document());
  return {};
}

}  // namespace

std::pair<FileDescriptor, FileDescriptor> HandoverChannel::make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::runtime_error(fmt::format("no pair of sockets: {}", error_text()));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

HandoverChannel::Message HandoverChannel::message(std::string_view kind, const BsonDoc& body) {
  return {std::string(kind), body, {}, {}};
}

HandoverChannel::HandoverChannel(Loop& loop, FileDescriptor socket)
    : loop_(loop), socket_(loop.io().get_executor()) {
  boost::system::error_code failed;
  socket_.assign(socket.get(), failed);
  if (failed) throw std::runtime_error(fmt::format("the hand-over's socket: {}", failed.message()));
  static_cast<void>(socket.release());
}

HandoverChannel::Got HandoverChannel::read_message(Message& message, std::string& why) {
  std::array<std::uint8_t, message_bytes_max> bytes;
  alignas(cmsghdr) Control control;
  iovec piece{bytes.data(), bytes.size()};
  msghdr packet{};
  packet.msg_iov = &piece;
  packet.msg_iovlen = 1;
  packet.msg_control = control.data();
  packet.msg_controllen = control.size();
  ssize_t got = ::recvmsg(socket_.native_handle(), &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ECONNRESET) {
    // It has gone without reading everything. This is told once, before what it has said.
    got = ::recvmsg(socket_.native_handle(), &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Got::nothing;
  if (got <= 0) {
    why = got == 0 ? "the other process has gone" : error_text();
    return Got::end;
  }
  message.descriptors = descriptors_of(packet);  // those of a bad message are closed
  const bool is_short_of_files = (packet.msg_flags & MSG_CTRUNC) != 0 && message.descriptors.size() < descriptors_max;
  if (is_short_of_files) {
    log::error("what the other process passes is lost: no file can be opened (LimitNOFILE=, ulimit -n)");
  }
  if ((packet.msg_flags & MSG_TRUNC) != 0 || ((packet.msg_flags & MSG_CTRUNC) != 0 && !is_short_of_files)) {
    why = "a message of the other process is too long";
    return Got::end;
  }
  if (const std::string bad = take(Bytes(bytes).first(static_cast<std::size_t>(got)), message); !bad.empty()) {
    why = fmt::format("what the other process says is no message: {}", bad);
    return Got::end;
  }
  return Got::message;
}

HandoverChannel::Message HandoverChannel::wait_for_message(std::chrono::milliseconds most) {
  const TimePoint end = Clock::now() + most;
  for (;;) {
    Message message;
    std::string why;
    const Got got = read_message(message, why);
    if (got == Got::message) return message;
    if (got == Got::end) throw std::runtime_error(why);
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd one{socket_.native_handle(), POLLIN, 0};
    if (rest <= 0 || ::poll(&one, 1, static_cast<int>(rest)) == 0) {
      throw std::runtime_error(fmt::format("the other process has said nothing for {} ms", most.count()));
    }
  }
}

void HandoverChannel::start(std::function<void(Message)> heard, std::function<void(const std::string&)> ended) {
  heard_ = std::move(heard);
  ended_ = std::move(ended);
  wait_for_more();
}

void HandoverChannel::wait_for_more() {
  socket_.async_wait(decltype(socket_)::wait_read, [this](const boost::system::error_code& failed) {
    if (failed || !socket_.is_open()) return;  // aborted: closed, perhaps destroyed
    for (;;) {
      Message message;
      std::string why;
      const Got got = read_message(message, why);
      if (got == Got::end) return end(why);
      if (got == Got::nothing) return wait_for_more();
      heard_(std::move(message));
      if (!socket_.is_open()) return;
    }
  });
}

void HandoverChannel::send(Message message) {
  if (!socket_.is_open()) return;
  unsent_.push_back(std::move(message));
  if (!writes_) write();
}

void HandoverChannel::write() {
  while (!unsent_.empty()) {
    const Put put = write_one(unsent_.front());
    if (put != Put::done) writes_ = true;
    if (put == Put::refused) return loop_.arm(*this, Clock::now() + retry_pause);
    if (put == Put::full) {
      socket_.async_wait(decltype(socket_)::wait_write, [this](const boost::system::error_code& failed) {
        if (failed || !socket_.is_open()) return;
        writes_ = false;
        write();
      });
      return;
    }
    unsent_.pop_front();
  }
}

void HandoverChannel::on_timer() {
  writes_ = false;
  write();
}

// Full: the socket is. Refused: the kernel has too many descriptors on their way, or no memory, and nothing tells the
// end of that. Other failures drop the message: the channel's end is heard by reading.
HandoverChannel::Put HandoverChannel::write_one(const Message& message) {
  BsonWriter writer;
  writer.append(message.kind, message.body).append(form_name, handover_form);
  const BsonDoc whole = std::move(writer).finish();
  iovec piece{const_cast<std::uint8_t*>(whole.view().data()), whole.size()};
  alignas(cmsghdr) Control control{};
  msghdr packet{};
  packet.msg_iov = &piece;
  packet.msg_iovlen = 1;
  if (const std::size_t count = message.descriptors.size(); count > 0) {
    packet.msg_control = control.data();
    packet.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&packet);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      const int number = message.descriptors[i].get();
      std::memcpy(CMSG_DATA(part) + i * sizeof number, &number, sizeof number);
    }
  }
  const ssize_t sent = ::sendmsg(socket_.native_handle(), &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return Put::done;
  if (errno == EAGAIN) return Put::full;
  return errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM ? Put::refused : Put::done;
}

void HandoverChannel::end(const std::string& why) {
  close();
  if (ended_) ended_(why);
}

void HandoverChannel::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  loop_.disarm(*this);
  unsent_.clear();
}

}  // namespace spillway::server
