/// \file
/// The replicas of one process. Invariants: replica 0 runs in the calling thread, every other one
/// in a dedicated thread, and each keeps one device context and one exchange for the object's
/// lifetime; an error in one replica aborts the exchanges of all, which are reset before the error
/// is rethrown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/collectives/exchange/communication_thread.hpp"
#include "lockstep/collectives/exchange/exchange_at_end.hpp"
#include "lockstep/collectives/self_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/cores.hpp"
#include "lockstep/devices/host/host_memory.hpp"
#include "lockstep/strategies/replica_threads.hpp"

namespace lockstep::detail {

/// How replicas wait for each other.
struct WaitPolicy {
  int spins = 0;        ///< polls before a thread sleeps
  bool overlap = true;  ///< gradients are exchanged in a background thread during backward

  /// The policy for `replicas` on this machine that compute with `threads` threads in total. A
  /// thread that polls, or that sums gradients in the background, needs a core that is not
  /// computing; otherwise it takes one from a replica.
  [[gnu::cold]] static WaitPolicy for_replicas(std::size_t replicas, std::size_t threads) {
    const auto cores = static_cast<std::size_t>(usable_cores());
    return {.spins = threads <= cores ? short_spins : 0, .overlap = threads + replicas <= cores};
  }
};

/// The number of threads of one of `replicas` replicas that share this machine.
template <Device D>
std::size_t threads_of(const D& device, std::size_t replicas) {
  if constexpr (requires { device.threads; })
    return device.threads > 0
               ? static_cast<std::size_t>(device.threads)
               : std::max<std::size_t>(static_cast<std::size_t>(usable_cores()) / replicas, 1);
  else
    return 1;
}

/// The threads that the options of a device set for each replica; 0: its share of the cores.
template <Device D>
std::size_t fixed_threads(const D& device) {
  if constexpr (requires { device.threads; })
    return static_cast<std::size_t>(std::max(device.threads, 0));
  else
    return 1;
}

/// Whether a replica on D can be bound to a share of the cores. On a host device the index is that
/// share; elsewhere it is a GPU.
template <Device D>
inline constexpr bool can_be_bound = HostDevice<D> && requires(D d) { d.index = -1; };

/// Whether it can, and the options of the device do not bind it.
template <Device D>
bool is_unbound(const D& device) {
  if constexpr (can_be_bound<D>)
    return device.index < 0;
  else
    return false;
}

/// The number of replicas of a process that specifies neither it nor the devices: one, or one per
/// available device if D can count them. \throws DeviceError if there is none.
template <Device D>
std::size_t default_replicas() {
  if constexpr (requires { D::available(); })
    return D::available();
  else
    return 1;
}

/// The higher the weight, the closer the exception is to the cause.
inline int failure_weight(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted&) {
    return 1;
  } catch (const CollectiveTimeout&) {
    return 2;
  } catch (...) {
    return 3;
  }
}

/// The exception that explains the failure of the replicas; null if none failed. A replica's own
/// error goes before a peer's CollectiveTimeout, and that before CollectiveAborted, since these two
/// only report the consequences.
[[gnu::cold]] inline std::exception_ptr cause_of_failure(
    std::span<const std::exception_ptr> errors) {
  std::exception_ptr cause;
  int best = 0;
  for (const std::exception_ptr& error : errors)
    if (error && failure_weight(error) > best) {
      cause = error;
      best = failure_weight(error);
    }
  return cause;
}

/// The type that exchanges gradients without a background thread: the group's own `Exchange` if it
/// has one, else ExchangeAtEnd.
template <class Group, class T>
struct ExchangeOfGroup {
  using type = ExchangeAtEnd<typename Group::Member, T>;
};
template <class Group, class T>
  requires requires { typename Group::Exchange; }
struct ExchangeOfGroup<Group, T> {
  using type = typename Group::Exchange;
};
template <class Group, class T>
using ExchangeOf = typename ExchangeOfGroup<Group, T>::type;

/// Runs a body in all replicas of this process.
///
///     replica 0    calling thread ──── body ────┐
///     replica 1    ReplicaThreads ──── body ────┼── all done ── first cause is rethrown, after
///     replica i        ...        ──── body ────┘               exchanges and groups are reset
///                                        └ error: abort() ends the collectives of all others
///
/// `Group` is the replicas' collective. `Group::Member(group, i)` is the member of local replica i;
/// `abort()` ends all operations, and `reset()` makes the group usable again. On a device with its
/// own memory a member also has `attach(context)`, `detach()`, and `host()`, a view of the same
/// member for host memory. A member for host memory may have `exchange_allocator()`, from which the context
/// then allocates gradients. A `Group::Exchange` replaces the exchanges chosen here.
template <Device D, class Group>
class LocalReplicas {
 public:
  /// `open(i)` opens the device of replica i, in its thread. The groups must outlive the object;
  /// `first` is the rank of replica 0 in the job. \throws DeviceError if a device cannot be opened
  /// or a thread cannot be started.
  template <class Open>
  LocalReplicas(std::size_t count, std::size_t first, Group& layers, Group& gradients,
                WaitPolicy waits, const Open& open)
      : first_(first), layers_(&layers), gradients_(&gradients), threads_(count, waits.spins) {
    try {
      for (std::size_t i = 0; i < count; ++i)
        replicas_.push_back(std::make_unique<ReplicaState>(layers, gradients, i, waits.overlap));
    } catch (const std::system_error& e) {
      throw_no_thread(replicas_.size(), e);
    }
    run([&](std::size_t i, ReplicaState& replica) {
      replica.context.emplace(open(i));
      if constexpr (has_own_memory) {
        replica.layers.attach(*replica.context);
        Member(*gradients_, i).attach(*replica.context);
        if constexpr (requires { replica.at_end.install_allocator(); })
          replica.at_end.install_allocator();
      } else if constexpr (uses_exchange_allocator) {
        replica.context->set_exchange_allocator(Member(*gradients_, i).exchange_allocator());
      }
    });
  }

  LocalReplicas(const LocalReplicas&) = delete;
  LocalReplicas& operator=(const LocalReplicas&) = delete;
  ~LocalReplicas() {
    if constexpr (has_own_memory)
      threads_.run([&](std::size_t i) {
        ReplicaState& replica = *replicas_[i];
        if (!replica.context) return;
        const auto scope = replica.context->scope();
        Member(*gradients_, i).detach();
        replica.layers.detach();
      });
  }

  /// Runs body(ReplicaContext) in each replica; returns when all have returned. \throws the cause
  /// of the failure, after all have ended.
  void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
    run([&](std::size_t i, ReplicaState& replica) {
      [[maybe_unused]] const auto scope = replica.context->scope();
      const CollectiveRef layers(replica.layers);
      if constexpr (has_own_memory) {
        auto host = replica.layers.host();
        body(ReplicaContext<D>{i, first_ + i, layers, exchange_of(replica), *replica.context,
                               CollectiveRef(host)});
      } else {
        body(ReplicaContext<D>{i, first_ + i, layers, exchange_of(replica), *replica.context,
                               layers, CollectiveRef(replica.gradients)});
      }
    });
  }
  std::size_t count() const { return replicas_.size(); }

 private:
  using Member = typename Group::Member;
  using Exchange = detail::ExchangeOf<Group, typename D::real>;
  static constexpr bool has_own_memory = !HostDevice<D>;
  static constexpr bool has_own_exchange = requires { typename Group::Exchange; };
  static constexpr bool uses_exchange_allocator =
      UsesExchangeAllocator<typename D::Context> &&
      requires(Member member) { member.exchange_allocator(); };

  struct ReplicaState {
    ReplicaState(Group& of_layers, Group& of_gradients, std::size_t index, bool overlap)
        : layers(of_layers, index), gradients(of_gradients, index), at_end(gradients) {
      if (!overlap || has_own_exchange) return;
      overlapped.emplace(gradients, gradients.in_background());
    }
    void reset() {
      at_end.reset();
      if (overlapped) overlapped->reset();
    }
    Member layers, gradients;
    Exchange at_end;
    std::optional<CommunicationThread<Member, typename D::real>> overlapped;  // instead of at_end
    std::optional<typename D::Context> context;
  };

  GradientExchange<typename D::real> exchange_of(ReplicaState& replica) {
    using Reference = GradientExchange<typename D::real>;
    if (replica.layers.size() == 1) return Reference(alone_);
    return replica.overlapped ? Reference(*replica.overlapped) : Reference(replica.at_end);
  }

  /// Runs body(i, replica) in the thread of each replica i.
  void run(FunctionRef<void(std::size_t, ReplicaState&)> body) {
    struct Reset {  // also if pthread_exit ends the calling thread
      LocalReplicas& all;
      bool has_ended = false;
      ~Reset() {
        if (!has_ended) all.reset();
      }
    } guard{*this};
    threads_.run([&](std::size_t i) {
      try {
        body(i, *replicas_[i]);
      } catch (const CollectiveTimeout& e) {
        log(LogLevel::error, e.what());  // now: the replica that hangs may never return
        abort();
        throw;
      } catch (...) {
        abort();
        throw;
      }
    });
    guard.has_ended = true;
    if (const std::exception_ptr cause = cause_of_failure(threads_.errors())) {
      reset();
      std::rethrow_exception(cause);
    }
  }

  /// After an abort. Call it while no body runs.
  void reset() {
    for (const auto& replica : replicas_) replica->reset();
    layers_->reset();
    gradients_->reset();
  }

  void abort() {
    layers_->abort();
    gradients_->abort();
  }

  SelfGroup alone_;
  std::size_t first_;
  Group* layers_;
  Group* gradients_;
  std::vector<std::unique_ptr<ReplicaState>> replicas_;
  ReplicaThreads threads_;
};

}  // namespace lockstep::detail
