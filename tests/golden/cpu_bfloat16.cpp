/// \file
/// Keras' runs in float64 beside CpuBFloat16: losses within 2 %, since activations have 8 bits.
#include "golden/resnet.hpp"
#include "lockstep/cpu.hpp"

using Half = lockstep::CpuBFloat16;

namespace {

/// Skips the test where the device cannot be opened.
void need_bfloat16() {
  try {
    Half{}.open(1, 0);
  } catch (const lockstep::DeviceError& error) {
    SKIP(error.what());
  }
}

/// The losses of all steps; and the first step's gradients all together point where Keras' point.
/// They are not compared closer: rounding decides about the masks of ReLUs and the winners of
/// pools.
void is_near_keras(const golden::Trained& run, const golden::GoldenFile& file,
                   const std::string& prefix) {
  const auto expected = file.values(prefix + "loss");
  REQUIRE(run.losses.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, run.losses[i], expected[i]);
    CHECK(std::abs(run.losses[i] - expected[i]) <= 2e-2 * std::abs(expected[i]));
  }
  double products = 0, ours_squared = 0, theirs_squared = 0;
  for (const auto& [name, ours] : run.gradients) {
    const auto theirs = file.values(prefix + "grad/" + name);
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) products += ours[i] * theirs[i];
    ours_squared += golden::norm(ours) * golden::norm(ours);
    theirs_squared += golden::norm(theirs) * golden::norm(theirs);
  }
  CHECK(products / std::sqrt(ours_squared * theirs_squared) > 0.9);
}

struct NearKeras {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits&, bool) const {
    CAPTURE(prefix);
    is_near_keras(train(lockstep::OneDevice<Half>{}), file, prefix);
  }
};

template <class S>
void trains_resnet56(const S& strategy) {
  need_bfloat16();
  golden::meets_resnet56<Half>(
      [&](const golden::GoldenFile& file, const auto& train, const golden::ResNetLimits&) {
        is_near_keras(train(strategy), file, "");
      });
}

}  // namespace

TEST_CASE("CpuBFloat16 trains the line of the tutorial near Keras") {
  need_bfloat16();
  golden::meets_linear_regression<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains the small CNN near Keras") {
  need_bfloat16();
  golden::meets_small_cnn<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains the tutorials' CNN on MNIST near Keras") {
  need_bfloat16();
  golden::meets_mnist_cnn<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains ResNet-56 near Keras") {
  trains_resnet56(lockstep::OneDevice<Half>{});
}
TEST_CASE("two replicas on CpuBFloat16 train ResNet-56 near Keras") {
  trains_resnet56(lockstep::Mirrored<Half>{.replicas = 2});
}
