/// \file
/// Average pooling on the Cpu, compared with the reference.
#include "lockstep/layers/pooling/average_pooling2d.hpp"

#include "compare.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"
#include "support/pooling.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("average pooling of generated windows agrees with the reference") {
  pools_generated_windows<Tested, AveragePooling2DOp>();
}
TEST_CASE("global average pooling of generated images agrees with the reference") {
  pools_whole_images<Tested, GlobalAveragePooling2D>();
}
