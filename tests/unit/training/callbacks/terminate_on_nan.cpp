#include "lockstep/training/callbacks/terminate_on_nan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <string>
#include <vector>

#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

/// Ten examples in batches of four; the targets of some are not finite.
struct Trained {
  std::vector<std::string> messages;
  std::uint64_t steps = 0;

  template <class Strategy>
  Trained(const Strategy& strategy, double bad, std::size_t at, ls::TerminateOnNaN callback,
          std::uint64_t together = 1) {
    std::vector<double> y = line::ys();
    y[at] = bad;
    const auto before = ls::set_log([&](ls::LogLevel level, std::string_view text) {
      if (level == ls::LogLevel::error) messages.emplace_back(text);
    });
    ls::Model model{line::Net{}, strategy, ls::MeanSquaredError{}, ls::SGD{.learning_rate = 0.1}};
    try {
      model.fit(ls::tensors(line::xs(), ls::shape(1), y, ls::shape(1)) | ls::batch(4),
                {.epochs = 3,
                 .steps_per_execution = together,
                 .callbacks = {callback},
                 .progress = ls::ProgressStyle::none});
    } catch (const ls::Error& e) {
      messages.emplace_back(text_of(e));
    }
    ls::set_log(before);
    steps = model.steps();
  }
  static std::string text_of(const ls::Error& e) { return std::string("thrown: ") + e.what(); }
};

constexpr double no_number = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("TerminateOnNaN ends training after the step whose loss is NaN, and names the step") {
  for (const double bad : {no_number, infinity, -infinity}) {
    const Trained run(line::Double{}, bad, 5, {});
    CHECK(run.steps == 2);
    REQUIRE(run.messages.size() == 1);
    CHECK_THAT(run.messages[0], ContainsSubstring("step 2 (epoch 1, batch 2)") &&
                                    ContainsSubstring("replica 0") &&
                                    ContainsSubstring("dense/kernel, dense/bias"));
  }
}

TEST_CASE("TerminateOnNaN names the last step of an execution") {
  const Trained first(line::Double{}, no_number, 0, {}, 2),
      last(line::Double{}, infinity, 9, {}, 2);
  CHECK(first.steps == 2);
  CHECK_THAT(first.messages.at(0), ContainsSubstring("step 2 (epoch 1, batch 2)"));
  CHECK(last.steps == 3);
  CHECK_THAT(last.messages.at(0), ContainsSubstring("step 3 (epoch 1, batch 3)"));
}

TEST_CASE("TerminateOnNaN names the replica whose loss is not finite") {
  const ls::Mirrored<ls::Reference<double>> two{.replicas = 2};
  CHECK_THAT(Trained(two, no_number, 5, {}).messages.at(0), ContainsSubstring("of replica 0;"));
  CHECK_THAT(Trained(two, no_number, 6, {}).messages.at(0), ContainsSubstring("of replica 1;"));
}

TEST_CASE("TerminateOnNaN throws if requested, and is silent while all values are finite") {
  const Trained thrown(line::Double{}, no_number, 0, {.raise_error = true});
  REQUIRE(thrown.messages.size() == 1);
  CHECK_THAT(thrown.messages[0], ContainsSubstring("thrown: ") && ContainsSubstring("step 1"));
  const Trained well(line::Double{}, 1.0, 0, {});
  CHECK(well.messages.empty());
  CHECK(well.steps == 9);
}
