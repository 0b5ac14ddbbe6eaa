#include "lockstep/model/in_blocks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/frozen.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/shared.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "lockstep/reference.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Oracle = ls::Reference<double>;

/// The same network with and without blocks.
template <class Layer, std::size_t>
struct Whole : ls::Sequential<Layer> {};

template <template <class, std::size_t> class Last>
struct Nets {
  struct Vectors : ls::Sequential<ls::Input<5>, ls::Dense<6, ls::tanh>, Last<ls::Dense<7>, 2>> {};
  struct Steps : ls::Sequential<ls::Input<4, 3>, ls::Dense<6, ls::tanh>, ls::Dropout<0.3>,
                                Last<ls::Dense<7, ls::no_bias>, 5>> {};
  struct Tied
      : ls::Sequential<ls::Input<6>, ls::Shared<"tokens", ls::Embedding<9, 4>>,
                       ls::LSTM<4, ls::return_sequences>, Last<ls::TiedDense<"tokens">, 7>> {};
  struct Recomputed
      : ls::Sequential<ls::Input<4, 3>, ls::Recompute<ls::Sequential<ls::Dense<6>, ls::Tanh>>,
                       Last<ls::Dense<7>, 3>> {};
  /// Its op equals that of a row of the last layer.
  struct Alike : ls::Sequential<ls::Input<6>, ls::Dense<6>, Last<ls::Dense<6>, 2>> {};
  struct Frozen
      : ls::Sequential<ls::Input<4, 3>, ls::Dense<6>, ls::Tanh, Last<ls::Frozen<ls::Dense<7>>, 5>> {
  };
  struct Images
      : ls::Sequential<ls::Input<3, 2, 2>, ls::Conv2D<4, 1>, ls::ReLU, Last<ls::Dense<5>, 4>> {};
  /// The last layer is called a second time: its gradients are completed by the first call.
  struct Twice : ls::Sequential<ls::Input<4, 6>, ls::Shared<"key", ls::Dense<6>>, ls::Tanh,
                                Last<ls::Shared<"key", ls::Dense<6>>, 3>> {};
  struct Statements
      : ls::Graph<ls::In<"a", 4, 3>, ls::Let<"h", ls::From<"a">, ls::Dense<5>, ls::Tanh>,
                  ls::Let<"g", ls::From<"h">, ls::Dense<5>>,
                  ls::Out<"y", ls::From<"h", "g">, ls::Add, Last<ls::Dense<6>, 5>>> {};
};
using Plain = Nets<Whole>;
using Blocks = Nets<ls::InBlocks>;

/// One pass: outputs, and the gradients of sum(c * y).
template <class Net>
struct Pass {
  std::vector<double> outputs, gradients;
  std::size_t blocks = 0, updated = 0;

  explicit Pass(toy::Machine<Net, Oracle>& m, std::string_view held = {}) {
    auto& engine = m.engine;
    engine.hold(held);
    engine.prepare(m.examples);
    if constexpr (std::is_same_v<Net, Plain::Tied> || std::is_same_v<Net, Blocks::Tied>)
      for (double& v : m.x) v = static_cast<double>(static_cast<int>(9 + v * 2) % 9);
    const double* const x = m.features();
    const double* const y = engine.forward(x, m.step());
    outputs.resize(m.examples * Net::output_shape.size());
    engine.gradients().upload(std::vector<double>(Net::graph.weights, std::nan("")).data());
    if constexpr (Net::graph.ends_in_blocks()) {
      CHECK(y == nullptr);
      const auto width = static_cast<std::size_t>(Net::output_shape.channels());
      engine.each_block(x, m.step(), true, [&](const ls::Slice& rows, const double* p, double* g) {
        std::copy_n(p, rows.count * width, outputs.data() + rows.first * width);
        std::copy_n(m.c.data() + rows.first * width, rows.count * width, g);
        ++blocks;
      });
    } else {
      std::copy_n(y, outputs.size(), outputs.data());
      std::copy_n(m.c.data(), outputs.size(), engine.output_gradient());
    }
    const auto update = [&](double*, std::size_t count) { updated += count; };
    engine.backward(x, m.step(), [](const ls::detail::Bucket&) {}, update);
    gradients.resize(Net::graph.weights);
    engine.gradients().download(gradients.data());
  }
};

template <class A, class B>
void computes_the_same(std::string_view held = {}) {
  CAPTURE(ls::detail::class_name<A>());
  toy::Machine<A, Oracle> whole(5);
  toy::Machine<B, Oracle> blocks(5);
  for (const std::size_t examples : {5u, 3u, 0u}) {
    whole.examples = blocks.examples = examples;
    const Pass<A> a(whole, held);
    const Pass<B> b(blocks, held);
    CHECK(b.outputs == a.outputs);
    CHECK(b.updated == a.updated);
    REQUIRE(b.gradients.size() == a.gradients.size());
    for (std::size_t i = 0; i < a.gradients.size(); ++i)
      if (std::isnan(a.gradients[i]))
        CHECK(std::isnan(b.gradients[i]));
      else
        CHECK(std::abs(b.gradients[i] - a.gradients[i]) < 1e-12);
  }
}

}  // namespace

TEST_CASE("InBlocks: networks compute what they do without it") {
  computes_the_same<Plain::Vectors, Blocks::Vectors>();
  computes_the_same<Plain::Steps, Blocks::Steps>();
  computes_the_same<Plain::Tied, Blocks::Tied>();
  computes_the_same<Plain::Recomputed, Blocks::Recomputed>();
  computes_the_same<Plain::Alike, Blocks::Alike>();
  computes_the_same<Plain::Frozen, Blocks::Frozen>();
  computes_the_same<Plain::Images, Blocks::Images>();
  computes_the_same<Plain::Twice, Blocks::Twice>();
  computes_the_same<Plain::Statements, Blocks::Statements>();
}

TEST_CASE("InBlocks: layers that do not train have no gradients") {
  // Steps: dense+tanh, dropout and the last layer.
  computes_the_same<Plain::Vectors, Blocks::Vectors>("001");
  computes_the_same<Plain::Vectors, Blocks::Vectors>("100");
  computes_the_same<Plain::Vectors, Blocks::Vectors>("101");
}

TEST_CASE("InBlocks: rows that do not fill the last block are one of their own") {
  toy::Machine<Blocks::Steps, Oracle> machine(3);
  CHECK(Pass<Blocks::Steps>(machine).blocks == 3);  // 12 rows: 5, 5, 2
  machine.examples = 1;
  CHECK(Pass<Blocks::Steps>(machine).blocks == 1);
  machine.examples = 0;
  CHECK(Pass<Blocks::Steps>(machine).blocks == 1);
}
