#include "proxy/exec/splice_choice.h"

#include <catch2/catch.hpp>

namespace spillway::exec {

TEST_CASE("a worker that is used up splices until it would not be without") {
  CHECK_FALSE(SpliceChoice::is_used_up(false, 0.89));
  CHECK(SpliceChoice::is_used_up(false, 0.9));
  CHECK(SpliceChoice::is_used_up(true, 0.5));  // it was 0.9, copied
  CHECK_FALSE(SpliceChoice::is_used_up(true, 0.39));
}

TEST_CASE("what is wanted of splicing has names") {
  for (const auto wanted : {SpliceReplies::automatic, SpliceReplies::always, SpliceReplies::never}) {
    CHECK(find_splice_replies(splice_replies_name(wanted)) == wanted);
  }
  CHECK_FALSE(find_splice_replies("sometimes"));
  SpliceChoice choice;
  CHECK(choice.splices(SpliceReplies::always, Clock::now()));
  CHECK_FALSE(choice.splices(SpliceReplies::never, Clock::now()));
}

TEST_CASE("a thread that works without a pause is used up, one that waits is not") {
  SpliceChoice choice;
  const TimePoint start = Clock::now();
  choice.splices(SpliceReplies::automatic, start);
  // The thread has used a little since; as the clock is said to stand, that is all there was, or next to nothing.
  CHECK_FALSE(choice.splices(SpliceReplies::automatic, start + std::chrono::hours(1)));
}

}  // namespace spillway::exec
