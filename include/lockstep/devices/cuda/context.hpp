/// \file
/// One opened GPU: its context, a stream, memory, kernels. Invariants: it is used by one thread at
/// a time, which holds its `scope()`; all work is on one stream, in the order of the calls; the
/// host waits only in `synchronize`, `settle`, `upload` and `release`, and where there is no room
/// for one more `feed` or `download`; only `synchronize` and `look` tell what kernels have found
/// wrong.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/log.hpp"
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
  explicit Scope(CUcontext context) {
    check(driver().cuCtxPushCurrent(context), "taking a GPU for this thread");
  }
  ~Scope() {
    CUcontext context = nullptr;
    driver().cuCtxPopCurrent(&context);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// A GPU's primary context, which all libraries of a process share. It stays until the process
/// ends: what they keep in it would go with it, and to make another one takes longer than a test.
class PrimaryContext {
 public:
  [[gnu::cold]] explicit PrimaryContext(int ordinal) {
    CUdevice device = 0;
    check(driver().cuDeviceGet(&device, ordinal), "opening a GPU");
    check(driver().cuDevicePrimaryCtxRetain(&context_, device), "opening a GPU");
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

/// Whether LOCKSTEP_CUDA_CHECK asks for checked mode. \throws UsageError for an unknown value.
[[gnu::cold]] inline bool is_checked() {
  const char* const variable = std::getenv("LOCKSTEP_CUDA_CHECK");
  const std::string_view value = variable == nullptr ? "" : variable;
  if (value.empty() || value == "0") return false;
  if (value != "1")
    throw UsageError({"cuda: LOCKSTEP_CUDA_CHECK is '", value,
                      "'; set it to 1 to wait for each command and name the one that fails, or to "
                      "0 for full speed"});
  static std::atomic<bool> told = false;
  if (!told.exchange(true))
    log(LogLevel::warning,
        "cuda: LOCKSTEP_CUDA_CHECK is 1: each command is waited for, which is slow");
  return true;
}

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
  [[gnu::cold]] CudaContext(const Gpu& gpu, const CudaOptions& options)
      : state_(std::make_unique<State>(gpu, options, detail::cuda::is_checked())) {}

  std::byte* allocate(std::size_t bytes) { return pointer(detail::cuda::take_memory(bytes)); }
  /// Memory for numbers that replicas exchange: as `lend` says.
  std::byte* allocate_exchanged(std::size_t bytes) {
    State& s = *state_;
    std::byte* const p = s.lender ? s.lender(bytes) : nullptr;
    if (p == nullptr) return allocate(bytes);
    s.lent.emplace_back(p, s.give_back);
    return p;
  }
  /// `take(bytes)` gives the memory of `allocate_exchanged`, or null, if it has none; `give(p)`
  /// takes it back. An empty `take` ends it; what was taken still goes back to its `give`.
  void lend(std::function<std::byte*(std::size_t)> take, std::function<void(std::byte*)> give) {
    state_->lender = std::move(take);
    state_->give_back = std::move(give);
  }
  /// Also outside of the scope: buffers end where their owner does.
  void release(std::byte* p, std::size_t) noexcept {
    detail::cuda::driver().cuCtxPushCurrent(state_->context.get());
    try {
      wait();
    } catch (...) {  // an error under way says more
      commands().abandon();
    }
    auto& lent = state_->lent;
    const auto loan = std::find_if(lent.begin(), lent.end(), [&](auto& l) { return l.first == p; });
    if (loan == lent.end()) {
      detail::cuda::driver().cuMemFree(address(p));
    } else {
      loan->second(p);
      lent.erase(loan);
    }
    CUcontext popped = nullptr;
    detail::cuda::driver().cuCtxPopCurrent(&popped);
  }

  /// Returns when `from` may be changed.
  void upload(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    commands().flush();
    detail::cuda::check(
        detail::cuda::driver().cuMemcpyHtoDAsync(address(to), from, bytes, stream()),
        "copying to the GPU");
    wait();
  }
  /// `to` has the bytes after `settle`.
  void download(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) commands().copy_out(landing_for(to, bytes), address(from), bytes);
  }
  /// The same, and then clears them, in one launch. They are words of 8 bytes.
  void hand_over(std::byte* to, std::byte* from, std::size_t bytes) {
    if (bytes > 0)
      detail::cuda::hand_over(*this, reinterpret_cast<std::uint64_t*>(landing_for(to, bytes)),
                              reinterpret_cast<std::uint64_t*>(from), bytes / 8);
  }
  void clear(std::byte* p, std::size_t bytes) { commands().clear(address(p), bytes); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    commands().copy(address(to), address(from), bytes);
  }

  /// Through pinned memory; each slot has as many buffers as were fed between two `settle`, up to
  /// `most_feeds`.
  template <class U>
  const U* feed(int slot, const U* p, std::size_t n) {
    Feeds& all = state_->feeds[static_cast<std::size_t>(slot)];
    const std::size_t bytes = n * sizeof(U);
    if (all.under_way == most_feeds) settle();
    if (all.under_way == all.feed.size()) all.feed.emplace_back(std::make_unique<Feed>());
    Feed& f = *all.feed[all.under_way];
    if (bytes > f.host.size() || f.device == nullptr) {
      f.host.grow(std::max<std::size_t>(bytes, 1));
      if (f.device != nullptr) release(std::exchange(f.device, nullptr), 0);
      f.device = allocate(bytes);
    }
    if (bytes > 0) {
      std::memcpy(f.host.data(), p, bytes);
      commands().copy_in(address(f.device), f.host.data(), bytes);
      ++all.under_way;
    }
    return reinterpret_cast<const U*>(f.device);
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
  bool keeps_data(std::size_t bytes) const {
    std::size_t free = 0, all = 0;
    detail::cuda::check(detail::cuda::driver().cuMemGetInfo(&free, &all), "asking for free memory");
    return options().keeps_data && bytes <= free / 2;
  }

  /// The launching thread's: a GPU has no threads that a strategy could count.
  int threads() const { return 1; }
  void synchronize() {
    settle();
    look();
  }
  /// The same, but what kernels have found wrong is left for the next `look`.
  void settle() {
    State& s = *state_;
    // Also after a failed wait: nobody waits for them then, and their places may be gone.
    struct Taken {
      std::vector<Download>& all;
      ~Taken() { all.clear(); }
    } taken{s.downloads};
    s.landed = 0;
    wait();
    for (const Download& d : s.downloads) std::memcpy(d.to, d.from, d.bytes);
    for (Feeds& f : s.feeds) f.under_way = 0;
  }
  void look() {
    for (const auto& look : state_->inspections) look();
  }
  /// `look()` is called by `synchronize` and `look`, when the GPU has been waited for, and may
  /// throw: kernels tell what they have found wrong through memory of the host. It must live as
  /// long as the context.
  void inspect(std::function<void()> look) { state_->inspections.push_back(std::move(look)); }
  /// `look(how long)` is called again and again while the host waits, and may end the wait by
  /// an exception: what the GPU does may depend on other processes. One for each `owner`; an empty
  /// function ends it.
  void watch(const void* owner, std::function<void(std::chrono::nanoseconds)> look) {
    auto& all = state_->watches;
    std::erase_if(all, [&](const auto& w) { return w.first == owner; });
    if (look) all.emplace_back(owner, std::move(look));
  }
  detail::cuda::Scope scope() { return detail::cuda::Scope(state_->context.get()); }

  /// The entry point of a text, specialised on numbers. Compiled when first asked for.
  CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                    std::span<const detail::cuda::Define> defines) {
    return state_->programs.find(source, entry, defines);
  }
  CUfunction kernel(const detail::cuda::Source& source, const char* entry,
                    std::initializer_list<detail::cuda::Define> defines) {
    return kernel(source, entry, std::span(defines.begin(), defines.size()));
  }
  template <class... Ts>
  void launch(CUfunction function, const detail::cuda::Grid& grid, const Ts&... arguments) {
    commands().launch(function, grid, arguments...);
  }
  /// What belongs to this GPU and is made when first asked for.
  template <class H>
  H& handle() {
    return state_->handles.template get<H>();
  }

  /// What the next calls belong to.
  void begin_work(const Work& work) { commands().begin_work(work); }
  const Work& work() const { return state_->commands.work(); }
  /// From now on `times` is told how long each command takes; null: no more.
  void measure_work(WorkTimes* times) {
    commands().measure(times, [state = state_.get()] { return state->wait(); });
  }

  const Gpu& gpu() const { return state_->gpu; }
  const CudaOptions& options() const { return state_->options; }
  detail::cuda::Commands& commands() { return state_->commands; }
  CUstream stream() { return state_->stream.get(); }

  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

 private:
  static constexpr std::size_t least_landing = 1 << 16, most_feeds = 32;

  struct Download {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  struct Feed {
    detail::cuda::PinnedBuffer host;
    std::byte* device = nullptr;
  };
  /// Of a slot.
  struct Feeds {
    std::vector<std::unique_ptr<Feed>> feed;
    std::size_t under_way = 0;  // so many of them may still be read
  };
  // Its members are made and ended with the GPU's context current.
  struct State {
    State(const Gpu& g, const CudaOptions& o, bool checked)
        : gpu(g),
          options(o),
          context(g.ordinal),
          scope(context.get()),
          programs(g.major * 10 + g.minor),
          commands(stream.get(), o.graphs && !checked) {
      if (checked) {
        options.graphs = false;
        commands.check_each([this] { return wait(); });
      }
      detail::cuda::driver().cuCtxPopCurrent(&popped);
    }
    ~State() {
      detail::cuda::driver().cuCtxPushCurrent(context.get());
      commands.abandon();
      detail::cuda::driver().cuStreamSynchronize(stream.get());
      for (Feeds& all : feeds)
        for (auto& f : all.feed)
          if (f->device != nullptr) detail::cuda::driver().cuMemFree(address(f->device));
    }
    /// For what was handed to the stream. \throws what a watch throws.
    CUresult wait() {
      if (watches.empty()) return detail::cuda::driver().cuStreamSynchronize(stream.get());
      using Clock = std::chrono::steady_clock;
      const auto begin = Clock::now();
      while (true) {
        const CUresult result = detail::cuda::driver().cuStreamQuery(stream.get());
        if (result != CUDA_ERROR_NOT_READY) return result;
        for (const auto& [owner, look] : watches) look(Clock::now() - begin);
        std::this_thread::yield();
      }
    }
    Gpu gpu;
    CudaOptions options;
    detail::cuda::PrimaryContext context;
    CUcontext popped = nullptr;
    detail::cuda::Scope scope;
    detail::cuda::Stream stream;
    detail::cuda::Programs programs;
    detail::cuda::Handles handles;
    detail::cuda::Commands commands;
    detail::cuda::PinnedBuffer landing;
    std::array<Feeds, 3> feeds;
    std::vector<Download> downloads;
    std::vector<std::pair<const void*, std::function<void(std::chrono::nanoseconds)>>> watches;
    std::vector<std::function<void()>> inspections;
    std::function<std::byte*(std::size_t)> lender;
    std::function<void(std::byte*)> give_back;
    std::vector<std::pair<std::byte*, std::function<void(std::byte*)>>> lent;
    std::size_t landed = 0;  // bytes of landing in use
  };

  /// Pinned memory whose bytes `settle` brings to `to`.
  std::byte* landing_for(std::byte* to, std::size_t bytes) {
    State& s = *state_;
    if (s.landed + bytes > s.landing.size()) {
      settle();
      if (bytes > s.landing.size()) s.landing.grow(std::max<std::size_t>(2 * bytes, least_landing));
    }
    std::byte* const place = s.landing.data() + s.landed;
    s.landed += (bytes + 63) / 64 * 64;
    s.downloads.push_back({to, place, bytes});
    return place;
  }

  void wait() {
    commands().flush();
    detail::cuda::check(state_->wait(), "waiting for the GPU");
  }

  static std::byte* pointer(CUdeviceptr p) { return reinterpret_cast<std::byte*>(p); }

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
