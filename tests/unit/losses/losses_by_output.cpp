/// \file
/// Networks with several outputs: one device and two processes against a simulation in NumPy
/// (golden/make_heads.py); fields, labels and outputs by name.
#include "lockstep/losses/losses_by_output.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "golden/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/checks/check_gradients.hpp"
#include "support/refusal.hpp"
#include "support/workers.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using golden::GoldenFile;
using Sparse = ls::SparseCategoricalCrossentropy;
using Net = golden::HeadsNet;
using Double = ls::OneDevice<ls::Reference<double>>;

}  // namespace

TEST_CASE("losses, weights, masks and metrics of four outputs are those of the simulation") {
  golden::meets_heads(Double{}, 1e-10);
}

TEST_CASE("two processes give the epoch means of one") {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true}) {
    std::array<golden::Results, 2> found;
    testing::run_workers<ls::Reference<double>>({1, 2}, 0, [&](const auto& worker) {
      found[worker.process] = golden::run_of_heads(file, worker, is_weighted);
    });
    golden::is_simulated(file, found[0], is_weighted, 1e-10);
    CHECK(found[1] == found[0]);
  }
}

TEST_CASE("outputs by name, packed batches, and the names of logs") {
  const GoldenFile file("heads");
  auto model = golden::model_with_heads(Double{}, false);
  golden::set_initial_weights(model, file);
  const auto fields_of_batch = golden::fields_of_heads(file, 8, false);
  // --8<-- [start:outputs]
  const auto packed = ls::pack(model, fields_of_batch);
  const auto whole = model.predict(packed.x);
  const auto tags = whole["tags"];  // (3, 3) for each example
  const auto logs = model.train_on_batch(packed.x, packed.y);
  // --8<-- [end:outputs]
  CHECK(packed.x == golden::columns(file.values("x"), 5, 0, 5, 8));
  CHECK(packed.w.empty());
  CHECK(tags.count() == 8);
  CHECK(tags.example_shape() == ls::shape(3, 3));
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t k = 0; k < 9; ++k) CHECK(tags.row(i)[k] == whole.row(i)[4 + k]);
  CHECK_THROWS_WITH(
      whole["tag"],
      ContainsSubstring("no output is named 'tag'; its outputs are kind, even, tags"));
  const ls::Predictor predictor(model);
  const auto now = model.predict(packed.x)["tags"], same = predictor.predict(packed.x)["tags"];
  CHECK(std::equal(same.elements().begin(), same.elements().end(), now.elements().begin()));
  CHECK(same.count() == 8);

  std::vector<std::string> names;
  for (const auto& [name, value] : logs) names.push_back(name);
  CHECK(names == std::vector<std::string>{"loss", "kind_loss", "even_loss", "tags_loss",
                                          "curve_loss", "kind_accuracy", "kind_weighted_accuracy",
                                          "even_binary_accuracy", "tags_accuracy"});
  CHECK(model.metric_state<ls::On<"kind", ls::Accuracy>>().size() == 2);

  // One weight per example applies to all outputs: half the weights are half the loss.
  const auto halves = model.test_on_batch(packed.x, packed.y, std::vector<double>(8, 0.5));
  const auto ones = model.test_on_batch(packed.x, packed.y);
  CHECK(std::abs(halves["loss"] - ones["loss"] / 2) < 1e-12);

  const ls::Losses smooth{
      ls::Head<"kind", Sparse>{.loss = {.from_logits = true}, .class_weight = {{2, 3}}},
      ls::Head<"tags", Sparse>{.loss = {.from_logits = true, .ignore_class = -1}, .weight = 0.5},
      ls::Head<"even", ls::BinaryCrossentropy>{.loss = {.from_logits = true}},
      ls::Head<"curve", ls::MeanSquaredError>{}};
  CHECK(ls::check_gradients(Net{}, packed.x, packed.y, smooth).error < 1e-8);

  // The derivatives by the inputs are the loss' differences, also where labels do not count.
  const auto dx = model.input_gradients(model.batch(packed.x, packed.y));
  for (const std::size_t i : {0u, 7u, 18u, 33u}) {
    const auto shifted = [&](double by) {
      auto x = packed.x;
      x[i] += by;
      return model.test_on_batch(x, packed.y)["loss"];
    };
    CHECK(std::abs((shifted(1e-5) - shifted(-1e-5)) / 2e-5 - dx[i]) < 1e-9);
  }

  auto wrong = packed.y;
  wrong[0] = 3;
  CHECK_THROWS_WITH(
      model.train_on_batch(packed.x, wrong),
      ContainsSubstring(
          "example 0 of the batch has 3 for output 'kind', whose classes are 0 to 2"));
  wrong[0] = 0.5;
  CHECK_THROWS_WITH(model.train_on_batch(packed.x, wrong), ContainsSubstring("whole numbers"));
  wrong = packed.y;
  wrong[7 + 3] = 9;
  CHECK_THROWS_WITH(model.train_on_batch(packed.x, wrong),
                    ContainsSubstring("example 1 of the batch has 9 for output 'tags' at step 1"));
  ls::FitOptions options{.epochs = 1, .progress = ls::ProgressStyle::none};
  options.class_weight = {{0, 2.0}};
  CHECK_THROWS_WITH(
      model.fit(ls::examples(model, golden::fields_of_heads(file, 8, false)) | ls::batch(4),
                options),
      ContainsSubstring("set .class_weight of an ls::Head instead"));
}

TEST_CASE("the processes of a job compare all options of the heads") {
  const ls::Losses losses{
      ls::Head<"kind", Sparse>{.loss = {.from_logits = true}, .class_weight = {{2, 3}, {0, 0.25}}},
      ls::Head<"even", ls::BinaryCrossentropy>{.weight = 0.3},
      ls::Head<"tags", Sparse>{.loss = {.ignore_class = -1}},
      ls::Head<"curve", ls::Huber>{.loss = {.delta = 2}, .masks = true}};
  using Bound = decltype(losses)::on<Net>;
  CHECK(ls::detail::describe_loss(Bound(losses.heads)) ==
        "kind: sparse_categorical_crossentropy, from logits, weight 1, class 0 0.25, class 2 3; "
        "even: binary_crossentropy, from probabilities, label smoothing 0, weight 0.3; "
        "tags: sparse_categorical_crossentropy, from probabilities, ignored class -1, weight 1; "
        "curve: huber_loss, delta 2, weight 1, masks");
  const auto refusal = [&](const std::vector<std::pair<int, double>>& classes, double weight) {
    auto changed = losses;
    std::get<0>(changed.heads).class_weight = classes;
    std::get<1>(changed.heads).weight = weight;
    return testing::refusal<ls::UsageError>([&] { Bound(changed.heads).check(); });
  };
  CHECK(refusal({{2, 3}}, 1).empty());
  CHECK_THAT(refusal({{3, 2}}, 1), ContainsSubstring("'kind' has a class_weight of class 3, but "
                                                     "its classes are 0 to 2"));
  CHECK_THAT(refusal({{1, 2}, {1, 3}}, 1), ContainsSubstring("two class_weights of class 1"));
  CHECK_THAT(refusal({{1, NAN}}, 1), ContainsSubstring("class_weight nan of class 1"));
  CHECK_THAT(refusal({}, INFINITY), ContainsSubstring("output 'even' has weight inf"));
}

TEST_CASE("the order of the fields does not matter") {
  auto model = golden::model_with_heads(Double{}, false);
  const std::vector<float> pairs{1, 2, 6, 7}, triples{3, 4, 5, 8, 9, 10}, curves{0.5, 1, 1.5, 2};
  const std::vector<std::int32_t> kinds{0, 2}, tags{0, 1, 2, 2, 1, -1};
  const std::vector<std::uint8_t> evens{1, 0};
  // --8<-- [start:data]
  const auto fields = ls::named(
      ls::target("kind", kinds), ls::target("even", evens, ls::shape(1)),
      ls::target("tags", tags, ls::shape(3)), ls::target("curve", curves, ls::shape(2, 1)),
      ls::feature("pair", pairs, ls::shape(2)), ls::feature("triple", triples, ls::shape(3)));
  const auto train = ls::examples(model, fields) | ls::shuffle(1'000) | ls::batch(64);
  // --8<-- [end:data]
  CHECK(train.shape() == ls::shape(5));
  CHECK(train.shape(1) == ls::shape(7));
  const auto bytes = ls::examples<std::uint8_t>(model, fields);
  CHECK(std::vector<int>(bytes.features().begin(), bytes.features().end()) ==
        std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK_THROWS_WITH(
      ls::examples<std::uint8_t>(
          model, ls::named(ls::feature("pair", std::vector{0.5f, 1.f}, ls::shape(2)),
                           ls::feature("triple", std::vector{1, 2, 3}, ls::shape(3)))),
      ContainsSubstring("feature 'pair' has 0.5, which is not a byte"));
  const auto packed = ls::pack(model, fields);
  CHECK(packed.x == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(packed.y == std::vector<double>{0, 1, 0, 1, 2, 0.5, 1, 2, 0, 2, 1, -1, 1.5, 2});
}

TEST_CASE("fields that do not fit the network are named") {
  auto model = golden::model_with_heads(Double{}, false);
  const auto refusal = [&](const std::vector<ls::NamedField>& all) {
    return testing::refusal<ls::UsageError>([&] { ls::pack(model, ls::NamedFields(all)); });
  };
  const auto pair = ls::feature("pair", std::vector<float>(4), ls::shape(2)),
             triple = ls::feature("triple", std::vector<float>(6), ls::shape(3));
  const std::vector<std::int32_t> two{0, 1};
  CHECK(refusal({pair, triple}).empty());
  CHECK_THAT(refusal({pair}), ContainsSubstring("input 'triple' of the network has no feature; the "
                                                "features are pair"));
  CHECK_THAT(
      refusal({pair, triple, ls::feature("third", two, ls::shape())}),
      ContainsSubstring("feature 'third' is not an input of the network; its inputs are pair, "
                        "triple"));
  CHECK_THAT(
      refusal({pair, ls::feature("triple", two, ls::shape(1))}),
      ContainsSubstring("feature 'triple' has shape (1) for each example, but input 'triple' "
                        "of the network reads (3)"));
  CHECK_THAT(refusal({pair, triple, ls::target("kind", std::vector<float>(6), ls::shape(3))}),
             ContainsSubstring("target 'kind' has shape (3) for each example, but output 'kind' of "
                               "the network reads ()"));
  CHECK_THAT(refusal({pair, triple, ls::target("kind", two)}),
             ContainsSubstring("output 'even' of the network has no target; the targets are kind"));
  CHECK_THAT(refusal({pair, triple, ls::weight("tags", std::vector<float>(4), ls::shape(2))}),
             ContainsSubstring("weight 'tags' has shape (2) for each example"));
  CHECK_THAT(refusal({pair, ls::feature("triple", std::vector<float>(9), ls::shape(3))}),
             ContainsSubstring("feature 'triple' has 3 examples, but feature 'pair' has 2"));
  CHECK_THAT(refusal({pair, pair, triple}), ContainsSubstring("feature 'pair' occurs twice"));
}
