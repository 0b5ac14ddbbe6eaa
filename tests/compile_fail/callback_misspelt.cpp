// expect: override
#include "lockstep/concepts/callback.hpp"

struct Mine : lockstep::Callback {
  void on_epoch_finished(int, const lockstep::Logs&) override {}
};
