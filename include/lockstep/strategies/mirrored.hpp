/// \file
/// Several replicas in one process. Invariants: every replica keeps one thread (replica 0 the
/// calling thread), one device context and one exchange for the lifetime of the session; an error
/// in one replica aborts the exchanges of all, and leaves the session usable.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep {

/// tf.distribute.MirroredStrategy: N replicas of the model in this process, one on each device.
/// Each computes its slice of every batch, and all apply the summed gradients.
///
/// Results equal those of one device up to rounding, for any batch size and any N. The exceptions
/// are layers with per-replica statistics (BatchNormalization without `ls::synchronized`). With
/// `virtual_shards`, results are bit-identical for 1, 2, 4, ... replicas.
/// \code
///   ls::Mirrored<ls::Cpu>{.replicas = 4}                          // a quarter of the cores each
///   ls::Mirrored<ls::Cpu>{{ls::Cpu{0}, ls::Cpu{1}}}               // the halves of the cores
///   ls::Mirrored<ls::Cuda>{}                                      // all GPUs
///   ls::Mirrored<ls::Cuda>{{"/gpu:0", "/gpu:1"}}
///   ls::Mirrored<ls::Cpu>{.replicas = 2, .virtual_shards = 8}     // the bits of 1, 4, 8 replicas
/// \endcode
template <Device D>
struct Mirrored {
  static constexpr bool can_exchange = GroupsReplicas<D>;
  static_assert(can_exchange,
                "lockstep::Mirrored: this device has no collective for its replicas; give it a "
                "member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference");
  using device = D;
  static constexpr std::string_view name = "mirrored";

  std::vector<D> devices{};  ///< one replica on each; empty: `replicas` replicas on `on`
  std::size_t replicas = 0;  ///< 0: one per listed device; without a list, all GPUs, or 1 on Cpu
  D on{};                    ///< the options of each device, if none is listed
  std::size_t virtual_shards = 0;  ///< slices of a batch, a power of two; 0: one per replica
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  ///< of a wait for other replicas

  /// The opened strategy: threads, devices, groups.
  class Session : public SessionOfOneProcess {
   public:
    explicit Session(const Mirrored& options) : state_(new State(options)) {}

    /// Runs `body` in each replica. \throws the cause of the failure, after all have ended.
    void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
      state_.get_deleter().check("mirrored");
      state_->local.each(body);
    }
    std::size_t local_replicas() const { return state_->local.count(); }
    std::size_t replicas() const { return state_->local.count(); }
    std::size_t first_replica() const { return 0; }
    std::size_t virtual_shards() const { return state_->virtual_shards; }

   private:
    struct State {
      explicit State(const Mirrored& options)
          : virtual_shards(options.virtual_shards),
            layers(group_options(options)),
            gradients(group_options(options)),
            local(options.count(), 0, layers, gradients, waits_of(options),
                  [&](std::size_t i) { return options.device_of(i).open(options.count(), i); }) {}
      std::size_t virtual_shards;
      using Group = GroupOn<D, ThreadGroup>;
      Group layers, gradients;
      detail::LocalReplicas<D, Group> local;
    };
    std::unique_ptr<State, detail::OwningProcess> state_;  // stable addresses when a session moves
  };

  /// Opens the devices and starts the threads. \throws UsageError if the options are invalid,
  /// DeviceError if a device cannot be opened or a thread cannot be started.
  Session open() const {
    if (!devices.empty() && replicas > 0 && replicas != devices.size())
      throw UsageError("mirrored: replicas is {}, but {} devices are listed; set one of the two",
                       replicas, devices.size());
    if constexpr (std::equality_comparable<D>)
      if (!devices.empty() && !(on == D{}))
        throw UsageError(
            "mirrored: .on is for replicas without a list of devices; set the options in the list");
    if constexpr (requires { on.index; })
      if (count() > 1 && devices.empty() && on.index >= 0)
        throw UsageError(
            "mirrored: {} replicas on device {} alone; list the devices, one per replica", count(),
            on.index);
    if (count() > replica_limit)
      throw UsageError("mirrored: replicas is {}; it must be between 1 and {}", count(),
                       replica_limit);
    if (timeout <= std::chrono::nanoseconds(0))
      throw UsageError("mirrored: the timeout must be above 0");
    detail::check_virtual_shards(virtual_shards, count());
    return Session(*this);
  }

  /// More replicas in one process are considered a mistake.
  static constexpr std::size_t replica_limit = ThreadGroup::max_size;

 private:
  std::size_t count() const {
    if (!devices.empty()) return devices.size();
    return replicas > 0 ? replicas : detail::default_replicas<D>();
  }
  D device_of(std::size_t replica) const {
    const D& d = devices.empty() ? on : devices[replica];
    return virtual_shards > 0 ? detail::of_one_thread(d) : d;
  }
  static detail::WaitPolicy waits_of(const Mirrored& options) {
    const std::size_t count = options.count();
    std::size_t threads = 0;
    for (std::size_t i = 0; i < count; ++i)
      threads += detail::threads_of(options.device_of(i), count);
    return detail::WaitPolicy::for_replicas(count, threads);
  }
  static ThreadGroup::Options group_options(const Mirrored& options) {
    return {.size = options.count(),
            .timeout = options.timeout,
            .order = options.virtual_shards > 0 ? SumOrder::tree : SumOrder::ranks,
            .spins = waits_of(options).spins};
  }
};

}  // namespace lockstep
