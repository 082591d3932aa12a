#include "proxy/exec/counters/splice_choice.h"

#include <catch2/catch.hpp>

namespace spillway::exec {

TEST_CASE("a worker that is busy splices until it would not be without") {
  CHECK_FALSE(SpliceChoice::is_busy(false, 0.29, 99e6));
  CHECK(SpliceChoice::is_busy(false, 0.3, 0));
  CHECK(SpliceChoice::is_busy(true, 0.1, 0));  // it was 0.3, copied
  CHECK_FALSE(SpliceChoice::is_busy(true, 0.07, 24e6));
}

TEST_CASE("a worker that passes much splices though it costs little") {
  CHECK(SpliceChoice::is_busy(false, 0.04, 100e6));
  CHECK(SpliceChoice::is_busy(true, 0.01, 25e6));
  SpliceChoice choice;
  const TimePoint start = Clock::now();
  choice.splices(SpliceReplies::automatic, start);
  choice.passed(360'000'000);
  CHECK(choice.splices(SpliceReplies::automatic, start + std::chrono::seconds(1)));
  CHECK_FALSE(choice.splices(SpliceReplies::automatic, start + std::chrono::hours(1)));
}

TEST_CASE("what is wanted of splicing goes before") {
  SpliceChoice choice;
  CHECK(choice.splices(SpliceReplies::always, Clock::now()));
  CHECK_FALSE(choice.splices(SpliceReplies::never, Clock::now()));
}

TEST_CASE("a thread that waits for the most part is not busy") {
  SpliceChoice choice;
  const TimePoint start = Clock::now();
  choice.splices(SpliceReplies::automatic, start);
  // The thread has used a little since; as the clock is said to stand, that is all there was, or next to nothing.
  CHECK_FALSE(choice.splices(SpliceReplies::automatic, start + std::chrono::hours(1)));
}

}  // namespace spillway::exec
