#include "lockstep/training/named_tensors.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<3>, ls::BatchNormalization<>, ls::Dense<1>> {};

/// Keeps the tensors that a callback sees at the end of the last epoch.
struct Keeper : ls::Callback {
  void on_epoch_end(int, const ls::Logs&) override { tensors = control().tensors(); }
  std::vector<ls::NamedTensor> tensors;
};

template <class Device>
void check_tensors() {
  using T = typename Device::real;
  ls::Model model{Net{}, ls::OneDevice<Device>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.01}};
  const auto keeper = std::make_shared<Keeper>();
  model.fit(ls::tensors(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 9}, ls::shape(2),
                        std::vector<float>{1, 2, 3, 5}, ls::shape(1)) |
                ls::batch(2),
            {.callbacks = {keeper}, .progress = ls::ProgressStyle::none});
  const auto as_float = [](const std::vector<T>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const auto parameters = model.parameters();
  REQUIRE(keeper->tensors.size() == parameters.size());
  REQUIRE(parameters.size() == 8);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ls::NamedTensor& t = keeper->tensors[i];
    CAPTURE(t.name);
    CHECK(t.name == parameters[i].name);
    CHECK(t.shape == parameters[i].shape);
    CHECK(t.values == as_float(model.weights(t.name)));
    if (parameters[i].trainable)
      CHECK(t.gradient == as_float(model.gradients(t.name)));
    else
      CHECK(t.gradient.empty());
  }
  CHECK(keeper->tensors[0].gradient != std::vector<float>(6));
}

}  // namespace

TEST_CASE("a callback gets copies of all parameters and gradients") {
  check_tensors<ls::Reference<float>>();
}

TEST_CASE("a callback gets copies of parameters in double as float") {
  check_tensors<ls::Reference<double>>();
}
