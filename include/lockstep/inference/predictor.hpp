/// \file
/// `ls::Predictor`: a trained network inside of another program. Invariants: no code of an
/// optimizer or of a backward pass is instantiated; the outputs have the bits of `Model::predict`
/// on the same device with the same number of threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/outputs.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/inference/parameter_sources.hpp"
#include "lockstep/inference/predictor_checks.hpp"
#include "lockstep/inference/predictor_core.hpp"
#include "lockstep/model/forward_engine.hpp"
#include "lockstep/training/checks/one_definition.hpp"
#include "lockstep/training/predictions.hpp"
#include "lockstep/training/report/memory_use.hpp"

namespace lockstep {

/// Options of a Predictor on device D.
template <class D>
struct PredictorOptions {
  /// Where a call computes. By default on the calling thread alone: many threads that each call the
  /// predictor then use all cores without waiting for each other. More threads shorten a call of a
  /// large network.
  D on = detail::on_one_thread<D>();
  std::size_t batch_size = 32;  ///< examples computed at a time; as in Model::predict
};

/// Instantiated for invalid arguments: emits one error; its members do nothing.
template <class Net, class D>
class Predictor {
 public:
  using T = typename detail::RealOfDevice<D>::type;
  explicit Predictor(const auto&...) {}
  void operator()(const auto&, const auto&) const {}
  Predictions<T> predict(const auto&) const { return {{}, Shape{}}; }
  void load_weights(const auto&) {}
  void reserve(std::size_t, std::size_t = 1) {}
  MemoryUse memory() const { return {}; }

  static_assert(sizeof(detail::PredictorVerdict<detail::predictor_fault_of<Net, D>(), Net, D>) > 0);
};

/// A trained network that computes outputs, and nothing else: for servers, games, control loops.
/// Layers that act in training only are identities; BatchNormalization uses its moving statistics.
///
/// Thread-safe: any number of threads may call any member at the same time, except the move
/// operations. Each call has its own activation memory and prepared kernels, which later calls
/// reuse; weights are shared. On one thread per call, a call allocates nothing unless more calls
/// than ever before run at the same time, or the number of examples is new to the memory that it
/// gets; see `reserve`. T is the device's element type (float on ls::Cpu).
/// \code
///   ls::Predictor<Cnn, ls::Cpu> predictor("w.safetensors");
///   std::vector<float> scores(10);
///   predictor(image, scores);                     // in each thread
///   predictor.load_weights("new.safetensors");    // while others predict
/// \endcode
template <class Net, class D>
  requires(detail::predictor_fault_of<Net, D>() == detail::PredictorFault::none)
class Predictor<Net, D> {
 public:
  using device = D;
  using T = typename D::real;
  static constexpr Shape input_shape = Net::input_shape, output_shape = Net::output_shape;
  static constexpr std::size_t parameter_count = Net::parameter_count;

  /// Reads a file that Model::save_weights or the exchange tools wrote. \throws WeightsError naming
  /// the tensor that is missing, unknown, or has a wrong shape or type; FileError; UsageError for
  /// invalid options; DeviceError.
  [[gnu::cold]] explicit Predictor(const std::string& path, const PredictorOptions<D>& options = {})
      : Predictor(options, detail::from_file<Net>(path)) {}
  /// Copies the parameters of a model of the same network, on any device with this element type.
  template <class S, class L, class O, class... Ms>
    requires std::is_same_v<typename S::device::real, T>
  [[gnu::cold]] explicit Predictor(const Model<Net, S, L, O, Ms...>& model,
                                   const PredictorOptions<D>& options = {})
      : Predictor(options, detail::from_model(model)) {}
  template <class N, class S, class L, class O, class... Ms>
    requires(!std::is_same_v<N, Net> || !std::is_same_v<typename S::device::real, T>)
  explicit Predictor(const Model<N, S, L, O, Ms...>&, const PredictorOptions<D>& = {}) {
    static_assert(
        detail::always_false<N>,
        "lockstep::Predictor: the model has another network or another element type; write "
        "Predictor<Net, Device> with those of the model");
  }

  /// Movable while no other thread uses it. A predictor that was moved from can only be assigned to
  /// or destroyed.
  Predictor(Predictor&&) noexcept = default;
  Predictor& operator=(Predictor&&) noexcept = default;

  /// Writes the outputs y, (examples, output), of the examples x, (examples, input), computed
  /// `batch_size` at a time. x and y must not overlap. \throws UsageError if a size does not fit;
  /// DeviceError.
  void operator()(std::span<const T> x, std::span<T> y) const {
    const std::size_t count = x.size() / input_size;
    if (x.size() != count * input_size || y.size() != count * output_size) [[unlikely]]
      refuse(x.size(), y.size());
    if (count > 0) core_->run(x.data(), y.data(), count);
  }
  /// The outputs of the examples x, in an object of their own. \throws as above.
  Predictions<T> predict(std::span<const T> x) const {
    std::vector<T> y(x.size() / input_size * output_size);
    (*this)(x, y);
    return {std::move(y), output_shape, output_ports};
  }

  /// Replaces all parameters by those of a file. Each call that runs meanwhile uses either the old
  /// ones or the new ones for all of its examples; calls that begin after this one has returned use
  /// the new ones. Returns when no call uses the old ones, whose memory is then free.
  /// \throws WeightsError, FileError; the old parameters then stay.
  [[gnu::cold]] void load_weights(const std::string& path) {
    core_->load(detail::from_file<Net>(path));
  }
  /// The same from a model, which must not run meanwhile: call it between two calls of `fit`.
  template <class S, class L, class O, class... Ms>
    requires std::is_same_v<typename S::device::real, T>
  [[gnu::cold]] void load_weights(const Model<Net, S, L, O, Ms...>& model) {
    core_->load(detail::from_model(model));
  }

  /// Allocates what `calls` calls at the same time need, each with up to `examples` examples, so
  /// that not even a thread's first call allocates. The memory stays.
  [[gnu::cold]] void reserve(std::size_t calls, std::size_t examples = 1) {
    core_->reserve(calls, examples);
  }

  /// Bytes of weights and state, once, and of activations and workspace, for all calls that have
  /// run at the same time.
  MemoryUse memory() const { return core_->memory(); }

 private:
  static constexpr std::size_t input_size = input_shape.size(), output_size = output_shape.size();
  static constexpr auto output_ports = detail::named_outputs<Net>();

  template <class Fill>
  [[gnu::cold]] Predictor(const PredictorOptions<D>& options, const Fill& fill)
      : core_(
            (detail::check_one_definition<Net>(), check(options),
             std::make_unique<detail::PredictorCore<D>>(
                 options.on, detail::ForwardConstants<Net, D>::value, options.batch_size, fill))) {}

  static void check(const PredictorOptions<D>& options) {
    if (options.batch_size == 0)
      throw UsageError("predictor: batch_size is 0; it must be at least 1");
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse(std::size_t x, std::size_t y) {
    if (x % input_size != 0)
      throw UsageError(
          "predictor: {} values are not a whole number of examples of shape {}, which have {} "
          "values each; pass complete examples",
          x, to_string(input_shape), input_size);
    throw UsageError(
        "predictor: y has {} values, but the outputs of {} examples have {}; pass a span of that "
        "size",
        y, x / input_size, x / input_size * output_size);
  }

  std::unique_ptr<detail::PredictorCore<D>> core_;
};

template <class Net, class S, class L, class O, class... Ms>
Predictor(const Model<Net, S, L, O, Ms...>&) -> Predictor<Net, typename S::device>;
template <class Net, class S, class L, class O, class... Ms>
Predictor(const Model<Net, S, L, O, Ms...>&, const PredictorOptions<typename S::device>&)
    -> Predictor<Net, typename S::device>;

}  // namespace lockstep
