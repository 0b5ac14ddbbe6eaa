#include "lockstep/inference/shared_value.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace {

/// Counts the objects that exist; a destroyed one has other numbers.
struct Pair {
  static inline std::atomic<int> alive{0};
  int a, b;
  explicit Pair(int value) : a(value), b(-value) { ++alive; }
  ~Pair() {
    a = b = 1;
    --alive;
  }
};
using Shared = lockstep::detail::SharedValue<Pair>;
using Mark = lockstep::detail::ReaderMark<Pair>;

}  // namespace

TEST_CASE("SharedValue: a reader keeps its value while another one is published") {
  Pair::alive = 0;
  {
    Shared shared(std::make_unique<const Pair>(1));
    Mark mark, later;
    std::unique_ptr<const Pair> old;
    {
      const Shared::Reading reading(shared, mark);
      old = shared.exchange(std::make_unique<const Pair>(2));
      CHECK(reading->a == 1);
      const Shared::Reading next(shared, later);
      CHECK(next->a == 2);
      Shared::wait_for_reader(later, *old);  // reads the new value, so this returns
    }
    Shared::wait_for_reader(mark, *old);
    CHECK(Pair::alive == 2);
  }
  CHECK(Pair::alive == 0);
}

TEST_CASE("SharedValue: the writer waits for a reader of the old value, and for no other") {
  Pair::alive = 0;
  Shared shared(std::make_unique<const Pair>(1));
  Mark mark;
  std::atomic<bool> is_published{false}, is_done{false};
  std::thread writer;
  {
    const Shared::Reading reading(shared, mark);
    writer = std::thread([&] {
      const auto old = shared.exchange(std::make_unique<const Pair>(2));
      is_published = true;
      Shared::wait_for_reader(mark, *old);
      is_done = true;
    });
    while (!is_published) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_FALSE(is_done);
    CHECK(reading->a == 1);
    CHECK(Pair::alive == 2);
  }
  writer.join();
  CHECK(is_done);
  CHECK(Pair::alive == 1);
}

TEST_CASE("SharedValue: readers never see a value that is gone") {
  constexpr int readers = 4, values = 100;
  Pair::alive = 0;
  std::atomic<int> wrong{0}, started{0};
  {
    Shared shared(std::make_unique<const Pair>(2));
    std::vector<Mark> marks(readers);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < readers; ++t)
      threads.emplace_back([&, t] {
        ++started;
        for (; !stop; std::this_thread::sleep_for(std::chrono::microseconds(20)))
          for (int i = 0; i < 20; ++i) {
            const Shared::Reading reading(shared, marks[static_cast<std::size_t>(t)]);
            if (reading->a != -reading->b || reading->a < 2) ++wrong;
          }
      });
    while (started < readers) std::this_thread::yield();
    int most = 0;
    for (int i = 0; i < values; ++i) {
      const auto old = shared.exchange(std::make_unique<const Pair>(3 + i));
      for (const Mark& mark : marks) Shared::wait_for_reader(mark, *old);
      most = std::max(most, Pair::alive.load());
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(most == 2);
  }
  CHECK(wrong == 0);
  CHECK(Pair::alive == 0);
}
