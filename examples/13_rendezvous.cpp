// Uses the rendezvous without a model: the processes of a job estimate pi together. Run
// `./dev lockstep-run -n 2 rendezvous`, or start it on several machines with a TF_CONFIG on each.
//
// Expected output:
//   processes: 2, pi is about 3.14...
#include <fmt/format.h>
#include <chrono>
#include <cstdint>

#include <lockstep/cluster/rendezvous/rendezvous.hpp>
#include <lockstep/cluster/resolve.hpp>
#include <lockstep/core/rng.hpp>
#include <lockstep/training/run_main.hpp>

namespace ls = lockstep;

namespace {

/// Number of random points of the unit square that lie in the quarter circle.
std::uint64_t hits(std::uint64_t rank, std::uint64_t points) {
  std::uint64_t result = 0;
  ls::Philox random(7, rank);
  for (std::uint64_t i = 0; i < points; ++i) {
    const double x = random.uniform(), y = random.uniform();
    result += x * x + y * y < 1;
  }
  return result;
}

void run() {
  using std::chrono::seconds;
  constexpr std::uint64_t points = 1'000'000;
  const ls::Environment environment = ls::process_environment();
  const ls::ResolvedCluster cluster = ls::resolve_cluster(environment);
  ls::Rendezvous job({.cluster = cluster, .secret = ls::read_secret(environment, cluster)});

  job.add("hits", hits(job.rank(), points));
  job.barrier("all have added", seconds(60));
  if (job.rank() == 0) {
    const auto all = static_cast<double>(job.add("hits", 0));
    const auto tried = static_cast<double>(points * job.size());
    fmt::print("processes: {}, pi is about {:.4f}\n", job.size(), 4 * all / tried);
  }
  job.leave();
}

}  // namespace

int main() { return ls::run_main(run); }
