/// \file
#include "lockstep/layers/max_pooling2d.hpp"

#include "pooling_ops.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("max pooling of generated windows agrees with the reference") {
  Philox g(3);
  for (int i = 0; i < generated_shapes; ++i) {
    const MaxPooling2DOp op{generated_window(g)};
    INFO(describe(op.window));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.window.in.size(), 0, count));
  }
}

TEST_CASE("enough images for two threads are pooled as on one") {
  const auto op = MaxPooling2D<>::op(shape(26, 26, 32));
  check_against_reference(op, 7, numbers(op, op.window.in.size(), 0, 7));
}

TEST_CASE("of equal maxima the first gets the whole gradient, in every channel") {
  for (const int channels : {1, 4, 8, 11}) {
    const auto op = MaxPooling2D<2>::op(shape(2, 4, channels));
    Numbers n = numbers(op, op.window.in.size(), 0, 1);
    const auto c = static_cast<std::size_t>(channels);
    n.x.assign(n.x.size(), 2.0f);
    const auto result = run(op, 1, n, Cpu{.threads = 1});
    for (std::size_t i = 0; i < result.dx.size(); ++i) {
      const std::size_t pixel = i / c,
                        k = i % c;  // of the 2 x 4 image; the windows begin at pixels 0 and 2
      const float expected = pixel == 0 ? n.dy[k] : pixel == 2 ? n.dy[c + k] : 0.0f;
      CHECK(result.dx[i] == expected);
    }
  }
}

TEST_CASE("padding never wins a maximum, also among negative numbers") {
  const auto op = MaxPooling2D<3, same, strides(2)>::op(shape(5, 6, 5));
  Numbers n = numbers(op, op.window.in.size(), 0, 2);
  for (float& v : n.x) v = -1.0f - v * v;
  check_against_reference(op, 2, n);
}

TEST_CASE("a window of more than 256 taps keeps its winner") {
  constexpr auto op = MaxPooling2D<17>::op(shape(17, 34, 5));
  static_assert(Kernel<MaxPooling2DOp, Cpu>::saved(op) == 2 * 5 * 4);
  check_against_reference(op, 2, numbers(op, op.window.in.size(), 0, 2));
}
