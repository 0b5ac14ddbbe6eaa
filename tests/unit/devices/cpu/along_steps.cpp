/// \file
/// Conv1D and 1D pooling on the Cpu, compared with the reference.
#include "lockstep/layers/along_steps.hpp"

#include "compare.hpp"
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "support/pooling.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("1D convolutions of generated shapes agree with the reference") {
  Philox g(11);
  for (int i = 0; i < generated_shapes; ++i) {
    const int size = between(g, 1, 5), steps = between(g, 5, 40);
    Conv2DOp op;
    op.in = shape(1, steps, between(g, 1, 9));
    op.filters = between(g, 1, 17);
    op.kernel = {1, size};
    op.strides = {1, between(g, 1, 3)};
    op.padding = between(g, 0, 1) ? Padding::same : Padding::valid;
    op.bias = between(g, 0, 1) == 1;
    INFO(steps << " steps, kernel " << size);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    const AlongSteps<Conv2DOp> along{op};
    const std::size_t weights =
        op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0);
    check_against_reference(along, count, numbers(along, op.in.size(), weights, count));
  }
}

TEST_CASE("1D transposed convolutions agree with the reference") {
  const auto check = [](const auto& along, std::size_t in) {
    INFO(to_string(along.out()));
    check_against_reference(along, 3, numbers(along, in, along.weights(), 3));
  };
  check(Conv1DTranspose<5, 3, strides(2), same>::op(shape(7, 3)), 21);
  check(Conv1DTranspose<1, 4, strides(3), no_bias>::op(shape(1, 17)), 17);
  check(Conv1DTranspose<16, 2, dilation(2)>::op(shape(20, 1)), 20);
}

TEST_CASE("1D pooling of generated shapes agrees with the reference") {
  Philox g(12);
  for (int i = 0; i < generated_shapes; ++i) {
    const Pooling2DWindow window{shape(1, between(g, 4, 40), between(g, 1, 33)),
                                 {1, between(g, 1, 4)},
                                 {1, between(g, 1, 3)},
                                 between(g, 0, 1) ? Padding::same : Padding::valid};
    INFO(describe(window));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    const AlongSteps<MaxPooling2DOp> max{{window}};
    check_against_reference(max, count, numbers(max, window.in.size(), 0, count));
    const AlongSteps<AveragePooling2DOp> mean{{window}};
    check_against_reference(mean, count, numbers(mean, window.in.size(), 0, count));
  }
}
