// releaseMemory: gives free memory back to the operating system now, and returns how much and how long it took.
#include <memory>

#include "allocator/memory_layer.h"
#include "proxy/exec/admin/figures.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/waiter.h"

namespace spillway::exec {

Task<Result<Response>> release_memory_command(Context& context, Client& client,
                                              const Request& request);

namespace {

// How long the command waits, unless its maxTimeMS says otherwise. The release goes on afterwards.
constexpr std::int64_t wait_ms_default = 10'000;

// Lives until the answer has come, even if the caller has given up.
struct ReleaseAnswer {
  shard::WaiterLine line{};
  std::optional<ReleaseRecord> record{};
};

}  // namespace

Task<Result<Response>> release_memory_command(Context& context, Client&, const Request& request) {
  Releaser& releaser = context.shared.memory_layer->releaser();
  if (!releaser.running()) {
    co_return Error(ErrorCode::illegal_operation, "memory is not released: the server is stopping");
  }
  auto answer = std::make_shared<ReleaseAnswer>();
  const Releaser::Done on_done = [answer, loop = &context.loop](const ReleaseRecord& record) {
    loop->post([answer, record] {
      answer->record = record;
      shard::wake_all(answer->line);
    });
  };
  releaser.request(ReleaseReason::command, on_done);
  const std::int64_t wait_ms = request.max_time_ms.value_or(wait_ms_default);
  {
    shard::Waiter waiter(context.loop, Clock::now() + std::chrono::milliseconds(wait_ms));
    answer->line.push_back(waiter);
    const shard::Interruptible interruptible(request.interrupt, waiter);
    co_await waiter;
  }
  if (const Error* why = shard::requested_of(request.interrupt)) co_return *why;
  if (!answer->record) {
    co_return Error(ErrorCode::max_time_ms_expired, "the release takes longer; it goes on");
  }
  BsonWriter reply;
  append_release(reply, *answer->record);
  co_return ok_response(std::move(reply));
}

}  // namespace spillway::exec
