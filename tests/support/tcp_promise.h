// What the peer of a TCP connection may send before it hears more: the receive window that it was
// promised, which is what the peer's kernel may come to hold. (TCP_INFO, tcpi_snd_wnd; Linux 5.4.)
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

// Of a connected socket, the sender's end. Nothing where the kernel does not tell.
std::optional<std::uint32_t> promised_bytes(int fd);

}  // namespace spillway
