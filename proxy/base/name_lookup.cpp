#include "proxy/base/name_lookup.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "allocator/mutex.h"

namespace spillway {
namespace {

Error not_found(const std::string& host, std::string_view why) {
  return Error(ErrorCode::host_not_found,
               fmt::format("Could not find address for {} :: caused by :: {}", host, why));
}

// What this process lacks says nothing about the host.
Error cannot_ask(const std::string& host, std::string_view why) {
  return Error(ErrorCode::too_many_files_open, fmt::format("cannot look up {}: {}", host, why));
}

Result<IpAddresses> ask_system(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return not_found(host, failed == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  IpAddresses addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    addresses.push_back(endpoint.address());
  }
  if (addresses.empty()) return not_found(host, "it has none");
  return addresses;
}

}  // namespace

// A caller leaves the state before it is destroyed, so that nothing is posted to a loop that is gone; `slot` covers
// calls that are posted already.
struct NameLookup::State {
  explicit State(Resolve how) : resolve(std::move(how)) {}

  const Resolve resolve;
  Mutex mutex;
  absl::flat_hash_map<std::string, std::vector<Waiting*>> under_way ABSL_GUARDED_BY(mutex);
};

class NameLookup::Waiting final : public Timer {
 public:
  Waiting(std::shared_ptr<State> state, Loop& loop, const std::string& host, TimePoint deadline)
      : state_(std::move(state)), loop_(loop), host_(host), deadline_(deadline) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() override {
    if (waiter_) leave();
    loop_.disarm(*this);
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (!join()) {
      waiter_ = nullptr;
      return false;
    }
    if (deadline_ != time_point_never) loop_.arm(*this, deadline_);
    return true;
  }
  Result<IpAddresses> await_resume() { return std::move(result_); }

  void on_timer() override {
    leave();
    result_ = Error(ErrorCode::network_timeout, fmt::format("Timed out looking up {}", host_));
    std::exchange(waiter_, nullptr).resume();
  }

 private:
  using Slot = std::shared_ptr<Waiting*>;  // null inside once the wait has ended

  bool join() {
    MutexLock lock(state_->mutex);
    const auto known = state_->under_way.find(host_);
    if (known != state_->under_way.end()) {
      known->second.push_back(this);
      return true;
    }
    if (state_->under_way.size() >= under_way_max) {
      result_ = cannot_ask(host_, "too many other names are being looked up");
      return false;
    }
    try {
      std::thread(run, state_, host_).detach();
    } catch (const std::system_error& error) {
      result_ = cannot_ask(host_, error.what());
      return false;
    }
    state_->under_way[host_] = {this};
    return true;
  }

  void leave() {
    *slot_ = nullptr;
    MutexLock lock(state_->mutex);
    const auto known = state_->under_way.find(host_);
    if (known != state_->under_way.end()) std::erase(known->second, this);
  }

  static void run(const std::shared_ptr<State>& state, const std::string& host) {
    Result<IpAddresses> result = state->resolve(host);
    MutexLock lock(state->mutex);
    const auto known = state->under_way.find(host);
    for (Waiting* one : known->second) {
      one->loop_.post([slot = one->slot_, result] {
        if (*slot != nullptr) (*slot)->done(result);
      });
    }
    state->under_way.erase(known);
  }

  void done(const Result<IpAddresses>& result) {
    leave();  // and see the thread out of post(): the loop may end with its caller
    loop_.disarm(*this);
    result_ = result;
    std::exchange(waiter_, nullptr).resume();
  }

  const std::shared_ptr<State> state_;
  Loop& loop_;
  const std::string& host_;
  const TimePoint deadline_;
  const Slot slot_ = std::make_shared<Waiting*>(this);
  std::coroutine_handle<> waiter_;
  Result<IpAddresses> result_ = IpAddresses();
};

NameLookup::NameLookup(Resolve resolve) : state_(std::make_shared<State>(std::move(resolve))) {}

NameLookup& NameLookup::system() {
  static NameLookup lookup(ask_system);
  return lookup;
}

Task<Result<IpAddresses>> NameLookup::look_up(Loop& loop, std::string host, TimePoint deadline) {
  Waiting waiting(state_, loop, host, deadline);
  co_return co_await waiting;
}

}  // namespace spillway
