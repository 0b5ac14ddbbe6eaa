// The tutorials' CNN on MNIST: the programs mnist, mnist_mirrored and mnist_multi_worker. They
// differ in support::Strategy, which the build selects. The command line, the data and the report
// are in support/.
#include <lockstep/lockstep.hpp>

#include "support/build.hpp"
#include "support/mnist.hpp"

namespace ls = lockstep;

namespace {

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>,             //
                            ls::Conv2D<32, 3>, ls::ReLU,      //
                            ls::MaxPooling2D<>, ls::Flatten,  //
                            ls::Dense<64>, ls::ReLU,          //
                            ls::Dense<10>> {};

void train(support::Job& job) {
  const support::Options& options = job.options();
  ls::Model model{Cnn{},
                  ls::Seed{options.seed},
                  support::strategy<support::Strategy>(options),
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  support::optimizer<support::unit_optimizer>(options),
                  ls::Accuracy{}};
  support::train_on_mnist(model, job);
}

const support::Unit<support::Strategy> unit(support::unit_options, train);

}  // namespace
