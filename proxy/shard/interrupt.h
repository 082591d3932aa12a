// Interrupt: ends the shard calls of one client's operation: killOp, a client that left.
//
// Belongs to the client's worker, as do the calls that it ends. An ended call closes its shard connection (a sent
// request cannot be withdrawn); the shard notices that. A call that waits for a host or for a connection leaves its
// line, and nothing is sent.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "cursor/error.h"

namespace spillway::shard {

class Connection;
class Interruptible;
class Waiter;  // waiter.h

class Interrupt {
 public:
  Interrupt() = default;
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Calls under way fail with this error, and so does every call until clear(). The first one counts.
  void request(Error why);
  void clear() noexcept { why_.reset(); }
  const Error* requested() const noexcept { return why_ ? &*why_ : nullptr; }

 private:
  friend class Interruptible;
  std::optional<Error> why_;
  std::vector<Interruptible*> waiting_;
};

// The error of the interrupt (null: none); null: none was requested.
inline const Error* requested_of(const Interrupt* interrupt) noexcept {
  return interrupt == nullptr ? nullptr : interrupt->requested();
}

// While it lives, the interrupt (null: none) ends the wait on the connection, or wakes the waiter. An interrupt that
// was requested before does so at once.
class Interruptible {
 public:
  Interruptible(Interrupt* interrupt, Connection& connection);
  Interruptible(Interrupt* interrupt, Waiter& waiter);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  friend class Interrupt;
  void enter();
  void end(const Error& why);

  Interrupt* interrupt_;
  Connection* connection_ = nullptr;
  Waiter* waiter_ = nullptr;
};

}  // namespace spillway::shard
