// Which library serves malloc, and the one name of the malloc family that jemalloc lacks.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "allocator/heaps.h"

namespace spillway::plain_malloc {

namespace {

std::string find_library() {
  Dl_info info{};
  void* address = ::dlsym(RTLD_DEFAULT, "malloc");
  if (address == nullptr || ::dladdr(address, &info) == 0 || info.dli_fname == nullptr)
    return "unknown";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

std::string_view find_kind() {
  const std::string file = library();
  if (file.starts_with("libjemalloc")) return "jemalloc";
  return file.starts_with("libtcmalloc") ? "tcmalloc" : "other";
}

}  // namespace

std::string library() {
  static const std::string found = find_library();
  return found;
}

std::string_view kind() {
  static const std::string_view found = find_kind();
  return found;
}

}  // namespace spillway::plain_malloc

// tcmalloc has it and jemalloc does not: without this, pvalloc's memory would come from one and be
// freed by the other.
extern "C" void* pvalloc(std::size_t bytes) noexcept {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX - page_bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::size_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  return std::aligned_alloc(page_bytes, rounded == 0 ? page_bytes : rounded);
}
