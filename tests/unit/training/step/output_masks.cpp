#include "lockstep/training/step/output_masks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace {

namespace ls = lockstep;
using Double = ls::Reference<double>;

struct Tagger : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                               ls::LSTM<4, ls::return_sequences>, ls::Dense<3>> {};
struct Blocks : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                               ls::LSTM<4, ls::return_sequences>, ls::InBlocks<ls::Dense<3>, 4>> {};
struct Series : ls::Sequential<ls::Input<5, 2>, ls::Masking<0.5>, ls::GRU<3, ls::return_sequences>,
                               ls::Dense<2>> {};
struct Unmasked : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>, ls::Conv1D<4, 1>,
                                 ls::Dense<3>> {};
/// One row of the steps, of which there is one, and the state.
struct Row : ls::Sequential<ls::Input<1>, ls::Embedding<7, 3, ls::mask_zero>,
                            ls::GRU<4, ls::return_sequences, ls::return_state>, ls::Dense<3>> {};
/// Masks of two inputs, one after the other, and an output without a mask.
struct Joined : ls::Graph<ls::In<"words", ls::Integers<2>>, ls::In<"series", 3, 2>,
                          ls::Let<"e", ls::From<"words">, ls::Embedding<7, 2, ls::mask_zero>>,
                          ls::Let<"m", ls::From<"series">, ls::Masking<0.5>>,
                          ls::Let<"all", ls::From<"m", "e">, ls::ConcatenateOn<1>>,
                          ls::Out<"mean", ls::From<"all">, ls::GlobalAveragePooling1D>,
                          ls::Out<"steps", ls::From<"all">, ls::Dense<2>>,
                          ls::Out<"half", ls::From<"e", "e">, ls::Add, ls::Dense<2>>> {};

constexpr ls::SparseCategoricalCrossentropy crossentropy{.from_logits = true};
const ls::SGD sgd{.learning_rate = 0.5};

/// Trains as Keras did in make_output_masks.py and compares all that it logged, and the weights.
template <class Net, class Strategy, class Loss, class... Metrics>
void meets_keras(const std::string& name, const Strategy& strategy, const Loss& loss,
                 const Metrics&... metrics) {
  const golden::GoldenFile file("output_masks");
  ls::Model model{Net{}, strategy, loss, sgd, metrics...};
  const auto parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    model.set_weights(parameters[i].name, file.values(name + "/init/" + std::to_string(i)));
  const auto run = [&](int step, const auto& pass) {
    const std::string prefix = name + "/" + std::to_string(step);
    const auto y = file.values(prefix + "/y");
    const bool is_weighted = name != "words" && name != "ignored";
    const auto w = is_weighted ? file.values(prefix + "/w") : std::vector<double>();
    using Target = std::conditional_t<std::is_same_v<Loss, ls::SparseCategoricalCrossentropy>,
                                      std::int32_t, double>;
    return pass(file.values(prefix + "/x"), std::vector<Target>(y.begin(), y.end()), w);
  };
  const auto meets = [&](const ls::Logs& logs, const std::string& recorded, std::size_t i) {
    for (const auto& [log, value] : logs) {
      INFO(name << " " << log << " " << i);
      const double expected = file.values(name + recorded + std::string(log)).at(i);
      CHECK(testing::relative_error(std::vector{value}, std::vector{expected}) < 1e-10);
    }
  };
  for (int step = 0; step < 3; ++step)
    meets(
        run(step,
            [&](const auto&... batch) { return model.train_on_batch(ls::global_batch, batch...); }),
        "/logs/", static_cast<std::size_t>(step));
  meets(
      run(0, [&](const auto&... batch) { return model.test_on_batch(ls::global_batch, batch...); }),
      "/evaluate/", 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(name << " " << parameters[i].name);
    CHECK(testing::relative_error(model.weights(parameters[i].name),
                                  file.values(name + "/final/" + std::to_string(i))) < 1e-10);
  }
}

template <class Strategy>
void meets_keras(const Strategy& strategy) {
  meets_keras<Tagger>("words", strategy, crossentropy, ls::Accuracy{});
  meets_keras<Tagger>("weights", strategy, crossentropy, ls::Accuracy{},
                      ls::Weighted<ls::Accuracy>{});
  meets_keras<Tagger>("ignored", strategy,
                      ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 2});
  meets_keras<Blocks>("words", strategy, crossentropy, ls::Accuracy{});
  meets_keras<Blocks>("weights", strategy, crossentropy, ls::Accuracy{},
                      ls::Weighted<ls::Accuracy>{});
  meets_keras<Blocks>("ignored", strategy,
                      ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 2});
  using Head = ls::MeanSquaredError;
  meets_keras<Joined>(
      "heads", strategy,
      ls::Losses{ls::Head<"half", Head>{}, ls::Head<"mean", Head>{}, ls::Head<"steps", Head>{}},
      ls::On<"steps", ls::MeanOf<ls::MeanAbsoluteError>>{},
      ls::On<"half", ls::Weighted<ls::MeanOf<ls::MeanAbsoluteError>>>{});
  meets_keras<Series>("series", strategy, ls::MeanSquaredError{},
                      ls::MeanOf<ls::MeanAbsoluteError>{}, ls::RootMeanSquaredError{});
}

template <class Net, class Loss>
using MasksOf = ls::detail::OutputMasks<Net, ls::detail::BatchLayout<Net, Loss>>;

}  // namespace

TEST_CASE("loss and metrics leave out the padded steps of the output's mask, as in Keras") {
  meets_keras(ls::OneDevice<Double>{});
}

TEST_CASE("the loss is the mean over the unpadded steps of the whole job, however it is divided") {
  meets_keras(ls::OneDevice<Double>{.virtual_shards = 4});
  meets_keras(ls::Mirrored<Double>{.replicas = 2});
}

TEST_CASE("without an unpadded step loss and gradients are 0") {
  const auto of_padding = [](auto net) {
    ls::Model model{net, ls::OneDevice<Double>{}, crossentropy, sgd, ls::Accuracy{}};
    const auto g =
        model.gradients_of(model.batch(std::vector<double>(10), std::vector<std::int32_t>(10)));
    CHECK(g.logs()["loss"] == 0);
    CHECK(g.logs()["accuracy"] == 0);
    CHECK(g.norm() == 0);
  };
  of_padding(Tagger{});
  of_padding(Blocks{});
}

TEST_CASE("only outputs with a mask read one") {
  STATIC_CHECK(MasksOf<Tagger, ls::SparseCategoricalCrossentropy>::exist);
  STATIC_CHECK(!MasksOf<Unmasked, ls::SparseCategoricalCrossentropy>::exist);
  STATIC_CHECK(!MasksOf<Row, ls::SparseCategoricalCrossentropy>::exist);
}

TEST_CASE("masks of several inputs and outputs") {
  using Losses =
      ls::Losses<ls::Head<"mean", ls::MeanSquaredError>, ls::Head<"steps", ls::MeanSquaredError>,
                 ls::Head<"half", ls::MeanSquaredError>>;
  using Masks = MasksOf<Joined, Losses::on<Joined>>;
  STATIC_CHECK(Masks::exist);
  // Weights: mean; five steps, those of the series first; two steps.
  const std::vector<double> x{0, 3, 0.5, 0.5, 0.5, 1, 0.5, 0.5};
  std::vector<bool> found;
  for (std::size_t w = 0; w < 8; ++w) found.push_back(Masks::counts(x.data(), w));
  CHECK(found == std::vector<bool>{true, false, true, false, false, true, false, true});
}
