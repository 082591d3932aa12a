// Host names to addresses, by the system's resolver: getaddrinfo(3) with all that nsswitch.conf(5) says.
//
// It blocks, for half a minute where a name server does not answer, and cannot be interrupted. So it runs on threads
// of its own: a caller leaves at the deadline, and a process ends without joining them. (Asio's resolver joins its
// thread when its io_context goes, and looks up one name at a time.)
#pragma once

#include <boost/asio/ip/address.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cursor/error.h"
#include "proxy/base/loop.h"

namespace spillway {

using IpAddresses = std::vector<asio::ip::address>;

class NameLookup {
 public:
  // Runs on a thread of the lookup. Errors: HostNotFound.
  using Resolve = std::function<Result<IpAddresses>(const std::string& host)>;
  // Lookups under way at once, a thread each; one more gets TooManyFilesOpen(264).
  static constexpr std::size_t under_way_max = 64;

  explicit NameLookup(Resolve resolve);
  // The process's own, by the system.
  static NameLookup& system();

  // Any thread that runs `loop`. Several callers share one lookup of a name. Errors: HostNotFound, TooManyFilesOpen
  // (this process lacks a thread for it); NetworkTimeout at the deadline. May be destroyed while it waits.
  Task<Result<IpAddresses>> look_up(Loop& loop, std::string host, TimePoint deadline);

 private:
  class Waiting;
  struct State;
  std::shared_ptr<State> state_;  // the threads', too: they may outlive this
};

}  // namespace spillway
