/// \file
/// Layers that move elements, on generated shapes, for each device. Invariant: copies are exact, so
/// only sums of repeated elements differ from the reference.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/layers/layers.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

/// A random order of `rank` axes.
inline lockstep::Shape generated_order(lockstep::Philox& g, int rank) {
  lockstep::Shape order{rank, {1, 2, 3, 4, 1}};
  for (int k = 0; k < 4; ++k)
    if (k >= rank) order.extent[static_cast<std::size_t>(k)] = 1;
  for (int k = rank - 1; k > 0; --k)
    std::swap(order.extent[static_cast<std::size_t>(k)],
              order.extent[static_cast<std::size_t>(between(g, 0, k))]);
  return order;
}

/// Calls check(op) for each layer that moves elements of images of shape `in`.
template <class Check>
void rearranged_images(lockstep::Philox& g, lockstep::Shape in, const Check& check) {
  const int axis = between(g, 1, 3), begin = between(g, 0, in[axis - 1] - 1);
  check(lockstep::SliceAxisOp{in, axis, begin, between(g, begin + 1, in[axis - 1])});
  const int top = between(g, 0, in[0] - 1), left = between(g, 0, in[1] - 1);
  check(lockstep::Cropping2DOp{
      in, {top, between(g, 0, in[0] - 1 - top), left, between(g, 0, in[1] - 1 - left)}});
  check(lockstep::ZeroPadding2DOp{
      in, {between(g, 0, 3), between(g, 0, 3), between(g, 0, 3), between(g, 0, 3)}});
  check(lockstep::PermuteOp{in, generated_order(g, 3)});
  const int block = between(g, 1, 3);
  check(lockstep::DepthToSpaceOp{lockstep::shape(in[0], in[1], in[2] * block * block), block});
  check(lockstep::SpaceToDepthOp{lockstep::shape(in[0] * block, in[1] * block, in[2]), block});
}

/// Likewise for layers over steps, vectors and four axes.
template <class Check>
void other_rearrangements(lockstep::Philox& g, int steps, int channels, const Check& check) {
  const lockstep::Shape row = lockstep::shape(1, steps, channels);
  const int left = between(g, 0, steps - 1);
  check(lockstep::AlongSteps<lockstep::Cropping2DOp>{
      {row, {0, 0, left, between(g, 0, steps - 1 - left)}}});
  check(lockstep::AlongSteps<lockstep::ZeroPadding2DOp>{
      {row, {0, 0, between(g, 0, 2), between(g, 0, 2)}}});
  check(lockstep::AlongSteps<lockstep::UpSampling2DOp>{{row, {1, between(g, 1, 3)}}});
  check(lockstep::RepeatVectorOp{lockstep::shape(channels), steps});
  const lockstep::Shape four = lockstep::shape(between(g, 1, 3), between(g, 1, 3), steps, channels);
  check(lockstep::PermuteOp{four, generated_order(g, 4)});
  check(lockstep::SliceAxisOp{four, 3, left, steps});
}

}  // namespace testing
