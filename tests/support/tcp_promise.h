// How much the peer of a TCP connection may send before it hears more: the receive window that it was promised. The
// peer's kernel may come to hold this much. (TCP_INFO, tcpi_snd_wnd; Linux 5.4.)
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

// Of a connected socket, at the sender's end. nullopt: the kernel does not tell.
std::optional<std::uint32_t> promised_bytes(int fd);

}  // namespace spillway
