/// \file
/// The peers' workload in dlib, as a C++ user writes it: dnn_trainer for training, the network
/// called with a range for outputs. Built by setup.sh with OpenBLAS. dlib itself scales bytes to
/// [0, 1) and computes no accuracy during training.
#include <dlib/dnn.h>
#include <dlib/revision.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "peer.hpp"

extern "C" void openblas_set_num_threads(int);

namespace {

using Image = dlib::matrix<unsigned char>;

template <class Subnet>
using Convolution = dlib::add_layer<dlib::con_<32, 3, 3, 1, 1, 0, 0>, Subnet>;
template <class Subnet>
using Pooling = dlib::add_layer<dlib::max_pool_<2, 2, 2, 2, 0, 0>, Subnet>;

using Cnn = dlib::loss_multiclass_log<
    dlib::fc<10, dlib::relu<dlib::fc<64, Pooling<dlib::relu<Convolution<dlib::input<Image>>>>>>>>;
using Mlp = dlib::loss_multiclass_log<
    dlib::fc<10, dlib::relu<dlib::fc<512, dlib::relu<dlib::fc<512, dlib::input<Image>>>>>>>;

template <class Net, class Solver>
void run(const peer::Options& options, const Solver& solver) {
  peer::Digits digits;
  std::vector<Image> images(peer::examples, Image(28, 28));
  const std::vector<unsigned long> labels(digits.labels.begin(), digits.labels.end());
  for (std::size_t i = 0; i < images.size(); ++i)
    std::copy_n(digits.images.data() + i * peer::pixels, peer::pixels, &images[i](0, 0));

  Net net;
  peer::Chunks chunks;
  dlib::rand random(1);
  if (options.work == "fit") {
    dlib::dnn_trainer<Net, Solver> trainer(net, solver);
    trainer.set_learning_rate(1e-3);
    trainer.set_iterations_without_progress_threshold(1'000'000'000);
    std::vector<Image> x(options.batch);
    std::vector<unsigned long> y(options.batch);
    for (std::size_t i = 0; i < options.chunks(); ++i) {
      chunks.begin();
      for (std::size_t step = 0; step < peer::chunk; ++step) {
        for (std::size_t k = 0; k < options.batch; ++k) {
          const auto at = random.get_random_64bit_number() % images.size();
          x[k] = images[at];
          y[k] = labels[at];
        }
        trainer.train_one_step(x, y);
      }
      trainer.get_net();  // waits for the step that dlib's thread computes
      trainer.get_average_loss();
      chunks.end();
    }
  } else {
    const auto last = images.begin() + static_cast<std::ptrdiff_t>(peer::chunk * options.batch);
    const std::vector<Image> part(images.begin(), last);
    std::size_t answers = 0;
    for (std::size_t i = 0; i < options.chunks(); ++i) {
      chunks.begin();
      answers += net(part, options.batch).size();
      chunks.end();
    }
    if (answers != part.size() * options.chunks()) peer::refuse("dlib_mnist: answers are missing");
  }
  const std::string version =
      std::to_string(DLIB_MAJOR_VERSION) + "." + std::to_string(DLIB_MINOR_VERSION);
  chunks.report("dlib", options, "\"dlib\": \"" + version + "\"");
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse(argc, argv);
  if (options.work == "evaluate") peer::refuse("dlib_mnist: dlib has no evaluation");
  openblas_set_num_threads(options.threads);
  if (options.model == "cnn")
    run<Cnn>(options, dlib::sgd(0, 0));
  else
    run<Mlp>(options, dlib::adam(0, 0.9f, 0.999f));
}
