// Resuming on oneDNN, in single precision and in bfloat16.
#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"
#include "support/bfloat16.hpp"
#include "unit/training/checkpoint/resume_support.hpp"

namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<8, 3, ls::relu>, ls::MaxPooling2D<>,
                            ls::BatchNormalization<>, ls::Flatten, ls::Dropout<ls::rate(0.25f)>,
                            ls::Dense<10>> {};

template <class Device>
void check() {
  const auto make = [] {
    return ls::Model{Net{},
                     ls::Seed{3},
                     ls::OneDevice<Device>{.on = {.threads = 1}},
                     ls::SparseCategoricalCrossentropy{.from_logits = true},
                     ls::Adam{.learning_rate = 0.003, .with = {.use_ema = true}},
                     ls::Accuracy{}};
  };
  const auto fit = [](auto& model, const auto& checkpoint, const auto& extra) {
    ls::FitOptions o{.epochs = 2, .checkpoint = checkpoint, .progress = ls::ProgressStyle::none};
    o.callbacks = extra;
    return model.fit(ls::datasets::digits().train() | ls::take(320) | ls::rescale(1.0f / 255) |
                         ls::cache | ls::shuffle(320) | ls::batch(32) | ls::prefetch(1),
                     o);
  };
  const testing::Folder folder;
  const resume::Log lines;
  CHECK(resume::train_with_crashes(make, fit, {.directory = folder / "run", .every = 1},
                                   {2, 9, 10, 11, 17}) == resume::train(make, fit, {}));
}

}  // namespace

TEST_CASE("a crash at any step changes no bit on the Cpu") { check<ls::Cpu>(); }
TEST_CASE("a crash at any step changes no bit on the Cpu in bfloat16") {
  testing::need_bfloat16();
  check<ls::CpuBFloat16>();
}
