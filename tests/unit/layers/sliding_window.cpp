#include "lockstep/layers/sliding_window.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace ls = lockstep;

namespace {

/// Outputs of a window without padding, counted by sliding it.
int count_valid(int in, int kernel, int stride, int dilation) {
  int results = 0;
  for (int start = 0; start < in; start += stride) {
    bool inside = true;
    for (int tap = 0; tap < kernel; ++tap) inside = inside && start + tap * dilation < in;
    results += inside ? 1 : 0;
  }
  return results;
}

/// The least padding for which an output starts at each stride-th element of the input, found by
/// trial. Half of it, rounded down, goes in front.
int least_padding(int in, int kernel, int stride, int dilation, int results) {
  for (int padding = 0;; ++padding)
    if (count_valid(in + padding, kernel, stride, dilation) >= results) return padding;
}

int elements_reached_by_stride(int in, int stride) {
  int n = 0;
  for (int i = 0; i < in; i += stride) ++n;
  return n;
}

}  // namespace

TEST_CASE("a valid window has as many outputs as fit by counting") {
  for (int in = 1; in <= 20; ++in)
    for (int kernel = 1; kernel <= 5; ++kernel)
      for (int stride = 1; stride <= 4; ++stride)
        for (int dilation = 1; dilation <= 3; ++dilation) {
          const ls::Window window{in, kernel, stride, dilation, ls::Padding::valid};
          const int counted = count_valid(in, kernel, stride, dilation);
          CAPTURE(in, kernel, stride, dilation);
          REQUIRE(window.fits() == (counted > 0));
          if (window.fits()) REQUIRE(window.out() == counted);
          REQUIRE(window.before() == 0);
        }
}

TEST_CASE("a same window has one output per stride and the least padding, the odd one last") {
  for (int in = 1; in <= 20; ++in)
    for (int kernel = 1; kernel <= 5; ++kernel)
      for (int stride = 1; stride <= 4; ++stride)
        for (int dilation = 1; dilation <= 3; ++dilation) {
          const ls::Window window{in, kernel, stride, dilation, ls::Padding::same};
          const int results = elements_reached_by_stride(in, stride);
          const int padding = least_padding(in, kernel, stride, dilation, results);
          CAPTURE(in, kernel, stride, dilation);
          REQUIRE(window.fits());
          REQUIRE(window.out() == results);
          REQUIRE(window.before() == padding / 2);
          REQUIRE(window.after() == padding - padding / 2);
        }
}
