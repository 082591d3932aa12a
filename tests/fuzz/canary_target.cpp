// A target that has a mistake on purpose, to show that a replay reaches every input and that a failure
// ends it: it aborts on inputs that begin with "abort".
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("abort")) std::abort();
  std::printf("seen: %.*s", static_cast<int>(text.size()), text.data());
  return 0;
}
