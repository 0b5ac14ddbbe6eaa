// expect: lockstep::TrainingControl: save_checkpoint needs #include <lockstep/checkpoints.hpp>
#include "lockstep/lockstep.hpp"

struct Saves : lockstep::Callback {
  void on_train_end(const lockstep::Logs&) override { control().save_checkpoint("saved", 1); }
};
