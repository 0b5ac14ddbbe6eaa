/// \file
/// One opened GPU: its context, a stream, memory, kernels. Invariants: it is used by one thread at
/// a time, which holds its `scope()`; all work is on one stream, in the order of the calls; the
/// host waits only in `synchronize`, `wait_unchecked`, `upload` and `release`, and where there is no room
/// for one more `feed` or `download`; only `synchronize` and `look` tell what kernels have found
/// wrong.
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

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/work.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/gpus.hpp"
#include "lockstep/devices/cuda/memory.hpp"
#include "lockstep/devices/cuda/program.hpp"
#include "lockstep/devices/cuda/stream.hpp"
#include "lockstep/devices/cuda/support/elements.hpp"

namespace lockstep {

namespace detail::cuda {

/// A GPU's context, current in this thread while the object lives.
class Scope {
 public:
  LOCKSTEP_DECL explicit Scope(CUcontext context);
  LOCKSTEP_DECL ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// A library's handle, or whatever else belongs to an opened GPU, made when first asked for.
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
  /// Data sets in memory are copied to the GPU while they are trained on, if they take no more than
  /// half of what the model leaves free.
  bool keeps_data = true;
  bool operator==(const CudaOptions&) const = default;
};

/// Memory, stream, kernels and libraries of one replica on a GPU.
class CudaContext {
 public:
  /// Opens the GPU.
  LOCKSTEP_COLD_DECL CudaContext(const Gpu& gpu, const CudaOptions& options);
  LOCKSTEP_DECL CudaContext(CudaContext&& other) noexcept;
  LOCKSTEP_DECL CudaContext& operator=(CudaContext&& other) noexcept;
  LOCKSTEP_DECL ~CudaContext();

  LOCKSTEP_DECL std::byte* allocate(std::size_t bytes);
  /// Memory for numbers that replicas exchange: as `set_exchange_allocator` says.
  LOCKSTEP_DECL std::byte* allocate_exchanged(std::size_t bytes);
  /// `take(bytes)` gives the memory of `allocate_exchanged`, or null, if it has none; `give(p)`
  /// takes it back. An empty `take` ends it; what was clear_downloads still goes back to its `give`.
  LOCKSTEP_DECL void set_exchange_allocator(std::function<std::byte*(std::size_t)> allocate,
                                            std::function<void(std::byte*)> free);
  /// Also outside of the scope: buffers end where their owner does.
  LOCKSTEP_DECL void release(std::byte* p, std::size_t) noexcept;

  /// Returns when `from` may be changed.
  LOCKSTEP_DECL void upload(std::byte* to, const std::byte* from, std::size_t bytes);
  /// `to` has the bytes after `wait_unchecked`.
  LOCKSTEP_DECL void download(std::byte* to, const std::byte* from, std::size_t bytes);
  /// The same, and then clears them, in one launch. They are words of 8 bytes.
  LOCKSTEP_DECL void download_and_clear(std::byte* to, std::byte* from, std::size_t bytes);
  LOCKSTEP_DECL void clear(std::byte* p, std::size_t bytes);
  LOCKSTEP_DECL void copy(std::byte* to, const std::byte* from, std::size_t bytes);

  /// Through pinned memory; each slot has as many buffers as were fed between two `wait_unchecked`, up to
  /// `max_feeds`.
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
  /// Between float and the type of activations; rounds.
  template <class To, class From>
  void convert(To* y, const From* x, std::size_t n) {
    detail::cuda::convert_elements(*this, y, x, n);
  }

  /// Whether data sets may take so many bytes of what is free now.
  LOCKSTEP_DECL bool keeps_data(std::size_t bytes) const;

  /// The launching thread's: a GPU has no threads that a strategy could count.
  int threads() const { return 1; }
  LOCKSTEP_DECL void synchronize();
  /// The same, but what kernels have found wrong is left for the next `look`.
  LOCKSTEP_DECL void wait_unchecked();
  LOCKSTEP_DECL void check_errors();
  /// `look()` is called by `synchronize` and `look`, when the GPU has been waited for, and may
  /// throw: kernels tell what they have found wrong through memory of the host. It must live as
  /// long as the context.
  LOCKSTEP_DECL void add_error_check(std::function<void()> check);
  /// `look(how long)` is called again and again while the host waits, and may end the wait by
  /// an exception: what the GPU does may depend on other processes. One for each `owner`; an empty
  /// function ends it.
  LOCKSTEP_DECL void watch(const void* owner, std::function<void(std::chrono::nanoseconds)> poll);
  LOCKSTEP_DECL detail::cuda::Scope scope();

  /// The entry point of a text, specialised on numbers. Compiled when first asked for.
  LOCKSTEP_DECL CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                                  std::span<const detail::cuda::Define> defines);
  LOCKSTEP_DECL CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                                  std::initializer_list<detail::cuda::Define> defines);
  template <class... Ts>
  void launch(CUfunction function, const detail::cuda::Grid& grid, const Ts&... arguments) {
    commands().launch(function, grid, arguments...);
  }
  /// What belongs to this GPU and is made when first asked for.
  template <class H>
  H& handle() {
    return handles().template get<H>();
  }

  /// What the next calls belong to.
  LOCKSTEP_DECL void begin_work(const Work& work);
  LOCKSTEP_DECL const Work& work() const;
  /// From now on `times` is told how long each command takes; null: no more.
  LOCKSTEP_DECL void measure_work(WorkTimes* times);

  LOCKSTEP_DECL const Gpu& gpu() const;
  LOCKSTEP_DECL const CudaOptions& options() const;
  LOCKSTEP_DECL detail::cuda::Commands& commands();
  LOCKSTEP_DECL CUstream stream();

  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

 private:
  static constexpr std::size_t min_staging = 1 << 16, max_feeds = 32;

  struct State;

  LOCKSTEP_DECL const std::byte* feed_bytes(int slot, const std::byte* p, std::size_t bytes);
  LOCKSTEP_DECL detail::cuda::Handles& handles();

  /// Pinned memory whose bytes `wait_unchecked` brings to `to`.
  LOCKSTEP_DECL std::byte* staging_for(std::byte* to, std::size_t bytes);

  LOCKSTEP_DECL void wait();

  static std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(p); }

  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/context.ipp"
#endif
