/// \file
#include "lockstep/training/report/profile.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/reference.hpp"
#include "support/profiled_model.hpp"
#include "support/refusal.hpp"
#include "support/workers.hpp"

using namespace lockstep;
using testing::find_row, testing::ProfiledNet;

namespace {

using Float = Reference<float>;

struct Head : Sequential<Dense<4, relu>, Dense<3>> {
  static constexpr std::string_view name = "head";
};
struct WithHead : Sequential<Input<6, 6, 1>, Conv2D<4, 3>, Recompute<Head>, Flatten, Dense<3>> {};
struct Small : Sequential<Input<6, 6, 1>, Conv2D<4, 3>, Flatten, Dense<3>> {};

template <class S>
auto small_on(const S& strategy) {
  return Model{Small{}, strategy, SparseCategoricalCrossentropy{.from_logits = true},
               SGD{.learning_rate = 0.01f, .momentum = 0.9f}, Accuracy{}};
}
const std::vector<float> images(10 * 36, 0.5f);
const std::vector<std::int32_t> labels = testing::profiled_labels(10);

}  // namespace

TEST_CASE("a profile has each pass of each layer, with the plan's bytes and FLOPs") {
  auto model = small_on(OneDevice<Float>{});
  const Profile profile = model.profile(std::span(images).first(5 * 36), std::span(labels).first(5),
                                        {}, {.steps = 3, .warm_up = 1});
  CHECK(profile.device == "reference");
  CHECK(profile.precision == "float32");
  CHECK(profile.examples == 5);
  CHECK(profile.steps == 3);
  CHECK(profile.step_microseconds > 0);
  CHECK(profile.event_microseconds == 0);
  struct Row {
    const char *layer, *pass;
    double bytes, flops;
  };
  // Elements per example: 36 in, 64 after the convolution, 3 out. Weights: 40 and 195. The
  // convolution reads the batch, whose gradient is not needed.
  for (const Row& r :
       {Row{"batch", "data", 0, 0},
        Row{"conv2d", "forward", 4 * (5 * (36 + 64) + 40), 5 * 2 * 9 * 64},
        Row{"dense", "forward", 4 * (5 * (64 + 3) + 195), 5 * 2 * 64 * 3},
        Row{"loss", "loss", 5 * (2 * 4 * 3 + 4), 0},
        Row{"dense", "backward", 4 * (5 * (64 + 3 + 64) + 2 * 195), 2 * 5 * 2 * 64 * 3},
        Row{"conv2d", "backward", 4 * (5 * (36 + 64) + 40), 5 * 2 * 9 * 64}}) {
    INFO(r.layer << " " << r.pass);
    const ProfileRow* const row = find_row(profile, r.layer, r.pass);
    REQUIRE(row != nullptr);
    CHECK(row->bytes == r.bytes);
    CHECK(row->flops == r.flops);
    CHECK(row->microseconds > 0);
    REQUIRE(row->calls.size() == 1);
    CHECK(row->calls[0].calls == 1);
    CHECK(row->calls[0].microseconds == row->microseconds);
  }
  // Weight, gradient and momentum read, weight and momentum written; within backward, one call a
  // layer.
  const ProfileRow* const update = find_row(profile, "optimizer", "update");
  REQUIRE(update != nullptr);
  CHECK(update->bytes == 4 * 235 * 5);
  CHECK(profile.flops() == 2 * (5 * 2 * 9 * 64) + 3 * (5 * 2 * 64 * 3));
  double all = 0;
  for (const ProfileRow& row : profile.rows) all += row.microseconds;
  CHECK(profile.microseconds() == all);
}

TEST_CASE("profile and summary name the layers of a block by its path") {
  Model model{WithHead{}, OneDevice<Float>{}, SparseCategoricalCrossentropy{.from_logits = true},
              SGD{}};
  const Profile profile =
      model.profile(std::span(images).first(36), std::span(labels).first(1), {}, {.steps = 1});
  for (const char* const layer : {"conv2d", "head/dense", "head/dense_1", "dense"}) {
    INFO(layer);
    CHECK(find_row(profile, layer, "backward") != nullptr);
  }
  CHECK(find_row(profile, "head/dense", "recompute") != nullptr);
  const std::string summary = model.summary();
  INFO(summary);
  for (const char* const cell : {"│ head/dense (Dense)   │", "│ head/dense_1 (Dense) │"})
    CHECK(summary.find(cell) != std::string::npos);
}

TEST_CASE("a profile has the share of the peak that each row reaches, and all rows together") {
  auto model = small_on(OneDevice<Float>{});
  const Profile profile = model.profile(std::span(images).first(5 * 36), std::span(labels).first(5),
                                        {}, {.steps = 3, .warm_up = 1});
  CHECK(profile.peak_flops > 1e9);  // 4 lanes x 2 operations at 0.5 GHz, far below any core
  double weighted = 0;
  for (const ProfileRow& row : profile.rows) {
    INFO(row.layer << " " << row.pass);
    const double share = profile.share_of_peak(row);
    CHECK((share > 0) == (row.flops > 0));
    CHECK(share <= 1.2);
    CHECK(std::abs(share * profile.peak_flops * row.microseconds - 1e6 * row.flops) <=
          1e-6 * (1 + 1e6 * row.flops));
    weighted += share * row.microseconds / profile.microseconds();
  }
  CHECK(profile.share_of_peak() > 0);
  CHECK(std::abs(profile.share_of_peak() - weighted) < 1e-9);
  Profile unknown = profile;
  unknown.peak_flops = 0;
  CHECK(unknown.share_of_peak() == 0);
  // Reference<double> computes in half as many lanes.
  Model wide{Small{}, OneDevice<Reference<double>>{},
             SparseCategoricalCrossentropy{.from_logits = true}, SGD{}};
  const Profile in_double =
      wide.profile(std::vector<double>(5 * 36), std::span(labels).first(5), {}, {.steps = 1});
  CHECK(in_double.peak_flops > 0);
  CHECK(in_double.peak_flops < 0.8 * profile.peak_flops);
}

TEST_CASE("bytes of an update are estimated if it is one pass, and left out otherwise") {
  const auto bytes = [](const UpdateOptions& with) {
    Model model{Small{}, OneDevice<Float>{}, SparseCategoricalCrossentropy{.from_logits = true},
                Adam{.with = with}};
    const Profile profile = model.profile(std::span(images).first(5 * 36),
                                          std::span(labels).first(5), {}, {.steps = 4});
    const ProfileRow* const update = find_row(profile, "optimizer", "update");
    REQUIRE(update != nullptr);
    CHECK(update->microseconds > 0);
    return update->bytes;
  };
  CHECK(bytes({}) == 4 * 235 * 7);
  CHECK(bytes({.clipvalue = 1}) == 4 * 235 * 7);  // in the same pass
  CHECK(bytes({.clipnorm = 1}) == 0);
  CHECK(bytes({.global_clipnorm = 1}) == 0);
  CHECK(bytes({.use_ema = true}) == 0);
  CHECK(bytes({.gradient_accumulation_steps = 2}) == 0);
}

TEST_CASE("the time of calls that do not occur in every step is averaged over all steps") {
  using detail::time_per_step;
  CHECK(time_per_step({3, 1, 8}, 3, false) == 3);
  CHECK(time_per_step({1, 2, 5, 9}, 4, false) == 3.5);
  CHECK(time_per_step({8, 4}, 8, false) == 1.5);
  CHECK(time_per_step({1, 1, 1, 9}, 4, true) == 3);
}

TEST_CASE("a profile prints as a table") {
  Profile profile{"cuda", "float32", 64, 10, 93.25, 1.5};
  profile.rows.push_back({"conv2d+re_lu", "forward", 80, 8e6, 4e8, {{"relu_conv", 1, 80}}});
  profile.rows.push_back(
      {"dense", "backward", 20, 0, 0, {{"cuBLASLt product", 2, 15}, {"clear", 0.25, 5}}});
  const std::string table = to_string(profile);
  CHECK(testing::printed(profile) == table);
  const auto has = [&](const std::string& line) {
    if (table.find(line) != std::string::npos) return true;
    UNSCOPED_INFO(table);
    return false;
  };
  CHECK(table.starts_with("cuda, float32, 64 examples; the median of 10 steps\n"));
  CHECK(
      has("│ conv2d+re_lu │ forward  │ relu_conv        │     1 │  80.0 │  80.0 % │ 8.00 │ 100.0 "
          "│ 400.00 │  5000.0 │"));
  CHECK(
      has("│ dense        │ backward │                  │  2.25 │  20.0 │  20.0 % │      │       "
          "│        │         │"));
  CHECK(has("│              │          │ cuBLASLt product │     2 │  15.0 │  15.0 % │"));
  CHECK(
      has("│ total        │          │                  │       │ 100.0 │ 100.0 % │ 8.00 │  80.0 "
          "│ 400.00 │  4000.0 │"));
  CHECK(has("│              │          │ clear            │  0.25 │   5.0 │"));
  CHECK(has(" A step without instrumentation: 93.2 us\n"));
  CHECK(has(" Two consecutive events: 1.50 us, included in each call's time\n"));
  CHECK(table.find("peak") == std::string::npos);
  profile.peak_flops = 8e12;
  const std::string with_peak = to_string(profile);
  for (const std::string line : {"│  5000.0 │  62.5 % │\n", "│  4000.0 │  50.0 % │\n",
                                 " Peak: 8000.0 GFLOP/s, of multiply-adds on registers\n"}) {
    INFO(with_peak);
    CHECK(with_peak.find(line) != std::string::npos);
  }
  for (ProfileRow& row : profile.rows)  // a device without kernel names
    for (ProfiledCall& c : row.calls) c.name.clear();
  CHECK(to_string(profile).find("┃ Layer        ┃ Pass     ┃ Calls ┃") != std::string::npos);
}

TEST_CASE("a profile becomes JSON") {
  Profile profile{"cuda", "float32", 64, 10, 93.25, 1.5};
  profile.rows.push_back({"conv2d+re_lu", "forward", 80, 8e6, 4e8, {{"relu_conv", 1, 80}}});
  profile.rows.push_back(
      {"dense", "backward", 20, 0, 0, {{"cuBLASLt product", 2, 15}, {"clear", 0.25, 5}}});
  CHECK(
      to_json(profile) ==
      "{\"device\": \"cuda\", \"precision\": \"float32\", \"examples\": 64, \"steps\": 10, "
      "\"step_microseconds\": 93.25, \"event_microseconds\": 1.5, \"microseconds\": 100, "
      "\"peak_flops\": 0, \"rows\": [\n  {\"layer\": \"conv2d+re_lu\", \"pass\": \"forward\", \"microseconds\": 80, "
      "\"bytes\": 8e+06, \"flops\": 4e+08, \"calls\": [{\"name\": \"relu_conv\", \"calls\": 1, "
      "\"microseconds\": 80}]},\n  {\"layer\": \"dense\", \"pass\": \"backward\", "
      "\"microseconds\": 20, \"bytes\": 0, \"flops\": 0, \"calls\": [{\"name\": \"cuBLASLt "
      "product\", \"calls\": 2, \"microseconds\": 15}, {\"name\": \"clear\", \"calls\": 0.25, "
      "\"microseconds\": 5}]}\n]}\n");
}

TEST_CASE("a profile leaves the model bit-identical") {
  const SGD plain{.learning_rate = 0.1f, .momentum = 0.9f};
  const Adam averaged{.learning_rate = ExponentialDecay{0.01, 3, 0.5},
                      .with = {.global_clipnorm = 0.5,
                               .use_ema = true,
                               .ema_overwrite_frequency = 3,
                               .gradient_accumulation_steps = 2}};
  CHECK(testing::profile_leaves_all_as_it_was(OneDevice<Float>{}, plain));
  CHECK(testing::profile_leaves_all_as_it_was(OneDevice<Float>{}, averaged));
  CHECK(testing::profile_leaves_all_as_it_was(Mirrored<Float>{{{}, {}, {}}}, averaged));
  CHECK(testing::profile_leaves_all_as_it_was(OneDevice<Float>{.virtual_shards = 4}, plain));
}

TEST_CASE("a profile that throws leaves the model bit-identical, too") {
  struct Words : Sequential<Input<2>, Embedding<10, 4>, Flatten, Dense<3>> {};
  const auto train = [](const auto& strategy, bool profiles) {
    Model model{Words{}, strategy, SparseCategoricalCrossentropy{.from_logits = true},
                Adam{.learning_rate = 0.1}};
    const std::vector<float> x{1, 2, 3, 4}, wrong{1, 2, 3, 10};
    const std::vector<std::int32_t> y{0, 1};
    model.train_on_batch(x, y);
    if (profiles) {
      CHECK_THROWS_AS(model.profile(wrong, y), Error);
      // The first batch is valid: the error occurs while calls are timed, or before.
      CHECK_THROWS_AS(
          model.profile(tensors(std::vector<float>{1, 2, 3, 10}, shape(2), y) | batch(1),
                        {.steps = 1, .warm_up = 0}),
          Error);
    }
    model.train_on_batch(x, y);
    CHECK(model.steps() == 2);
    return model.weights_sha256();
  };
  const auto leaves_all = [&](const auto& strategy) {
    return train(strategy, true) == train(strategy, false);
  };
  CHECK(leaves_all(OneDevice<Float>{}));
  CHECK(leaves_all(Mirrored<Float>{{{}, {}}}));
  CHECK(leaves_all(OneDevice<Float>{.virtual_shards = 2}));
}

TEST_CASE("the first of several replicas is profiled") {
  auto model = small_on(Mirrored<Float>{{{}, {}}});
  const Profile profile = model.profile(images, labels, {}, {.steps = 2});
  CHECK(profile.examples == 5);
  CHECK(find_row(profile, "dense", "forward")->flops == 5 * 2 * 64 * 3);
  CHECK(find_row(profile, "gradients", "exchange") != nullptr);
  // Two slices of three and two examples.
  auto shards = small_on(OneDevice<Float>{.virtual_shards = 4});
  const Profile sliced = shards.profile(images, labels, {}, {.steps = 1});
  CHECK(sliced.examples == 10);
  CHECK(find_row(sliced, "dense", "forward")->calls[0].calls == 4);
  CHECK(find_row(sliced, "dense", "forward")->bytes == 4 * (10 * (64 + 3) + 4 * 195));
}

TEST_CASE("the forward pass that Recompute repeats has separate rows") {
  struct Again : Sequential<Input<4>, Recompute<Sequential<Dense<8>, Tanh, Dense<8>>>, Dense<3>> {};
  Model model{Again{}, OneDevice<Float>{}, SparseCategoricalCrossentropy{.from_logits = true},
              SGD{}};
  const Profile profile = model.profile(std::vector<float>(8), std::vector<std::int32_t>{0, 1}, {},
                                        {.steps = 1, .warm_up = 0});
  const ProfileRow* const again = find_row(profile, "dense", "recompute");
  REQUIRE(again != nullptr);
  CHECK(again->flops == 2 * 2 * 4 * 8);
}

TEST_CASE("a profile uses full batches, starting over when the data end") {
  auto model = small_on(OneDevice<Float>{});
  const auto data = tensors(images, shape(6, 6, 1), labels);
  const Profile profile = model.profile(data | batch(4), {.steps = 5, .warm_up = 0});
  CHECK(profile.examples == 4);
  CHECK(find_row(profile, "dense", "forward")->bytes == 4 * (4 * (64 + 3) + 195));
  CHECK(model.profile(data | batch(64), {.steps = 2}).examples == 10);  // no full batch exists
  CHECK(testing::refusal<UsageError>([&] { model.profile(data | lockstep::take(0) | batch(4)); }) ==
        "profile: the data are empty; check take, skip and the files");
}

TEST_CASE("a model or data that cannot be profiled are rejected with one message") {
  auto model = small_on(OneDevice<Float>{});
  CHECK(testing::refusal<UsageError>([&] { model.profile(images, labels, {}, {.steps = 0}); }) ==
        "profile: .steps is 0; it must be at least 1");
  testing::run_workers<Float>({1, 1}, 0, [&](const auto& worker) {
    auto part = small_on(worker);
    const std::string message = testing::refusal<UsageError>([&] { part.profile(images, labels); });
    if (message !=
        "profile: the model trains in several processes, and one cannot step without the others; "
        "profile it with OneDevice or Mirrored")
      throw std::logic_error(message);
  });
}
