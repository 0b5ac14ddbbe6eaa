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

#include "lockstep/core/config.hpp"
#include "lockstep/core/rng.hpp"
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
  LOCKSTEP_COLD_DECL std::optional<std::string> find(const CudaContext& context,
                                                     std::string_view work);
  /// Stores a name, replacing an older one. An empty name is not stored.
  LOCKSTEP_COLD_DECL void store(const CudaContext& context, std::string_view work,
                                const std::string& name);

  /// Measures `count` candidates, stores `name(i)` of the fastest, and returns its index; `run` as
  /// in Autotuner. Returns 0 without measuring in deterministic mode, or if there is no memory for
  /// a measurement: the model may still fit. \throws DeviceError if all candidates fail.
  LOCKSTEP_COLD_DECL std::size_t measure(CudaContext& context, std::string_view work,
                                         std::size_t count,
                                         const std::function<void(std::size_t)>& run,
                                         const std::function<std::string(std::size_t)>& name);

 private:
  /// The description plus the GPU's name and number of multiprocessors.
  LOCKSTEP_DECL static std::string key_of(const CudaContext& context, std::string_view work);

  /// Results have their own file extension. If other programs used the GPU during a measurement,
  /// its file can be deleted and the compiled kernels stay.
  KernelCache cache_{".winner"};
  std::map<std::string, std::string> known_;
};

/// GPU memory for the duration of a measurement; its initial content is undefined.
class TuningMemory {
 public:
  /// Allocates the memory. \throws OutOfMemory, on which nothing is measured.
  LOCKSTEP_COLD_DECL TuningMemory(CudaContext& context, std::size_t bytes);
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

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/tuning.ipp"
#endif
