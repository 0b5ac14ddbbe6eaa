#include "lockstep/model/fusion.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/model/repeat.hpp"
#include "lockstep/training/report/summary.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Plain = ls::Reference<float>;
using toy::Fusing;
using toy::Rule;
using ConvRelu = Rule<ls::Conv2DOp, ls::ReLUOp>;
using ConvReluPool = Rule<ls::Conv2DOp, ls::ReLUOp, ls::MaxPooling2DOp>;
using DenseRelu = Rule<ls::DenseOp, ls::ReLUOp>;
using AddRelu = Rule<ls::AddOp, ls::ReLUOp>;
using ConvAddRelu = Rule<ls::Conv2DOp, ls::AddOp, ls::ReLUOp>;
using All = Fusing<ConvRelu, ConvReluPool, DenseRelu, AddRelu, ConvAddRelu>;

using Names = std::vector<std::string>;
template <class Net, class D>
Names fused() {
  return ls::detail::fused_names<Net, D>();
}

/// With equal weights, outputs and gradients are bit-identical, for full and smaller batches.
template <class Net, class D>
void gives_what_the_unfused_plan_gives() {
  toy::Machine<Net, Plain> plain(4);
  toy::Machine<Net, D> fused_machine(4);
  for (const std::size_t count : {4u, 3u}) {
    plain.examples = fused_machine.examples = count;
    CHECK(fused_machine.forward() == plain.forward());
    CHECK(fused_machine.gradients() == plain.gradients());
  }
}

struct Cnn : ls::Sequential<ls::Input<8, 8, 2>, ls::Conv2D<4, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Conv2D<3, 1>, ls::ReLU, ls::Conv2D<3, 2>, ls::ReLU, ls::Flatten,
                            ls::Dense<6>, ls::ReLU, ls::Dense<3>> {};

// The projection's step is between the main branch's last step and the sum.
struct Resnet : ls::Sequential<ls::Input<6, 6, 2>,
                               ls::Residual<ls::Sequential<ls::Conv2D<3, 3, ls::same>, ls::ReLU,
                                                           ls::Conv2D<3, 3, ls::same>>,
                                            ls::Conv2D<3, 1>>,
                               ls::ReLU,
                               ls::Residual<ls::Sequential<ls::Conv2D<3, 3, ls::same>, ls::ReLU,
                                                           ls::Conv2D<3, 3, ls::same>>>,
                               ls::ReLU, ls::Flatten, ls::Dense<2>> {};

}  // namespace

TEST_CASE("every fused plan is bit-identical to the unfused plan") {
  gives_what_the_unfused_plan_gives<Cnn, All>();
  gives_what_the_unfused_plan_gives<Cnn, Fusing<ConvReluPool>>();
  gives_what_the_unfused_plan_gives<Cnn, Fusing<DenseRelu>>();
  gives_what_the_unfused_plan_gives<Resnet, All>();
  gives_what_the_unfused_plan_gives<Resnet, Fusing<AddRelu>>();
}

TEST_CASE("the longest match wins, regardless of the order of rules") {
  // ConvRelu is the first rule of All; its fits() rejects the 1x1 convolution.
  CHECK(fused<Cnn, All>() ==
        Names{"conv2d+re_lu+max_pooling2d", "conv2d_2+re_lu_2", "dense+re_lu_3"});
}

TEST_CASE("a rule can reject an op by its values") {
  CHECK(fused<Cnn, Fusing<ConvRelu>>() == Names{"conv2d+re_lu", "conv2d_2+re_lu_2"});
}

TEST_CASE("a chain follows the data flow past the skip branch") {
  CHECK(fused<Resnet, Fusing<ConvAddRelu>>() ==
        Names{"conv2d_1+add+re_lu_1", "conv2d_4+add_1+re_lu_3"});
  gives_what_the_unfused_plan_gives<Resnet, Fusing<ConvAddRelu>>();
}

TEST_CASE("a value with another reader is not fused away") {
  // The dense layer's output is also the input of the skip branch.
  struct Shared : ls::Sequential<ls::Input<3>, ls::Dense<3>, ls::Residual<ls::ReLU>, ls::Dense<2>> {
  };
  CHECK(fused<Shared, All>().empty());
  gives_what_the_unfused_plan_gives<Shared, All>();
}

TEST_CASE("the model's output is not fused away") {
  struct Ends : ls::Sequential<ls::Input<3>, ls::Dense<3>, ls::ReLU, ls::Dense<2>> {};
  CHECK(fused<Ends, Fusing<Rule<ls::ReLUOp, ls::DenseOp>, DenseRelu>>().size() == 1);
  gives_what_the_unfused_plan_gives<Ends, Fusing<Rule<ls::ReLUOp, ls::DenseOp>>>();
}

TEST_CASE("ops with non-adjacent weights are not fused") {
  // The skip branch's weights are between those of the chain's dense layers.
  struct Apart
      : ls::Sequential<ls::Input<3>, ls::Residual<ls::Dense<3>, ls::Dense<3>>, ls::Dense<2>> {};
  using DenseAddDense = Fusing<Rule<ls::DenseOp, ls::AddOp, ls::DenseOp>>;
  CHECK(fused<Apart, DenseAddDense>() == Names{"dense_1+add+dense_2"});
  gives_what_the_unfused_plan_gives<Apart, DenseAddDense>();
}

TEST_CASE("fusion changes neither names nor offsets of parameters") {
  CHECK(ls::detail::parameters_of<Cnn>().size() == 10);
  CHECK(ls::detail::PlanOf<Cnn, All>::plan.steps == ls::detail::PlanOf<Cnn, Plain>::plan.steps - 4);
}
