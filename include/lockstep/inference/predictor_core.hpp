/// \file
/// The part of `ls::Predictor` that depends only on the device: parameters, engines and the calls
/// that use them. Invariants: a call uses one set of parameters from its first example to its last;
/// a call has its engine to itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/inference/lease_pool.hpp"
#include "lockstep/inference/shared_value.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/forward_engine.hpp"
#include "lockstep/training/report/memory_use.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep::detail {

/// One set of weights and state, in host memory.
template <class D>
struct ParameterSet {
  using T = typename D::real;
  using Context = typename D::Context;
  Buffer<Context, T> weights, state;

  ParameterSet(Context& context, const ForwardPlan<D>& of)
      : weights(context, of.weights), state(context, of.state) {}
  /// The values as bytes, to be filled before the set is published.
  ValueBytes<std::byte> bytes() const {
    return {dtype_of<T>, std::as_writable_bytes(std::span(weights.data(), weights.size())),
            std::as_writable_bytes(std::span(state.data(), state.size()))};
  }
};

/// The engine of one call at a time, and its mark at the parameters.
template <class D>
struct PredictorEngine {
  SelfGroup alone{};
  ForwardEngine<D> engine;
  ReaderMark<ParameterSet<D>> mark{};

  PredictorEngine(const D& device, const ForwardPlan<D>& of)
      : engine(device, of, CollectiveRef(alone)) {}
};

/// A scope for one call: the cheaper one, if the context has it.
template <class Context>
auto scope_of_call(Context& context) {
  if constexpr (HasBriefScope<Context>)
    return context.brief_scope();
  else
    return context.scope();
}

/// \code
///   parameters_   one set, which `load` replaces      read by all calls
///   engines_      one for each call at the same time  arena, workspace, prepared kernels
/// \endcode
template <class D>
class PredictorCore {
 public:
  using T = typename D::real;
  using Fill = FunctionRef<void(const ValueBytes<std::byte>&)>;

  /// `fill` writes the first parameters. \throws UsageError, DeviceError, what `fill` throws.
  [[gnu::cold]] PredictorCore(const D& device, const ForwardPlan<D>& of, std::size_t batch_size,
                              Fill fill)
      : device_(device),
        plan_(of),
        batch_size_(batch_size),
        memory_(device.open(1, 0)),
        parameters_(made(fill)) {
    reserve(1, 1);
    threads_ = engines_.all().front()->engine.context().threads();
  }

  /// Writes the outputs of `count` examples to y.
  void run(const T* x, T* y, std::size_t count) {
    const Lease lease(engines_, [this] { return make(); });
    ForwardEngine<D>& engine = lease->engine;
    [[maybe_unused]] const auto scope = scope_of_call(engine.context());
    const typename SharedValue<ParameterSet<D>>::Reading set(parameters_, lease->mark);
    for (std::size_t first = 0; first < count; first += batch_size_) {
      const std::size_t size = std::min(batch_size_, count - first);
      engine.run({set->weights.data(), set->state.data()}, whole_batch(size, 0, first),
                 x + first * plan_.input, y + first * plan_.output);
    }
  }

  /// Runs `count` steps of a sequence after its first `position` ones. `once`: the memory of the
  /// sequence. Writes their outputs to y; if y is null, computes only what later steps read.
  void run_steps(std::byte* once, std::size_t position, const T* x, std::size_t count, T* y) {
    const Lease lease(engines_, [this] { return make(); });
    ForwardEngine<D>& engine = lease->engine;
    [[maybe_unused]] const auto scope = scope_of_call(engine.context());
    const typename SharedValue<ParameterSet<D>>::Reading set(parameters_, lease->mark);
    engine.run({set->weights.data(), set->state.data(), once}, whole_batch(count, 0, position), x,
               y);
  }
  const ForwardPlan<D>& plan() const { return plan_; }
  std::size_t batch_size() const { return batch_size_; }

  /// Makes and publishes a set that `fill` writes, then frees the old one when no call reads it.
  /// The old one stays if `fill` throws.
  [[gnu::cold]] void load(Fill fill) {
    const std::scoped_lock lock(loading_);
    const auto old = parameters_.exchange(made(fill));
    for (PredictorEngine<D>* const engine : engines_.all())
      parameters_.wait_for_reader(engine->mark, *old);
  }

  /// Makes engines until `calls` calls of up to `count` examples can run at the same time and
  /// allocate nothing.
  [[gnu::cold]] void reserve(std::size_t calls, std::size_t count) {
    std::vector<std::unique_ptr<Lease>> leases;
    for (std::size_t i = 0; i < calls; ++i) {
      leases.push_back(std::make_unique<Lease>(engines_, [this] { return make(); }));
      ForwardEngine<D>& engine = (*leases.back())->engine;
      [[maybe_unused]] const auto scope = scope_of_call(engine.context());
      for (std::size_t size = 1; size <= std::min(count, batch_size_); ++size) engine.prepare(size);
    }
  }

  [[gnu::cold]] MemoryUse memory() {
    MemoryUse use{.weights = plan_.weights * sizeof(T), .state = plan_.state * sizeof(T)};
    for (const PredictorEngine<D>* const engine : engines_.all())
      use.working += engine->engine.working_bytes();
    return use;
  }

 private:
  using Lease = typename LeasePool<PredictorEngine<D>>::Lease;

  /// \throws UsageError if the calling thread gets fewer threads than the first engine has: an
  /// engine serves other threads, too, and all must give the same bits.
  [[gnu::cold]] std::unique_ptr<PredictorEngine<D>> make() const {
    auto made = std::make_unique<PredictorEngine<D>>(device_, plan_);
    if (const int given = made->engine.context().threads(); given < threads_)
      throw UsageError(
          "predictor: a call computes with {} threads, but gets {} here; call it outside of parallel "
          "regions, or use one thread per call",
          threads_, given);
    return made;
  }
  [[gnu::cold]] std::unique_ptr<const ParameterSet<D>> made(Fill fill) {
    auto set = std::make_unique<const ParameterSet<D>>(memory_, plan_);
    fill(set->bytes());
    return set;
  }

  D device_;
  const ForwardPlan<D>& plan_;
  std::size_t batch_size_;
  int threads_ = 0;             // of a call; 0: not known yet
  std::mutex loading_;          // guards memory_
  typename D::Context memory_;  // of the parameters, which it outlives
  SharedValue<ParameterSet<D>> parameters_;
  LeasePool<PredictorEngine<D>> engines_;
};

}  // namespace lockstep::detail
