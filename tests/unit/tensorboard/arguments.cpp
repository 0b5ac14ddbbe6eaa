// The options of ls::TensorBoard and the arguments of Keras' callback.
#include "unit/training/callbacks/arguments.hpp"

#include "lockstep/tensorboard/tensorboard_callback.hpp"

namespace callbacks_test {

inline std::string python(const lockstep::UpdateFreq& frequency) {
  return frequency.is_due(0, 1'000'000) ? "a number" : "'epoch'";
}

}  // namespace callbacks_test

TEST_CASE("TensorBoard has Keras' arguments and defaults, without the profiler and embeddings") {
  using T = lockstep::TensorBoard;
  callbacks_test::check_arguments(
      "TensorBoard",
      {LOCKSTEP_TEST_ARGUMENT(T, log_dir), LOCKSTEP_TEST_ARGUMENT(T, histogram_freq),
       LOCKSTEP_TEST_ARGUMENT(T, write_graph), LOCKSTEP_TEST_ARGUMENT(T, write_images),
       LOCKSTEP_TEST_ARGUMENT(T, write_steps_per_second), LOCKSTEP_TEST_ARGUMENT(T, update_freq)},
      // ls::Trace and model.profile instead of the profiler; ls::EventWriter has no projector.
      {"profile_batch", "embeddings_freq", "embeddings_metadata"});
}
