#include "lockstep/cluster/elastic/participant.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>

#include "unit/cluster/elastic/simulation.hpp"

using namespace elastic_test;

namespace {

/// Of two to five processes on one machine and more.
Weather weather(std::size_t seed, int faults) {
  Weather result;
  result.processes = 2 + seed % 4;
  result.machines = 1 + seed / 4 % result.processes;
  result.min_workers = 1 + seed / 16 % 2;
  result.loss = static_cast<unsigned>(seed / 7 % 3 * 5);
  result.faults = faults;
  return result;
}

}  // namespace

TEST_CASE("after random faults one generation trains, and never two") {
  std::size_t generations = 0, formed = 0;
  for (std::size_t seed = 0; seed < 1000; ++seed) {
    Simulation simulation(seed, weather(seed, 3));
    const std::string wrong = simulation.run();
    CAPTURE(seed);
    REQUIRE(wrong == "");
    generations += simulation.generations();
    formed += simulation.formed();
  }
  CHECK(formed > 1500);
  CHECK(generations > formed);  // some were lost before they could train
}

TEST_CASE("the simulation finds votes that die with a process") {
  std::size_t found = 0;
  for (std::size_t seed = 0; seed < 2000 && found == 0; ++seed) {
    Weather forgetful = weather(seed, 20);
    forgetful.forgetful = true;
    found += Simulation(seed, forgetful).run() == "two memberships of one generation";
  }
  CHECK(found == 1);
}

TEST_CASE("after many random faults one generation trains, and never two", "[.slow]") {
  std::size_t generations = 0;
  for (std::size_t seed = 0; seed < 100'000; ++seed) {
    Simulation simulation(seed, weather(seed, 30));
    const std::string wrong = simulation.run();
    CAPTURE(seed);
    REQUIRE(wrong == "");
    generations += simulation.generations();
  }
  WARN(generations << " generations");
}
