/// \file
/// Whole models on the Cuda device beside Reference<double>: branches, fusion within them, blocks
/// that are computed twice.
#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/recompute.hpp"
#include "unit/layers/resnet.hpp"
#include "unit/model/toy_device.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Output and gradients of sum(c y) over random weights and examples.
template <class Net>
void agrees(std::size_t count, double allowed = 2 * tolerance) {
  TestGpu gpu;
  toy::Machine<Net, Reference<double>> expected(count);
  toy::Machine<Net, Cuda> machine(count);
  CHECK(relative_error(machine.forward(), expected.forward()) < tolerance);
  CHECK(relative_error(machine.gradients(), expected.gradients()) < allowed);
}

/// A residual network whose blocks are Block<...>.
template <template <class...> class Block>
struct Nets {
  struct Net : Sequential<Input<8, 8, 3>, resnet::Conv<8, 3>, resnet::Norm, ReLU,
                          Block<resnet::First<8, 1>>, Block<resnet::First<16, 2>>,
                          GlobalAveragePooling2D, Dense<5>> {};
};
template <class... Layers>
using RecomputeAll = Recompute<Sequential<Layers...>>;
using Kept = Nets<Sequential>::Net;
using Again = Nets<RecomputeAll>::Net;

}  // namespace

TEST_CASE("a residual network whose normalizations are fused agrees with the reference") {
  agrees<Kept>(6, 1e-4);
}

TEST_CASE("residual blocks computed again on a GPU give the same bits") {
  TestGpu gpu;
  toy::Machine<Kept, Cuda> a(4);
  toy::Machine<Again, Cuda> b(4);
  CHECK(a.forward() == b.forward());
  CHECK(a.gradients() == b.gradients());
}

TEST_CASE("branches side by side agree with the reference") {
  struct Deep
      : Sequential<MaxPooling2D<3, same, strides(2)>, Conv2D<3, 3, same, relu>, UpSampling2D<>> {};
  struct Net : Sequential<Input<8, 8, 2>, ZeroPadding2D<1>, Conv2D<4, 3, relu>,
                          Parallel<Concatenate, Identity, Deep, AveragePooling2D<1>>,
                          LayerNormalization<>, GELU, GlobalMaxPooling2D, Dense<4>, Softmax> {};
  agrees<Net>(3);
}
