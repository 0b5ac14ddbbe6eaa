/// \file
/// Whole models on the Cuda device, compared with Reference<double>: branches, fusion inside them,
/// recomputed blocks, normalizations.
#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/frozen.hpp"
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

/// A residual network with blocks of type Block<...>.
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

TEST_CASE("recomputed residual blocks on a GPU give the same bits") {
  TestGpu gpu;
  const Cuda device{
      0, {.deterministic = true}};  // otherwise each model measures which candidate is fastest
  toy::Machine<Kept, Cuda> a(4, 1, device);
  toy::Machine<Again, Cuda> b(4, 1, device);
  CHECK(a.forward() == b.forward());
  CHECK(a.gradients() == b.gradients());
}

TEST_CASE("frozen layers leave out gradients on a GPU as on the reference") {
  struct Net
      : Sequential<
            Input<6, 6, 2>, Conv2D<4, 3, same>,
            Frozen<
                Sequential<BatchNormalization<>, ReLU, Conv2D<8, 3, same, relu>, DepthwiseConv2D<3>,
                           PReLU<>, Conv2DTranspose<4, 3>, LayerNormalization<>,
                           Residual<Sequential<Conv2D<4, 3, same>, BatchNormalization<>>>>>,
            ReLU, Flatten, Dense<12>, Frozen<Sequential<Dense<9, relu>, Dense<7>>>, Dense<3>> {};
  TestGpu gpu;
  std::vector<double> state = normal_values(Net::graph.state, 4);
  for (double& v : state) v = std::abs(v) * 0.3 + 0.1;
  toy::Machine<Net, Reference<double>> expected(3);
  toy::Machine<Net, Cuda> machine(3);
  expected.engine.state().upload(state.data());
  machine.engine.state().upload(as<float>(state).data());
  CHECK(relative_error(machine.forward(), expected.forward()) < tolerance);
  CHECK(relative_error(machine.gradients(), expected.gradients()) < 1e-4);
}

TEST_CASE("parallel branches agree with the reference") {
  struct Deep
      : Sequential<MaxPooling2D<3, same, strides(2)>, Conv2D<3, 3, same, relu>, UpSampling2D<>> {};
  struct Net : Sequential<Input<8, 8, 2>, ZeroPadding2D<1>, Conv2D<4, 3, relu>,
                          Parallel<Concatenate, Identity, Deep, AveragePooling2D<1>>,
                          LayerNormalization<>, GELU, GlobalMaxPooling2D, Dense<4>, Softmax> {};
  agrees<Net>(3);
}

TEST_CASE("a gradient that a ReLU masks in place has no other reader") {
  // Read twice; read by a recomputed block, and inside it; the model's output.
  using Conv = Conv2D<4, 3, same, relu>;
  struct Net : Sequential<Input<6, 6, 2>, Conv, Residual<Conv>, Recompute<Sequential<Conv, Conv>>,
                          Residual<Recompute<Sequential<Conv, Residual<Conv>>>>, Conv,
                          Parallel<Concatenate, Identity, Conv>, Flatten, Dense<8, relu>,
                          Residual<Dense<8, relu>>, Dense<5, relu>> {};
  agrees<Net>(3);
}

TEST_CASE("layers before normalizations agree with the reference, including their biases") {
  struct All
      : Sequential<Input<6, 6, 2>, Conv2D<3, 3>, BatchNormalization<>, ReLU, DepthwiseConv2D<3>,
                   BatchNormalization<synchronized>, Conv2DTranspose<4, 3>, BatchNormalization<>,
                   GlobalAveragePooling2D, Dense<5>, BatchNormalization<>, ReLU, Dense<3>> {};
  agrees<All>(6, 1e-4);
  // With another reader; channels that a view mixes or splits.
  struct Shared : Sequential<Input<4, 4, 3>, Conv2D<3, 1>, Residual<BatchNormalization<>>> {};
  struct Mixed
      : Sequential<Input<4, 4, 2>, Conv2D<6, 1>, Reshape<shape(48, 2)>, BatchNormalization<>> {};
  struct Split : Sequential<Input<4, 4, 2>, Conv2D<6, 1>, Flatten, BatchNormalization<>> {};
  agrees<Shared>(5);
  agrees<Mixed>(5);
  agrees<Split>(5);
}
