#include "proxy/shard/interrupt.h"

#include <algorithm>

#include "proxy/shard/connection.h"
#include "proxy/shard/waiter.h"

namespace spillway::shard {

void Interrupt::request(Error why) {
  if (why_) return;
  why_ = std::move(why);
  for (Interruptible* one : waiting_) one->end(*why_);  // this resumes no coroutine yet
}

Interruptible::Interruptible(Interrupt* interrupt, Connection& connection)
    : interrupt_(interrupt), connection_(&connection) {
  enter();
}

Interruptible::Interruptible(Interrupt* interrupt, Waiter& waiter)
    : interrupt_(interrupt), waiter_(&waiter) {
  enter();
}

void Interruptible::enter() {
  if (interrupt_ == nullptr) return;
  interrupt_->waiting_.push_back(this);
  if (const Error* why = interrupt_->requested()) end(*why);
}

void Interruptible::end(const Error& why) {
  if (connection_ != nullptr) connection_->fail(why);
  if (waiter_ != nullptr) waiter_->wake();
}

Interruptible::~Interruptible() {
  if (interrupt_ == nullptr) return;
  auto& list = interrupt_->waiting_;
  const auto here = std::find(list.begin(), list.end(), this);
  *here = list.back();
  list.pop_back();
}

}  // namespace spillway::shard
