// Pacing, and connections that do not leave the machine.
//
// BBR sends at the rate that it measured for the line; the kernel sets a timer for nearly every segment. Within a
// machine there is no line: the timers cost more CPU than the bytes do, and halve the rate (bench/RESULTS.md,
// "Pacing"). So where BBR is the machine's default, connections from the machine itself and to loopback addresses use
// Reno, which every kernel has. It must be chosen before the connection exists: a connection that began with BBR
// stays paced. Any thread.
#pragma once

#include <string_view>

namespace spillway {

// Does this congestion control pace by itself?
bool is_pacing(std::string_view congestion_control) noexcept;

// For a listening socket, or one that will connect to a loopback address: no pacing, if the machine's default paces.
void set_unpaced(int socket) noexcept;
// For an accepted connection from elsewhere: the machine's default again, if set_unpaced() of its listener replaced
// it.
void set_paced_again(int socket) noexcept;

}  // namespace spillway
