/// \file
/// Networks with several outputs: losses, weights, masks and metrics by output, against a
/// simulation in NumPy (golden/make_heads.py); replicas and processes; fields, labels and outputs by
/// name.
#include "lockstep/losses/losses_by_output.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/checks/check_gradients.hpp"
#include "support/refusal.hpp"
#include "support/run_kernel.hpp"
#include "support/workers.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using golden::GoldenFile;

struct Net : ls::Sequential<ls::Input<5>, ls::Dense<6, ls::tanh>, ls::Dense<15>> {
  static constexpr std::array<ls::RowPart, 2> inputs{
      {{"pair", ls::shape(2), 0}, {"triple", ls::shape(3), 2}}};
  static constexpr std::array<ls::RowPart, 4> outputs{{{"kind", ls::shape(3), 0},
                                                       {"even", ls::shape(1), 3},
                                                       {"tags", ls::shape(3, 3), 4},
                                                       {"curve", ls::shape(2, 1), 13}}};
};
using Sparse = ls::SparseCategoricalCrossentropy;

template <class S>
auto model_on(const S& strategy, bool is_weighted) {
  ls::Head<"kind", Sparse> kind{.loss = {.from_logits = true}};
  if (is_weighted) kind.class_weight = {{2, 3}, {0, 0.25}};
  // --8<-- [start:losses]
  return ls::Model{
      Net{},
      strategy,
      ls::Losses{
          ls::Head<"curve", ls::MeanSquaredError>{.weight = 2, .masks = true}, kind,
          ls::Head<"tags", Sparse>{.loss = {.from_logits = true, .ignore_class = -1},
                                   .weight = 0.5},
          ls::Head<"even", ls::BinaryCrossentropy>{.loss = {.from_logits = true}, .weight = 0.3}},
      ls::SGD{.learning_rate = 0.25},
      ls::On<"kind", ls::Accuracy>{},
      ls::On<"kind", ls::Weighted<ls::Accuracy>>{},
      ls::On<"even", ls::BinaryAccuracy>{{.threshold = 0}},
      ls::On<"tags", ls::Weighted<ls::Accuracy>>{{{.ignore_class = -1}}}};
  // --8<-- [end:losses]
}

/// The columns [first, first + count) of rows of `width`, of the first `examples`.
std::vector<double> columns(const std::vector<double>& rows, std::size_t width, std::size_t first,
                            std::size_t count, std::size_t examples) {
  std::vector<double> result;
  for (std::size_t i = 0; i < examples; ++i)
    for (std::size_t k = 0; k < count; ++k) result.push_back(rows[i * width + first + k]);
  return result;
}

/// The file's first `n` examples, in an order that is not the network's.
ls::NamedFields fields(const GoldenFile& file, std::size_t n, bool is_weighted) {
  const auto part = [&](const char* name, std::size_t width, std::size_t first, std::size_t count) {
    return columns(file.values(name), width, first, count, n);
  };
  std::vector<ls::NamedField> all{
      ls::target("tags", testing::as<std::int32_t>(part("tags", 3, 0, 3)), ls::shape(3)),
      ls::feature("triple", part("x", 5, 2, 3), ls::shape(3)),
      ls::target("kind", testing::as<std::uint8_t>(part("kind", 1, 0, 1))),
      ls::feature("pair", part("x", 5, 0, 2), ls::shape(2)),
      ls::target("curve", part("curve", 2, 0, 2), ls::shape(2, 1)),
      ls::target("even", part("even", 1, 0, 1), ls::shape(1))};
  if (is_weighted) {
    all.push_back(ls::weight("curve", part("w", 7, 5, 2), ls::shape(2)));
    all.push_back(ls::weight("kind", part("w", 7, 0, 1)));
    all.push_back(ls::weight("tags", part("w", 7, 2, 3), ls::shape(3)));
    all.push_back(ls::weight("even", part("w", 7, 1, 1), ls::shape(1)));
  }
  return ls::NamedFields(std::move(all));
}

using Results = std::map<std::string, std::vector<double>>;

template <class M>
void set_initial(M& model, const GoldenFile& file) {
  auto from = testing::as<typename M::T>(file.values("init"));
  std::size_t at = 0;
  for (const auto& p : model.parameters()) {
    model.set_weights(p.name, {from.data() + at, p.size()});
    at += p.size();
  }
}

template <class S>
Results run(const GoldenFile& file, const S& strategy, bool is_weighted) {
  auto model = model_on(strategy, is_weighted);
  set_initial(model, file);
  const auto data = [&](std::size_t n) {
    return ls::weighted_examples(model, fields(file, n, is_weighted)) | ls::batch(8);
  };
  const auto history = model.fit(data(21), {.epochs = 2, .progress = ls::ProgressStyle::none});
  Results results;
  for (const auto& name : history.names()) results[name] = history[name];
  for (const auto& p : model.parameters())
    for (const auto v : model.weights(p.name)) results["final"].push_back(static_cast<double>(v));
  for (const auto& [name, value] : model.evaluate(data(10))) results["evaluate/" + name] = {value};
  return results;
}

void is_golden(const GoldenFile& file, const Results& results, bool is_weighted, double allowed) {
  CHECK(results.size() == 1 + 2 * 9);
  for (const auto& [name, values] : results) {
    CAPTURE(name, is_weighted);
    CHECK(testing::relative_error(
              values, file.values((is_weighted ? "weighted/" : "plain/") + name)) < allowed);
  }
}

using Double = ls::OneDevice<ls::Reference<double>>;

}  // namespace

TEST_CASE("losses, weights, masks and metrics of four outputs are those of the simulation") {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true})
    is_golden(file, run(file, Double{}, is_weighted), is_weighted, 1e-10);
}

TEST_CASE("replicas give the simulation's numbers, and with virtual shards the same bits") {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true}) {
    std::vector<Results> all;
    for (const std::size_t n : {1u, 2u, 4u})
      all.push_back(
          run(file, ls::Mirrored<ls::Cpu>{.replicas = n, .virtual_shards = 4}, is_weighted));
    is_golden(file, all[0], is_weighted, 1e-5);
    CHECK(all[1] == all[0]);
    CHECK(all[2] == all[0]);
  }
}

TEST_CASE("rounded activations change little") {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true})
    is_golden(file, run(file, ls::OneDevice<ls::CpuBFloat16>{}, is_weighted), is_weighted, 2e-2);
}

TEST_CASE("two processes give the epoch means of one") {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true}) {
    std::array<Results, 2> found;
    testing::run_workers<ls::Reference<double>>({1, 2}, 0, [&](const auto& worker) {
      found[worker.process] = run(file, worker, is_weighted);
    });
    is_golden(file, found[0], is_weighted, 1e-10);
    CHECK(found[1] == found[0]);
  }
}

TEST_CASE("outputs by name, packed batches, and the names of logs") {
  const GoldenFile file("heads");
  auto model = model_on(Double{}, false);
  set_initial(model, file);
  const auto fields_of_batch = fields(file, 8, false);
  // --8<-- [start:outputs]
  const auto packed = ls::pack(model, fields_of_batch);
  const auto whole = model.predict(packed.x);
  const auto tags = whole["tags"];  // (3, 3) for each example
  const auto logs = model.train_on_batch(packed.x, packed.y);
  // --8<-- [end:outputs]
  CHECK(packed.x == columns(file.values("x"), 5, 0, 5, 8));
  CHECK(packed.w.empty());
  CHECK(tags.count() == 8);
  CHECK(tags.example_shape() == ls::shape(3, 3));
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t k = 0; k < 9; ++k) CHECK(tags.row(i)[k] == whole.row(i)[4 + k]);
  CHECK_THROWS_WITH(
      whole["tag"],
      ContainsSubstring("no output is named 'tag'; its outputs are kind, even, tags"));
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
  CHECK_THROWS_WITH(model.fit(ls::examples(model, fields(file, 8, false)) | ls::batch(4), options),
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
  auto model = model_on(Double{}, false);
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
  const auto packed = ls::pack(model, fields);
  CHECK(packed.x == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(packed.y == std::vector<double>{0, 1, 0, 1, 2, 0.5, 1, 2, 0, 2, 1, -1, 1.5, 2});
}

TEST_CASE("fields that do not fit the network are named") {
  auto model = model_on(Double{}, false);
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
