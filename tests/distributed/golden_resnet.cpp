#include "distributed/golden.hpp"
#include "golden/near_keras.hpp"
#include "golden/resnet.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/reference.hpp"
#include "support/bfloat16.hpp"

using namespace distributed;

namespace {

/// Two workers train as `check` requires, and end with the same weights.
template <class D, class Check>
void two_workers_train_resnet56(const Check& check) {
  golden::meets_resnet56<D>(
      [&](const golden::GoldenFile& file, const auto& train, const golden::ResNetLimits& limits) {
        golden::Trained like;
        like.losses.resize(4);
        like.accuracies.resize(4);
        for (const auto& p : ls::detail::parameters_of<golden::ResNet56>()) {
          like.final[p.name].resize(p.size());
          if (p.trainable) like.gradients[p.name].resize(p.size());
        }
        Processes job(
            2,
            [&](Here& here) {
              here.give(flat(train(ls::MultiWorkerMirrored<D>{.on = golden::single<D>()})));
            },
            300s);
        REQUIRE(job.all_end());
        for (std::size_t rank = 0; rank < 2; ++rank) {
          CAPTURE(rank, job.report(rank).what.text, job.logs());
          REQUIRE(job.report(rank).outcome == Outcome::done);
        }
        REQUIRE(job.numbers(1) == job.numbers(0));
        check(trained_from(job.numbers(0), like), file, limits);
        CHECK(job.has_no_orphans());
      });
}

}  // namespace

TEST_CASE("two workers on Reference<double> train ResNet-56 as Keras does", "[.slow]") {
  two_workers_train_resnet56<ls::Reference<double>>(golden::is_keras_resnet);
}
TEST_CASE("two workers on Cpu train ResNet-56 as Keras does", "[.slow]") {
  two_workers_train_resnet56<ls::Cpu>(golden::is_keras_resnet);
}
TEST_CASE("two workers in bfloat16 train ResNet-56 nearly as Keras does", "[.slow]") {
  testing::need_bfloat16();
  two_workers_train_resnet56<ls::CpuBFloat16>(
      [](const golden::Trained& run, const golden::GoldenFile& file, const golden::ResNetLimits&) {
        golden::is_near_keras(run, file, "");
      });
}
