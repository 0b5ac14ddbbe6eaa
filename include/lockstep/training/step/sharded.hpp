/// \file
/// The update policy ls::Sharded: each replica owns an even share of the weights. Invariants: the
/// bits of all weights are those of ls::Replicated; the optimizer's buffers exist once in the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/concepts/update_policy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/served.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep {

namespace detail {

/// One replica's object of ls::Sharded: that of ls::Served where all replicas compute and own
/// weights, except that gradients leave while backward continues.
template <class D>
class ShardedUpdate : public ServedUpdate<D> {
  using Base = ServedUpdate<D>;
  static constexpr bool is_on_host = HostDevice<D>;
  static_assert(is_on_host,
                "lockstep::Sharded: the replicas of this device cannot exchange ranges of weights; "
                "use Cpu or Reference, or leave out ls::Sharded");

 public:
  using typename Base::T;

  [[gnu::cold]] explicit ShardedUpdate(const UpdateSite<D>& site)
      : Base(site, Base::balanced_ranges_of(site)), has_copies_(site.roles.copies > 1) {}

  void ready(const ReplicaContext<D>& replica, Slice range) {
    if (has_copies_)
      replica.exchange.post(this->gradients() + range.first, range.count);
    else
      replica.exchange.post(this->gradients(), range, this->ranges());
  }
  void finish(const ReplicaContext<D>& replica, Slice last, double* sums, std::size_t n,
              std::size_t ordered) {
    if (has_copies_)
      replica.exchange.finish(this->gradients() + last.first, last.count, sums, n + ordered);
    else
      replica.exchange.finish(this->gradients(), last, this->ranges(), sums, n + ordered);
  }
  [[gnu::cold]] void update(const ReplicaContext<D>& replica, UpdateRule<D> rule, double rate,
                            std::uint64_t step, bool is_applied) {
    if (!replica.gradients.has_ranges())
      throw UsageError(
          "sharded: the group of the strategy's replicas has no reduce_scatter and all_gather of "
          "ranges; add both to its members (lockstep/concepts/collective.hpp), or leave out "
          "ls::Sharded");
    Base::update(replica, rule, rate, step, is_applied);
  }

 private:
  bool has_copies_;  // several replicas need each sum: all get it
};

}  // namespace detail

/// The update policy of ZeRO's first stage: gradients are reduce-scattered, each replica updates its
/// share of the weights, and all gather the result. The optimizer's slots, accumulated gradients and
/// moving averages exist once in the job instead of once in each replica:
///
///     backward   g = sum over replicas, of this replica's share     reduce-scatter, overlapped
///     update     w, slots = rule(w, g, slots), of the share         1/N of the work and the memory
///     gather     all replicas: the weights of the next step         all-gather
///
/// With N replicas a slot takes 4/N bytes per weight and replica instead of 4: Adam takes 8/N instead
/// of 8. Weights and gradients are whole in each replica. The bits are those of ls::Replicated, for
/// each optimizer and any N. Both send the same number of bytes between workers that are connected
/// directly, that is on one machine, or up to 16 with one per machine. Other workers over TCP make
/// all-reduces and broadcasts of the ranges, about twice as many bytes.
///
/// Shares are even, in blocks of 64 weights. Clipping by norms, Lamb, Adafactor, and Muon for its
/// matrices need whole parameters: the largest go first, each to the replica with the fewest bytes, and
/// what Muon updates by AdamW fills up the others (docs/larger-models.md has figures). A checkpoint has the form of all others: it continues under
/// any policy, on any number of replicas. All processes of a job save it together, and call
/// `save_checkpoint` and `swap_averages` together. `model.gradients` throws, since no replica has all
/// sums; `gradients_of` works.
///
/// In a job with ls::Elastic, `copies` workers hold each share and make its updates, so that the job
/// goes on with the same bits if all but one of them are lost at once; the others divide the shares
/// among themselves, and a worker that joins gets its own. If the last copy of a share is lost, all end
/// and name the worker; `lockstep-run --max-restarts` continues from the checkpoint. Such a job
/// all-reduces its gradients, and a worker keeps weights and slots of its shares as they were before the
/// last update. With two copies and s slots that is 4 (s + 1) / N numbers per weight, for Adam 12 / N.
/// Each worker has one replica.
///
/// Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models, 2020. PyTorch: ZeroRedundancyOptimizer.
/// \throws UsageError in the first step if the group of a custom strategy cannot exchange ranges; when
/// the model is made, if a worker of an elastic job has several replicas.
/// \code
///   #include <lockstep/sharded.hpp>
///   ls::Mirrored<ls::Cpu>{.replicas = 4} | ls::Sharded{}
///   ls::MultiWorkerMirrored<ls::Cpu>{} | ls::Sharded{}
///   ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>{.elastic = {.min_workers = 2}} | ls::Sharded{}
/// \endcode
struct Sharded {
  /// Workers of an elastic job that hold each share, at most all of them. Other jobs have one copy.
  std::size_t copies = 2;

  template <class D>
  using Replica = detail::ShardedUpdate<D>;
  static constexpr std::string_view name = "sharded";
  /// The name, with what workers must have in common.
  [[gnu::cold]] std::string text() const {
    return copies == 2 ? std::string(name) : format_text("{}, {} copies", name, copies);
  }
};

}  // namespace lockstep
