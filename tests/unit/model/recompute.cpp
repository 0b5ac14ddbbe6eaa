#include "lockstep/model/recompute.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/training/report/summary.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
template <class... Layers>
using Kept = ls::Sequential<Layers...>;
template <class... Layers>
using Again = ls::Recompute<ls::Sequential<Layers...>>;

template <class Net, class D>
constexpr auto& plan_of() {
  return ls::detail::PlanOf<Net, D>::plan;
}

/// The same networks with kept and with recomputed blocks.
template <template <class...> class Block>
struct Nets {
  template <int F>
  using Conv = ls::Conv2D<F, 3, ls::same>;

  struct Chain
      : ls::Sequential<ls::Input<8, 8, 2>, Block<Conv<4>, ls::ReLU, Conv<5>, ls::ReLU>,
                       Block<ls::MaxPooling2D<>, Conv<3>, ls::GELU>, ls::Flatten,
                       Block<ls::Dense<6>, ls::Tanh, ls::Dropout<ls::rate(0.4f)>>, ls::Dense<3>> {};
  // The edges of the block are in place, pooled, or keep y; views are at the edges.
  struct Ends : ls::Sequential<ls::Input<6, 6, 2>, Conv<4>, Block<ls::ReLU, Conv<4>, ls::ReLU>,
                               ls::ReLU, Block<ls::Dropout<ls::rate(0.3f)>, ls::MaxPooling2D<>>,
                               ls::Sigmoid, Block<ls::Flatten, ls::Dense<4>, ls::Softmax>> {};
  struct Whole : ls::Sequential<ls::Input<5>, Block<ls::Dense<4>, ls::Tanh, ls::Dense<3>>> {};
  // The last step of the block is the mask.
  struct Masked
      : ls::Sequential<ls::Input<5, 2>, ls::Dense<3>,
                       Block<ls::Dense<4>, ls::Tanh, ls::Dense<4>, ls::Tanh, ls::Masking<>>,
                       ls::GlobalAveragePooling1D> {};
  struct Norm : ls::BatchNormalization<ls::momentum(0.9)> {};
  struct Body : ls::Sequential<ls::Residual<ls::Sequential<Conv<4>, Norm, ls::ReLU, Conv<4>, Norm>>,
                               ls::ReLU> {};
  struct Branch
      : ls::Sequential<ls::Residual<Block<Conv<4>, Norm, ls::ReLU, Conv<4>, Norm>, Block<Norm>>,
                       ls::ReLU> {};
  struct Residual
      : ls::Sequential<ls::Input<6, 6, 2>, Conv<4>, ls::Repeat<2, Block<Body>>, Block<Branch>,
                       Branch, ls::GlobalAveragePooling2D, ls::Dense<3>> {};
};

/// Outputs, gradients and state are bit-identical, for full and smaller batches.
template <class Plain, class Repeated, class D>
void gives_what_the_kept_values_give() {
  toy::Machine<Plain, D> plain(5);
  toy::Machine<Repeated, D> repeated(5);
  static_assert(plan_of<Plain, D>().recomputed == 0 && plan_of<Repeated, D>().recomputed > 0);
  for (const std::size_t count : {5u, 3u}) {
    plain.examples = repeated.examples = count;
    CHECK(repeated.forward() == plain.forward());
    CHECK(repeated.gradients() == plain.gradients());
    std::vector<typename D::real> a(Plain::graph.state), b(a);
    plain.engine.state().download(a.data());
    repeated.engine.state().download(b.data());
    CHECK(a == b);
  }
}
template <class D>
void all_nets_give_the_same_bits() {
  using A = Nets<Kept>;
  using B = Nets<Again>;
  gives_what_the_kept_values_give<A::Chain, B::Chain, D>();
  gives_what_the_kept_values_give<A::Ends, B::Ends, D>();
  gives_what_the_kept_values_give<A::Whole, B::Whole, D>();
  gives_what_the_kept_values_give<A::Masked, B::Masked, D>();
  gives_what_the_kept_values_give<A::Residual, B::Residual, D>();
}

}  // namespace

TEST_CASE("a recomputed block is bit-identical to a kept one") {
  all_nets_give_the_same_bits<ls::Reference<float>>();
  all_nets_give_the_same_bits<ls::Reference<double>>();
}

TEST_CASE("a recomputed block needs less memory") {
  struct Next : Nets<Kept>::Body {};
  struct Kept : ls::Sequential<ls::Input<16, 16, 4>, ls::Repeat<8, Next>> {};
  struct Again : ls::Sequential<ls::Input<16, 16, 4>, ls::Repeat<8, ls::Recompute<Next>>> {};
  constexpr auto& kept = plan_of<Kept, ls::Reference<float>>();
  constexpr auto& again = plan_of<Again, ls::Reference<float>>();
  CHECK(again.arena < kept.arena / 2);
  const std::string text = ls::detail::summary_of<Again, ls::Reference<float>>(0, 0);
  CHECK(text.find(" Activations: " + ls::detail::format_bytes(again.arena) + " per example") !=
        std::string::npos);
  // Three of each block's seven steps need not be recomputed: the last normalization, the sum and
  // the ReLU.
  CHECK(text.find(" Recomputed in backward: 32 of 56 steps, ") != std::string::npos);
  const std::string other = ls::detail::summary_of<Kept, ls::Reference<float>>(0, 0);
  CHECK(other.find("Recomputed") == std::string::npos);
}

TEST_CASE("nested recomputed blocks belong to the outermost") {
  struct Inner : ls::Recompute<ls::Sequential<ls::Dense<4>, ls::Tanh>> {};
  struct Net : ls::Sequential<ls::Input<4>,
                              ls::Recompute<ls::Sequential<Inner, ls::Dense<3>, ls::Tanh, Inner>>,
                              ls::Dense<2>> {};
  static_assert(Net::graph.segments == 1);
  struct Flat : ls::Sequential<ls::Input<4>, ls::Dense<4>, ls::Tanh, ls::Dense<3>, ls::Tanh,
                               ls::Dense<4>, ls::Tanh, ls::Dense<2>> {};
  gives_what_the_kept_values_give<Flat, Net, ls::Reference<float>>();
}

TEST_CASE("ops are not fused across the edges of a recomputed block") {
  using D = toy::Fusing<toy::Rule<ls::DenseOp, ls::ReLUOp>>;
  struct Net : ls::Sequential<ls::Input<4>, ls::Recompute<ls::Dense<4>>, ls::ReLU,
                              ls::Recompute<ls::Sequential<ls::Dense<4>, ls::ReLU, ls::Dense<3>>>,
                              ls::ReLU, ls::Dense<2>> {};
  CHECK(ls::detail::fused_names<Net, D>() == std::vector<std::string>{"dense_1+re_lu_1"});
  struct Plain : ls::Sequential<ls::Input<4>, ls::Dense<4>, ls::ReLU, ls::Dense<4>, ls::ReLU,
                                ls::Dense<3>, ls::ReLU, ls::Dense<2>> {};
  toy::Machine<Plain, D> plain(3);
  toy::Machine<Net, D> repeated(3);
  CHECK(repeated.gradients() == plain.gradients());
}

TEST_CASE("recomputing replicas exchange once: synchronized statistics and weights agree") {
  using ls::Reference;
  struct Norm : ls::BatchNormalization<ls::synchronized> {};
  struct Kept : ls::Sequential<ls::Input<4>, ls::Dense<5>, Norm, ls::Tanh, ls::Dense<5>, Norm,
                               ls::ReLU, ls::Dense<3>> {};
  struct Again : ls::Sequential<ls::Input<4>,
                                ls::Recompute<ls::Sequential<ls::Dense<5>, Norm, ls::Tanh,
                                                             ls::Dense<5>, Norm, ls::ReLU>>,
                                ls::Dense<3>> {};
  const auto x = testing::as<double>(testing::normal_values(7 * 4, 1));
  const std::vector<std::int32_t> labels{0, 1, 2, 0, 1, 2, 0};
  const auto trained = [&]<class Net>(Net) {
    ls::Model model{Net{}, ls::Mirrored<Reference<double>>{.replicas = 3},
                    ls::SparseCategoricalCrossentropy{.from_logits = true},
                    ls::SGD{.learning_rate = 0.1f}};
    model.fit(ls::tensors(x, ls::shape(4), labels) | ls::batch(7),
              {.epochs = 3, .progress = ls::ProgressStyle::none});
    std::vector<double> all;
    for (const auto& p : model.parameters()) {
      const auto values = model.weights(p.name);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  CHECK(trained(Again{}) == trained(Kept{}));
}
