// A network in memory, on virtual time: the Network and Transport of simulations. Everything that
// happens follows from the seed and from what the test does. Loops are of Drive::manual; link
// clock_manual.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proxy/base/transport.h"

namespace spillway::test {

// How the network misbehaves. By default it has no faults and takes no time.
struct FaultOptions {
  std::uint64_t seed = 1;
  // Each piece that is written takes this long to arrive; pieces stay in order.
  Duration latency_min{};
  Duration latency_max{};
  std::size_t window_bytes = 64 * 1024;  // under way and unread, per direction
  std::size_t read_bytes_max = 0;        // one read gives at most this much; 0: no bound
  std::size_t write_bytes_max = 0;       // one write takes at most this much; 0: no bound
  unsigned partial_read_percent = 0;     // a read gives a random part of what is there
  unsigned partial_write_percent = 0;    // a write takes a random part
  unsigned would_block_percent = 0;      // a write that could go on must wait
  unsigned refuse_percent = 0;           // of attempts to connect
  bool lacks_files = false;              // this process may open no more: attempts to connect fail
  unsigned reset_permille = 0;           // of writes: the connection breaks after it
  unsigned half_close_permille = 0;      // of writes: the peer sees the end, later bytes get lost
  unsigned corrupt_permille = 0;         // of writes: a bit of it is flipped
  unsigned stall_permille = 0;           // of writes: it takes `stall` longer to arrive
  Duration stall = std::chrono::seconds(1);
  bool splices = true;  // bytes can pass through pipes, which are the kernel's own
  bool memory_is_wanted_back = false;  // what holds_wanted_memory() says

  // A mixture for this seed, in which each kind of fault is off as often as not. Corruption stays
  // off.
  static FaultOptions swarm(std::uint64_t seed);
};

// A fault that happens once, after this many bytes in one direction: a test can try every byte offset of a
// conversation.
struct ByteFault {
  enum class Kind {
    split,       // what is before it arrives, the rest has to wait
    reset,       // what is before it arrives, then the connection breaks
    half_close,  // what is before it arrives, then the stream's end; the rest gets lost
    time_out,    // what is before it arrives, then the writer's kernel gives up its peer
  };
  Kind kind = Kind::split;
  bool to_host = true;         // true: towards the listener
  std::uint64_t at_bytes = 0;  // counted over all of a host's connections, from when this was given
  Duration pause = std::chrono::milliseconds(20);  // until the rest may leave, or the connection breaks
};

struct SimHost;
class SimLink;

// Belongs to one loop's thread, as do its transports. Transports may outlive it.
class SimNetwork final : public Network {
 public:
  using Handler = std::function<Task<void>(std::unique_ptr<Transport>)>;

  explicit SimNetwork(Loop& loop, const FaultOptions& faults = {});
  ~SimNetwork() override;

  // Each connection to host:port starts `handler` (a function that returns a coroutine) as a task
  // of its own. A second call replaces the handler, and brings the host back.
  void listen(const std::string& host, std::uint16_t port, Handler handler);

  // The process has ended: its connections are reset, new ones refused.
  void kill(const std::string& host, std::uint16_t port);
  // The process has been stopped: its kernel still accepts, nothing is answered. thaw() lets it go
  // on.
  void freeze(const std::string& host, std::uint16_t port);
  void thaw(const std::string& host, std::uint16_t port);
  // The machine is gone: attempts to connect are not answered (SYNs are repeated after 1, 3, 7… s),
  // bytes do not arrive.
  void vanish(const std::string& host, std::uint16_t port);
  void reappear(const std::string& host, std::uint16_t port);

  Task<Result<std::unique_ptr<Transport>>> connect(std::string host, std::uint16_t port,
                                                   TimePoint deadline) override;
  // The client's end of a new connection to host:port, at once; null when no handler listens there.
  std::unique_ptr<Transport> connect_client(const std::string& host, std::uint16_t port);
  // Two ends, and no host in between.
  std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> pair();

  void set_faults(const FaultOptions& faults);
  // For the connections of one host, or, with an empty name, for those of pair(). False as an answer: it has not
  // happened yet.
  void set_byte_fault(const std::string& host, std::uint16_t port, const ByteFault& fault);
  bool byte_fault_happened(const std::string& host, std::uint16_t port);
  // How many bytes passed since set_byte_fault().
  std::uint64_t bytes_passed(const std::string& host, std::uint16_t port, bool to_host);
  // Calls `told` whenever bytes to or from a host got lost, or a connection to it was refused.
  void tell_losses(const std::string& host, std::uint16_t port, std::function<void()> told);
  // Connections to a host that their caller has not closed.
  std::size_t dialled_connections(const std::string& host, std::uint16_t port);
  std::size_t open_connections(const std::string& host, std::uint16_t port);
  std::uint64_t connections_made() const noexcept { return connections_made_; }
  std::uint64_t bytes_written() const noexcept;

 private:
  friend class SimLink;
  struct World;  // the loop, the faults and their dice: outlives the network in its links
  std::shared_ptr<SimHost> host(const std::string& name, std::uint16_t port);
  std::unique_ptr<Transport> establish(const std::shared_ptr<SimHost>& host);
  static void resume(SimHost& host, Loop& loop);

  std::shared_ptr<World> world_;
  std::map<std::pair<std::string, std::uint16_t>, std::shared_ptr<SimHost>> hosts_;
  std::uint64_t connections_made_ = 0;
};

// Runs the loop on virtual time, timer by timer, until `done` holds or `limit` has passed. What
// done() says.
bool run_until(Loop& loop, const std::function<bool()>& done, Duration limit);
// Runs it for that long.
void run_for(Loop& loop, Duration time);

}  // namespace spillway::test
