#include "proxy/server/life/predecessor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/base/number.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/server/life/handover.h"

namespace spillway::server {

namespace {
// The offer is there before this process is.
constexpr auto offer_max = std::chrono::seconds(10);
}  // namespace

FileDescriptor Predecessor::channel_of_environment() {
  const char* const text = std::getenv(handover_variable);
  if (text == nullptr) return {};
  const int number = parse_number<int>(text).value_or(-1);
  int domain = 0, type = 0;
  socklen_t bytes = sizeof domain;
  if (::getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX ||
      ::getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_SEQPACKET) {
    throw std::runtime_error(fmt::format("{} names no channel of another process", handover_variable));
  }
  ::unsetenv(handover_variable);
  ::fcntl(number, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(number);
}

Predecessor::Predecessor(Loop& loop, const exec::Services& shared, FileDescriptor channel)
    : loop_(loop), shared_(shared), channel_(loop, std::move(channel)) {
  older_->serve = [this](MovedClient client) {
    auto message = std::make_shared<HandoverChannel::Message>(HandoverChannel::message("relay", client.state));
    message->descriptors.push_back(std::move(client.socket));
    loop_.post([this, message] { channel_.send(std::move(*message)); });
  };
}

OfferedSockets Predecessor::take_sockets() { return OfferedSockets::take(channel_.wait_for_message(offer_max)); }

bool Predecessor::take_over(Listener& listener, const std::function<void()>& start, const std::function<void()>& ended,
                            const std::function<bool()>& gives_up) {
  memory_limit_bytes_ = shared_.memory.process.usage().limit_bytes;
  channel_.start(
      [this, &listener, start](HandoverChannel::Message message) { heard(std::move(message), listener, start); },
      [this, start, ended](const std::string& why) {
        log::info("the process before this one: {}", why);
        older_->lives = false;
        shared_.memory.process.set_limit(memory_limit_bytes_);
        if (!std::exchange(serves_, true)) start();
        ended();
      });
  channel_.send(HandoverChannel::message("ready", {}));
  while (!serves_ && !gives_up()) {
    loop_.io().restart();
    loop_.io().run_one();
  }
  if (!serves_) channel_.close();  // what it would say now comes too late
  return serves_;
}

void Predecessor::heard(HandoverChannel::Message message, Listener& listener, const std::function<void()>& start) {
  const DocView body = message.body.view();
  if (message.kind == "held") {
    const std::int64_t held_bytes = std::max<std::int64_t>(body["bytes"].to_int64().value_or(0), 0);
    share_memory(shared_.memory.process, memory_limit_bytes_, static_cast<std::uint64_t>(held_bytes));
  } else if (message.kind == "serve" && !serves_) {
    listener.set_next_connection_id(body["nextConnection"].to_int64().value_or(1));
    asked_again_ = body["again"].truthy();
    start();
    serves_ = true;
  } else if (message.kind == "client" && serves_ && message.descriptors.size() == 1) {
    listener.let_in(MovedClient{std::move(message.body), std::move(message.descriptors.front()), {}, false});
  } else {
    log::warning("the process before this one says \"{}\", which means nothing now", message.kind);
  }
}

}  // namespace spillway::server
