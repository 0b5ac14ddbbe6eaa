/// \file
/// lockstep's program for peers/run.py, apart from the seed step of `mnist`: the tutorials' CNN
/// with SGD, or an MLP (784-512-512-10) with Adam, in training, evaluation or prediction. Prints
/// the same line as the peers. A chunk of 50 steps is one epoch, one call of `evaluate`, or one
/// call of `predict`.
#include <memory>

#include <lockstep/core/version.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "peers/peer.hpp"

namespace ls = lockstep;

namespace {

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>,             //
                            ls::Conv2D<32, 3>, ls::ReLU,      //
                            ls::MaxPooling2D<>, ls::Flatten,  //
                            ls::Dense<64>, ls::ReLU,          //
                            ls::Dense<10>> {};

struct Mlp : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten,  //
                            ls::Dense<512>, ls::ReLU,           //
                            ls::Dense<512>, ls::ReLU,           //
                            ls::Dense<10>> {};

class TimeChunks : public ls::Callback {
 public:
  explicit TimeChunks(peer::Chunks& chunks) : chunks_(chunks) {}
  void on_epoch_begin(int, const ls::Logs&) override { chunks_.begin(); }
  void on_epoch_end(int, const ls::Logs&) override { chunks_.end(); }

 private:
  peer::Chunks& chunks_;
};

template <class Net, class Optimizer>
void run(const peer::Options& options, Optimizer optimizer) {
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = options.threads}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer,
                  ls::Accuracy{}};
  peer::Digits digits;
  const auto images =
      ls::tensors(std::move(digits.images), ls::shape(28, 28, 1), std::move(digits.labels)) |
      ls::rescale(1.0 / 255) | ls::cache;
  peer::Chunks chunks;
  if (options.work == "fit") {
    const auto train = images | ls::shuffle(10'000) | ls::repeat | ls::batch(options.batch);
    model.fit(train, {.epochs = static_cast<int>(options.chunks()),
                      .steps_per_epoch = peer::chunk,
                      .callbacks = {std::make_shared<TimeChunks>(chunks)},
                      .progress = ls::ProgressStyle::none});
  } else {
    const auto data = images | ls::batch(options.batch);
    for (std::size_t i = 0; i < options.chunks(); ++i) {
      chunks.begin();
      if (options.work == "evaluate")
        model.evaluate(data, {.steps = peer::chunk});
      else
        model.predict(data, {.steps = peer::chunk});
      chunks.end();
    }
  }
  chunks.report("ours", options, "\"lockstep\": \"" LOCKSTEP_VERSION "\"");
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse(argc, argv);
  if (options.model == "cnn")
    run<Cnn>(options, ls::SGD{.learning_rate = 1e-3});
  else
    run<Mlp>(options, ls::Adam{.learning_rate = 1e-3});
}
