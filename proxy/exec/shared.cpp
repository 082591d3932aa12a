#include "allocator/memory_layer.h"
#include "proxy/exec/context.h"
#include "proxy/exec/transactions.h"

namespace spillway::exec {

Shared::Shared(std::uint64_t memory_limit_bytes)
    : memory_layer(std::make_unique<MemoryLayer>()), memory("process", memory_limit_bytes), transactions(std::make_unique<TransactionTable>()) {}

Shared::~Shared() = default;

}  // namespace spillway::exec
