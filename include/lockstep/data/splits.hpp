/// \file
/// A data set of images with labels, in a training and a test part. Invariant: a part is made when
/// it is asked for, and not before.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "lockstep/data/tensors.hpp"

namespace lockstep::datasets {

/// Images of bytes, channels last, with class labels.
using Images = Tensors<std::uint8_t, std::int32_t>;

/// What `mnist` and `digits` give.
class Splits {
 public:
  Splits(std::function<Images()> train, std::function<Images()> test)
      : train_(std::move(train)), test_(std::move(test)) {}

  /// The training part. Read or drawn at each call; keep the result.
  Images train() const { return train_(); }
  /// The test part, likewise.
  Images test() const { return test_(); }

 private:
  std::function<Images()> train_, test_;
};

}  // namespace lockstep::datasets
