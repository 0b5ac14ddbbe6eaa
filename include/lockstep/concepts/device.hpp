/// \file
/// The interface of devices. Invariants: a device is a small copyable value (its options); its
/// Context owns memory, threads and library handles, and is used by one thread at a time, which
/// holds the context's `scope()` while it computes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/core/work.hpp"

namespace lockstep {

class WorkTimes;

/// A device's rewrite rule: a chain of ops `Pattern...` along the data flow is replaced by
/// `Result`, an aggregate of these ops. `Result::fits(const Pattern&...)` may reject a match, and
/// so may the device's `Kernel<Result, D>::fits(const Result&)`. With `Result::reads_batch` the
/// rule matches only where the first op reads the batch, which needs no gradient.
template <class Result, class... Pattern>
struct Fuse {
  using result = Result;
  using pattern = List<Pattern...>;
};

/// Dynamic loss scaling, for devices that store gradients between layers in a type of small range.
/// As in Keras' LossScaleOptimizer, a step with a gradient that is not finite is skipped and halves
/// the scale; `growth_steps` consecutive finite steps double it.
struct LossScaling {
  double start = 0x1p15;
  std::uint64_t growth_steps = 2000;  ///< 0: no scaling
};

/// A device that scales the loss: it has `static constexpr LossScaling loss_scaling` and a kernel
/// of Unscaling (concepts/optimizer.hpp).
template <class D>
concept ScalesLoss = requires { requires D::loss_scaling.growth_steps > 0; };

/// Memory and copies of an opened device. Sizes are in bytes; allocations are aligned to 64 bytes.
///
/// - `upload`, `download`: copies from and to the host; complete after `synchronize`. `copy`:
///   within the device.
/// - `feed(slot, p, n)`: makes n host elements readable by the device until the next feed of the
///   same slot, the position of a field in the batch, or one after them for what the host computes;
///   a device over host memory returns p itself.
/// - `add(y, x, n)`: y += x, for gradients of a value with two readers.
/// - `scope()`: RAII object; while it lives, the calling thread computes with this context (thread
///   count, current GPU).
template <class C, class T>
concept DeviceContext =
    std::move_constructible<C> &&
    requires(C& c, std::byte* p, const std::byte* q, std::size_t n, T* y, const T* x) {
      { c.allocate(n) } -> std::same_as<std::byte*>;
      { c.release(p, n) } -> std::same_as<void>;
      { c.upload(p, q, n) } -> std::same_as<void>;
      { c.download(p, q, n) } -> std::same_as<void>;
      { c.copy(p, q, n) } -> std::same_as<void>;
      { c.clear(p, n) } -> std::same_as<void>;
      { c.feed(0, x, n) } -> std::same_as<const T*>;
      {
        c.feed(1, static_cast<const std::int32_t*>(nullptr), n)
      } -> std::same_as<const std::int32_t*>;
      { c.add(y, x, n) } -> std::same_as<void>;
      { c.threads() } -> std::same_as<int>;
      { c.synchronize() } -> std::same_as<void>;
      c.scope();
    };

/// A context whose kernels cannot throw. `wait_unchecked()` waits for the device; `check_errors()`
/// throws the errors that kernels recorded before the last wait; `synchronize` does both.
template <class C>
concept DefersErrors = requires(C& c) {
  { c.wait_unchecked() } -> std::same_as<void>;
  { c.check_errors() } -> std::same_as<void>;
};

/// A context that is notified which work its next calls belong to, for error messages and profiles.
template <class C>
concept TracksWork = requires(C& c, const C& k, const Work& work) {
  c.begin_work(work);
  { k.work() } -> std::convertible_to<Work>;
};

/// A context with a cheaper `scope` for calls that take less than a microsecond.
template <class C>
concept HasBriefScope = requires(C& c) { c.brief_scope(); };

/// A context that can also time its work (core/work_times.hpp), from `measure_work(&times)` to
/// `measure_work(nullptr)`.
template <class C>
concept TimesWork = TracksWork<C> && requires(C& c, WorkTimes* times) { c.measure_work(times); };

namespace detail {
template <class C>
void begin_work([[maybe_unused]] C& context, [[maybe_unused]] const Work& work) {
  if constexpr (TracksWork<C>) context.begin_work(work);
}

/// Attributes the context's calls to `work` during its lifetime, then restores the previous work.
template <class C>
class WorkWithin {
 public:
  WorkWithin(C& context, const Work& work) : context_(context) {
    if constexpr (TracksWork<C>) before_ = context.work();
    begin_work(context, work);
  }
  ~WorkWithin() {
    before_.resumes = true;
    begin_work(context_, before_);
  }
  WorkWithin(const WorkWithin&) = delete;
  WorkWithin& operator=(const WorkWithin&) = delete;

 private:
  C& context_;
  Work before_;
};

/// Waits until the device is idle. Does not throw recorded errors where the context defers them:
/// between the gradient exchange and the update the other replicas proceed, so this one must as
/// well. Call `check_errors` after the update.
template <class C>
void wait_for(C& context) {
  if constexpr (DefersErrors<C>)
    context.wait_unchecked();
  else
    context.synchronize();
}
template <class C>
void check_errors(C& context) {
  if constexpr (DefersErrors<C>) context.check_errors();
}

template <class D, class = void>
struct ActivationType {
  using type = typename D::real;
};
template <class D>
struct ActivationType<D, std::void_t<typename D::activation>> {
  using type = typename D::activation;
};
}  // namespace detail

/// Element type of activations and of their gradients: `D::activation`, or `D::real` if the device
/// has no such member. Weights, their gradients, state and the loss are `D::real`.
template <class D>
using ActivationOf = typename detail::ActivationType<D>::type;

/// Additional members of a context whose activations are not of type D::real: addition of
/// activations, and `convert(to, from, n)` in both directions, with rounding.
template <class C, class T, class A>
concept ConvertsActivations = requires(C& c, T* t, const T* u, A* a, const A* b, std::size_t n) {
  { c.add(a, b, n) } -> std::same_as<void>;
  { c.convert(a, u, n) } -> std::same_as<void>;
  { c.convert(t, b, n) } -> std::same_as<void>;
};

/// A device: element type, fusion rules, names for reports, and `open`.
///
/// `open(replicas, index)` creates the Context of local replica `index` out of `replicas`, in the
/// thread that will use it.
template <class D>
concept Device = Copyable<D> &&
                 requires(const D& d, std::size_t i) {
                   typename D::real;
                   typename D::Context;
                   typename D::fusions;
                   { D::name } -> std::convertible_to<std::string_view>;
                   { D::precision } -> std::convertible_to<std::string_view>;
                   { d.open(i, i) } -> std::same_as<typename D::Context>;
                 } && DeviceContext<typename D::Context, typename D::real> &&
                 (std::same_as<ActivationOf<D>, typename D::real> ||
                  ConvertsActivations<typename D::Context, typename D::real, ActivationOf<D>>);

namespace detail {
template <class D, class HostGroup>
struct GroupOn {
  using type = typename D::template group<HostGroup>;
};
}  // namespace detail

/// A device whose memory the host can access directly; it uses the loops of devices/host.
template <class D>
concept HostDevice = D::is_host;

namespace detail {
template <HostDevice D, class HostGroup>
struct GroupOn<D, HostGroup> {
  using type = HostGroup;
};
}  // namespace detail

/// The group type for replicas on D, given a `HostGroup` over host memory. A device with separate
/// memory provides `template <class HostGroup> using group`, which wraps such a group.
template <class D, class HostGroup>
using GroupOn = typename detail::GroupOn<D, HostGroup>::type;

/// A device on which several replicas can exchange data.
template <class D>
concept GroupsReplicas = HostDevice<D> || requires { typename D::template group<void>; };

}  // namespace lockstep
