/// \file
/// CpuBFloat16 compared with Keras in float64: losses within 2 %, as bfloat16 has 8 significant
/// bits.
#include "golden/heads.hpp"
#include "golden/near_keras.hpp"
#include "golden/resnet.hpp"
#include "lockstep/cpu.hpp"
#include "support/bfloat16.hpp"

using Half = lockstep::CpuBFloat16;

namespace {

struct NearKeras {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits&, bool) const {
    CAPTURE(prefix);
    golden::is_near_keras(train(lockstep::OneDevice<Half>{}), file, prefix);
  }
};

template <class S>
void trains_resnet56(const S& strategy) {
  testing::need_bfloat16();
  golden::meets_resnet56<Half>(
      [&](const golden::GoldenFile& file, const auto& train, const golden::ResNetLimits&) {
        golden::is_near_keras(train(strategy), file, "");
      });
}

}  // namespace

TEST_CASE("CpuBFloat16 trains the tutorial's line close to Keras") {
  testing::need_bfloat16();
  golden::meets_linear_regression<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains the small CNN close to Keras") {
  testing::need_bfloat16();
  golden::meets_small_cnn<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains several outputs close to the simulation") {
  testing::need_bfloat16();
  golden::meets_heads(lockstep::OneDevice<Half>{}, 2e-2);
}
TEST_CASE("CpuBFloat16 trains the tutorials' CNN on MNIST close to Keras") {
  testing::need_bfloat16();
  golden::meets_mnist_cnn<Half>(NearKeras{});
}
TEST_CASE("CpuBFloat16 trains ResNet-56 close to Keras") {
  trains_resnet56(lockstep::OneDevice<Half>{});
}
TEST_CASE("two replicas on CpuBFloat16 train ResNet-56 close to Keras") {
  trains_resnet56(lockstep::Mirrored<Half>{.replicas = 2});
}
