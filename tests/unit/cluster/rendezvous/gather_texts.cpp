#include "lockstep/cluster/rendezvous/gather_texts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using lockstep::detail::gather_texts;
using namespace std::chrono_literals;

TEST_CASE("texts of any length are gathered by rank") {
  const auto text_of = [](std::size_t rank, std::size_t length) {
    return std::string(length, static_cast<char>('a' + rank)) + std::to_string(rank);
  };
  Lines lines;
  auto members = join_all(4, lines);
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, std::size_t{200'000}}) {
    std::vector<std::vector<std::string>> found(4);
    in_each(members, [&](lockstep::Rendezvous& job) {
      // Ranks have texts of different lengths, so that some have ended before others.
      const std::string own = job.rank() % 2 == 0 ? text_of(job.rank(), length) : std::string();
      found[job.rank()] = gather_texts(job, "texts", own, 5s);
    });
    const std::vector<std::string> expected{text_of(0, length), "", text_of(2, length), ""};
    for (const auto& of_rank : found) CHECK((of_rank == expected));
  }
  leave_all(members);
}
