#include "lockstep/cluster/elastic/elastic_member.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/cluster/elastic/support.hpp"

using namespace elastic_test;

namespace {

milliseconds since(Clock::time_point began) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - began);
}

/// Forms the generation: each member joins its rendezvous.
void form(const std::vector<Generation>& all) {
  std::vector<std::future<std::size_t>> joined;
  for (const Generation& one : all)
    joined.push_back(std::async(std::launch::async, [&one] {
      lockstep::Rendezvous job({.cluster = one.cluster, .secret = {}, .signature = {}});
      job.barrier("there", seconds(5));
      return job.rank();
    }));
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(joined[i].get() == *all[i].cluster.rank);
}

}  // namespace

TEST_CASE("elastic members form generation 0, and each next one without the lost") {
  Job job(4);
  const auto first = job.begin();
  check_same(first, 0, 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(first[i].cluster.rank == i);
  CHECK(first[0].is_new == std::vector<bool>(4, true));
  form(first);

  job.kill(2);
  const auto began = Clock::now();
  const auto second = job.next_of({0, 1, 3});
  WARN("one lost: " << since(began).count() << " ms");
  check_same(second, 1, 3);
  CHECK(second[0].is_new == std::vector<bool>(3, false));
  CHECK(second[0].former == std::vector<std::size_t>{0, 1, 3});
  CHECK(second[0].cluster.job_id != first[0].cluster.job_id);
  form(second);

  // Two at once, also the chief.
  job.kill(0);
  job.kill(3);
  const auto third = job.next_of({1});
  check_same(third, 2, 1);
  CHECK(third[0].former == std::vector<std::size_t>{1});
  CHECK(third[0].cluster.is_chief());
}
