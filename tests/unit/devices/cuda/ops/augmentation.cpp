/// \file
#include "lockstep/layers/preprocessing/augmentation.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/augmentation.hpp"

TEST_CASE(
    "the plan knows that rotated, translated and resized images have no gradient on the GPU") {
  const auto has_dx = []<class L>(Shape in) {
    return Kernel<std::remove_cvref_t<decltype(L::op(in))>, Cuda>::has_dx(L::op(in));
  };
  STATIC_CHECK_FALSE(has_dx.operator()<RandomRotation<factor(0.1)>>(shape(9, 7, 3)));
  STATIC_CHECK_FALSE(
      has_dx.operator()<RandomTranslation<factor(0.5), factor(0.5)>>(shape(9, 7, 3)));
  STATIC_CHECK_FALSE(has_dx.operator()<RandomCrop<12, 4>>(shape(9, 8, 3)));
  STATIC_CHECK(has_dx.operator()<RandomCrop<6, 4>>(shape(9, 8, 3)));
}
