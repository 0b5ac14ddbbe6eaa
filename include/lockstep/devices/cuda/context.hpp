/// \file
/// One opened GPU: its context, stream, memory and kernels. Invariants: it is used by one thread at
/// a time, which holds its `scope()`; all work is on one stream, in call order; the host waits only
/// in `synchronize`, `wait_unchecked`, `upload` and `release`, and when `feed` or `download` runs
/// out of staging memory; only `synchronize` and `check_errors` report errors that kernels have
/// detected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/work.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/gpus.hpp"
#include "lockstep/devices/cuda/memory.hpp"
#include "lockstep/devices/cuda/program.hpp"
#include "lockstep/devices/cuda/stream.hpp"
#include "lockstep/devices/cuda/support/elements.hpp"

namespace lockstep {

namespace detail::cuda {

/// Makes a GPU's context current in this thread while the object lives.
class Scope {
 public:
  LOCKSTEP_DECL explicit Scope(CUcontext context);
  LOCKSTEP_DECL ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// Per-GPU singletons such as library handles, created on first use and destroyed with the context.
class Handles {
 public:
  template <class H>
  H& get() {
    static const char key = 0;
    for (const auto& [k, handle] : all_)
      if (k == &key) return *static_cast<H*>(handle.get());
    auto made = std::make_shared<H>();
    H& handle = *made;
    all_.emplace_back(&key, std::move(made));
    return handle;
  }

 private:
  std::vector<std::pair<const void*, std::shared_ptr<void>>> all_;
};

}  // namespace detail::cuda

/// How a GPU is used.
struct CudaOptions {
  bool graphs = true;          ///< repeated work is launched as CUDA graphs
  bool deterministic = false;  ///< two runs give the same bits: see docs/gpu.md
  /// Data sets in memory are copied to the GPU for training, if they fit into half of the memory
  /// that the model leaves free.
  bool keeps_data = true;
  bool operator==(const CudaOptions&) const = default;
};

/// Memory, stream, kernels and libraries of one replica on a GPU.
///
///     feed:      host array -> pinned buffer -> copy on the stream -> GPU buffer
///     download:  GPU -> copy on the stream -> pinned staging -> (in wait_unchecked) host array
class CudaContext {
 public:
  /// Opens the GPU and creates its stream. \throws DeviceError.
  LOCKSTEP_COLD_DECL CudaContext(const Gpu& gpu, const CudaOptions& options);
  LOCKSTEP_DECL CudaContext(CudaContext&& other) noexcept;
  LOCKSTEP_DECL CudaContext& operator=(CudaContext&& other) noexcept;
  LOCKSTEP_DECL ~CudaContext();

  /// Allocates GPU memory. \throws OutOfMemory.
  LOCKSTEP_DECL std::byte* allocate(std::size_t bytes);
  /// Memory for buffers that replicas exchange, from the allocator of `set_exchange_allocator` if
  /// it provides some.
  LOCKSTEP_DECL std::byte* allocate_exchanged(std::size_t bytes);
  /// Sets the allocator of `allocate_exchanged`: `allocate(bytes)` may return null to decline.
  /// Empty functions remove it; memory allocated earlier is still freed by the `free` of its
  /// allocator.
  LOCKSTEP_DECL void set_exchange_allocator(std::function<std::byte*(std::size_t)> allocate,
                                            std::function<void(std::byte*)> free);
  /// Frees memory after all work has finished. Also works outside of the scope, because buffers are
  /// destroyed wherever their owner is.
  LOCKSTEP_DECL void release(std::byte* p, std::size_t) noexcept;

  /// Copies to the GPU and waits, so `from` may change afterwards.
  LOCKSTEP_DECL void upload(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Copies to the host; `to` is valid after `wait_unchecked`.
  LOCKSTEP_DECL void download(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Downloads and then clears `from`, in one launch. Both are 8-byte words.
  LOCKSTEP_DECL void download_and_clear(std::byte* to, std::byte* from, std::size_t bytes);
  /// Sets bytes to 0.
  LOCKSTEP_DECL void clear(std::byte* p, std::size_t bytes);
  /// Copies on the GPU.
  LOCKSTEP_DECL void copy(std::byte* to, const std::byte* from, std::size_t bytes);

  /// Copies a step's input to the GPU through pinned memory and returns its address there. Each
  /// slot has as many buffers as are fed between two `wait_unchecked`, up to `max_feeds`.
  template <class U>
  const U* feed(int slot, const U* p, std::size_t n) {
    return reinterpret_cast<const U*>(
        feed_bytes(slot, reinterpret_cast<const std::byte*>(p), n * sizeof(U)));
  }

  /// y += x.
  template <class A>
  void add(A* y, const A* x, std::size_t n) {
    detail::cuda::add_elements(*this, y, x, n);
  }
  /// y = x, converted between float and the activation type with rounding to nearest.
  template <class To, class From>
  void convert(To* y, const From* x, std::size_t n) {
    detail::cuda::convert_elements(*this, y, x, n);
  }

  /// Whether a data set of this size may be copied to the GPU's free memory.
  LOCKSTEP_DECL bool keeps_data(std::size_t bytes) const;

  /// 1, the launching thread: a GPU has no host threads for a strategy to count.
  int threads() const { return 1; }
  /// Waits for the GPU, then calls `check_errors`. \throws DeviceError.
  LOCKSTEP_DECL void synchronize();
  /// Waits without reporting errors that kernels have detected.
  LOCKSTEP_DECL void wait_unchecked();
  /// Throws the errors that kernels have detected up to the last wait.
  LOCKSTEP_DECL void check_errors();
  /// Registers a check that `check_errors` calls after a wait and that may throw. Kernels report
  /// errors through host memory, because they cannot throw. `check` must stay valid as long as the
  /// context.
  LOCKSTEP_DECL void add_error_check(std::function<void()> check);
  /// Registers `poll(waited)`, which is called repeatedly while the host waits and may end the wait
  /// by throwing: the GPU's progress may depend on other processes. One per `owner`; an empty
  /// function removes it.
  LOCKSTEP_DECL void watch(const void* owner, std::function<void(std::chrono::nanoseconds)> poll);
  /// Makes this GPU current in the calling thread.
  LOCKSTEP_DECL detail::cuda::Scope scope();

  /// The kernel `entry` of the source, specialised on the defines. Compiled on first use.
  LOCKSTEP_DECL CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                                  std::span<const detail::cuda::Define> defines);
  LOCKSTEP_DECL CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                                  std::initializer_list<detail::cuda::Define> defines);
  /// Enqueues a kernel.
  template <class... Ts>
  void launch(CUfunction function, const detail::cuda::Grid& grid, const Ts&... arguments) {
    commands().launch(function, grid, arguments...);
  }
  /// The singleton of type H of this GPU, created on first use.
  template <class H>
  H& handle() {
    return handles().template get<H>();
  }

  /// Attributes the following commands to `work`, for errors and profiles.
  LOCKSTEP_DECL void begin_work(const Work& work);
  /// The work of the last `begin_work`.
  LOCKSTEP_DECL const Work& work() const;
  /// Sends the time of each command to `times`; null turns profiling off.
  LOCKSTEP_DECL void measure_work(WorkTimes* times);

  /// The opened GPU and the options in use: checked mode turns graphs off.
  LOCKSTEP_DECL const Gpu& gpu() const;
  LOCKSTEP_DECL const CudaOptions& options() const;
  /// For a profile's shares of the peak: that of float32. 0: unknown, as for all precisions that use
  /// tensor cores.
  double peak_flops(std::string_view precision) const {
    return precision == "float32" ? gpu().float32_flops : 0;
  }
  /// The command queue, through which all work of kernels goes.
  LOCKSTEP_DECL detail::cuda::Commands& commands();
  /// The stream of `commands`; callers that use it directly flush first.
  LOCKSTEP_DECL CUstream stream();

  /// The driver's type for an address in GPU memory.
  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

 private:
  /// Bytes of staging memory at least; feeds per slot between two waits at most.
  static constexpr std::size_t min_staging = 1 << 16, max_feeds = 32;

  struct State;

  /// `feed` in bytes.
  LOCKSTEP_DECL const std::byte* feed_bytes(int slot, const std::byte* p, std::size_t bytes);
  LOCKSTEP_DECL detail::cuda::Handles& handles();

  /// Reserves pinned memory whose bytes `wait_unchecked` copies to `to`.
  LOCKSTEP_DECL std::byte* staging_for(std::byte* to, std::size_t bytes);

  /// Flushes and waits, with the registered polls. \throws DeviceError.
  LOCKSTEP_DECL void wait();

  static std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(p); }

  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/context.ipp"
#endif
