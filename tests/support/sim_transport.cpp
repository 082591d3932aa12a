#include "tests/support/sim_transport.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>

#include "proxy/base/check.h"
#include "tests/support/clock_manual.h"

namespace spillway::test {

namespace {
std::string host_text(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}
}  // namespace

FaultOptions FaultOptions::swarm(std::uint64_t seed) {
  std::mt19937_64 dice(seed * 0x9e3779b97f4a7c15u + 1);
  const auto sometimes = [&](unsigned max) {
    const std::uint64_t roll = dice();
    return roll % 2 == 0 ? 0u : static_cast<unsigned>(1 + (roll >> 8) % max);
  };
  FaultOptions faults;
  faults.seed = seed;
  faults.latency_max = std::chrono::microseconds(sometimes(5'000));
  faults.partial_read_percent = sometimes(50);
  faults.partial_write_percent = sometimes(50);
  faults.would_block_percent = sometimes(30);
  faults.refuse_percent = sometimes(10);
  faults.reset_permille = sometimes(10);
  faults.half_close_permille = sometimes(5);
  faults.stall_permille = sometimes(10);
  if (sometimes(4) == 4) faults.read_bytes_max = 1 + dice() % 64;
  if (sometimes(4) == 4) faults.write_bytes_max = 1 + dice() % 64;
  // Single bytes would take a pipe each.
  faults.splices = dice() % 2 == 0 && faults.read_bytes_max == 0 && faults.write_bytes_max == 0;
  return faults;
}

struct SimNetwork::World {
  explicit World(Loop& of, const FaultOptions& options)
      : loop(of), faults(options), dice(options.seed) {}

  bool percent(unsigned chance) { return chance != 0 && dice() % 100 < chance; }
  bool permille(unsigned chance) { return chance != 0 && dice() % 1000 < chance; }
  std::size_t up_to(std::size_t max) { return 1 + static_cast<std::size_t>(dice() % max); }
  Duration latency() {
    const auto spread = (faults.latency_max - faults.latency_min).count();
    if (spread <= 0) return faults.latency_min;
    return faults.latency_min +
           Duration(static_cast<Duration::rep>(dice() % static_cast<std::uint64_t>(spread + 1)));
  }

  Loop& loop;
  FaultOptions faults;
  std::mt19937_64 dice;
  std::uint64_t bytes_written = 0;
};

struct SimHost {
  SimNetwork::Handler handler;
  std::string name;
  bool listening = false;
  bool frozen = false;
  bool vanished = false;
  std::vector<std::weak_ptr<SimLink>> links;
  std::vector<std::unique_ptr<Transport>> unaccepted;  // while it is frozen
  std::function<void()> told_losses;
  std::optional<ByteFault> byte_fault;
  std::uint64_t passed_bytes[2] = {};  // from end 0, from end 1
  void lost() const {
    if (told_losses) told_losses();
  }
  bool silent() const noexcept { return frozen || vanished; }
};

// A connection: one pipe for each direction. Ends are 0 (connected) and 1 (listened).
class SimLink : public std::enable_shared_from_this<SimLink> {
 public:
  SimLink(std::shared_ptr<SimNetwork::World> world, std::shared_ptr<SimHost> host)
      : world_(std::move(world)), host_(std::move(host)) {
    for (Pipe& pipe : pipes_) {
      pipe.link = this;
      pipe.resuming.pipe = &pipe;
    }
  }
  ~SimLink() { disarm(); }

  Loop& loop() const noexcept { return world_->loop; }
  bool open() const noexcept { return !reset_ && !(closed_[0] && closed_[1]); }
  bool dialled() const noexcept { return !reset_ && !closed_[0]; }

  IoResult read(int end, MutableBytes into) {
    if (closed_[index(end)] || reset_) return {IoResult::Status::failed, 0};
    Pipe& pipe = pipes_[index(1 - end)];
    if (pipe.readable.empty() || held(end)) {
      const bool ended = pipe.ended && pipe.readable.empty() && !held(end);
      return {ended ? IoResult::Status::closed : IoResult::Status::would_block, 0};
    }
    const FaultOptions& faults = world_->faults;
    std::size_t size = std::min(into.size(), pipe.readable.size());
    if (faults.read_bytes_max > 0) size = std::min(size, faults.read_bytes_max);
    if (world_->percent(faults.partial_read_percent)) size = world_->up_to(size);
    std::copy_n(pipe.readable.begin(), size, into.begin());
    pipe.readable.erase(pipe.readable.begin(),
                        pipe.readable.begin() + static_cast<std::ptrdiff_t>(size));
    pipe.load -= size;
    notify(pipe.writer);
    return {IoResult::Status::ok, size};
  }

  IoResult write(int end, std::span<const iovec> pieces) {
    if (closed_[index(end)] || reset_ || closed_[index(1 - end)]) {
      host_->lost();
      return {IoResult::Status::failed, 0};
    }
    Pipe& pipe = pipes_[index(end)];
    const FaultOptions& faults = world_->faults;
    if (pipe.paused_until > Clock::now()) return {IoResult::Status::would_block, 0};
    const std::size_t room = faults.window_bytes - std::min(faults.window_bytes, pipe.load);
    if (room == 0) return {IoResult::Status::would_block, 0};
    if (world_->percent(faults.would_block_percent)) return {IoResult::Status::would_block, 0};
    std::size_t size = 0;
    for (const iovec& piece : pieces.first(std::min<std::size_t>(pieces.size(), 64)))
      size += piece.iov_len;
    size = std::min(size, room);
    if (faults.write_bytes_max > 0) size = std::min(size, faults.write_bytes_max);
    if (size == 0) return {IoResult::Status::ok, 0};
    if (world_->percent(faults.partial_write_percent)) size = world_->up_to(size);
    const std::optional<ByteFault> fault = due_fault(end, size);
    if (size > 0) send(pipe, gather(pieces, size));
    host_->passed_bytes[index(end)] += size;
    if (fault) happen(pipe, *fault);
    if (size == 0) return {IoResult::Status::would_block, 0};  // it happened before the first byte
    if (world_->permille(faults.half_close_permille)) send_end(pipe);
    if (world_->permille(faults.reset_permille)) reset();
    return {IoResult::Status::ok, size};
  }

  bool can_splice() const noexcept { return world_->faults.splices; }

  bool timed_out(int end) const noexcept { return pipes_[index(end)].timed_out; }

  bool memory_is_wanted_back() const noexcept { return world_->faults.memory_is_wanted_back; }
  bool peer_hung_up(int end) const noexcept {
    return reset_ || (!held(end) && pipes_[index(1 - end)].ended);
  }

  void wait(int end, Transport::Direction direction, IoWaiter& waiter) {
    const bool reading = direction == Transport::Direction::read;
    IoWaiter*& slot = reading ? pipes_[index(1 - end)].reader : pipes_[index(end)].writer;
    SPILLWAY_CHECK(slot == nullptr);
    slot = &waiter;
    if (closed_[index(end)]) {
      notify(slot, true);
    } else if (reading ? can_read(end) : can_write(end)) {
      notify(slot);
    }
  }

  void cancel(int end) {
    notify(pipes_[index(1 - end)].reader, true);
    notify(pipes_[index(end)].writer, true);
  }

  void close(int end) {
    if (std::exchange(closed_[index(end)], true)) return;
    cancel(end);
    if (reset_) return;
    Pipe& incoming = pipes_[index(1 - end)];
    notify(incoming.writer);  // the peer's next write fails
    if (incoming.load > 0) {
      reset();  // what was not read is lost: the kernel says so
    } else {
      send_end(pipes_[index(end)]);
    }
  }

  void reset() {
    if (std::exchange(reset_, true)) return;
    if (pipes_[0].load + pipes_[1].load > 0) host_->lost();
    disarm();
    for (Pipe& pipe : pipes_) {
      notify(pipe.reader);
      notify(pipe.writer);
    }
  }

  // The host works again: what was held back arrives.
  void resume() {
    for (Pipe& pipe : pipes_) {
      if (pipe.held) pipe.on_timer();
      if (!pipe.readable.empty() || pipe.ended) notify(pipe.reader);
    }
  }

 private:
  struct Segment {
    TimePoint arrives;
    std::vector<std::uint8_t> bytes;
    bool end = false;
  };
  struct Pipe;
  struct Resuming final : Timer {
    Pipe* pipe = nullptr;
    bool breaks = false;
    bool times_out = false;
    void on_timer() override { pipe->link->resume_writer(*pipe); }
  };
  struct Pipe final : Timer {
    SimLink* link = nullptr;
    Resuming resuming;
    std::deque<Segment> under_way;
    std::deque<std::uint8_t> readable;
    std::size_t load = 0;  // bytes under way and readable
    bool end_sent = false;
    bool ended = false;
    bool held = false;
    bool timed_out = false;
    TimePoint paused_until = TimePoint::min();  // for its writer
    TimePoint last_arrival = TimePoint::min();
    IoWaiter* reader = nullptr;
    IoWaiter* writer = nullptr;
    void on_timer() override { link->deliver(*this); }
  };

  void disarm() noexcept {
    for (Pipe& pipe : pipes_) {
      world_->loop.disarm(pipe);
      world_->loop.disarm(pipe.resuming);
    }
  }

  static std::size_t index(int end) noexcept { return static_cast<std::size_t>(end); }
  // A stopped process does not read; no bytes pass to or from a machine that is gone.
  bool held(int end) const noexcept {
    return (host_->frozen && end == 1) || host_->vanished;
  }
  bool can_read(int end) const noexcept {
    const Pipe& pipe = pipes_[index(1 - end)];
    return reset_ || (!held(end) && (!pipe.readable.empty() || pipe.ended));
  }
  bool can_write(int end) const noexcept {
    const Pipe& pipe = pipes_[index(end)];
    return reset_ || closed_[index(1 - end)] ||
           (pipe.load < world_->faults.window_bytes && pipe.paused_until <= Clock::now());
  }

  // Is the host's fault within the next `size` bytes? Then `size` becomes what is before it.
  std::optional<ByteFault> due_fault(int end, std::size_t& size) {
    std::optional<ByteFault>& fault = host_->byte_fault;
    if (!fault || fault->to_host != (end == 0)) return std::nullopt;
    const std::uint64_t passed = host_->passed_bytes[index(end)];
    if (passed + size < fault->at_bytes) return std::nullopt;
    size = static_cast<std::size_t>(fault->at_bytes - passed);
    return std::exchange(fault, std::nullopt);
  }

  void happen(Pipe& pipe, const ByteFault& fault) {
    if (fault.kind == ByteFault::Kind::half_close) return send_end(pipe);
    pipe.paused_until = Clock::now() + fault.pause;
    pipe.resuming.breaks = fault.kind != ByteFault::Kind::split;
    pipe.resuming.times_out = fault.kind == ByteFault::Kind::time_out;
    world_->loop.arm(pipe.resuming, pipe.paused_until);
  }

  void resume_writer(Pipe& pipe) {
    pipe.timed_out = pipe.resuming.times_out;
    if (pipe.resuming.breaks) return reset();
    notify(pipe.writer);
  }

  std::vector<std::uint8_t> gather(std::span<const iovec> pieces, std::size_t size) {
    std::vector<std::uint8_t> bytes;
    bytes.reserve(size);
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const std::uint8_t*>(piece.iov_base);
      const std::size_t part = std::min(piece.iov_len, size - bytes.size());
      bytes.insert(bytes.end(), from, from + part);
    }
    if (world_->permille(world_->faults.corrupt_permille)) {
      bytes[world_->up_to(bytes.size()) - 1] ^=
          static_cast<std::uint8_t>(1u << (world_->dice() % 8));
    }
    world_->bytes_written += size;
    return bytes;
  }

  void send(Pipe& pipe, std::vector<std::uint8_t> bytes) {
    if (pipe.end_sent) return host_->lost();
    pipe.load += bytes.size();
    Duration latency = world_->latency();
    if (world_->permille(world_->faults.stall_permille)) latency += world_->faults.stall;
    enqueue(pipe, {Clock::now() + latency, std::move(bytes), false});
  }
  void send_end(Pipe& pipe) {
    if (std::exchange(pipe.end_sent, true)) return;
    enqueue(pipe, {Clock::now() + world_->latency(), {}, true});
  }
  void enqueue(Pipe& pipe, Segment segment) {
    segment.arrives = std::max(segment.arrives, pipe.last_arrival);
    pipe.last_arrival = segment.arrives;
    pipe.under_way.push_back(std::move(segment));
    if (!pipe.armed() && !pipe.held) world_->loop.arm(pipe, pipe.under_way.front().arrives);
  }

  void deliver(Pipe& pipe) {
    pipe.held = host_->silent();
    if (pipe.held) return;
    const TimePoint now = Clock::now();
    while (!pipe.under_way.empty() && pipe.under_way.front().arrives <= now) {
      Segment segment = std::move(pipe.under_way.front());
      pipe.under_way.pop_front();
      pipe.readable.insert(pipe.readable.end(), segment.bytes.begin(), segment.bytes.end());
      pipe.ended = pipe.ended || segment.end;
    }
    if (!pipe.under_way.empty() && !pipe.armed())
      world_->loop.arm(pipe, pipe.under_way.front().arrives);
    notify(pipe.reader);
  }

  void notify(IoWaiter*& slot, bool aborted = false) {
    if (slot == nullptr) return;
    IoWaiter* const waiter = std::exchange(slot, nullptr);
    world_->loop.post([waiter, aborted] { waiter->on_ready(aborted); });
  }

  std::shared_ptr<SimNetwork::World> world_;
  std::shared_ptr<SimHost> host_;
  std::array<Pipe, 2> pipes_;  // pipes_[e] carries what end e writes
  std::array<bool, 2> closed_{};
  bool reset_ = false;
};

namespace {

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimLink> link, int end, std::string peer, std::string local)
      : link_(std::move(link)), end_(end), peer_(std::move(peer)), local_(std::move(local)) {}
  ~SimTransport() override { link_->close(end_); }

  Loop& loop() noexcept override { return link_->loop(); }
  IoResult try_read(MutableBytes into) override { return link_->read(end_, into); }
  bool timed_out() const noexcept override { return link_->timed_out(end_); }
  bool peer_hung_up() const noexcept override { return link_->peer_hung_up(end_); }
  bool holds_wanted_memory() const noexcept override { return link_->memory_is_wanted_back(); }
  IoResult try_write(std::span<const iovec> pieces) override {
    SPILLWAY_CHECK(first_bytes(pieces, 0, owed_.size()) == owed_);
    const IoResult wrote = link_->write(end_, pieces);
    owed_.clear();
    if (wrote.ok() || wrote.would_block()) owed_ = first_bytes(pieces, wrote.bytes, owed_max);
    return wrote;
  }
  bool can_release() const noexcept override { return true; }  // there is no socket to release
  bool can_splice() const noexcept override { return link_->can_splice(); }
  IoResult splice_into(int pipe, std::size_t bytes) override {
    std::vector<std::uint8_t> data(std::min(bytes, spliced_at_once));
    const IoResult got = link_->read(end_, data);
    if (got.ok()) SPILLWAY_CHECK(::write(pipe, data.data(), got.bytes) == static_cast<ssize_t>(got.bytes));
    return got;
  }
  // Bytes that the link does not take stay in the pipe: this looks at a copy of the pipe.
  IoResult splice_from(int pipe, std::size_t bytes) override {
    SPILLWAY_CHECK(owed_.empty());
    int copy[2];
    SPILLWAY_CHECK(::pipe(copy) == 0);
    const ssize_t there = ::tee(pipe, copy[1], std::min(bytes, spliced_at_once), 0);
    SPILLWAY_CHECK(there > 0);
    std::vector<std::uint8_t> data(static_cast<std::size_t>(there));
    SPILLWAY_CHECK(::read(copy[0], data.data(), data.size()) == there);
    ::close(copy[0]);
    ::close(copy[1]);
    const iovec whole{data.data(), data.size()};
    const IoResult wrote = link_->write(end_, {&whole, 1});
    if (wrote.ok() && wrote.bytes == 0) return {IoResult::Status::would_block, 0};
    if (wrote.ok()) SPILLWAY_CHECK(::read(pipe, data.data(), wrote.bytes) == static_cast<ssize_t>(wrote.bytes));
    return wrote;
  }
  void wait(Direction direction, IoWaiter& waiter) override {
    link_->wait(end_, direction, waiter);
  }
  void cancel() override { link_->cancel(end_); }
  void close() override { link_->close(end_); }
  void reset() override {
    link_->reset();
    link_->close(end_);
  }
  const std::string& peer() const noexcept override { return peer_; }
  const std::string& local() const noexcept override { return local_; }

 private:
  static constexpr std::size_t spliced_at_once = 64 * 1024;  // fits into any pipe
  static constexpr std::size_t owed_max = 16 * 1024;         // what TLS may have encrypted

  static std::vector<std::uint8_t> first_bytes(std::span<const iovec> pieces, std::size_t skip, std::size_t most) {
    std::vector<std::uint8_t> bytes;
    for (const iovec& piece : pieces.first(std::min<std::size_t>(pieces.size(), 64))) {
      const std::size_t skipped = std::min(skip, piece.iov_len);
      skip -= skipped;
      const auto* const from = static_cast<const std::uint8_t*>(piece.iov_base) + skipped;
      bytes.insert(bytes.end(), from, from + std::min(piece.iov_len - skipped, most - bytes.size()));
    }
    return bytes;
  }

  std::shared_ptr<SimLink> link_;
  std::vector<std::uint8_t> owed_;  // was given to try_write() and not moved: comes first
  int end_;
  std::string peer_;
  std::string local_;
};

}  // namespace

SimNetwork::SimNetwork(Loop& loop, const FaultOptions& faults)
    : world_(std::make_shared<World>(loop, faults)) {}

SimNetwork::~SimNetwork() {
  for (auto& [name, host] : hosts_) host->unaccepted.clear();
}

std::uint64_t SimNetwork::bytes_written() const noexcept { return world_->bytes_written; }

void SimNetwork::set_faults(const FaultOptions& faults) { world_->faults = faults; }

std::shared_ptr<SimHost> SimNetwork::host(const std::string& name, std::uint16_t port) {
  std::shared_ptr<SimHost>& entry = hosts_[{name, port}];
  if (!entry) {
    entry = std::make_shared<SimHost>();
    entry->name = host_text(name, port);
  }
  return entry;
}

void SimNetwork::listen(const std::string& name, std::uint16_t port, Handler handler) {
  const auto entry = host(name, port);
  entry->handler = std::move(handler);
  entry->listening = true;
}

void SimNetwork::kill(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  entry->listening = false;
  entry->frozen = false;
  for (const auto& weak : std::exchange(entry->links, {})) {
    if (const auto link = weak.lock()) link->reset();
  }
  entry->unaccepted.clear();
}

void SimNetwork::freeze(const std::string& name, std::uint16_t port) {
  host(name, port)->frozen = true;
}

void SimNetwork::thaw(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  entry->frozen = false;
  resume(*entry, world_->loop);
}

void SimNetwork::vanish(const std::string& name, std::uint16_t port) {
  host(name, port)->vanished = true;
}

void SimNetwork::reappear(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  entry->vanished = false;
  resume(*entry, world_->loop);
}

void SimNetwork::resume(SimHost& host, Loop& loop) {
  if (host.silent()) return;
  const auto links = host.links;
  for (const auto& weak : links) {
    if (const auto link = weak.lock()) link->resume();
  }
  for (auto& transport : std::exchange(host.unaccepted, {})) {
    loop.spawn(host.handler(std::move(transport)));
  }
}

std::unique_ptr<Transport> SimNetwork::establish(const std::shared_ptr<SimHost>& entry) {
  const std::string client = "client:" + std::to_string(++connections_made_);
  auto link = std::make_shared<SimLink>(world_, entry);
  std::erase_if(entry->links, [](const auto& weak) { return weak.expired(); });
  entry->links.push_back(link);
  auto far = std::make_unique<SimTransport>(link, 1, client, entry->name);
  auto near = std::make_unique<SimTransport>(link, 0, entry->name, client);
  if (entry->frozen) {
    entry->unaccepted.push_back(std::move(far));
  } else {
    world_->loop.spawn(entry->handler(std::move(far)));
  }
  return near;
}

std::unique_ptr<Transport> SimNetwork::connect_client(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  if (!entry->listening || entry->vanished) return nullptr;
  return establish(entry);
}

Task<Result<std::unique_ptr<Transport>>> SimNetwork::connect(std::string name, std::uint16_t port,
                                                             TimePoint deadline) {
  const auto entry = host(name, port);
  const Duration latency = world_->latency();
  if (latency > Duration::zero()) {
    co_await world_->loop.sleep_until(std::min(deadline, Clock::now() + latency));
  } else {
    co_await world_->loop.yield();
  }
  if (world_->faults.lacks_files) {
    co_return Error(ErrorCode::too_many_files_open,
                    "Error connecting to " + entry->name + " :: caused by :: Too many open files");
  }
  Duration pause = std::chrono::seconds(1);
  while (entry->vanished) {
    const TimePoint next = Clock::now() + pause;
    pause *= 2;
    co_await world_->loop.sleep_until(std::min(deadline, next));
    if (Clock::now() >= deadline) {
      co_return Error(ErrorCode::network_timeout, "Timed out connecting to " + entry->name);
    }
  }
  if (!entry->listening || world_->percent(world_->faults.refuse_percent)) {
    entry->lost();
    co_return Error(ErrorCode::host_unreachable,
                    "Error connecting to " + entry->name + " :: caused by :: Connection refused");
  }
  co_return establish(entry);
}

std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> SimNetwork::pair() {
  ++connections_made_;
  auto link = std::make_shared<SimLink>(world_, host("", 0));
  auto first = std::make_unique<SimTransport>(link, 0, "pair:1", "pair:0");
  auto second = std::make_unique<SimTransport>(link, 1, "pair:0", "pair:1");
  return {std::move(first), std::move(second)};
}

void SimNetwork::set_byte_fault(const std::string& name, std::uint16_t port,
                                const ByteFault& fault) {
  SimHost& entry = *host(name, port);
  entry.byte_fault = fault;
  for (std::uint64_t& bytes : entry.passed_bytes) bytes = 0;
}

bool SimNetwork::byte_fault_happened(const std::string& name, std::uint16_t port) {
  return !host(name, port)->byte_fault.has_value();
}

std::uint64_t SimNetwork::bytes_passed(const std::string& name, std::uint16_t port, bool to_host) {
  return host(name, port)->passed_bytes[to_host ? 0 : 1];
}

void SimNetwork::tell_losses(const std::string& name, std::uint16_t port,
                             std::function<void()> told) {
  host(name, port)->told_losses = std::move(told);
}

std::size_t SimNetwork::dialled_connections(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  return static_cast<std::size_t>(
      std::count_if(entry->links.begin(), entry->links.end(), [](const auto& weak) {
        const auto link = weak.lock();
        return link && link->dialled();
      }));
}

std::size_t SimNetwork::open_connections(const std::string& name, std::uint16_t port) {
  const auto entry = host(name, port);
  return static_cast<std::size_t>(
      std::count_if(entry->links.begin(), entry->links.end(), [](const auto& weak) {
        const auto link = weak.lock();
        return link && link->open();
      }));
}

bool run_until(Loop& loop, const std::function<bool()>& done, Duration limit) {
  const TimePoint end = Clock::now() + limit;
  for (;;) {
    loop.poll_until_idle();
    if (done()) return true;
    const auto next = loop.next_timer();
    if (Clock::now() >= end) return false;
    set_time(next && *next < end ? std::max(*next, Clock::now()) : end);
  }
}

void run_for(Loop& loop, Duration time) {
  run_until(
      loop, [] { return false; }, time);
}

}  // namespace spillway::test
