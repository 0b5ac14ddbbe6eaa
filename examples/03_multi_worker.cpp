// Trains one model in several processes, which may run on several machines. Each process runs this
// program; MultiWorkerMirrored reads its place in the job from the environment (`TF_CONFIG`,
// torchrun, MPI, Slurm). Run two processes here with `./dev lockstep-run -n 2 multi_worker`.
//
// Expected output:
//   workers: 2
//   weights are equal in all workers: yes
//   accuracy above 0.8: yes
#include <fmt/format.h>
#include <algorithm>
#include <stop_token>

#include <lockstep/cluster.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

void train(std::stop_token stop) {
  ls::Model model{Net{},
                  ls::Seed{1},
                  ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.003},
                  ls::Accuracy{}};
  const auto digits = ls::datasets::digits();
  const auto train = digits.train() | ls::take(2'000) | ls::rescale(1.0f / 255) | ls::cache |
                     ls::shuffle(2'000) | ls::batch(50);  // the global batch
  const auto test = digits.test() | ls::take(500) | ls::rescale(1.0f / 255) | ls::batch(100);
  model.fit(train, {.epochs = 3, .stop = stop, .progress = ls::ProgressStyle::none});

  // All workers make these calls, since they communicate. Only the chief prints.
  const double accuracy = model.evaluate(test)["accuracy"];
  const auto hashes = model.job_replica_weights_sha256();
  if (model.rank() != 0) return;
  const bool equal = std::ranges::all_of(hashes, [&](const auto& h) { return h == hashes[0]; });
  fmt::print("workers: {}\n", hashes.size());
  fmt::print("weights are equal in all workers: {}\n", equal ? "yes" : "no");
  fmt::print("accuracy above 0.8: {}\n", accuracy > 0.8 ? "yes" : "no");
}

}  // namespace

// run_main turns exceptions into exit codes, and passes a token that is set by Ctrl-C.
int main() { return ls::run_main(train); }
