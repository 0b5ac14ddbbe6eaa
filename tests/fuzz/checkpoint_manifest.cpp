// Hostile text as the manifest of a checkpoint whose checksums match: refused by a CheckpointError or,
// for another model, a UsageError; or read as a state that is encoded and read again unchanged.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/promises.hpp"
#include "lockstep/training/checkpoint/encoded_state.hpp"
#include "support/state_layout.hpp"

using fuzz::require;
using lockstep::detail::JobState;

namespace {

const std::vector<lockstep::ParameterInfo> parameters{{"dense/kernel", lockstep::shape(2), 0, true},
                                                      {"norm/mean", lockstep::shape(1), 0, false}};

JobState job() {
  JobState state;
  state.weights.resize(2 * sizeof(float));
  state.state.resize(sizeof(float));
  state.slot_values = {{"momentum", std::vector<std::byte>(2 * sizeof(float))}};
  state.totals = {0, 1};
  state.position.emplace().logs.sums = {0, 2};
  state.signature = {{"layers", "dense"}, {"device", "cpu float32"}};
  return state;
}

/// The files of a state, with `manifest` instead of its description.
lockstep::detail::CheckpointEntry entry_of(const JobState& state, std::string_view manifest) {
  const lockstep::detail::EncodedState encoded(state, parameters);
  lockstep::detail::CheckpointEntry entry{"checkpoint", std::string(manifest), {}};
  if (manifest.empty()) entry.manifest = encoded.description() + "}";
  for (const auto& file : encoded.files()) {
    std::vector<std::byte>& bytes = entry.files[file.name];
    for (const auto& part : file.bytes) bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return entry;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const JobState expected = job();
  std::string notes;
  try {
    const auto layout = testing::layout_of(expected);
    JobState state = decode_state(entry_of(expected, text), parameters, layout, notes);
    require(state.loss_scale.scale > 0 && state.loss_scale.skipped <= state.steps);
    require(!state.position || state.position->epoch >= 0);
    const JobState again = decode_state(entry_of(state, ""), parameters, layout, notes);
    require(again.steps == state.steps && again.seed == state.seed);
    require(again.signature == state.signature && again.passes == state.passes);
    require(again.callbacks.size() == state.callbacks.size());
    require(again.position.has_value() == state.position.has_value());
  } catch (const lockstep::CheckpointError&) {
  } catch (const lockstep::UsageError&) {
  }
  return 0;
}
