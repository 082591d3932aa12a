// Predecessor: the process that this one replaces (handover.h). Belongs to the main thread.
#pragma once

#include <functional>
#include <memory>

#include "proxy/base/file_descriptor.h"
#include "proxy/base/loop.h"
#include "proxy/exec/core/context.h"
#include "proxy/server/connections/handover_channel.h"
#include "proxy/server/connections/listener.h"
#include "proxy/server/connections/moved_client.h"
#include "proxy/server/connections/offered_sockets.h"

namespace spillway::server {

class Predecessor {
 public:
  // The channel that the environment names, which it does not name any more; empty: there is no such process. Throws
  // std::runtime_error for what is no such channel.
  static FileDescriptor channel_of_environment();

  // `loop` and `shared` outlive it.
  Predecessor(Loop& loop, const exec::Services& shared, FileDescriptor channel);

  // First. Blocks, and throws std::runtime_error if nothing is offered.
  OfferedSockets take_sockets();
  // For workers.
  const std::shared_ptr<OlderProcess>& older() const noexcept { return older_; }
  // This process can serve. Returns when it does: the other process does not listen any more. Its clients come to
  // `listener`, which `start` has started. `ended`: it has gone. False: `gives_up`, asked after each event, was true.
  bool take_over(Listener& listener, const std::function<void()>& start, const std::function<void()>& ended,
                 const std::function<bool()>& gives_up);
  // It was asked once more for what it has done.
  bool asked_again() const noexcept { return asked_again_; }
  bool lives() const noexcept { return older_->lives; }

 private:
  void heard(HandoverChannel::Message message, Listener& listener, const std::function<void()>& start);

  Loop& loop_;
  const exec::Services shared_;
  HandoverChannel channel_;
  std::shared_ptr<OlderProcess> older_ = std::make_shared<OlderProcess>();
  std::uint64_t memory_limit_bytes_ = 0;
  bool serves_ = false, asked_again_ = false;
};

}  // namespace spillway::server
