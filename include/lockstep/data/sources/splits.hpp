/// \file
/// A data set of images with labels, in a training and a test part. Invariant: a part is made when
/// it is asked for, and not before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep::datasets {

/// Images of bytes, channels last, with class labels.
using Images = Tensors<std::uint8_t, std::int32_t>;

/// What `mnist`, `cifar10`, `digits` and `shapes` return.
class Splits {
 public:
  /// `name`: the examples in words, for messages.
  LOCKSTEP_DECL Splits(std::string name, std::function<Images()> train,
                       std::function<Images()> test);

  /// The examples in words: "MNIST", "drawn digits".
  const std::string& name() const { return name_; }

  /// The training part. Read or drawn at each call; keep the result.
  Images train() const { return train_(); }
  /// The test part, likewise.
  Images test() const { return test_(); }

 private:
  std::string name_;
  std::function<Images()> train_, test_;
};

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/splits.ipp"
#endif
