// Transport: the only door to the network. A byte stream that is read and written without blocking,
// and waited for. Implementations: TCP (tcp_transport.h) and the simulated one of the tests.
//
// Belongs to one loop's thread. At most one waiter per direction at a time.
#pragma once

#include <sys/uio.h>

#include <coroutine>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cursor/bson_view.h"
#include "cursor/error.h"
#include "proxy/base/file_descriptor.h"
#include "proxy/base/loop.h"
#include "proxy/base/task.h"

namespace spillway {

struct IoResult {
  enum class Status : std::uint8_t {
    ok,           // `bytes` were moved; on a read, > 0
    would_block,  // nothing now: wait
    closed,       // the peer ended its stream (reads only)
    failed,       // the connection is broken
  };
  Status status = Status::ok;
  std::size_t bytes = 0;

  bool ok() const noexcept { return status == Status::ok; }
  bool would_block() const noexcept { return status == Status::would_block; }
};

// Called once, from the loop, never from inside wait().
class IoWaiter {
 public:
  virtual void on_ready(bool aborted) = 0;

 protected:
  ~IoWaiter() = default;
};

struct PeerCertificate {
  std::string subject;       // RFC 2253, UTF-8
  bool names_roles = false;  // in MongoDB's extension for them
};

class Transport {
 public:
  enum class Direction : std::uint8_t { read, write };

  virtual ~Transport() = default;
  virtual Loop& loop() noexcept = 0;
  // Before the first read or write: the handshake with the peer, as of TLS. Most transports have none.
  // SSLHandshakeFailed(141), NetworkTimeout(89).
  virtual Task<Result<void>> establish(TimePoint deadline);
  virtual IoResult try_read(MutableBytes into) = 0;
  // May move fewer bytes than given. At most 64 pieces are looked at. REQUIRES that bytes given before and not moved
  // (would_block: all of them) come first, whole; they may lie elsewhere now, and more may follow: TLS has encrypted
  // some of them already, and moves those.
  virtual IoResult try_write(std::span<const iovec> pieces) = 0;
  // Where bytes can pass through a pipe without being copied (splice.h). splice_from() moves up to `bytes` into an
  // empty pipe, splice_from() moves a pipe's bytes out. REQUIRES that no bytes must be given to try_write() again.
  virtual bool can_splice() const noexcept { return false; }
  virtual IoResult splice_into(int pipe, std::size_t bytes);
  virtual IoResult splice_from(int pipe, std::size_t bytes);
  // Calls `waiter` when the direction is ready (or the stream ended), or aborted by cancel() or close().
  virtual void wait(Direction direction, IoWaiter& waiter) = 0;
  // Aborts both directions' waits; the stream stays usable.
  virtual void cancel() = 0;
  // Aborts waits, ends the stream. Idempotent. After it, reads and writes fail.
  virtual void close() = 0;
  // How much unread data the kernel may hold, as SO_RCVBUF takes it; only grows. No effect without a kernel.
  virtual void grow_receive_buffer(int bytes) { static_cast<void>(bytes); }
  // A wait for reading may last until this many bytes can be read, or the stream has ended. At first 1: any byte. No
  // effect without a kernel.
  virtual void set_read_low_water(std::size_t bytes) { static_cast<void>(bytes); }
  // Do its buffers hold memory that others need? Then it is best closed while it is idle.
  virtual bool holds_wanted_memory() const noexcept { return false; }
  // Did the connection break because the peer took nothing, or answered nothing, for too long? Valid once a read or a
  // write has failed.
  virtual bool timed_out() const noexcept { return false; }
  // Can another process go on with its socket?
  virtual bool can_release() const noexcept { return false; }
  // The socket, for another process: nothing is waited for, read or written any more. REQUIRES can_release().
  virtual FileDescriptor release() { return {}; }
  // Closes with a reset, so that the peer cannot mistake a part for the whole.
  virtual void reset() = 0;
  // Has the peer ended its stream, or the connection broken? What it sent before may still be unread.
  virtual bool peer_hung_up() const noexcept = 0;
  // Of the peer's certificate, if our CA file vouches for it; else empty.
  virtual PeerCertificate peer_certificate() const { return {}; }
  virtual const std::string& peer() const noexcept = 0;   // "127.0.0.1:5000"
  virtual const std::string& local() const noexcept = 0;  // our end
};

// co_await ReadyWait(transport, direction, deadline): true when ready, false when aborted or the deadline
// passed (timed_out() tells which; a wait that timed out has cancelled the transport's other wait too).
class ReadyWait final : public IoWaiter, public Timer {
 public:
  ReadyWait(Transport& transport, Transport::Direction direction,
            TimePoint deadline = time_point_never)
      : transport_(transport), direction_(direction), deadline_(deadline) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (deadline_ != time_point_never) transport_.loop().arm(*this, deadline_);
    transport_.wait(direction_, *this);
  }
  bool await_resume() const noexcept { return !aborted_ && !timed_out_; }
  bool timed_out() const noexcept { return timed_out_; }

  void on_ready(bool aborted) override {
    aborted_ = aborted;
    transport_.loop().disarm(*this);
    std::exchange(waiter_, nullptr).resume();
  }
  void on_timer() override {
    timed_out_ = true;
    transport_.cancel();  // on_ready follows, from the loop
  }

 private:
  Transport& transport_;
  Transport::Direction direction_;
  TimePoint deadline_;
  std::coroutine_handle<> waiter_;
  bool aborted_ = false;
  bool timed_out_ = false;
};

// co_await WriteAll(transport, pieces, deadline): writes all the pieces, waiting as needed. False: the connection
// failed or the deadline passed. Takes no frame where the socket takes everything at once. `pieces` are used up.
// `first_tried` gets the time when the first attempt to write returned.
class [[nodiscard]] WriteAll {
 public:
  WriteAll(Transport& transport, std::span<iovec> pieces, TimePoint deadline = time_point_never,
           TimePoint* first_tried = nullptr)
      : transport_(transport), pieces_(pieces), deadline_(deadline), first_tried_(first_tried) {}
  bool await_ready() { return write_some() != Progress::blocked; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    rest_.emplace(write_rest());
    return rest_->await_suspend(waiter);
  }
  bool await_resume() const noexcept { return pieces_.empty(); }
  // The unwritten bytes, once the wait is over.
  std::span<iovec> rest() const noexcept { return pieces_; }

 private:
  enum class Progress : std::uint8_t { all, blocked, failed };
  Progress write_some();
  Task<void> write_rest();

  Transport& transport_;
  std::span<iovec> pieces_;
  TimePoint deadline_;
  TimePoint* first_tried_;
  std::optional<Task<void>> rest_;
};
inline WriteAll write_all(Transport& transport, std::span<iovec> pieces,
                          TimePoint deadline = time_point_never, TimePoint* first_tried = nullptr) {
  return {transport, pieces, deadline, first_tried};
}
// Reads exactly into.size() bytes.
Task<bool> read_exactly(Transport& transport, MutableBytes into, TimePoint deadline = time_point_never);
std::size_t bytes_of(std::span<const iovec> pieces) noexcept;
// Drops the first `bytes` of `pieces`, which are written. Returns the rest.
std::span<iovec> advance_pieces(std::span<iovec> pieces, std::size_t bytes) noexcept;

// How a loop reaches the network: resolves and connects. One per loop.
class Network {
 public:
  virtual ~Network() = default;
  // HostNotFound(7), HostUnreachable(6) or NetworkTimeout(89) on failure.
  virtual Task<Result<std::unique_ptr<Transport>>> connect(std::string host, std::uint16_t port,
                                                           TimePoint deadline) = 0;
};

}  // namespace spillway
