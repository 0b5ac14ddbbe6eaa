/// \file
/// Whole models on the Cpu, compared with Reference<double>: branches, fusion within them, shared
/// memory, equal random draws.
#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/repeat.hpp"
#include "unit/model/toy_device.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Output and gradients of sum(c y) over random weights and examples.
template <class Net>
void agrees(std::size_t count) {
  toy::Machine<Net, Reference<double>> expected(count);
  toy::Machine<Net, Cpu> machine(count);
  const auto scope = machine.context.scope();
  CHECK(relative_error(machine.forward(), expected.forward()) < tolerance);
  CHECK(relative_error(machine.gradients(), expected.gradients()) < 2 * tolerance);
}

template <int A, int B, int C, int D>
struct Inception
    : Sequential<
          Parallel<Concatenate, Conv2D<A, 1, relu>,
                   Sequential<Conv2D<B, 1, relu>, Conv2D<2 * B, 3, same, relu>>,
                   Sequential<Conv2D<C, 1, relu>, DepthwiseConv2D<5, same>, Conv2D<2 * C, 1>, ReLU>,
                   Sequential<MaxPooling2D<3, same, strides(1)>, Conv2D<D, 1>, ReLU>>> {};

template <int Filters>
struct Entry
    : Sequential<
          Residual<Sequential<SeparableConv2D<Filters, 3, same, relu>,
                              SeparableConv2D<Filters, 3, same>, MaxPooling2D<3, same, strides(2)>>,
                   Conv2D<Filters, 1, strides(2)>>,
          Tanh> {};

}  // namespace

TEST_CASE("parallel branches agree with the reference") {
  struct Net : Sequential<Input<12, 10, 3>, Inception<4, 3, 2, 5>, Repeat<2, Inception<8, 2, 2, 3>>,
                          GlobalAveragePooling2D, Dense<4>> {};
  agrees<Net>(5);
}

TEST_CASE("separable convolutions with residuals agree with the reference") {
  struct Net : Sequential<Input<16, 16, 3>, Entry<8>, Entry<12>, GlobalAveragePooling2D, Dense<4>> {
  };
  agrees<Net>(5);
}

TEST_CASE("an encoder and decoder agree with the reference") {
  struct Net
      : Sequential<Input<8, 8, 2>, GaussianNoise<stddev(0.3f)>,
                   Conv2D<8, 3, same, strides(2), relu>, SpatialDropout2D<rate(0.25f)>,
                   Conv2D<4, 3, same, strides(2), lockstep::tanh>,
                   Conv2DTranspose<8, 3, same, strides(2), relu>, SpatialDropout2D<rate(0.25f)>,
                   UpSampling2D<2, bilinear>, Conv2DTranspose<2, 3, same>> {};
  agrees<Net>(5);
}

TEST_CASE("a decoder with skip connections agrees with the reference") {
  struct Deep : Sequential<MaxPooling2D<>, Conv2D<6, 3, same, relu>, UpSampling2D<>> {};
  struct Net
      : Sequential<Input<8, 8, 2>, Conv2D<4, 3, same, relu>,
                   Parallel<Concatenate, Identity, Deep, AveragePooling2D<1>>,
                   Parallel<Add, Conv2D<3, 1>, Sequential<DepthwiseConv2D<3, same>, Conv2D<3, 1>>,
                            Conv2D<3, 3, same>>> {};
  agrees<Net>(3);
}

TEST_CASE("blocks with branches, random draws and saved values can be recomputed") {
  struct Block : Sequential<Parallel<Concatenate, SeparableConv2D<3, 3, same, relu>,
                                     Conv2DTranspose<2, 3, same>, Identity>,
                            SpatialDropout2D<rate(0.25f)>, GaussianNoise<stddev(0.2f)>,
                            DepthwiseConv2D<3, same, lockstep::tanh>> {};
  struct Kept : Sequential<Input<8, 8, 2>, Conv2D<3, 1>, Block, Block, Flatten, Dense<2>> {};
  struct Twice : Sequential<Input<8, 8, 2>, Conv2D<3, 1>, Recompute<Block>, Recompute<Block>,
                            Flatten, Dense<2>> {};
  agrees<Twice>(3);
  toy::Machine<Kept, Cpu> kept(3);
  toy::Machine<Twice, Cpu> twice(3);
  const auto scope = kept.context.scope();
  CHECK(kept.gradients() == twice.gradients());
}

TEST_CASE("the input gradient of a dense layer overwrites the input if no other step needs it") {
  struct Net : Sequential<Input<18, 18, 1>, Conv2D<16, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<64>,
                          ReLU, Dense<10>> {};
  using lockstep::detail::StepId;
  constexpr auto overwrites = [](const auto& plan, int step) {
    const auto& x = plan.operand[plan.step[StepId{step}].operands_begin];
    return x.dx == x.backward;
  };
  constexpr auto& plan = lockstep::detail::PlanOf<Net, Cpu>::plan;
  static_assert(lockstep::plan<Net, Cpu>.arena_bytes(64) < 8 << 20);
  REQUIRE(plan.steps == 3);
  CHECK(overwrites(plan, 1));
  CHECK_FALSE(overwrites(plan, 2));  // the ReLU before it keeps it
  agrees<Net>(5);

  struct Twice : Sequential<Input<6>, Dense<8>, Residual<Dense<8>>, Dense<8>, Dense<3>> {};
  constexpr auto& twice = lockstep::detail::PlanOf<Twice, Cpu>::plan;
  REQUIRE(twice.steps == 5);
  CHECK_FALSE(overwrites(twice, 1));  // the sum reads it too
  CHECK(overwrites(twice, 4));
  agrees<Twice>(5);
}
