/// \file
/// The state of a job as the files of a checkpoint, and as what one process sends to another.
/// Invariants: each number reads back with the same bits; a file that does not fit the model is
/// refused with the name of the tensor or field, before the model changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/process/lazy_memory.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// The files of an entry.
inline constexpr std::string_view weights_file_name = "weights.safetensors",
                                  optimizer_file_name = "optimizer.safetensors",
                                  callbacks_file_name = "callbacks.safetensors",
                                  kept_file_name = "kept_gradients.safetensors";

/// Encodes a state as an entry of a CheckpointDirectory. The files refer to the memory of `state`
/// and of this object, which must outlive their use.
class EncodedState {
 public:
  LOCKSTEP_COLD_DECL EncodedState(const JobState& state,
                                  const std::vector<ParameterInfo>& parameters);
  EncodedState(const EncodedState&) = delete;
  EncodedState& operator=(const EncodedState&) = delete;

  const std::vector<CheckpointFile>& files() const { return files_; }
  const std::string& description() const { return description_; }

 private:
  /// Reads parts of distant buffers, whose places are addresses without memory.
  struct Fetch {
    DistantBuffers* from = nullptr;
    std::span<const std::byte> places{};  // of the weights, then of each slot
    std::size_t each = 0;                 // bytes of one of them
    std::vector<std::byte> bytes{};
    LOCKSTEP_COLD_DECL std::span<const std::byte> operator()(std::span<const std::byte> place);
  };

  LazyMemory places_;
  Fetch fetch_;
  std::vector<std::string> heads_;  // of the safetensors files
  std::vector<CheckpointFile> files_;
  std::string description_;
};

/// Checks the size of a file that an entry lists, before it is read. \throws UsageError naming the
/// field in which the models differ; CheckpointError if the model is the same, and `size` is more than
/// its file can have.
LOCKSTEP_COLD_DECL void check_file_size(const CheckpointEntry& entry, std::string_view file,
                                        std::uint64_t size,
                                        const std::vector<ParameterInfo>& parameters,
                                        const StateLayout& job);

/// Decodes an entry for a job that continues, whose model has the layout `job`. `notes` gets the
/// differences that change results by rounding only, for the log. \throws UsageError naming the first
/// field of the signature that differs; CheckpointError naming the member or tensor that is missing
/// or wrong.
LOCKSTEP_COLD_DECL JobState decode_state(CheckpointEntry entry,
                                         const std::vector<ParameterInfo>& parameters,
                                         const StateLayout& job, std::string& notes);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checkpoint/encoded_state.ipp"
#endif
