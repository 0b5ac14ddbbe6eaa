/// \file
/// The CPU as a device: oneDNN and its pool of threads. Invariants: memory is the host's, aligned
/// to 64 bytes; a context is used by one thread at a time, which holds its `scope()`; the number of
/// threads and the cores hold inside of it only.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/threads.hpp"
#include "lockstep/devices/host/memory.hpp"
#include "lockstep/devices/precision.hpp"

namespace lockstep {

struct AddOp;
struct BatchNormalizationAddReLUOp;
struct BatchNormalizationOp;
struct BatchNormalizationReLUOp;
struct ConvReLUOp;
struct ConvReLUPoolOp;
struct DenseReLUOp;
struct Conv2DOp;
struct DenseOp;
struct MaxPooling2DOp;
struct ReLUOp;

namespace detail {

/// What the Cpu fuses in a precision.
template <class Precision>
struct CpuFusions {
  using type = List<Fuse<BatchNormalizationAddReLUOp, BatchNormalizationOp, AddOp, ReLUOp>,
                    Fuse<ConvReLUOp, Conv2DOp, ReLUOp>, Fuse<DenseReLUOp, DenseOp, ReLUOp>,
                    Fuse<BatchNormalizationReLUOp, BatchNormalizationOp, ReLUOp>>;
};
template <>
struct CpuFusions<Float32> {
  using type = List<Fuse<ConvReLUPoolOp, Conv2DOp, ReLUOp, MaxPooling2DOp>,
                    Fuse<BatchNormalizationAddReLUOp, BatchNormalizationOp, AddOp, ReLUOp>,
                    Fuse<ConvReLUOp, Conv2DOp, ReLUOp>, Fuse<DenseReLUOp, DenseOp, ReLUOp>,
                    Fuse<BatchNormalizationReLUOp, BatchNormalizationOp, ReLUOp>>;
};

}  // namespace detail

/// Memory, threads and oneDNN handles of one replica.
template <class T>
class CpuContext : public HostMemory {
 public:
  /// `cores`: where the threads may run; none: where the system puts them.
  explicit CpuContext(int threads, const std::optional<detail::Cores>& cores = {})
      : threads_(threads),
        cores_(cores),
        engine_(detail::onednn::make_engine()),
        stream_(detail::onednn::make_stream(engine_)) {}

  template <class A>
  void add(A* y, const A* x, std::size_t n) {
    detail::add_elements(threads_, y, x, y, n);
  }
  /// Between T and bfloat16.
  template <class To, class From>
  void convert(To* to, const From* from, std::size_t n) {
    detail::convert_elements(threads_, from, to, n);
  }

  /// body(Slice) on each thread; see devices/host/ranges.hpp.
  template <class Body>
  void for_ranges(std::size_t n, std::size_t grain, const Body& body) {
    detail::parallel_ranges(threads_, n, grain, [&](Slice part, std::size_t) { body(part); });
  }

  int threads() const { return threads_; }
  void synchronize() { detail::onednn::Site{"synchronize", {}}.check(dnnl_stream_wait(stream())); }
  /// While the result lives, the calling thread computes with `threads()` threads, on its cores.
  detail::ThreadScope scope() { return detail::ThreadScope(threads_, cores_); }

  dnnl_engine_t engine() const { return engine_.get(); }
  dnnl_stream_t stream() const { return stream_.get(); }

 private:
  int threads_;
  std::optional<detail::Cores> cores_;
  detail::onednn::Engine engine_;
  detail::onednn::Stream stream_;
};

namespace detail {

/// Logs once which setting keeps OpenMP's threads off cores of this process. `allowed`: where they
/// may run.
[[gnu::cold, gnu::noinline]] inline void warn_of_places(const Cores& allowed) {
  const int all = Cores::of_system().count();
  if (allowed.count() >= all) return;
  const char* setting = nullptr;
  if (omp_get_proc_bind() == omp_proc_bind_master) setting = "OMP_PROC_BIND";
  // A list of numbers; names, as in OMP_PLACES=cores, leave out no core.
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (const char* const value = std::getenv(name);
        setting == nullptr && value != nullptr && std::strpbrk(value, "0123456789") != nullptr)
      setting = name;
  static std::atomic_flag said;
  if (setting == nullptr || said.test_and_set()) return;
  log(LogLevel::warning,
      text({"cpu: ", setting, "=", std::getenv(setting), " leaves ", allowed.count(), " of ", all,
            " cores to OpenMP's threads; unset it to compute on all of them"}));
}

/// \throws DeviceError unless the processor has bfloat16, and oneDNN uses it.
[[gnu::cold]] inline void check_bfloat16(bool processor, bool library) {
  if (!processor)
    throw DeviceError(
        "cpu: this processor has no instructions for bfloat16 (avx512_bf16 or AMX); use ls::Cpu, "
        "which computes in float32");
  if (!library)
    throw DeviceError(
        "cpu: oneDNN may not use this processor's instructions for bfloat16; remove "
        "ONEDNN_MAX_CPU_ISA from the environment, or use ls::Cpu, which computes in float32");
}

}  // namespace detail

/// The CPU with oneDNN.
///
/// - `index`: in a strategy's list of devices, the index-th share of the process' cores, to which
///   this replica's threads are bound. -1: any core.
/// - `threads`: of one replica; 0 means the cores of its share, or of this process divided by its
///   replicas. Cores are counted by affinity and by the control group's CPU quota. \code ls::Model
///   model{Net{}, ls::OneDevice<ls::Cpu>{{.threads = 2}}, loss, optimizer};
///   ls::Mirrored<ls::Cpu>{{ls::Cpu{0}, ls::Cpu{1}}}        // a half of the cores each
/// \endcode
template <class Precision>
struct BasicCpu {
  using real = typename Precision::real;
  using activation = typename Precision::activation;
  using Context = CpuContext<real>;
  using fusions = typename detail::CpuFusions<Precision>::type;
  static constexpr std::string_view name = "cpu";
  static constexpr std::string_view precision = Precision::name;
  static constexpr bool is_host = true;

  /// The greatest number of threads of a replica: more is a slip, and would end in the runtime.
  static constexpr int thread_limit = 1024;

  int index = -1;
  int threads = 0;
  bool operator==(const BasicCpu&) const = default;

  /// The context of one of `replicas` local replicas. It has as many threads as OpenMP gives the
  /// calling thread, with a warning if these are fewer than `threads`.
  /// \throws UsageError if `threads` is negative or above `thread_limit` or `index` names no share,
  /// or if a thread's stack is too small, DeviceError if oneDNN or the system refuses, or if the
  /// processor has no instructions for the precision.
  [[gnu::cold]] Context open(std::size_t replicas, std::size_t replica) const {
    if (threads < 0)
      throw UsageError(
          {"cpu: Cpu::threads is ", threads, "; it must be at least 1, or 0 for all cores"});
    if (threads > thread_limit)
      throw UsageError({"cpu: ", threads, " threads are more than the limit of ", thread_limit,
                        "; set Cpu::threads to the number of cores, or to 0 for all cores"});
    const std::size_t sharers = std::max<std::size_t>(replicas, 1);
    if (index < -1 || (index >= 0 && static_cast<std::size_t>(index) >= sharers))
      throw UsageError({"cpu: no device ", index, " among ", sharers, "; the devices of a list of ",
                        sharers, " are Cpu{0} to Cpu{", sharers - 1, "}"});
    if constexpr (std::is_same_v<activation, bfloat16>)
      detail::check_bfloat16(detail::has_bfloat16_vectors(), detail::onednn::has_bfloat16());
    const bool shares = index >= 0 || (sharers > 1 && detail::openmp_binds());
    const detail::Cores all = shares || omp_get_proc_bind() != omp_proc_bind_master
                                  ? detail::Cores::of_process()
                                  : detail::Cores();  // the whole team is on the caller's place
    const auto quota = detail::read_cpu_quota();
    const int usable = detail::usable_cores(all, quota);
    std::optional<detail::Cores> mine;
    if (shares)
      mine = all.share(sharers, index >= 0 ? static_cast<std::size_t>(index) : replica % sharers);
    const int even = std::max(1, usable / static_cast<int>(sharers));
    const int cores = mine && !quota ? mine->count() : even;
    const int wanted = threads > 0 ? threads : cores;
    if (omp_get_proc_bind() != omp_proc_bind_false) detail::warn_of_places(all);
    const int each = detail::team_of(wanted);
    if (each < wanted && (threads > 0 || omp_in_parallel() == 0)) warn_of_fewer(each, wanted);
    // A replica of one thread has no team that would spin for the others.
    if (each > 1 && static_cast<std::size_t>(each) * sharers > static_cast<std::size_t>(usable))
      warn(each, sharers, usable);
    return Context(each, mine);
  }

 private:
  [[gnu::cold, gnu::noinline]] static void warn_of_fewer(int each, int wanted) {
    static std::atomic_flag said;
    if (said.test_and_set()) return;
    log(LogLevel::warning, text({"cpu: OpenMP gives ", each, each == 1 ? " thread" : " threads",
                                 " instead of ", wanted, ", and the model computes with ",
                                 each == 1 ? "it" : "these", ": ", detail::why_fewer(wanted)}));
  }
  [[gnu::cold, gnu::noinline]] static void warn(int each, std::size_t replicas, int cores) {
    static std::atomic_flag said;
    if (said.test_and_set()) return;
    log(LogLevel::warning,
        text(
            {"cpu: ", replicas, replicas == 1 ? " replica with " : " replicas with ", each,
             each == 1 ? " thread" : " threads", replicas == 1 ? "" : " each", " on the ", cores,
             " cores of this process will be slow; use fewer replicas, or set Cpu::threads to 0"}));
  }
};

using Cpu = BasicCpu<Float32>;
/// The CPU in mixed precision, by AMX where the machine has it, else by AVX-512's bfloat16.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::CpuBFloat16>{}, loss, optimizer};
/// \endcode
using CpuBFloat16 = BasicCpu<MixedBFloat16>;

}  // namespace lockstep
