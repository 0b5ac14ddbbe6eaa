#include "unit/devices/long_sums.hpp"

#include "lockstep/cpu.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
using long_sums::allowed, long_sums::Terms;

TEST_CASE("sums over examples and pixels lose less than 1e-6 of their magnitude on the Cpu") {
  for (const int threads : {1, 2}) long_sums::check(96, 7, ls::Cpu{.threads = threads});
}

TEST_CASE("sums over examples and pixels lose less than 1e-6 on the reference in float") {
  long_sums::check(64, 4, ls::Reference<float>{});
}

TEST_CASE("sums of a convolution with ReLU and pooling lose less than 1e-6 of their magnitude") {
  constexpr std::size_t count = 40;
  const auto conv = ls::Conv2D<32, 3>::op(ls::shape(98, 98, 1));
  const ls::ConvReLUPoolOp op{conv, {conv.out()}, ls::MaxPooling2D<>::op(conv.out())};
  for (const Terms which : {Terms::equal, Terms::random}) {
    const auto dy = long_sums::terms(which, count * op.out().size());
    const auto expected = long_sums::column_sums(dy, 32);
    const auto dw = long_sums::run(op, count, std::vector<float>(count * conv.in.size(), 1.0f),
                                   std::vector<float>(10 * 32, 0.5f), dy, ls::Cpu{.threads = 1})
                        .dw;
    CHECK(long_sums::worst(dw.data() + 9 * 32, expected) < allowed);
    for (std::size_t tap = 0; tap < 9; ++tap)  // a float sums 128 products
      CHECK(long_sums::worst(dw.data() + tap * 32, expected) < 4 * allowed);
  }
}

TEST_CASE("losses of a million elements per example lose less than 1e-6") {
  constexpr std::size_t n = 1'000'000;
  const std::vector<float> target(n);
  for (const Terms which : {Terms::equal, Terms::random}) {
    const auto p = long_sums::terms(which, n);
    double squares = 0, sizes = 0;
    for (const float v : p) {
      squares += static_cast<double>(v) * v;
      sizes += v;
    }
    const auto loss = [&](const auto& op) {
      return op.example(p.data(), target.data(), static_cast<float*>(nullptr), 1.0);
    };
    CHECK(std::abs(loss(ls::MeanSquaredError{}.op(ls::shape(n))) / (squares / n) - 1) < allowed);
    CHECK(std::abs(loss(ls::MeanAbsoluteError{}.op(ls::shape(n))) / (sizes / n) - 1) < allowed);
  }
}

TEST_CASE("sums of ten million terms lose less than 1e-6 of their magnitude", "[.slow]") {
  using namespace lockstep;
  using namespace long_sums;
  const Cpu device{.threads = 2};
  const auto image = shape(128, 128, 1);
  constexpr std::size_t count = 611, rows = count * 128 * 128;
  for (const Terms which : {Terms::equal, Terms::random}) {
    INFO((which == Terms::equal ? "equal" : "random"));
    CHECK(of_bias<Conv2D<1, 1>>(image, count, which, device) < allowed);
    CHECK(of_bias<Conv2D<8, 3>>(image, count / 4, which, device) < allowed);
    CHECK(of_bias<Conv2D<16, 3, same>>(shape(128, 128, 16), 57, which, device) < allowed);
    CHECK(of_bias<DepthwiseConv2D<3>>(image, count, which, device) < allowed);
    CHECK(of_bias<Conv2DTranspose<1, 3>>(image, count, which, device) < allowed);
    CHECK(of_bias<Dense<1>>(shape(1), rows, which, device) < allowed);
    CHECK(of_layer_normalization(shape(128, 128, 2), count, which, device) < allowed);
    CHECK(of_batch_normalization(image, count, which, device) < allowed);
    CHECK(of_mean<GlobalAveragePooling2D>(shape(3200, 3200, 1), which, device) < allowed);
    CHECK(of_embedding(rows / 64, which, device) < allowed);
  }
}
