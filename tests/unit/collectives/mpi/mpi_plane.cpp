// Run by mpirun with two processes.
#include "lockstep/strategies/planes/mpi_plane.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "ranks.hpp"
#include "unit/training/mirrored_support.hpp"

namespace ls = lockstep;

namespace {

template <class Strategy>
std::string trained(const Strategy& strategy) {
  ls::Model model{replicas::Noisy{}, strategy, replicas::crossentropy,
                  ls::Adam{.learning_rate = 0.01}};
  model.fit(line::classes(48) | ls::batch(16), line::quiet(2));
  return model.weights_sha256();
}

}  // namespace

TEST_CASE("workers that exchange over MPI train as replicas of one process", "[.plane]") {
  const std::string expected =
      trained(ls::Mirrored<ls::Reference<float>>{.replicas = ls::MpiCommunicator::world().size()});
  const ls::MultiWorkerMirrored<ls::Reference<float>, ls::Mpi> workers;
  CHECK(trained(workers) == expected);
  CHECK(trained(workers | ls::Sharded{}) == expected);
}

TEST_CASE("a job over MPI cannot be elastic", "[.plane]") {
  const ls::MultiWorkerMirrored<ls::Reference<float>, ls::Mpi> strategy{
      .environment = [](const std::string& name) -> std::optional<std::string> {
        if (name == "LOCKSTEP_MIN_WORKERS") return "1";
        return std::nullopt;
      }};
  CHECK_THROWS_WITH(strategy.open(), Catch::Matchers::StartsWith(
                                         "multi_worker_mirrored: LOCKSTEP_MIN_WORKERS needs "
                                         "replicas on CPUs that exchange over ls::Tcp; unset it"));
}
