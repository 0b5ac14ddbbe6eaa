#pragma once

#include "lockstep/devices/cuda/context.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/memory.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

Scope::Scope(CUcontext context) {
  check(driver().cuCtxPushCurrent(context), "making a GPU's context current");
}

Scope::~Scope() {
  CUcontext context = nullptr;
  driver().cuCtxPopCurrent(&context);
}

/// A GPU's primary context, shared by all libraries of the process. It is never released: the state
/// that libraries keep in it would go with it, and creating another one takes longer than a test.
class PrimaryContext {
 public:
  explicit PrimaryContext(int ordinal) {
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
inline bool is_checked() {
  const char* const variable = std::getenv("LOCKSTEP_CUDA_CHECK");
  const std::string_view value = variable == nullptr ? "" : variable;
  if (value.empty() || value == "0") return false;
  if (value != "1")
    throw UsageError(
        "cuda: LOCKSTEP_CUDA_CHECK is '{}'; set it to 1 to wait for each command and name the one "
        "that fails, or to 0 for full speed",
        value);
  static std::atomic<bool> logged = false;
  if (!logged.exchange(true))
    log(LogLevel::warning,
        "cuda: LOCKSTEP_CUDA_CHECK is 1: the host waits for each command, which is slow");
  return true;
}

}  // namespace lockstep::detail::cuda

namespace lockstep {

// Members are created and destroyed with the GPU's context current; the scope that the constructor
// pushes is popped at its end.
struct CudaContext::State {
  /// A copy whose bytes have still to be moved from staging to their destination.
  struct Download {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  /// A pinned buffer and its copy on the GPU.
  struct Feed {
    detail::cuda::PinnedBuffer host;
    std::byte* device = nullptr;
  };
  /// The feeds of one slot.
  struct Feeds {
    std::vector<std::unique_ptr<Feed>> feed;
    std::size_t in_flight = 0;  // feeds that the GPU may still read
  };

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
  /// Waits for everything on the stream. \throws what a registered poll throws.
  CUresult wait() {
    if (watches.empty()) return detail::cuda::driver().cuStreamSynchronize(stream.get());
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      const CUresult result = detail::cuda::driver().cuStreamQuery(stream.get());
      if (result != CUDA_ERROR_NOT_READY) return result;
      for (const auto& [owner, poll] : watches) poll(std::chrono::steady_clock::now() - begin);
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
  detail::cuda::PinnedBuffer staging;
  std::vector<Feeds> feeds;  // by slot
  std::vector<Download> downloads;
  std::vector<std::pair<const void*, std::function<void(std::chrono::nanoseconds)>>> watches;
  std::vector<std::function<void()>> error_checks;
  std::function<std::byte*(std::size_t)> exchange_allocate;
  std::function<void(std::byte*)> exchange_free;
  std::vector<std::pair<std::byte*, std::function<void(std::byte*)>>> exchange_allocations;
  std::size_t staged = 0;  // bytes of `staging` in use
};

CudaContext::CudaContext(const Gpu& gpu, const CudaOptions& options)
    : state_(std::make_unique<State>(gpu, options, detail::cuda::is_checked())) {}

CudaContext::CudaContext(CudaContext&&) noexcept = default;

CudaContext& CudaContext::operator=(CudaContext&&) noexcept = default;

CudaContext::~CudaContext() = default;

std::byte* CudaContext::allocate(std::size_t bytes) {
  return pointer(detail::cuda::allocate_memory(bytes));
}

std::byte* CudaContext::allocate_exchanged(std::size_t bytes) {
  State& s = *state_;
  std::byte* const p = s.exchange_allocate ? s.exchange_allocate(bytes) : nullptr;
  if (p == nullptr) return allocate(bytes);
  s.exchange_allocations.emplace_back(p, s.exchange_free);
  return p;
}

void CudaContext::set_exchange_allocator(std::function<std::byte*(std::size_t)> allocate,
                                         std::function<void(std::byte*)> free) {
  state_->exchange_allocate = std::move(allocate);
  state_->exchange_free = std::move(free);
}

void CudaContext::release(std::byte* p, std::size_t) noexcept {
  detail::cuda::driver().cuCtxPushCurrent(state_->context.get());
  try {
    wait();
  } catch (...) {  // the pending error is the cause
    commands().abandon();
  }
  auto& all = state_->exchange_allocations;
  const auto allocation =
      std::find_if(all.begin(), all.end(), [&](auto& l) { return l.first == p; });
  if (allocation == all.end()) {
    detail::cuda::driver().cuMemFree(address(p));
  } else {
    allocation->second(p);
    all.erase(allocation);
  }
  CUcontext popped = nullptr;
  detail::cuda::driver().cuCtxPopCurrent(&popped);
}

// Not recorded as a command: `from` is pageable and may be freed when this returns.
void CudaContext::upload(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  commands().flush();
  detail::cuda::check(detail::cuda::driver().cuMemcpyHtoDAsync(address(to), from, bytes, stream()),
                      "copying to the GPU");
  wait();
}

void CudaContext::download(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) commands().copy_out(staging_for(to, bytes), address(from), bytes);
}

void CudaContext::download_and_clear(std::byte* to, std::byte* from, std::size_t bytes) {
  if (bytes > 0)
    detail::cuda::download_and_clear(*this,
                                     reinterpret_cast<std::uint64_t*>(staging_for(to, bytes)),
                                     reinterpret_cast<std::uint64_t*>(from), bytes / 8);
}

void CudaContext::clear(std::byte* p, std::size_t bytes) { commands().clear(address(p), bytes); }

void CudaContext::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  commands().copy(address(to), address(from), bytes);
}

bool CudaContext::keeps_data(std::size_t bytes) const {
  std::size_t free = 0, all = 0;
  detail::cuda::check(detail::cuda::driver().cuMemGetInfo(&free, &all), "reading the free memory");
  return options().keeps_data && bytes <= free / 2;
}

// Errors are checked after the wait, when the kernels have written them.
void CudaContext::synchronize() {
  wait_unchecked();
  check_errors();
}

void CudaContext::wait_unchecked() {
  State& s = *state_;
  // Also after a failed wait: no one waits for these downloads then, and their destinations may be
  // gone.
  struct ClearDownloads {
    std::vector<State::Download>& all;
    ~ClearDownloads() { all.clear(); }
  } clear_downloads{s.downloads};
  s.staged = 0;
  wait();
  for (const State::Download& d : s.downloads) std::memcpy(d.to, d.from, d.bytes);
  for (State::Feeds& f : s.feeds) f.in_flight = 0;
}

void CudaContext::check_errors() {
  for (const auto& check : state_->error_checks) check();
}

void CudaContext::add_error_check(std::function<void()> check) {
  state_->error_checks.push_back(std::move(check));
}

void CudaContext::watch(const void* owner, std::function<void(std::chrono::nanoseconds)> poll) {
  auto& all = state_->watches;
  std::erase_if(all, [&](const auto& w) { return w.first == owner; });
  if (poll) all.emplace_back(owner, std::move(poll));
}

detail::cuda::Scope CudaContext::scope() { return detail::cuda::Scope(state_->context.get()); }

CUfunction CudaContext::kernel(const detail::cuda::Source& source, const char* entry,
                               std::span<const detail::cuda::Define> defines) {
  return state_->programs.find(source, entry, defines);
}

CUfunction CudaContext::kernel(const detail::cuda::Source& source, const char* entry,
                               std::initializer_list<detail::cuda::Define> defines) {
  return kernel(source, entry, std::span(defines.begin(), defines.size()));
}

void CudaContext::begin_work(const Work& work) { commands().begin_work(work); }
const Work& CudaContext::work() const { return state_->commands.work(); }

void CudaContext::measure_work(WorkTimes* times) {
  commands().measure(times, [state = state_.get()] { return state->wait(); });
}

const Gpu& CudaContext::gpu() const { return state_->gpu; }
const CudaOptions& CudaContext::options() const { return state_->options; }
detail::cuda::Commands& CudaContext::commands() { return state_->commands; }
CUstream CudaContext::stream() { return state_->stream.get(); }

// A buffer is reused only after a wait, because the GPU may still read it.
const std::byte* CudaContext::feed_bytes(int slot, const std::byte* p, std::size_t bytes) {
  const auto index = static_cast<std::size_t>(slot);
  if (index >= state_->feeds.size()) state_->feeds.resize(index + 1);
  State::Feeds& all = state_->feeds[index];
  if (all.in_flight == max_feeds) wait_unchecked();
  if (all.in_flight == all.feed.size()) all.feed.emplace_back(std::make_unique<State::Feed>());
  State::Feed& f = *all.feed[all.in_flight];
  if (bytes > f.host.size() || f.device == nullptr) {
    f.host.grow(std::max<std::size_t>(bytes, 1));
    // `release` waits for the kernels that read the old buffer.
    if (f.device != nullptr) release(std::exchange(f.device, nullptr), 0);
    f.device = allocate(bytes);
  }
  if (bytes > 0) {
    std::memcpy(f.host.data(), p, bytes);
    commands().copy_in(address(f.device), f.host.data(), bytes);
    ++all.in_flight;
  }
  return f.device;
}

detail::cuda::Handles& CudaContext::handles() { return state_->handles; }

std::byte* CudaContext::staging_for(std::byte* to, std::size_t bytes) {
  State& s = *state_;
  // Growing moves the buffer, so pending downloads are completed first.
  if (s.staged + bytes > s.staging.size()) {
    wait_unchecked();
    if (bytes > s.staging.size()) s.staging.grow(std::max<std::size_t>(2 * bytes, min_staging));
  }
  std::byte* const place = s.staging.data() + s.staged;
  // 64-byte alignment keeps each download on its own cache lines.
  s.staged += (bytes + 63) / 64 * 64;
  s.downloads.push_back({to, place, bytes});
  return place;
}

void CudaContext::wait() {
  commands().flush();
  detail::cuda::check(state_->wait(), "waiting for the GPU");
}

}  // namespace lockstep
