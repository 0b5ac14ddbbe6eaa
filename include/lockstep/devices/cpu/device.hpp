/// \file
/// The CPU as a device: oneDNN and the OpenMP thread pool that it computes with.
///
///     BasicCpu            value that a user writes: {index, threads}
///       | open(replicas, replica)
///     CpuContext          one per replica: HostMemory, team size, cores, oneDNN engine and stream
///       | scope()
///     ThreadScope         while a replica computes: OpenMP's settings and affinity
///
/// Invariants: memory is the host's, aligned to 64 bytes; a context is used by one thread at a
/// time, which holds its `scope()`; team size and core binding apply only within that scope.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/devices/cpu/team_waits.hpp"
#include "lockstep/devices/host/host_memory.hpp"
#include "lockstep/devices/precision_policy.hpp"

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

/// The fusion rules of the CPU in a precision, longer rules first. ConvReLUPoolOp has a kernel for
/// float only.
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

namespace detail {

/// Team size, cores and oneDNN handles of one replica.
class CpuHandles {
 public:
  LOCKSTEP_COLD_DECL CpuHandles(int threads, const std::optional<Cores>& cores);
  LOCKSTEP_COLD_DECL CpuHandles(CpuHandles&&) noexcept;
  LOCKSTEP_COLD_DECL CpuHandles& operator=(CpuHandles&&) noexcept;
  LOCKSTEP_COLD_DECL ~CpuHandles();

  int threads() const { return threads_; }
  /// Waits until oneDNN's stream is idle.
  LOCKSTEP_DECL void synchronize();
  /// For the lifetime of the result, the calling thread computes with `threads()` threads, on the
  /// replica's cores.
  LOCKSTEP_DECL ThreadScope scope();
  /// As `scope`, for calls of less than a microsecond: one thread that is not bound to cores makes
  /// no system call here, and takes no part in the detection of contended cores.
  LOCKSTEP_DECL ThreadScope brief_scope();
  /// While cores are contended, the replica may compute on all cores of the process: bound to a
  /// share, it would wait for a stranger's time slices although another core is free.
  void leave_cores_when_contended() { leaves_cores_ = true; }

  dnnl_engine_t engine() const { return engine_.get(); }
  dnnl_stream_t stream() const { return stream_.get(); }

 private:
  int threads_;
  std::optional<Cores> cores_;
  bool leaves_cores_ = false;
  std::shared_ptr<TeamWaits> waits_;
  onednn::Engine engine_;
  onednn::Stream stream_;
};

/// Threads and cores assigned to one replica.
struct CpuShare {
  int threads;
  std::optional<Cores> cores;  ///< empty: not bound, the scheduler places the threads
};
/// See BasicCpu::open.
LOCKSTEP_COLD_DECL CpuShare share_cpu(int index, int threads, bool needs_bfloat16,
                                      std::size_t replicas, std::size_t replica);

/// \throws DeviceError unless the processor has bfloat16 instructions and oneDNN may use them.
LOCKSTEP_COLD_DECL void check_bfloat16(bool processor, bool library);

/// The maximum number of threads of a replica. A larger number is a mistake, which OpenMP's runtime
/// would answer by ending the process.
inline constexpr int cpu_thread_limit = 1024;

}  // namespace detail

/// Memory, threads and oneDNN handles of one replica.
template <class T>
class CpuContext : public HostMemory, public detail::CpuHandles {
 public:
  /// `cores`: where the threads may run; empty: anywhere.
  explicit CpuContext(int threads, const std::optional<detail::Cores>& cores = {})
      : detail::CpuHandles(threads, cores) {}

  /// y += x.
  template <class A>
  void add(A* y, const A* x, std::size_t n) {
    detail::add_elements(threads(), y, x, y, n);
  }
  /// Converts n elements between T and bfloat16.
  template <class To, class From>
  void convert(To* to, const From* from, std::size_t n) {
    detail::convert_elements(threads(), from, to, n);
  }

  /// Calls body(Slice) on each thread; see devices/host/ranges.hpp.
  template <class Body>
  void for_ranges(std::size_t n, std::size_t grain, const Body& body) {
    detail::parallel_ranges(threads(), n, grain, [&](Slice part, std::size_t) { body(part); });
  }
};

/// The CPU, computing with oneDNN.
///
/// - `index`: in a strategy's list of devices, binds this replica's threads to the index-th share
///   of the process' cores. -1 does not bind them.
/// - `threads`: threads per replica. 0 means the cores of its share, or the cores of the process
///   divided by its replicas. Cores are counted by the affinity mask and by the control group's CPU
///   quota.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{{.threads = 2}}, loss, optimizer};
///   ls::Mirrored<ls::Cpu>{{ls::Cpu{0}, ls::Cpu{1}}}        // half of the cores each
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

  static constexpr int thread_limit = detail::cpu_thread_limit;

  int index = -1;
  int threads = 0;
  bool operator==(const BasicCpu&) const = default;

  /// Opens the context of one of `replicas` local replicas. Its team has the size that OpenMP
  /// grants the calling thread; if that is smaller than `threads`, a warning is logged.
  /// \throws UsageError if `threads` is negative or above `thread_limit`, if `index` is out of
  /// range, if a thread's stack is too small, or if LOCKSTEP_WAIT_POLICY is invalid.
  /// \throws DeviceError if oneDNN fails, if the system cannot create the threads, or if the
  /// processor has no instructions for the precision.
  Context open(std::size_t replicas, std::size_t replica) const {
    const detail::CpuShare share =
        detail::share_cpu(index, threads, std::is_same_v<activation, bfloat16>, replicas, replica);
    return Context(share.threads, share.cores);
  }
};

/// The CPU in single precision.
using Cpu = BasicCpu<Float32>;
/// The CPU in mixed precision: AMX where the machine has it, otherwise AVX-512 with bfloat16.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::CpuBFloat16>{}, loss, optimizer};
/// \endcode
using CpuBFloat16 = BasicCpu<MixedBFloat16>;

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/device.ipp"
#endif
