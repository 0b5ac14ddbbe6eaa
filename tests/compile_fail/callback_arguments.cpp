// expect: override
#include "lockstep/concepts/callback.hpp"

struct Mine : lockstep::Callback {
  void on_train_batch_end(int, const lockstep::Logs&) override {}
};
