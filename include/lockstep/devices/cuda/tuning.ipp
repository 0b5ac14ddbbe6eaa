#pragma once

#include "lockstep/devices/cuda/tuning.hpp"

#include "lockstep/core/format_text.hpp"
#include "lockstep/devices/cuda/autotuner.hpp"

namespace lockstep::detail::cuda {

std::optional<std::string> TuningCache::find(const CudaContext& context, std::string_view work) {
  if (context.options().deterministic) return std::nullopt;
  const std::string key = key_of(context, work);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  std::optional<std::string> kept = cache_.find(KernelCache::digest(key));
  if (kept) known_[key] = *kept;
  return kept;
}

void TuningCache::store(const CudaContext& context, std::string_view work,
                        const std::string& name) {
  if (name.empty() || context.options().deterministic) return;
  const std::string key = key_of(context, work);
  cache_.store(KernelCache::digest(key), name);
  known_[key] = name;
}

std::size_t TuningCache::measure(CudaContext& context, std::string_view work, std::size_t count,
                                 const std::function<void(std::size_t)>& run,
                                 const std::function<std::string(std::size_t)>& name) {
  // The first candidate, without measuring: a measurement's result varies.
  if (context.options().deterministic) return 0;
  try {
    const std::size_t fastest = Autotuner::fastest(context, count, run);
    store(context, work, name(fastest));
    return fastest;
  } catch (const OutOfMemory&) {
    return 0;
  }
}

std::string TuningCache::key_of(const CudaContext& context, std::string_view work) {
  const Gpu& gpu = context.gpu();
  // GPUs of one name can differ in their number of multiprocessors (MIG).
  return format_text("{}, {}, {} SMs", work, gpu.name, gpu.multiprocessors);
}

TuningMemory::TuningMemory(CudaContext& context, std::size_t bytes)
    : context_(context), bytes_(bytes), data_(context.allocate(bytes)) {}

}  // namespace lockstep::detail::cuda
