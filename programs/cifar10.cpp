// The tutorial's residual network on CIFAR-10: the programs cifar10, cifar10_mirrored and
// cifar10_multi_worker. They differ in support::Strategy, which the build selects. The network is
// in resnet.hpp; the command line, the data and the report are in support/.
#include <lockstep/lockstep.hpp>

#include "resnet.hpp"
#include "support/build.hpp"
#include "support/cifar10.hpp"

namespace ls = lockstep;

namespace {

struct Net : resnet::ResNet<support::blocks> {};
static_assert(Net::trainable_count == (support::depth == 56 ? 858'202 : 273'562));
static_assert(Net::parameter_count == (support::depth == 56 ? 862'490 : 275'162));

void train(support::Job& job) {
  const support::Options& options = job.options();
  ls::Model model{Net{},
                  ls::Seed{options.seed},
                  support::strategy<support::Strategy>(options),
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = options.learning_rate, .momentum = 0.9},
                  ls::Accuracy{}};
  support::train_on_cifar10(model, job);
}

const support::Unit<support::Strategy> unit(support::unit_options, train);

}  // namespace
