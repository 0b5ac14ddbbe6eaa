/// \file
/// Parallel loops over OpenMP teams of any size, and core binding.
#include "lockstep/devices/cpu/openmp.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "conv2d_ops.hpp"
#include "lockstep/devices/cpu/conv2d_few_channels.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Calls body() in thread 1 of a parallel region of two threads; false if the team had only one.
template <class Body>
bool in_second_thread(const Body& body) {
  struct Work {
    const Body& body;
    bool ran;
  } work{body, false};
  GOMP_parallel(
      [](void* data) {
        auto& w = *static_cast<Work*>(data);
        if (omp_get_thread_num() != 1) return;
        w.body();
        w.ran = true;
      },
      &work, 2, 0);
  return work.ran;
}

}  // namespace

TEST_CASE("the parts of a loop have unique indices below the number of threads") {
  std::vector<std::size_t> index(100, 99);
  lockstep::detail::parallel_ranges(3, index.size(), 1, [&](Slice part, std::size_t i) {
    for (std::size_t n = part.first; n < part.first + part.count; ++n) index[n] = i;
  });
  CHECK(index.front() == 0);
  for (std::size_t n = 1; n < index.size(); ++n)
    CHECK((index[n] == index[n - 1] || index[n] == index[n - 1] + 1));
  CHECK(index.back() < 3);
}

TEST_CASE("a smaller team computes the same parts of a loop") {
  const auto parts_of_loop = [] {
    std::vector<std::size_t> index(100, 99);
    lockstep::detail::parallel_ranges(3, index.size(), 1, [&](Slice part, std::size_t i) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n) index[n] = i;
    });
    return index;
  };
  const auto expected = parts_of_loop();
  REQUIRE(expected.back() == 2);
  std::vector<std::size_t> found;
  // Nested regions are disabled, so the inner team has one thread.
  REQUIRE(in_second_thread([&] { found = parts_of_loop(); }));
  CHECK(found == expected);
}

TEST_CASE("an undivided loop has index 0 in any thread of the caller's parallel region") {
  std::size_t index = 99, count = 0;
  REQUIRE(in_second_thread([&] {
    lockstep::detail::parallel_ranges(1, 7, 1, [&](Slice part, std::size_t i) {
      index = i;
      count = part.count;
    });
  }));
  CHECK(index == 0);
  CHECK(count == 7);
}

TEST_CASE("a convolution over few channels computes its gradient inside a parallel region") {
  const auto op = Conv2D<8, 3>::op(shape(6, 6, 1));
  REQUIRE(lockstep::detail::FewChannelsGradient<float>::fits(op));
  const auto n = numbers(op, op.in.size(), weights_of(op), 3);
  const auto expected = run<Reference<double>>(op, 3, n);
  for (const int threads : {1, 2}) {
    INFO("threads " << threads);
    LayerResult<float> result;
    REQUIRE(in_second_thread([&] { result = run(op, 3, n, Cpu{.threads = threads}); }));
    check_close(result, expected);
  }
}

TEST_CASE("shares of the cores are disjoint, cover all cores and are never empty") {
  const lockstep::detail::Cores all;
  const auto cores = static_cast<std::size_t>(all.count());
  CHECK(all.share(1, 0) == all);
  for (std::size_t parts = 1; parts <= cores; ++parts) {
    int sum = 0;
    for (std::size_t i = 0; i < parts; ++i) {
      sum += all.share(parts, i).count();
      for (std::size_t j = 0; j < i; ++j) CHECK(!(all.share(parts, i) == all.share(parts, j)));
    }
    CHECK(sum == all.count());
  }
  for (std::size_t i = 0; i < cores + 3; ++i) {
    CHECK(all.share(cores + 3, i).count() == 1);
    CHECK(all.share(cores + 3, i) == all.share(cores, i % cores));
  }
}

TEST_CASE("a scope binds the thread to its cores and restores its affinity") {
  const lockstep::detail::Cores all;
  const auto half = all.share(2, 1);
  {
    const lockstep::detail::ThreadScope scope(1, half);
    CHECK(lockstep::detail::Cores() == half);
  }
  CHECK(lockstep::detail::Cores() == all);
  {
    const lockstep::detail::ThreadScope scope(1, {});
    CHECK(lockstep::detail::Cores() == all);
  }
}
