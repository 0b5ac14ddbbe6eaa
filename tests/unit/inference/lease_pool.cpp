#include "lockstep/inference/lease_pool.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

struct Item {
  std::atomic<int> borrowers{0};
  int uses = 0;  // not atomic: the pool must order its borrowers
};
using Pool = lockstep::detail::LeasePool<Item>;
using Lease = Pool::Lease;

constexpr auto make = [] { return std::make_unique<Item>(); };

}  // namespace

TEST_CASE("LeasePool: a thread that borrows again gets the same object") {
  Pool pool;
  Item* first = nullptr;
  {
    const Lease lease(pool, make);
    first = &*lease;
  }
  {
    const Lease lease(pool, make);
    CHECK(&*lease == first);
  }
  CHECK(pool.all() == std::vector<Item*>{first});
}

TEST_CASE("LeasePool: leases at the same time have different objects, which are used again") {
  Pool pool;
  std::vector<Item*> items;
  for (int round = 0; round < 2; ++round) {
    const Lease a(pool, make), b(pool, make), c(pool, make);
    CHECK((&*a != &*b && &*b != &*c && &*a != &*c));
    items.insert(items.end(), {&*a, &*b, &*c});
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  CHECK(items.size() == 3);
  CHECK(pool.all().size() == 3);
}

TEST_CASE("LeasePool: an idle object of another thread is borrowed before one is made") {
  Pool pool;
  std::thread([&] { const Lease lease(pool, make); }).join();
  const Lease lease(pool, [] { return std::unique_ptr<Item>(); });
  CHECK(&*lease == pool.all()[0]);
}

TEST_CASE("LeasePool: what another thread has borrowed is not borrowed again by the first") {
  Pool pool;
  Item* first = nullptr;
  {
    first = &*Lease(pool, make);
  }
  std::atomic<int> step{0};
  Item* others = nullptr;
  std::thread other([&] {
    const Lease lease(pool, make);
    others = &*lease;
    for (step = 1; step < 2;) std::this_thread::yield();
  });
  while (step < 1) std::this_thread::yield();
  {
    const Lease lease(pool, make);
    CHECK(others == first);
    CHECK(&*lease != first);
  }
  step = 2;
  other.join();
  CHECK(pool.all().size() == 2);
}

TEST_CASE("LeasePool: an exception of make leaves the pool usable") {
  Pool pool;
  CHECK_THROWS_AS(Lease(pool, []() -> std::unique_ptr<Item> { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK(pool.all().empty());
  const Lease lease(pool, make);
  CHECK(pool.all().size() == 1);
}

TEST_CASE("LeasePool: of more threads than slots, each has its object to itself") {
  constexpr int threads = 100, uses = 200;
  Pool pool;
  std::atomic<int> shared{0};
  {
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&] {
        for (int i = 0; i < uses; ++i) {
          const Lease lease(pool, make);
          if (lease->borrowers.fetch_add(1) != 0) ++shared;
          ++lease->uses;
          lease->borrowers.fetch_sub(1);
        }
      });
    for (std::thread& thread : all) thread.join();
  }
  CHECK(shared == 0);
  int sum = 0;
  for (const Item* const item : pool.all()) sum += item->uses;
  CHECK(sum == threads * uses);
  CHECK(pool.all().size() <= threads);
}
