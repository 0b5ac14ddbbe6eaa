/// \file
/// A labeled image data set with a training and a test part. Invariant: a part is read or drawn on
/// request, never before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep::datasets {

/// Images of bytes, channels last, with class labels.
using Images = Tensors<std::uint8_t, std::int32_t>;

/// The result of `mnist`, `cifar10`, `digits` and `shapes`.
class Splits {
 public:
  /// `name` describes the data set in messages. `train` and `test` produce the parts.
  LOCKSTEP_DECL Splits(std::string name, std::function<Images()> train,
                       std::function<Images()> test);

  /// Description of the data set: "MNIST", "drawn digits".
  const std::string& name() const { return name_; }

  /// The training part. Read or drawn at every call, so keep the result.
  Images train() const { return train_(); }
  /// The test part. Read or drawn at every call.
  Images test() const { return test_(); }

 private:
  std::string name_;
  std::function<Images()> train_, test_;
};

}  // namespace lockstep::datasets

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/splits.ipp"
#endif
