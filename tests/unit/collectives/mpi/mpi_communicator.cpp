// The cases with a leading dot run in separate processes, since MPI is initialized once in a process.
#include "lockstep/collectives/mpi/mpi_communicator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "lockstep/collectives/mpi/mpi_group.hpp"
#include "lockstep/core/error.hpp"

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using lockstep::MpiCommunicator;
using lockstep::UsageError;

}  // namespace

TEST_CASE("world is the communicator of all processes, however often it is asked for") {
  int rank = -1, size = -1;
  for (int i = 0; i < 2; ++i) {
    const auto world = MpiCommunicator::world();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK((static_cast<int>(world.rank()) == rank && static_cast<int>(world.size()) == size));
  }
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  CHECK(level == MPI_THREAD_MULTIPLE);
}

TEST_CASE("MPI_COMM_NULL is refused") {
  (void)MpiCommunicator::world();
  CHECK_THROWS_AS(MpiCommunicator(MPI_COMM_NULL), UsageError);
}

TEST_CASE("errors of MPI are in words") {
  (void)MpiCommunicator::world();
  CHECK_NOTHROW(lockstep::detail::check_mpi(MPI_SUCCESS, "MPI_Comm_rank"));
  CHECK_THROWS_WITH(lockstep::detail::check_mpi(MPI_ERR_TRUNCATE, "MPI_Comm_rank"),
                    StartsWith("MPI_Comm_rank failed: ") && ContainsSubstring("truncate"));
}

TEST_CASE("a program that has initialized MPI keeps it", "[.embedded]") {
  CHECK_THROWS_WITH(MpiCommunicator(MPI_COMM_WORLD), ContainsSubstring("is not initialized"));
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  {
    lockstep::MpiGroup group(MpiCommunicator::world(), {});
    float x = 1;
    group.all_reduce(&x, 1);
    CHECK(x == static_cast<float>(group.size()));
  }
  CHECK(lockstep::detail::mpi_is_active());
  MPI_Finalize();
  CHECK_FALSE(lockstep::detail::mpi_is_active());
  CHECK_THROWS_WITH(MpiCommunicator::world(), ContainsSubstring("already finalized"));
}

TEST_CASE("an MPI with too few threads is refused", "[.funneled]") {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  REQUIRE(level < MPI_THREAD_MULTIPLE);
  CHECK_THROWS_WITH(MpiCommunicator::world(), ContainsSubstring("runs with MPI_THREAD_FUNNELED"));
  MPI_Finalize();
}
