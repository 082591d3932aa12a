// Time that a test moves by hand. Starts one day after the epoch; never goes backwards.
#pragma once

#include "proxy/base/clock.h"

namespace spillway::test {

void set_time(TimePoint now);
void advance_time(Duration by);

}  // namespace spillway::test
