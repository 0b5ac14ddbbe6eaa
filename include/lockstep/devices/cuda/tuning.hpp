/// \file
/// The fastest of several ways to do the same. Invariants: measured once for each kind of work, GPU
/// and library, then known in memory and on disk; what is kept on disk decides which of
/// several right ways is taken, and so the last bits.
#pragma once

#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

/// Measures time on a stream.
class Stopwatch {
 public:
  [[gnu::cold]] Stopwatch() {
    check(driver().cuEventCreate(&begin_, CU_EVENT_DEFAULT), "making an event");
    if (const CUresult r = driver().cuEventCreate(&end_, CU_EVENT_DEFAULT); r != CUDA_SUCCESS) {
      driver().cuEventDestroy(begin_);
      check(r, "making an event");
    }
  }
  ~Stopwatch() {
    driver().cuEventDestroy(begin_);
    driver().cuEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Milliseconds of one run, after one that is not counted.
  template <class Run>
  float milliseconds(CudaContext& context, const Run& run) {
    constexpr int runs = 5;
    const auto once = [&] {
      run();
      context.commands().flush();
    };
    once();
    check(driver().cuEventRecord(begin_, context.stream()), "recording an event");
    for (int i = 0; i < runs; ++i) once();
    check(driver().cuEventRecord(end_, context.stream()), "recording an event");
    check(driver().cuEventSynchronize(end_), "waiting for the GPU");
    float all = 0;
    check(driver().cuEventElapsedTime(&all, begin_, end_), "measuring time on the GPU");
    return all / runs;
  }

 private:
  CUevent begin_ = nullptr, end_ = nullptr;
};

/// Which way won, by a text that names the work. One for each opened GPU (CudaContext::handle).
class Winners {
 public:
  /// The number of the fastest of `ways`; `run(i)` says the work of way i to the stream, and is not
  /// called if the winner is known. A way that
  /// fails is passed over. The first one, unmeasured, if two runs must give the same bits, for what
  /// is fastest changes from run to run; `without_memory`, if there is none to measure in: the
  /// model may still fit. \throws DeviceError if all fail.
  template <class Run>
  [[gnu::cold]] std::size_t choose(CudaContext& context, std::string_view work, std::size_t ways,
                                   const Run& run, std::size_t without_memory = 0) {
    if (ways <= 1 || context.options().deterministic) return 0;
    const Gpu& gpu = context.gpu();
    const std::string key =
        text({work, ", ", ways, " ways, ", gpu.name, ", ", gpu.multiprocessors, " SMs"});
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const std::string name = KernelCache::digest(key);
    if (const auto kept = number(cache_.find(name)); kept && *kept < ways)
      return known_[key] = *kept;
    try {
      const std::size_t winner = measure(context, ways, run);
      cache_.keep(name, std::to_string(winner));
      return known_[key] = winner;
    } catch (const OutOfMemory&) {
      return without_memory;
    }
  }

 private:
  template <class Run>
  static std::size_t measure(CudaContext& context, std::size_t ways, const Run& run) {
    const Commands::AtOnce at_once(context.commands());
    Stopwatch watch;
    std::size_t winner = ways;
    float least = std::numeric_limits<float>::infinity();
    std::string why;
    for (std::size_t i = 0; i < ways; ++i) {
      try {
        const float time = watch.milliseconds(context, [&] { run(i); });
        if (time < least || winner == ways) {
          least = time;
          winner = i;
        }
      } catch (const OutOfMemory&) {
        throw;
      } catch (const DeviceError& error) {
        context.commands().abandon();
        why = error.what();
      }
    }
    if (winner == ways) throw DeviceError(why);
    return winner;
  }
  static std::optional<std::size_t> number(const std::optional<std::string>& digits) {
    std::size_t value = 0;
    if (!digits) return std::nullopt;
    const char* const end = digits->data() + digits->size();
    if (const auto r = std::from_chars(digits->data(), end, value);
        r.ec != std::errc{} || r.ptr != end)
      return std::nullopt;
    return value;
  }

  KernelCache cache_;
  std::map<std::string, std::size_t> known_;
};

/// Memory of a GPU for the time of a measurement.
class TuningMemory {
 public:
  [[gnu::cold]] TuningMemory(CudaContext& context, std::size_t bytes)
      : context_(context), bytes_(bytes), data_(context.allocate(bytes)) {
    context.clear(data_, bytes);
  }
  ~TuningMemory() { context_.release(data_, bytes_); }
  TuningMemory(const TuningMemory&) = delete;
  TuningMemory& operator=(const TuningMemory&) = delete;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  CudaContext& context_;
  std::size_t bytes_;
  std::byte* data_;
};

/// The same for a pass of a layer: what it reads and writes, in bytes.
struct TuningRoom {
  TuningRoom(CudaContext& c, std::size_t x_bytes, std::size_t w_bytes, std::size_t y_bytes,
             std::size_t scratch_bytes, std::size_t packed_bytes)
      : x(c, x_bytes),
        w(c, w_bytes),
        y(c, y_bytes),
        scratch(c, scratch_bytes),
        packed(c, packed_bytes) {}
  TuningMemory x, w, y, scratch, packed;
};

}  // namespace lockstep::detail::cuda
