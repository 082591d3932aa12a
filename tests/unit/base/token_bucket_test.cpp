// Buckets, ranges of addresses, and lines that are written now and then: on time that stands still
// unless a test moves it.
#include <catch2/catch.hpp>

#include <thread>
#include <vector>

#include "proxy/base/ip_address.h"
#include "proxy/base/log_pace.h"
#include "proxy/base/token_bucket.h"

namespace spillway {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint start{std::chrono::hours(24)};

int taken(TokenBucket& bucket, TimePoint now, const BucketPace& pace) {
  int count = 0;
  while (count < 10'000 && bucket.try_take(now, pace)) ++count;
  return count;
}

TEST_CASE("a bucket gives its burst at once, and its rate from then on", "[bucket]") {
  TokenBucket bucket;
  const BucketPace pace = BucketPace::of(10, 25);
  CHECK(taken(bucket, start, pace) == 25);
  CHECK(taken(bucket, start + 99ms, pace) == 0);
  CHECK(taken(bucket, start + 100ms, pace) == 1);
  CHECK(taken(bucket, start + 1100ms, pace) == 10);
  CHECK_FALSE(bucket.full(start + 1200ms));
  CHECK(bucket.full(start + 10s));
  CHECK(taken(bucket, start + 1h, pace) == 25);
}

TEST_CASE("a bucket without a limit gives without end", "[bucket]") {
  TokenBucket bucket;
  CHECK(taken(bucket, start, BucketPace::unlimited()) == 10'000);
  CHECK(taken(bucket, start, BucketPace::of(2147483647, 1e300)) == 10'000);
  CHECK(taken(bucket, start, BucketPace::of(20, std::numeric_limits<double>::max())) == 10'000);
}

TEST_CASE("a bucket holds at least one token", "[bucket]") {
  TokenBucket bucket;
  const BucketPace pace = BucketPace::of(1, 0.001);
  CHECK(taken(bucket, start, pace) == 1);
  CHECK(taken(bucket, start + 999ms, pace) == 0);
  CHECK(taken(bucket, start + 1s, pace) == 1);
}

TEST_CASE("a token that is given back is there again", "[bucket]") {
  TokenBucket bucket;
  const BucketPace pace = BucketPace::of(1, 1);
  REQUIRE(bucket.try_take(start, pace));
  bucket.give_back(pace);
  CHECK(taken(bucket, start, pace) == 1);
}

TEST_CASE("a faster pace is not kept shut by a slower one before", "[bucket]") {
  TokenBucket bucket;
  CHECK(taken(bucket, start, BucketPace::of(1, 1'000)) == 1'000);
  const BucketPace fast = BucketPace::of(100, 1);
  CHECK(taken(bucket, start, fast) == 0);
  CHECK(taken(bucket, start + 10ms, fast) == 1);
}

TEST_CASE("threads together take no more than there is", "[bucket]") {
  TokenBucket bucket;
  const BucketPace pace = BucketPace::of(1, 5'000);
  std::atomic<int> all{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { all += taken(bucket, start, pace); });
  for (std::thread& thread : threads) thread.join();
  CHECK(all == 5'000);
}

TEST_CASE("ranges of addresses contain what they say", "[address]") {
  const auto contains = [](std::string_view range, std::string_view address) {
    const auto parsed = AddressRange::parse(range);
    const auto one = IpAddress::parse(address);
    REQUIRE(parsed.has_value());
    REQUIRE(one.has_value());
    return parsed->contains(*one);
  };
  CHECK(contains("10.0.0.0/8", "10.255.1.2"));
  CHECK_FALSE(contains("10.0.0.0/8", "11.0.0.0"));
  CHECK(contains("10.1.2.3", "10.1.2.3"));
  CHECK_FALSE(contains("10.1.2.3", "10.1.2.4"));
  CHECK(contains("10.1.2.128/25", "10.1.2.200"));
  CHECK_FALSE(contains("10.1.2.128/25", "10.1.2.127"));
  CHECK(contains("0.0.0.0/0", "1.2.3.4"));
  CHECK_FALSE(contains("0.0.0.0/0", "::1"));
  CHECK(contains("::/0", "1.2.3.4"));
  CHECK(contains("2001:db8::/32", "2001:db8:ffff::1"));
  CHECK(contains("2001:db8::/33", "2001:db8:7fff::1"));
  CHECK_FALSE(contains("2001:db8::/33", "2001:db8:8000::1"));
  CHECK(contains("::ffff:10.0.0.1", "10.0.0.1"));
  for (const char* wrong : {"", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129", "host", "10.0.0.0/8x"}) {
    CAPTURE(wrong);
    CHECK_FALSE(AddressRange::parse(wrong).has_value());
  }
}

TEST_CASE("addresses are read from peers", "[address]") {
  CHECK(without_port("10.0.0.1:5000") == "10.0.0.1");
  CHECK(without_port("[2001:db8::1]:5000") == "2001:db8::1");
  CHECK(IpAddress::parse("10.0.0.1")->to_text() == "10.0.0.1");
  CHECK(IpAddress::parse("2001:DB8::1")->to_text() == "2001:db8::1");
}

TEST_CASE("a paced line is due now and then, and says what was left out", "[log]") {
  log::LogPace pace;
  CHECK(pace.due(start) == 0);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(pace.due(start + 9s).has_value());
  CHECK(pace.due(start + 10s) == 5);
  CHECK(pace.due(start + 20s) == 0);
}

}  // namespace
}  // namespace spillway
