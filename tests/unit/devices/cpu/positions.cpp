/// \file
#include "unit/devices/positions.hpp"

#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"

namespace {

using Device = lockstep::Cpu;
constexpr double bound = 2e-6;

}  // namespace

TEST_CASE("a loss over several axes is the mean over all positions") {
  testing::positions::losses_are_means_over_positions<Device>(bound);
}

TEST_CASE("rows with an ignored label have no loss and no gradient") {
  testing::positions::ignored_rows_hide_nan<Device>();
}

TEST_CASE("metrics count each position") {
  testing::positions::metrics_count_positions<Device>(bound);
  testing::positions::binary_metrics_count_positions<Device>(bound);
}

TEST_CASE("the mean of a loss as a metric leaves out an ignored class") {
  testing::positions::means_ignore_a_class<Device>(bound);
}

TEST_CASE("training with ignored labels and weights of positions agrees with the reference") {
  testing::positions::trains_as_the_reference<Device>(1e-5);
}
