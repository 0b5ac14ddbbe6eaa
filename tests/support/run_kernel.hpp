/// \file
/// Runs one kernel outside a model, under the strictest conditions that a plan may impose: tensors
/// that the kernel does not keep are poisoned and null in backward, outputs start as NaN, and
/// memory has exactly the requested size.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/rng.hpp"

namespace testing {

/// Converts values to another type.
template <class To, class From>
std::vector<To> as(const std::vector<From>& values) {
  std::vector<To> result(values.size());
  // Plain pointers, since the tests are not optimized.
  const From* from = values.data();
  To* to = result.data();
  for (std::size_t n = values.size(); n > 0; --n) *to++ = static_cast<To>(*from++);
  return result;
}

/// A collective group with a single member, for which sums are the identity.
struct GroupOfOne {
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  void all_reduce(float*, std::size_t) {}
  void all_reduce(double*, std::size_t) {}
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) { std::memcpy(out, p, n); }
  void broadcast(std::byte*, std::size_t, std::size_t) {}
};

/// Device memory, filled with bytes 0xFF (NaN in every type) or with given values.
template <class D, class T>
class DeviceArray {
 public:
  DeviceArray(typename D::Context& context, std::size_t n)
      : context_(context), size_(n), bytes_(context.allocate(n * sizeof(T))) {
    poison();
  }
  DeviceArray(typename D::Context& context, const std::vector<T>& values)
      : DeviceArray(context, values.size()) {
    upload(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { context_.release(bytes_, size_ * sizeof(T)); }

  T* data() { return reinterpret_cast<T*>(bytes_); }
  void poison() {
    const std::vector<std::byte> poisoned(size_ * sizeof(T), std::byte{0xFF});
    context_.upload(bytes_, poisoned.data(), poisoned.size());
  }
  void upload(const std::vector<T>& values) {
    context_.upload(bytes_, reinterpret_cast<const std::byte*>(values.data()), size_ * sizeof(T));
  }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    context_.download(reinterpret_cast<std::byte*>(values.data()), bytes_, size_ * sizeof(T));
    context_.synchronize();
    return values;
  }

 private:
  typename D::Context& context_;
  std::size_t size_;
  std::byte* bytes_;
};

/// Options of a run.
template <class T>
struct RunOptions {
  bool training = true;   ///< false: forward only
  bool want_dx = true;    ///< false: dx is null
  bool is_batch = false;  ///< x is the batch itself
  std::uint64_t seed = 1, pass = 0, key = 7, first_ordinal = 0;
  std::vector<T> x2 = {};                          ///< second input
  std::vector<std::vector<T>> more = {};           ///< inputs after that
  std::vector<T> state = {};                       ///< untrained parameters
  const lockstep::CollectiveRef* group = nullptr;  ///< null: a group of one
  /// Called with the device's Context; the returned object is destroyed before the context.
  std::function<std::shared_ptr<void>(void*)> opened = {};
};

/// Results of a run; activations are converted to T.
template <class T>
struct LayerResult {
  std::vector<T> y, dx, dx2, dw, state;
  std::vector<std::vector<T>> more_dx = {};
};

namespace once {

template <class O>
struct OpOf {
  using type = O;
};
template <auto V>
struct OpOf<lockstep::Constant<V>> {
  using type = std::remove_cvref_t<decltype(V)>;
};

/// The largest number of operands of a kernel in the tests.
inline constexpr std::size_t most_operands = 32;

/// Memory sharing that a plan may apply.
struct Sharing {
  bool y_is_x = false;
  bool dx_is_x = false;  ///< and weights are updated as soon as the kernel permits
};

/// An update that poisons weights, which exposes a kernel that reads one after its update.
template <class T>
struct PoisoningUpdate {
  T* w;
  T* dw;
  std::vector<int> times;

  void operator()(T* gradients, std::size_t count) {
    const auto first = static_cast<std::size_t>(gradients - dw);
    for (std::size_t i = first; i < first + count; ++i) {
      ++times.at(i);
      w[i] = std::numeric_limits<T>::quiet_NaN();
    }
  }
};

/// The parts of an op's kernel, so that the code that runs it is the same for all ops.
template <class D>
struct OpCalls {
  using Pass = void (*)(const void* op, const lockstep::Io<D>&, void* prepared);
  const void* op;
  std::size_t out_size, saved, saved_once;
  std::array<bool, most_operands> keeps_x;
  bool keeps_y, updates, in_place, dx_in_place;
  lockstep::detail::PreparedOp (*prepare)(const void* op, typename D::Context&, std::size_t count);
  Pass forward, backward;
};
template <class D, class OpOrConstant>
OpCalls<D> calls_of(const OpOrConstant& constant_or_op) {
  using TheOp = typename OpOf<OpOrConstant>::type;
  using K = lockstep::Kernel<TheOp, D>;
  // As the engine calls it: in the compiled form, a kernel of the library is compiled once.
  using Calls = lockstep::detail::KernelCalls<
      TheOp, D, std::is_same_v<OpOrConstant, TheOp> && lockstep::detail::of_library<TheOp, D>,
      OpOrConstant>;
  const TheOp& op = constant_or_op;
  std::array<bool, most_operands> keeps_x;
  for (std::size_t i = 0; i < most_operands; ++i)
    keeps_x[i] = lockstep::detail::keeps_operand<K>(op, i);
  if (K::in_place && keeps_x[0]) throw std::logic_error("an in-place kernel cannot keep x");
  return {&op,
          op.out().size(),
          K::saved(op),
          K::saved_once(op),
          keeps_x,
          K::keeps_y,
          K::updates,
          K::in_place,
          K::dx_in_place,
          Calls::prepare,
          Calls::forward,
          Calls::backward};
}

/// One forward and backward pass. \throws std::logic_error unless the kernel has each weight
/// updated exactly once.
template <class D>
LayerResult<typename D::real> run_once(const OpCalls<D>& op, std::size_t count,
                                       const std::vector<typename D::real>& x,
                                       const std::vector<typename D::real>& w,
                                       const std::vector<typename D::real>& dy,
                                       const RunOptions<typename D::real>& options, Sharing sharing,
                                       const D& device) {
  using T = typename D::real;
  using A = lockstep::ActivationOf<D>;
  const bool in_place = sharing.y_is_x;
  const std::size_t out_size = count * op.out_size;

  auto context = device.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  const auto while_open = options.opened ? options.opened(&context) : nullptr;
  DeviceArray<D, A> x_memory(context, as<A>(x)), x2_memory(context, as<A>(options.x2));
  DeviceArray<D, T> w_memory(context, w), state_memory(context, options.state);
  DeviceArray<D, A> dy_memory(context, out_size), y_memory(context, in_place ? 0 : out_size);
  DeviceArray<D, T> dw_memory(context, w.size()), batch_memory(context, x);
  DeviceArray<D, A> dx_memory(context, options.want_dx ? x.size() : 0);
  DeviceArray<D, A> dx2_memory(context, options.x2.size());
  DeviceArray<D, std::byte> saved(context, count * op.saved), once(context, op.saved_once);
  auto& y = in_place ? x_memory : y_memory;

  GroupOfOne group;
  const lockstep::StepContext step{
      lockstep::whole_batch(count, options.pass, options.first_ordinal), options.training,
      options.seed, 0, options.group != nullptr ? *options.group : lockstep::CollectiveRef(group)};
  const bool binary = !options.x2.empty();
  std::array<const A*, most_operands> x_of{x_memory.data(), binary ? x2_memory.data() : nullptr};
  std::array<std::size_t, most_operands> sizes{x.size() / std::max<std::size_t>(count, 1),
                                               options.x2.size() / std::max<std::size_t>(count, 1)};
  std::vector<std::unique_ptr<DeviceArray<D, A>>> more, more_gradients;
  for (const auto& values : options.more) {
    const std::size_t k = 2 + more.size();
    more.push_back(std::make_unique<DeviceArray<D, A>>(context, as<A>(values)));
    x_of.at(k) = more.back()->data();
    sizes.at(k) = values.size() / std::max<std::size_t>(count, 1);
    more_gradients.push_back(std::make_unique<DeviceArray<D, A>>(context, values.size()));
  }
  std::array<A*, most_operands> dx_of{};
  lockstep::Io<D> io{step,
                     context,
                     options.key,
                     x_of.data(),
                     y.data(),
                     w_memory.data(),
                     state_memory.data(),
                     saved.data(),
                     once.data(),
                     nullptr,
                     nullptr,
                     dx_of.data(),
                     nullptr};
  io.x_size = sizes.data();
  if (!std::is_same_v<A, T> && options.is_batch) io.batch = batch_memory.data();
  if (op.saved == 0) io.saved = nullptr;
  if (op.saved_once == 0) io.once = nullptr;
  if (w.empty()) io.w = nullptr;
  if (options.state.empty()) io.state = nullptr;
  const auto call = [&](typename OpCalls<D>::Pass pass) {
    const lockstep::detail::PreparedOp prepared = op.prepare(op.op, context, count);
    std::optional<DeviceArray<D, std::byte>> scratch;
    if (prepared.state) {
      scratch.emplace(context, prepared.scratch_bytes);
      io.scratch = scratch->data();
    }
    pass(op.op, io, prepared.state.get());
    context.synchronize();
    io.scratch = nullptr;
  };

  LayerResult<T> result;
  call(op.forward);
  result.y = as<T>(y.download());
  if (options.training) {
    if (!op.keeps_x[0] && !in_place) x_memory.poison();
    if (!op.keeps_y) y.poison();
    if (!op.keeps_x[1]) x2_memory.poison();
    for (std::size_t i = 0; i < more.size(); ++i)
      if (!op.keeps_x[2 + i]) more[i]->poison();
    // As in the engine.
    for (std::size_t i = 0; i < most_operands; ++i)
      if (!op.keeps_x[i]) x_of[i] = nullptr;
    if (!op.keeps_x[0]) io.batch = nullptr;
    if (!op.keeps_y) io.y = nullptr;
    dy_memory.upload(as<A>(dy));
    io.dy = dy_memory.data();
    auto& dx = sharing.dx_is_x ? x_memory : dx_memory;
    PoisoningUpdate<T> update{w_memory.data(), dw_memory.data(), std::vector<int>(w.size())};
    if (op.updates && sharing.dx_is_x) io.update = lockstep::UpdateRef<T>(update);
    dx_of = {options.want_dx ? dx.data() : nullptr, binary ? dx2_memory.data() : nullptr};
    for (std::size_t i = 0; i < more.size(); ++i) dx_of[2 + i] = more_gradients[i]->data();
    io.dw = w.empty() ? nullptr : dw_memory.data();
    call(op.backward);
    if (options.want_dx) result.dx = as<T>(dx.download());
    if (io.update && update.times != std::vector<int>(w.size(), 1))
      throw std::logic_error("the kernel does not update each weight exactly once");
    result.dx2 = as<T>(dx2_memory.download());
    for (const auto& gradient : more_gradients)
      result.more_dx.push_back(as<T>(gradient->download()));
    result.dw = dw_memory.download();
  }
  result.state = state_memory.download();
  return result;
}

/// Bitwise comparison, so that equal NaN compare equal.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// A run, and the same in place or with early updates if the kernel supports it.
template <class D>
LayerResult<typename D::real> run_all_ways(const OpCalls<D>& op, std::size_t count,
                                           const std::vector<typename D::real>& x,
                                           const std::vector<typename D::real>& w,
                                           const std::vector<typename D::real>& dy,
                                           const RunOptions<typename D::real>& options,
                                           const D& device) {
  const auto result = run_once<D>(op, count, x, w, dy, options, {}, device);
  if (op.in_place) {
    const auto again = run_once<D>(op, count, x, w, dy, options, {.y_is_x = true}, device);
    if (!same_bits(result.y, again.y) || !same_bits(result.dx, again.dx) ||
        again.more_dx != result.more_dx)
      throw std::logic_error("the kernel gives different results if y aliases x");
  }
  if (op.dx_in_place) {
    const auto again = run_once<D>(op, count, x, w, dy, options, {.dx_is_x = true}, device);
    if (!same_bits(result.dw, again.dw) || !same_bits(result.dx, again.dx))
      throw std::logic_error("the kernel gives different results if dx aliases x");
  }
  return result;
}

}  // namespace once

/// Forward and backward of one op, or of a `Constant<op>`, over `count` examples: x (count, in), w
/// the weights in the plan's order, dy (count, out). If the kernel supports running in place or
/// early updates, it is run that way too and must give equal bits. \throws std::logic_error if it
/// does not.
/// \code
///   const auto [y, dx, dx2, dw, state, more_dx] = testing::run_layer<Cpu>(Dense<5>::op(shape(7)), 3, x, w,
///   dy);
/// \endcode
template <class D, class OpOrConstant>
LayerResult<typename D::real> run_layer(const OpOrConstant& op, std::size_t count,
                                        const std::vector<typename D::real>& x,
                                        const std::vector<typename D::real>& w,
                                        const std::vector<typename D::real>& dy,
                                        const RunOptions<typename D::real>& options = {},
                                        const D& device = {}) {
  return once::run_all_ways<D>(once::calls_of<D>(op), count, x, w, dy, options, device);
}

/// ||a - b|| / ||b||; NaN if a contains NaN, infinite if the sizes differ.
template <class A, class B>
double relative_error(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double v = static_cast<double>(a[i]), reference = static_cast<double>(b[i]);
    difference += (v - reference) * (v - reference);
    norm += reference * reference;
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

/// n standard normal values.
inline std::vector<double> normal_values(std::size_t n, std::uint64_t key) {
  lockstep::Philox generator(key);
  std::vector<double> values(n);
  for (double& v : values) v = generator.normal();
  return values;
}

}  // namespace testing
