/// \file
/// A user's library: its header shows nothing of lockstep.
#pragma once

#include <memory>

class __attribute__((visibility("default"))) Digits {
 public:
  Digits();
  ~Digits();
  /// One epoch on `examples` drawn digits; the mean loss.
  double train(int examples);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
