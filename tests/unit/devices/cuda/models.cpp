/// \file
/// Whole models on the Cuda device beside Reference<double>: branches, fusion within them, blocks
/// that are computed twice, biases that a normalization takes off again.
#include <string>
#include <vector>

#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/training/parameters.hpp"
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
/// The steps whose gradient's sums the plan knows to be 0.
template <class Net>
std::vector<std::string> centered() {
  constexpr auto& plan = lockstep::detail::PlanOf<Net, Cuda>::plan;
  std::vector<std::string> names;
  for (int i = 0; i < plan.steps; ++i) {
    const auto& s = plan.step[static_cast<std::size_t>(i)];
    if (s.centered) names.push_back(lockstep::detail::layer_name(s.name, s.ordinal));
  }
  CHECK(plan.clears_gradients == !names.empty());
  return names;
}

using Kept = Nets<Sequential>::Net;
using Again = Nets<RecomputeAll>::Net;

}  // namespace

TEST_CASE("a residual network whose normalizations are fused agrees with the reference") {
  agrees<Kept>(6, 1e-4);
}

TEST_CASE("residual blocks computed again on a GPU give the same bits") {
  TestGpu gpu;
  const Cuda device{0, {.deterministic = true}};  // else each measures which way is the fastest
  toy::Machine<Kept, Cuda> a(4, 1, device);
  toy::Machine<Again, Cuda> b(4, 1, device);
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

TEST_CASE("a gradient that a ReLU masks in its place is read by nobody else") {
  // Read twice; read by a block that is computed again, and within it; the model's output.
  using Conv = Conv2D<4, 3, same, relu>;
  struct Net : Sequential<Input<6, 6, 2>, Conv, Residual<Conv>, Recompute<Sequential<Conv, Conv>>,
                          Residual<Recompute<Sequential<Conv, Residual<Conv>>>>, Conv,
                          Parallel<Concatenate, Identity, Conv>, Flatten, Dense<8, relu>,
                          Residual<Dense<8, relu>>, Dense<5, relu>> {};
  agrees<Net>(3);
}

TEST_CASE("a bias in front of a normalization has no gradient, and nobody adds one up") {
  using Names = std::vector<std::string>;
  struct All
      : Sequential<Input<6, 6, 2>, Conv2D<3, 3>, BatchNormalization<>, ReLU, DepthwiseConv2D<3>,
                   BatchNormalization<synchronized>, Conv2DTranspose<4, 3>, BatchNormalization<>,
                   GlobalAveragePooling2D, Dense<5>, BatchNormalization<>, ReLU, Dense<3>> {};
  CHECK(centered<All>() == Names{"conv2d", "depthwise_conv2d", "conv2d_transpose", "dense"});
  agrees<All>(6, 1e-4);
  {
    TestGpu gpu;
    toy::Machine<All, Cuda> machine(6);
    const auto gradients = machine.gradients();
    for (const auto& p : lockstep::detail::parameters_of<All>()) {
      if (p.name.find("/bias") == std::string::npos) continue;
      INFO(p.name);
      for (std::size_t i = 0; i < p.size(); ++i)
        CHECK((gradients[p.offset + i] == 0) == (p.name != "dense_1/bias"));
    }
  }

  // Through a ReLU; read by somebody else; the model's output; channels that a view mixes.
  struct Rectified : Sequential<Input<4, 4, 2>, Conv2D<3, 3, relu>, BatchNormalization<>> {};
  struct Shared : Sequential<Input<4, 4, 3>, Conv2D<3, 1>, Residual<BatchNormalization<>>> {};
  struct Last : Sequential<Input<4, 4, 2>, BatchNormalization<>, Conv2D<3, 3>> {};
  struct Mixed
      : Sequential<Input<4, 4, 2>, Conv2D<6, 1>, Reshape<shape(48, 2)>, BatchNormalization<>> {};
  struct Split : Sequential<Input<4, 4, 2>, Conv2D<6, 1>, Flatten, BatchNormalization<>> {};
  CHECK(centered<Rectified>().empty());
  CHECK(centered<Shared>().empty());
  CHECK(centered<Last>().empty());
  CHECK(centered<Mixed>().empty());
  // Without a bias there is nothing to leave out, and nothing to clear.
  struct Without : Sequential<Input<6, 6, 2>, Conv2D<4, 3, no_bias>, BatchNormalization<>,
                              DepthwiseConv2D<3, no_bias>, BatchNormalization<>,
                              Conv2DTranspose<4, 3, no_bias>, BatchNormalization<>, Flatten,
                              Dense<5, no_bias>, BatchNormalization<>> {};
  static_assert(!lockstep::detail::PlanOf<Without, Cuda>::plan.clears_gradients);
  CHECK(centered<Without>().empty());
  CHECK(centered<Split>() == Names{"conv2d"});
  agrees<Shared>(5);
  agrees<Mixed>(5);
  agrees<Split>(5);
}
