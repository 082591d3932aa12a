// Time that a test moves by hand. Starts one day after the epoch; never goes backwards.
#pragma once

#include "proxy/base/clock.h"

namespace spillway::test {

void set_time(TimePoint now);
void advance_time(Duration by);
// From now on each look at the clock advances it by this: for code that works until a deadline.
void advance_time_at_each_look(Duration by);

}  // namespace spillway::test
