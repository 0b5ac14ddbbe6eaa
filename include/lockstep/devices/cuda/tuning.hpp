/// \file
/// The fastest of several count to do the same work. Invariants: measured once for each kind of
/// work, GPU and library version, then known in memory and on disk by a name from which the way can
/// be made again without the others; what is on disk decides which of several right count is used,
/// and so the last bits.
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

/// The names of the fastest count, by a text that describes the work. One for each opened GPU
/// (CudaContext::handle).
/// \code
///   if (const auto known = tuning.find(context, work); known && use(*known)) return;
///   use(tuning.measure(context, work, count, run, name));
/// \endcode
class TuningCache {
 public:
  /// The name of the way that won before, in this process or in another one. Nothing if that is not
  /// known, or if two runs must give the same bits: what is fastest changes from run to run.
  LOCKSTEP_COLD_DECL std::optional<std::string> find(const CudaContext& context,
                                                     std::string_view work);
  /// Replaces what was known. An empty name is not kept.
  LOCKSTEP_COLD_DECL void store(const CudaContext& context, std::string_view work,
                                const std::string& name);

  /// The number of the fastest of `count`, whose `name(i)` is kept; `run(i)` as Autotuner wants it. The
  /// first one, unmeasured, if two runs must give the same bits, or if there is no memory to measure
  /// in: the model may still fit. \throws DeviceError if all fail.
  LOCKSTEP_COLD_DECL std::size_t measure(CudaContext& context, std::string_view work,
                                         std::size_t count,
                                         const std::function<void(std::size_t)>& run,
                                         const std::function<std::string(std::size_t)>& name);

 private:
  LOCKSTEP_DECL static std::string key_of(const CudaContext& context, std::string_view work);

  /// TuningCache have their own file name extension. If other programs used the GPU during a
  /// measurement, its file can be deleted and the compiled kernels stay.
  KernelCache cache_{".winner"};
  std::map<std::string, std::string> known_;
};

/// Memory of a GPU for the time of a measurement, of undefined content.
class TuningMemory {
 public:
  LOCKSTEP_COLD_DECL TuningMemory(CudaContext& context, std::size_t bytes);
  ~TuningMemory() { context_.release(data_, bytes_); }
  TuningMemory(const TuningMemory&) = delete;
  TuningMemory& operator=(const TuningMemory&) = delete;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  /// Random numbers in [-1, 1): a GPU multiplies zeros with less power, and so at higher clocks,
  /// than what a model is trained on.
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

/// Bytes that a pass of a layer reads and writes.
struct TuningSizes {
  std::size_t x, w, y, scratch, packed;
};

/// Memory for a pass whose activations and packed weights are of type A, filled with random
/// numbers.
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
