// SPDX-License-Identifier: Apache-2.0
//
// A host's own malloc and operator new, as mimalloc and friends are: two heaps, each of which ends
// the process where a block comes back that is not its own, or with another size.
#include "host_allocator.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

// Of the C library, below the malloc that is replaced here.
extern "C" void *__libc_malloc(size_t);
extern "C" void __libc_free(void *);

namespace {

enum class Heap : uint64_t { c = 0x63206d616c6c6f63, cpp = 0x432b2b206e657777, none = 0 };

struct Header {  // before each block
  void *raw;
  size_t size;
  Heap heap;
  size_t alignment;
};

std::atomic<long> live{0};

[[noreturn]] void die(const char *why) {
  (void)!write(2, why, std::strlen(why));
  __builtin_trap();
}

Header *header(void *block) { return static_cast<Header *>(block) - 1; }

void *take(size_t size, size_t alignment, Heap heap) {
  if (size > PTRDIFF_MAX - alignment - sizeof(Header)) return nullptr;
  void *const raw = __libc_malloc(size + alignment + sizeof(Header));
  if (raw == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(raw) + sizeof(Header);
  auto *const block = reinterpret_cast<std::byte *>((begin + alignment - 1) & ~(alignment - 1));
  *header(block) = {raw, size, heap, alignment};
  std::memset(block, 0xa5, size);
  live.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void give(void *block, Heap heap) {
  if (block == nullptr) return;
  Header *const at = header(block);
  if (at->heap != heap) die("a block came back to another heap than its own\n");
  void *const raw = at->raw;
  std::memset(block, 0xdd, at->size);
  at->heap = Heap::none;
  live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(raw);
}

void give(void *block, size_t size, size_t alignment) {
  if (block != nullptr && header(block)->size != size) die("deleted with another size\n");
  if (block != nullptr && header(block)->alignment != alignment) die("deleted otherwise aligned\n");
  give(block, Heap::cpp);
}

void *take_or_throw(size_t size, size_t alignment) {
  void *const block = take(size, alignment, Heap::cpp);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

constexpr size_t kAlignment = alignof(std::max_align_t);

}  // namespace

long live_blocks() { return live.load(std::memory_order_relaxed); }

extern "C" {
void *malloc(size_t size) { return take(size, kAlignment, Heap::c); }

void free(void *block) { give(block, Heap::c); }

void *calloc(size_t count, size_t size) {
  size_t all;
  if (__builtin_mul_overflow(count, size, &all)) return nullptr;
  void *const block = take(all, kAlignment, Heap::c);
  return block == nullptr ? nullptr : std::memset(block, 0, all);
}

void *realloc(void *block, size_t size) {
  if (block == nullptr) return malloc(size);
  if (header(block)->heap != Heap::c) die("a block was to grow in another heap than its own\n");
  void *const larger = malloc(size);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, block, size < header(block)->size ? size : header(block)->size);
  free(block);
  return larger;
}

void *memalign(size_t alignment, size_t size) {
  return take(size, alignment < kAlignment ? kAlignment : alignment, Heap::c);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

size_t malloc_usable_size(void *block) { return block == nullptr ? 0 : header(block)->size; }
}  // extern "C"

void *operator new(size_t size) { return take_or_throw(size, kAlignment); }
void *operator new(size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<size_t>(alignment));
}
void operator delete(void *block) noexcept { give(block, Heap::cpp); }
void operator delete(void *block, size_t size) noexcept { give(block, size, kAlignment); }
void operator delete(void *block, std::align_val_t) noexcept { give(block, Heap::cpp); }
void operator delete(void *block, size_t size, std::align_val_t alignment) noexcept {
  give(block, size, static_cast<size_t>(alignment));
}
