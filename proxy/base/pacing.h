// Pacing, and connections that do not leave the machine.
//
// BBR sends at the pace that it measured of the line, and has the kernel set a timer for it with nearly every segment.
// Within a machine there is no line: the timers cost more CPU than the bytes do, and leave half of the rate
// (bench/RESULTS.md, "Pacing"). So where BBR is the machine's choice, connections from the machine itself and to
// loopback addresses have Reno, which every kernel has. It must be chosen before a connection is there: what began with
// BBR stays paced. Any thread.
#pragma once

#include <string_view>

namespace spillway {

// Does this congestion control pace by itself?
bool is_pacing(std::string_view congestion_control) noexcept;

// A listening socket, or one that will connect to a loopback address: unpaced, if the machine's choice paces.
void set_unpaced(int socket) noexcept;
// An accepted connection from elsewhere: the machine's choice, if set_unpaced() of its listener had replaced that.
void set_paced_again(int socket) noexcept;

}  // namespace spillway
