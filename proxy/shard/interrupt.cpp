#include "proxy/shard/interrupt.h"

#include <algorithm>

#include "proxy/shard/connection.h"

namespace spillway::shard {

void Interrupt::request(Error why) {
  if (why_) return;
  why_ = std::move(why);
  for (Connection* connection : waiting_on_) connection->fail(*why_);  // which resumes nobody yet
}

Interruptible::Interruptible(Interrupt* interrupt, Connection& connection)
    : interrupt_(interrupt), connection_(connection) {
  if (interrupt_ != nullptr) interrupt_->waiting_on_.push_back(&connection_);
}

Interruptible::~Interruptible() {
  if (interrupt_ == nullptr) return;
  auto& list = interrupt_->waiting_on_;
  const auto here = std::find(list.begin(), list.end(), &connection_);
  *here = list.back();
  list.pop_back();
}

}  // namespace spillway::shard
