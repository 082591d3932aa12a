#include "allocator/libc_malloc.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace spillway {

namespace {

template <class Function>
void look_up(void* library, const char* symbol, Function& into) {
  into = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (into != nullptr) return;
  std::fprintf(stderr, "spillway: the C library has no %s\n", symbol);
  std::abort();
}

LibcMalloc find_libc_malloc() {
  LibcMalloc found;
  void* library = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  look_up(library, "__libc_memalign", found.memalign);
  look_up(library, "__libc_free", found.free);
  look_up(library, "mallopt", found.mallopt);
  look_up(library, "malloc_trim", found.trim);
  look_up(library, "mallinfo2", found.info);
  return found;
}

}  // namespace

const LibcMalloc& libc_malloc() noexcept {
  static const LibcMalloc found = find_libc_malloc();
  return found;
}

void libc_malloc_release(SlicePacer& pacer) noexcept {
  const std::uint64_t before = libc_malloc_usage().kept_bytes;
  pacer.begin();
  libc_malloc().trim(0);
  const std::uint64_t after = libc_malloc_usage().kept_bytes;
  pacer.end(before > after ? before - after : 0);
}

HeapUsage libc_malloc_usage() noexcept {
  const auto info = libc_malloc().info();
  HeapUsage usage;
  usage.in_use_bytes = info.uordblks + info.hblkhd;
  usage.kept_bytes = info.fordblks;
  return usage;
}

}  // namespace spillway
