#include "tests/hot_path/counting_heap.h"

#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* block);
}

namespace spillway::test {

namespace {

constexpr int frames_max = 24;
constexpr std::size_t stacks_max = 64;

struct Stack {
  std::array<void*, frames_max> frames;
  int depth = 0;
  std::uint64_t seen = 0;
};

thread_local bool counting = false;
std::uint64_t counted = 0;
std::array<Stack, stacks_max> stacks;
std::size_t stack_count = 0;

void keep_stack() noexcept {
  Stack now;
  now.depth = ::backtrace(now.frames.data(), frames_max);
  for (std::size_t i = 0; i < stack_count; ++i) {
    Stack& known = stacks[i];
    if (known.depth == now.depth &&
        std::equal(now.frames.begin(), now.frames.begin() + now.depth, known.frames.begin())) {
      ++known.seen;
      return;
    }
  }
  if (stack_count == stacks_max) return;
  now.seen = 1;
  stacks[stack_count++] = now;
}

void count() noexcept {
  if (!counting) return;
  counting = false;  // backtrace() may allocate
  ++counted;
  keep_stack();
  counting = true;
}

}  // namespace

void start_counting() noexcept {
  std::array<void*, 1> warm;
  ::backtrace(warm.data(), 1);  // its first call loads a library
  counted = 0;
  stack_count = 0;
  counting = true;
}

std::uint64_t stop_counting() noexcept {
  counting = false;
  return counted;
}

std::vector<std::string> counted_stacks() {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < stack_count; ++i) {
    std::ostringstream text;
    text << stacks[i].seen << " times";
    char** const names = ::backtrace_symbols(stacks[i].frames.data(), stacks[i].depth);
    for (int frame = 0; names != nullptr && frame < stacks[i].depth; ++frame)
      text << "\n  " << names[frame];
    std::free(names);
    texts.push_back(text.str());
  }
  return texts;
}

}  // namespace spillway::test

// --- the malloc family

using spillway::test::count;

extern "C" {

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}

void* realloc(void* block, std::size_t bytes) {
  count();
  return __libc_realloc(block, bytes);
}

void free(void* block) { __libc_free(block); }

void* memalign(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  count();
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"

// --- operator new: jemalloc and tcmalloc bring their own, past malloc

namespace {

void* take(std::size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void* take(std::size_t bytes, std::align_val_t alignment) {
  void* const block = std::aligned_alloc(static_cast<std::size_t>(alignment), bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void* operator new[](std::size_t bytes) { return take(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) { return take(bytes, alignment); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, alignment);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
