#include "proxy/catalog/key_index.h"

#include <random>
#include <set>

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

// Few letters, zero among them, and a long common part: many keys share their heads, some are prefixes of others.
std::string random_key(std::mt19937& random, const std::string& common) {
  std::string key = random() % 20 == 0 ? common.substr(0, random() % (common.size() + 1)) : common;
  for (std::size_t i = random() % 14; i-- > 0;) key += static_cast<char>(random() % 2 == 0 ? 0 : random() % 3 * 127);
  return key;
}

TEST_CASE("a key index finds the first key above, whatever the keys share") {
  std::mt19937 random(5);
  std::size_t wrong = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string common(random() % 3 * 5, 'x');
    std::set<std::string> made;
    for (std::size_t i = 1 + random() % 150; i-- > 0;) made.insert(random_key(random, common));
    const std::vector<std::string> keys(made.begin(), made.end());
    const auto key_of = [&](std::size_t i) -> std::string_view { return keys[i]; };
    KeyIndex index;
    index.build(keys.size(), key_of);
    for (int i = 0; i < 60; ++i) {
      const std::string key = random() % 2 == 0 ? keys[random() % keys.size()] : random_key(random, common);
      const auto number = [&](auto found) {
        return std::min(static_cast<std::size_t>(found - keys.begin()), keys.size() - 1);
      };
      if (index.find(key, false, key_of) != number(std::upper_bound(keys.begin(), keys.end(), key))) ++wrong;
      if (index.find(key, true, key_of) != number(std::lower_bound(keys.begin(), keys.end(), key))) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace spillway::catalog
