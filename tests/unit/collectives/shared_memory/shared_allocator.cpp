#include "lockstep/collectives/shared_memory/shared_allocator.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "lockstep/collectives/shared_memory/shared_memory.hpp"

namespace {

using lockstep::SharedMemory;
using lockstep::detail::SharedAllocator;

constexpr std::size_t area = std::size_t{1} << 20, page = std::size_t{64} << 10;

std::shared_ptr<SharedMemory> memory_of(std::size_t areas) {
  return SharedMemory::create({.bytes = 100, .heap = areas * area});
}

}  // namespace

TEST_CASE(
    "blocks are aligned, zero at first, apart from each other, and within the member's area") {
  const auto memory = memory_of(3);
  SharedAllocator allocator(memory, 1, 1, area);  // the third area
  std::byte* const own = memory->heap() + 2 * area;
  std::vector<std::byte*> blocks;
  for (const std::size_t bytes : {1u, 100u, 65'536u, 65'537u, 300'000u}) {
    std::byte* const p = allocator.allocate(bytes);
    REQUIRE(p != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
    CHECK(p >= own);
    CHECK(p + bytes <= own + area);
    CHECK(std::all_of(p, p + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(p, 1, bytes);
    blocks.push_back(p);
  }
  CHECK(allocator.allocate(area) == nullptr);
  CHECK(allocator.allocate(area + 1) == nullptr);
  CHECK(allocator.allocate(0) == nullptr);
  for (std::byte* const p : blocks) CHECK(allocator.release(p));
  CHECK_FALSE(allocator.release(blocks[0]));
  CHECK(allocator.allocate(area) == own);
}

TEST_CASE("random blocks never overlap, and what is released is allocated again") {
  SharedAllocator allocator(memory_of(1), 0, 0, area);
  std::mt19937 draw(5);
  struct Block {
    std::byte* p;
    std::size_t bytes;
    int mark;
  };
  std::vector<Block> blocks;
  std::size_t declined = 0;
  for (int i = 0; i < 3000; ++i) {
    if (draw() % 2 == 0 || blocks.empty()) {
      const std::size_t bytes = 1 + draw() % (4 * page);
      std::byte* const p = allocator.allocate(bytes);
      declined += p == nullptr;
      if (p == nullptr) continue;
      blocks.push_back({p, bytes, i % 251});
      std::memset(p, i % 251, bytes);
    } else {
      std::swap(blocks[draw() % blocks.size()], blocks.back());
      const Block block = blocks.back();
      REQUIRE(std::all_of(block.p, block.p + block.bytes,
                          [&](std::byte b) { return b == std::byte(block.mark); }));
      REQUIRE(allocator.release(block.p));
      blocks.pop_back();
    }
  }
  CHECK(declined > 0);
  for (const Block& block : blocks) CHECK(allocator.release(block.p));
  CHECK(allocator.allocate(area) != nullptr);
}

TEST_CASE("a place is an offset by which another member finds the same memory") {
  const auto memory = memory_of(2);
  SharedAllocator mine(memory, 0, 1, area), other(memory, 0, 0, area);
  mine.allocate(100);
  std::byte* const p = mine.allocate(1000);
  const std::uint64_t place = mine.place_of(p + 8, 992);
  CHECK(place == page + 8);
  CHECK(other.find(1, place, 992) == p + 8);
  CHECK(other.find(0, place, 992) == p + 8 - area);
  std::vector<std::byte> strange(10);
  for (const void* q : {static_cast<const void*>(strange.data()), static_cast<const void*>(nullptr),
                        static_cast<const void*>(memory->heap()),
                        static_cast<const void*>(memory->heap() + 2 * area)})
    CHECK(mine.place_of(q, 1) == SharedAllocator::nowhere);
  CHECK(mine.place_of(memory->heap() + 2 * area - 8, 9) == SharedAllocator::nowhere);
  for (const std::uint64_t bad :
       {SharedAllocator::nowhere, std::uint64_t{area}, std::uint64_t{area - 8}})
    CHECK(other.find(1, bad, 9) == nullptr);
}

TEST_CASE("a memory without the member's area allocates nothing") {
  SharedAllocator none(memory_of(0), 0, 0, area), small(memory_of(2), 1, 1, area);
  CHECK(none.allocate(10) == nullptr);
  CHECK(small.allocate(10) == nullptr);
  int here = 0;
  CHECK(none.place_of(&here, 4) == SharedAllocator::nowhere);
  CHECK(small.find(0, 0, 1) == nullptr);
}

TEST_CASE("memory made private keeps its values and address, and no process changes it") {
  const auto memory = memory_of(1);
  const auto same = SharedMemory::open(memory->place(), {.bytes = 100, .heap = area});
  SharedAllocator allocator(memory, 0, 0, area);
  std::byte* const p = allocator.allocate(1000);
  std::byte* const q = allocator.allocate(100'000);
  std::memset(p, 1, 1000);
  std::memset(q, 2, 100'000);
  CHECK(same->heap()[page + 99'999] == std::byte{2});
  allocator.make_private();
  allocator.make_private();
  std::memset(same->heap(), 9, 3 * page);  // another process that still writes
  CHECK(std::all_of(p, p + 1000, [](std::byte b) { return b == std::byte{1}; }));
  CHECK(std::all_of(q, q + 100'000, [](std::byte b) { return b == std::byte{2}; }));
  std::memset(p, 5, 1000);
  CHECK(same->heap()[0] == std::byte{9});
  CHECK(allocator.allocate(10) == nullptr);
  CHECK(allocator.place_of(p, 10) == SharedAllocator::nowhere);
  CHECK(allocator.release(q));
}
