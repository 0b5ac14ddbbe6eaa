/// \file
/// A cache of autotuning results. Invariants: work is measured once per description, GPU and
/// library version, and the name of the fastest candidate is kept in memory and on disk; the name
/// suffices to rebuild that candidate without the others. All candidates are correct, but they
/// round differently, so the cache determines the last bits of a result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/devices/cuda/autotuner.hpp"
#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

/// Maps a description of the work to the name of its fastest candidate. One per opened GPU
/// (CudaContext::handle).
/// \code
///   if (const auto known = tuning.find(context, work); known && use(*known)) return;
///   use(tuning.measure(context, work, count, run, name));
/// \endcode
class TuningCache {
 public:
  /// The name measured earlier, by this process or another one. Empty if there is none, or in
  /// deterministic mode, because the fastest candidate varies from run to run.
  [[gnu::cold]] std::optional<std::string> find(const CudaContext& context, std::string_view work) {
    if (context.options().deterministic) return std::nullopt;
    const std::string key = key_of(context, work);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    std::optional<std::string> kept = cache_.find(KernelCache::digest(key));
    if (kept) known_[key] = *kept;
    return kept;
  }
  /// Stores a name, replacing an older one. An empty name is not stored.
  [[gnu::cold]] void store(const CudaContext& context, std::string_view work,
                           const std::string& name) {
    if (name.empty() || context.options().deterministic) return;
    const std::string key = key_of(context, work);
    cache_.store(KernelCache::digest(key), name);
    known_[key] = name;
  }

  /// Measures `count` candidates, stores `name(i)` of the fastest, and returns its index; `run` as
  /// in Autotuner. Returns 0 without measuring in deterministic mode, or if there is no memory for
  /// a measurement: the model may still fit. \throws DeviceError if all candidates fail.
  [[gnu::cold]] std::size_t measure(CudaContext& context, std::string_view work, std::size_t count,
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

 private:
  /// The description plus the GPU's name and number of multiprocessors.
  static std::string key_of(const CudaContext& context, std::string_view work) {
    const Gpu& gpu = context.gpu();
    // GPUs of one name can differ in their number of multiprocessors (MIG).
    return format_text("{}, {}, {} SMs", work, gpu.name, gpu.multiprocessors);
  }

  /// Results have their own file extension. If other programs used the GPU during a measurement,
  /// its file can be deleted and the compiled kernels stay.
  KernelCache cache_{".winner"};
  std::map<std::string, std::string> known_;
};

/// GPU memory for the duration of a measurement; its initial content is undefined.
class TuningMemory {
 public:
  /// Allocates the memory. \throws OutOfMemory, on which nothing is measured.
  [[gnu::cold]] TuningMemory(CudaContext& context, std::size_t bytes)
      : context_(context), bytes_(bytes), data_(context.allocate(bytes)) {}
  ~TuningMemory() { context_.release(data_, bytes_); }
  TuningMemory(const TuningMemory&) = delete;
  TuningMemory& operator=(const TuningMemory&) = delete;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  /// Fills the memory with random numbers in [-1, 1). Zeros would not do: a GPU multiplies them
  /// with less power, so at higher clocks, than training data.
  template <class T>
  void randomize() {
    constexpr std::size_t period = 1 << 14;
    const std::size_t n = bytes_ / sizeof(T);
    std::vector<T> block(std::min(n, period));
    Philox random(n);
    for (T& v : block) v = static_cast<T>(static_cast<float>(2 * random.uniform() - 1));
    context_.upload(data_, reinterpret_cast<const std::byte*>(block.data()),
                    block.size() * sizeof(T));
    for (std::size_t done = block.size(); done < n; done *= 2)
      context_.copy(data_ + done * sizeof(T), data_, std::min(done, n - done) * sizeof(T));
  }

 private:
  CudaContext& context_;
  std::size_t bytes_;
  std::byte* data_;
};

/// Bytes that a pass of a layer reads and writes: input, float weights, output, scratch, and
/// weights packed for a library.
struct TuningSizes {
  std::size_t x, w, y, scratch, packed;
};

/// Random operands for measuring a pass whose activations and packed weights have type A. x and y
/// hold the activations of a batch, w float weights, packed the weights as a library reads them.
template <class A>
struct TuningBuffers {
  TuningBuffers(CudaContext& c, const TuningSizes& bytes)
      : x(c, bytes.x),
        w(c, bytes.w),
        y(c, bytes.y),
        scratch(c, bytes.scratch),
        packed(c, bytes.packed) {
    x.template randomize<A>();
    w.template randomize<float>();
    y.template randomize<A>();
    packed.template randomize<A>();
  }
  TuningMemory x, w, y, scratch, packed;
};

}  // namespace lockstep::detail::cuda
