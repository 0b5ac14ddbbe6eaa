// expect: lockstep::TrainingControl: begin_trace needs #include <lockstep/trace.hpp>
#include "lockstep/lockstep.hpp"

struct Traces : lockstep::Callback {
  void on_train_begin(const lockstep::Logs&) override { control().begin_trace(10); }
};
