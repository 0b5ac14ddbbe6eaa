/// \file
/// `ls::Model`: a network on a strategy, with its loss, optimizer and metrics. Invariants: callback
/// hooks are called in Keras' order; all randomness is a function of the seed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/outputs.hpp"
#include "lockstep/core/port.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/training/batch_range.hpp"
#include "lockstep/training/checks/faulty_model.hpp"
#include "lockstep/training/checks/model_checks.hpp"
#include "lockstep/training/checks/model_parts.hpp"
#include "lockstep/training/checks/one_definition.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/evaluation.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "lockstep/training/fit_loop.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/gradients.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/predictions.hpp"
#include "lockstep/training/report/memory_use.hpp"
#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/report/summary.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/program_steps.hpp"
#include "lockstep/training/step/replicas.hpp"
#include "lockstep/training/step_batch.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep {

/// The seed of a model: of its initial weights, the order of its data, dropout and augmentation.
/// Models without a seed all have seed 1: two of the same network have equal weights and draw equal
/// numbers. Give each member of an ensemble, and each of several runs, its own seed.
/// \code
///   ls::Model model{Cnn{}, ls::Seed{7}, ls::OneDevice<ls::Cpu>{}, loss, optimizer};
/// \endcode
struct Seed {
  std::uint64_t value = 1;
};

namespace detail {
template <class Replicas>
struct ModelCheckpoints;  // in <lockstep/checkpoints.hpp>
struct ModelParameters;   // in <lockstep/predictor.hpp>
}  // namespace detail

/// Instantiated for invalid arguments: emits one error; its members do nothing.
template <class Net, class S, class L, class O, class... Ms>
class Model : public detail::FaultyModel<typename detail::RealOf<S>::type> {
 public:
  using detail::FaultyModel<typename detail::RealOf<S>::type>::FaultyModel;

  static_assert(sizeof(detail::ModelVerdict<Net, S, L, O, Ms...>) > 0);
};

/// A network that can be trained: Keras' Model after `compile`.
///
/// Movable and nameable: `ls::Model<Net, Strategy, Loss, Optimizer, Metrics...>` can be a class
/// member. Not thread-safe: call one member function at a time. In a job of several processes, all
/// call the same functions in the same order. T below is the device's element type
/// (`Device::real`).
/// \code
///   ls::Model model{Cnn{}, ls::OneDevice<ls::Cpu>{},
///                   ls::SparseCategoricalCrossentropy{.from_logits = true},
///                   ls::SGD{.learning_rate = 0.001f}, ls::Accuracy{}};
///   auto history = model.fit(train, {.epochs = 3});
/// \endcode
template <class Net, class S, class L, class O, class... Ms>
  requires std::same_as<detail::ModelVerdict<Net, S, L, O, Ms...>, detail::Sound>
class Model<Net, S, L, O, Ms...> {
 public:
  using device = typename S::device;
  using T = typename device::real;

 private:
  using Parts = detail::ModelParts<Net, L, Ms...>;
  using TheLoss = typename Parts::Loss;
  using Labels = typename TheLoss::target_type;

 public:
  using Target = target_as<Labels, T>;
  static constexpr std::size_t parameter_count = Net::parameter_count;
  static constexpr std::size_t trainable_count = Net::trainable_count;

 private:
  using Replicas = typename detail::WithMetrics<detail::Replicas, typename Parts::Metrics, Net, S,
                                                TheLoss, O>::type;
  template <class X, class Y, class... W>
  static constexpr bool is_batch = detail::is_in_memory<X, T> && detail::is_in_memory<Y, Target> &&
                                   (detail::is_in_memory<W, T> && ...);
  static constexpr auto output_ports = detail::named_outputs<Net>();

 public:
  /// Opens the strategy, allocates all memory except that of activations, and initializes the
  /// weights from the seed. \throws UsageError for invalid options, DeviceError if a device fails,
  /// OutOfMemory.
  [[gnu::cold]] explicit Model(Net net, S strategy, L loss, O optimizer, Ms... metrics)
      : Model(net, Seed{}, std::move(strategy), std::move(loss), std::move(optimizer),
              std::move(metrics)...) {}
  [[gnu::cold]] explicit Model(Net, Seed seed, S strategy, L loss, O optimizer, Ms... metrics)
      : strategy_((detail::check_one_definition<Net>(), std::move(strategy))),
        replicas_(strategy_, seed.value, checked(TheLoss(Parts::bound(loss))),
                  checked(std::move(optimizer)),
                  Parts::metrics(loss, CheckMetric(), std::move(metrics)...)) {}

  Model(const Model&) = delete;  // lockstep::Model: not copyable; make another and load its weights
  Model& operator=(const Model&) = delete;
  Model(Model&&) noexcept = default;
  // Not defaulted: assigning member by member would destroy contexts before their memory.
  Model& operator=(Model&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }

  /// Trains the model, as Keras' `fit`. See Callback for the order of the hooks.
  ///
  /// Without `steps_per_epoch` an epoch is one pass over `train`, whose last batch may be smaller.
  /// With it, each epoch continues where the previous one stopped, and training ends with a warning
  /// when the data run out. `validation` may be `validation_split(fraction)`, the last part of
  /// `train`. `sample_weights` in the data apply to training and validation, `class_weight` to
  /// training only.
  /// \returns the logs of each epoch: "loss", each metric, and with validation "val_loss", ...
  /// \throws UsageError if the data do not fit the model or never end; any exception of the data or
  /// of a callback; PeerLost if another process of the job fails and the job is not elastic, or too
  /// few are left.
  template <class Data>
  History fit(const Data& train, const FitOptions& options = {}) {
    return fit_by(detail::LibraryStep{}, train, detail::NoValidation{}, options);
  }
  template <class Data, class Validation>
    requires(!std::same_as<Validation, FitOptions>)
  History fit(const Data& train, const Validation& validation, const FitOptions& options = {}) {
    return fit_by(detail::LibraryStep{}, train, validation, options);
  }

  /// The same with a training step of the program's own, Keras' `train_step`: step(batch) is called
  /// for each batch, in all processes, instead of `train_step(batch)`. Hooks, logs, checkpoints,
  /// validation and the recovery of an elastic job are those of any `fit`. An elastic job may call
  /// step twice for a batch, the second time from the same state, so that step must change nothing
  /// but this model there. The epoch's logs have the first loss of each step that `train_step` or
  /// `gradients_of(batch)` has computed. `fit`, `evaluate` and `predict(data)` may not be called in
  /// a step.
  /// \code
  ///   model.fit(train, {.epochs = 3}, [&](const auto& batch) {
  ///     auto gradients = model.gradients_of(batch);
  ///     gradients *= std::min(1.0, 5 / gradients.norm());
  ///     model.apply(gradients);
  ///   });
  /// \endcode
  template <class Data, class Step>
    requires(Dataset<Data> && !std::same_as<Step, FitOptions>)
  History fit(const Data& train, const FitOptions& options, Step step) {
    return fit_with_step(train, detail::NoValidation{}, options, step);
  }
  template <class Data, class Validation, class Step>
    requires(Dataset<Data> && !std::same_as<Validation, FitOptions>)
  History fit(const Data& train, const Validation& validation, const FitOptions& options,
              Step step) {
    return fit_with_step(train, validation, options, step);
  }

  /// A batch of training data as the argument of a step.
  using Batch = lockstep::Batch<T, Target>;

  /// The batches of the next pass over `data`, for a loop of the program's own: in a job, each
  /// process gets its share. `passes()` counts complete passes. A pass that the loop leaves
  /// continues with the next call, and `save_checkpoint` saves its position. \throws UsageError in
  /// an elastic job, where `fit` with a step does the same.
  /// \code
  ///   while (model.passes() < 10)
  ///     for (const auto& batch : model.batches(train)) {
  ///       const ls::Logs logs = model.train_step(batch);
  ///       if (model.steps() % 1000 == 0) model.save_checkpoint("run1");
  ///     }
  /// \endcode
  template <class Data>
  auto batches(const Data& data, const BatchesOptions& options = {}) {
    static_assert(detail::explained<Data, Labels>);
    if constexpr (detail::DataFor<Data, Labels>)
      return replicas_.or_fail(
          [&] { return detail::BatchRange<Replicas, Data>(replicas_, kept_, data, options); });
    else
      return std::span<const Batch>();
  }
  /// Examples in memory as a batch, (examples, input), (examples, target), (examples). They must
  /// live as long as the batch. In a job of several processes pass a scope first,
  /// `ls::global_batch` or `ls::local_batch`, in all of them. \throws UsageError, in all processes,
  /// if their parts do not fit.
  Batch batch(std::span<const T> x, std::span<const Target> y, std::span<const T> w = {}) {
    return in_memory("batch", {}, x, y, w);
  }
  /// The same without targets, for `predict` and for gradients of the program's own loss.
  Batch batch(std::span<const T> x) {
    return together([&] { return own_steps().examples("batch", {}, x); });
  }
  Batch batch(BatchScope scope, std::span<const T> x) {
    return together([&] { return own_steps().examples("batch", scope, x); });
  }
  Batch batch(BatchScope scope, std::span<const T> x, std::span<const Target> y,
              std::span<const T> w = {}) {
    return in_memory("batch", scope, x, y, w);
  }

  /// Trains one step on a batch; \returns its loss and metrics. All processes call it, each with
  /// its share of the same batch.
  Logs train_step(const Batch& batch) {
    return together([&] { return own_steps().train(batch); });
  }
  /// Loss and metrics of a batch, without a training step.
  Logs test_step(const Batch& batch) {
    return together([&] { return own_steps().test(batch); });
  }
  /// The first half of a training step: the gradients of the loss, without penalties. Layers that
  /// keep a state, such as BatchNormalization, update it.
  Gradients<T> gradients_of(const Batch& batch) {
    return together([&] { return own_steps().gradients(batch); });
  }
  /// The same for a loss of the program's own: `dy`, (examples, output), are its derivatives by the
  /// outputs for the examples of this process. They are used as they are: divide by the size of the
  /// global batch for a mean. The batch needs no targets. \throws UsageError for another number of
  /// values.
  /// \code
  ///   const auto fake = generator.predict(noise);
  ///   const auto dx = critic.input_gradients(critic.batch(fake.elements(), ones));
  ///   generator.apply(generator.gradients_of(noise, dx));   // what the critic wants
  /// \endcode
  Gradients<T> gradients_of(const Batch& batch, std::span<const T> dy) {
    return together([&] { return own_steps().gradients(batch, dy); });
  }
  /// The second half: adds the penalties' gradients and updates the weights by the optimizer and
  /// its options. In a job of several processes the gradients must be equal in all. Counts as a
  /// step.
  void apply(const Gradients<T>& gradients) {
    together([&] {
      own_steps().apply(gradients);
      return true;
    });
  }
  /// Copies the moving averages over the weights, if the optimizer keeps any: Keras'
  /// `finalize_variable_values`, which `fit` does at its end. For the end of a loop of the
  /// program's own.
  void finalize_weights() {
    together([&] {
      if (updates() > 0) replicas_.overwrite_with_averages();
      return true;
    });
  }
  /// The gradient of the batch's loss with respect to its inputs, (examples, input), as of a
  /// training step: dropout is active, but no state changes. Multiply by the size of the global
  /// batch for the gradients of each example's own loss.
  /// \code
  ///   const auto dx = model.input_gradients(batch);   // adversarial: x + 0.1 sign(dx)
  /// \endcode
  std::vector<T> input_gradients(const Batch& batch) {
    return together([&] { return own_steps().input_gradients(batch); });
  }
  /// Outputs for the examples of a batch, (examples, output).
  Predictions<T> predict(const Batch& batch) {
    return {together([&] { return own_steps().predict(batch); }), Net::output_shape, output_ports};
  }

  /// Computes the loss (penalties included) and the metrics over `data`. \returns "loss" and each
  /// metric. Throws as `fit` does.
  template <class Data>
  Logs evaluate(const Data& data, const EvaluateOptions& options = {}) {
    const detail::CancellationDeferred deferred;
    check_between_steps("evaluate");
    if constexpr (detail::DataFor<Data, Labels>)
      return replicas_.or_fail([&] {
        return detail::call_together<Logs>(replicas_, kept_, options.stop, [&] {
          return detail::run_evaluate(replicas_, kept_, data, options);
        });
      });
    static_assert(detail::explained<Data, Labels>);
    return {};
  }

  /// Outputs for all examples of `data`, in order; targets are ignored. Throws as `fit` does.
  template <class Data>
    requires Dataset<Data>
  Predictions<T> predict(const Data& data, const EvaluateOptions& options = {}) {
    const detail::CancellationDeferred deferred;
    check_between_steps("predict");
    if constexpr (BatchedDataset<Data> && has_one_feature<Data>)
      return replicas_.or_fail([&] {
        return Predictions<T>(
            detail::call_together<std::vector<T>>(
                replicas_, kept_, options.stop,
                [&] { return detail::run_predict(replicas_, kept_, data, options); }),
            Net::output_shape, output_ports);
      });
    static_assert(sizeof(detail::CheckBatched<Data>) > 0 && has_one_feature<Data>,
                  "lockstep::Model: predict reads one real-valued feature of an example; leave out "
                  "the other features of the data");
    return {{}, Net::output_shape, output_ports};
  }

  /// Outputs for the examples x, (examples, input), computed `batch_size` at a time. In a job of
  /// several processes pass a scope first: `ls::global_batch` if all pass the same examples, each
  /// then has all outputs; `ls::local_batch` if each passes its part, and has the outputs of this,
  /// which are computed all at once.
  /// \throws UsageError if x is not a whole number of examples, or in a job without a scope.
  Predictions<T> predict(BatchScope scope, std::span<const T> x, std::size_t batch_size = 32) {
    detail::check_count("predict: batch size", batch_size);
    const auto outputs = [&] {
      OwnSteps steps = own_steps();
      if (scope == global_batch) return steps.predict_global(x, batch_size);
      return steps.predict(steps.examples("predict", scope, x));
    };
    return {together(outputs), Net::output_shape, output_ports};
  }
  Predictions<T> predict(std::span<const T> x, std::size_t batch_size = 32) {
    const detail::CancellationDeferred deferred;
    const TensorView<const T> examples = detail::examples_of<Net>("predict", x);
    detail::check_count("predict: batch size", batch_size);
    if (!replicas_.is_alone()) own_steps().examples("predict", {}, x);  // throws
    std::vector<T> out;
    out.reserve(examples.count() * Net::output_shape.size());
    for (std::size_t first = 0; first < examples.count(); first += batch_size) {
      const std::size_t count = std::min(batch_size, examples.count() - first);
      replicas_.predict(Layout::in_memory(whole_batch(count, 0, first), examples.row(first).data()),
                        out);
    }
    return {std::move(out), Net::output_shape, output_ports};
  }

  // Overloads for wrong element types: each emits one error.
  template <class X>
    requires(!Dataset<X> && !detail::is_in_memory<X, T> && !std::same_as<X, Batch> &&
             !std::same_as<X, BatchScope>)
  Predictions<T> predict(const X&, std::size_t = 32) {
    static_assert(sizeof(detail::NotInMemory<T, X>) > 0);
    return {{}, Net::output_shape, output_ports};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...> && !std::same_as<X, BatchScope>)
  Logs train_on_batch(const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...> && !std::same_as<X, BatchScope>)
  Logs test_on_batch(const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...>)
  Logs train_on_batch(BatchScope, const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...>)
  Logs test_on_batch(BatchScope, const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X>
    requires(!detail::is_in_memory<X, T>)
  Predictions<T> predict(BatchScope, const X&, std::size_t = 32) {
    static_assert(sizeof(detail::NotInMemory<T, X>) > 0);
    return {{}, Net::output_shape, output_ports};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...> && !std::same_as<X, BatchScope>)
  Batch batch(const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X, class Y, class... W>
    requires(!is_batch<X, Y, W...>)
  Batch batch(BatchScope, const X&, const Y&, const W&...) {
    static_assert(sizeof(detail::NotInMemory<T, X, Y, W...>) > 0);
    return {};
  }
  template <class X>
    requires(!detail::is_in_memory<X, T>)
  Gradients<T> gradients_of(const Batch&, const X&) {
    static_assert(sizeof(detail::NotInMemory<T, X>) > 0);
    return {};
  }
  template <class X>
    requires(!std::same_as<X, Batch>)
  Logs train_step(const X&) {
    static_assert(
        detail::always_false<X>,
        "lockstep::Model: train_step takes a batch; write model.train_step(model.batch(x, "
        "y)), or train_on_batch(x, y)");
    return {};
  }
  template <class X>
    requires(!detail::is_in_memory<X, T>)
  void set_weights(std::string_view, const X&) {
    static_assert(sizeof(detail::NotInMemory<T, X>) > 0);
  }

  /// Trains one step on the batch x, (examples, input), y, (examples, target). `w`: Keras'
  /// `sample_weight`, one per example, or one per position, such as a pixel, of each example. In a
  /// job of several processes pass a scope first; see `batch`. \returns loss and metrics of this
  /// batch.
  /// \throws UsageError if sizes disagree.
  Logs train_on_batch(std::span<const T> x, std::span<const Target> y, std::span<const T> w = {}) {
    return train_on({}, x, y, w);
  }
  Logs train_on_batch(BatchScope scope, std::span<const T> x, std::span<const Target> y,
                      std::span<const T> w = {}) {
    return train_on(scope, x, y, w);
  }
  /// Loss and metrics of a batch in memory, without a training step; see train_on_batch.
  Logs test_on_batch(std::span<const T> x, std::span<const Target> y, std::span<const T> w = {}) {
    return test_on({}, x, y, w);
  }
  Logs test_on_batch(BatchScope scope, std::span<const T> x, std::span<const Target> y,
                     std::span<const T> w = {}) {
    return test_on(scope, x, y, w);
  }

  /// Whether the layer of this name reads the model's input, possibly reshaped.
  static bool is_first(std::string_view layer) { return detail::is_first_layer<Net>(layer); }
  /// Names, shapes and offsets of all parameters, in the order of the layers.
  static std::vector<ParameterInfo> parameters() { return detail::parameters_of<Net>(); }
  /// The values of a parameter: `model.weights("conv2d/kernel")`. \throws UsageError for an unknown
  /// name.
  std::vector<T> weights(std::string_view name) const {
    const ParameterInfo info = detail::parameter_named(detail::named_parameters<Net>(), name);
    const std::vector<T> flat = info.trainable ? replicas_.weights() : replicas_.state();
    const auto first = flat.begin() + static_cast<std::ptrdiff_t>(info.offset);
    return {first, first + static_cast<std::ptrdiff_t>(info.size())};
  }
  /// Replaces a parameter's values in all replicas of this process. In a job of several processes
  /// all must call it with the same values: `fit`, `batches`, `evaluate` and `predict` first
  /// compare the weights and throw ReplicasDiverged. \throws UsageError for an unknown name or a
  /// wrong size.
  void set_weights(std::string_view name, std::span<const T> values) {
    const ParameterInfo info = detail::parameter_named(detail::named_parameters<Net>(), name);
    if (values.size() != info.size())
      throw UsageError("set_weights: {} has shape {}, that is {} values; got {}", info.name,
                       to_string(info.shape), info.size(), values.size());
    std::vector<T> all = replicas_.weights(), state = replicas_.state();
    std::copy(values.begin(), values.end(), (info.trainable ? all : state).data() + info.offset);
    replicas_.set(all, state);
  }
  /// A parameter's gradient of the loss in the last step, penalties included. \throws UsageError
  /// for an unknown or non-trainable parameter.
  std::vector<T> gradients(std::string_view name) const {
    const ParameterInfo info =
        detail::trainable_parameter_named(detail::named_parameters<Net>(), name);
    const std::vector<T> flat = replicas_.gradients();
    const auto first = flat.begin() + static_cast<std::ptrdiff_t>(info.offset);
    return {first, first + static_cast<std::ptrdiff_t>(info.size())};
  }

  /// The state of metric M after the last evaluation or epoch, whichever came later, summed over
  /// all replicas: `model.metric_state<ls::ConfusionMatrix<10>>()`. All zero before the first one.
  /// `Nth` counts from 0 among metrics of the same type.
  template <class M, std::size_t Nth = 0>
    requires(Nth < (std::size_t{0} + ... + std::same_as<M, Ms>))
  std::vector<double> metric_state() const {
    // After the loss and, with several outputs, their losses.
    std::size_t at = Replicas::Replica::sum_count - (std::size_t{0} + ... + Ms::state_size);
    std::size_t nth = 0, found = 0;
    const auto visit = [&]<class Other>(const Other*) {
      if constexpr (std::same_as<M, Other>)
        if (nth++ == Nth) found = at;
      at += Other::state_size;
    };
    (visit(static_cast<const Ms*>(nullptr)), ...);
    const double* const first = kept_.totals.data() + found;
    return {first, first + M::state_size};
  }

  /// Writes all parameters to a safetensors file, with Keras' names and shapes; only the chief
  /// writes. Atomic: a reader sees either the old file or the new one. Waits for no other process,
  /// so that a program may call it in the chief alone: `fit` has compared the weights of all
  /// processes at its end. \throws FileError.
  void save_weights(const std::string& path) const {
    if (is_chief())
      detail::write_weights(path, parameters(),
                            detail::bytes_of(replicas_.weights(), replicas_.state()));
  }
  /// Reads a file that save_weights wrote. The model is unchanged if the file does not fit. In a
  /// job of several processes all must call it, each with a copy of the file; see set_weights.
  /// \throws WeightsError naming the tensor that is missing, unknown, or has a wrong shape or type;
  /// FileError.
  void load_weights(const std::string& path) {
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    detail::read_weights(path, parameters(), detail::writable_bytes_of(weights, state));
    replicas_.set(weights, state);
  }
  /// Reads a part of a weights file: the parameters that `options` selects, as far as the file has
  /// them. All others keep their values. \returns what was loaded and what was not. \throws
  /// UsageError for a pattern that matches no parameter; WeightsError, which names the tensor, for
  /// a wrong shape or type, and if the file has nothing of what a pattern selects; FileError.
  /// \code
  ///   std::cout << model.load_weights("big.safetensors", {.only = "backbone/*"});
  /// \endcode
  LoadReport load_weights(const std::string& path, const LoadOptions& options) {
    std::vector<T> weights = replicas_.weights(), state = replicas_.state();
    LoadReport report = detail::read_weights(path, parameters(),
                                             detail::writable_bytes_of(weights, state), options);
    replicas_.set(weights, state);
    return report;
  }
  /// Layers, shapes, options and parameters as a plain value; see Architecture.
  static Architecture architecture() { return lockstep::architecture<Net>(); }
  /// Writes the architecture as JSON, to go with the weights; only the chief writes. Atomic, as
  /// save_weights. `tools/exchange/keras_model.py` and `tools/exchange/torch_model.py` build a
  /// Keras or PyTorch model from the two files. \throws FileError.
  /// \code
  ///   model.save_weights("w.safetensors");
  ///   model.save_architecture("w.json");
  /// \endcode
  void save_architecture(const std::string& path) const {
    if (is_chief()) detail::write_architecture(path, architecture());
  }
  /// Writes a checkpoint into `directory`: weights, the optimizer's buffers, steps, rate. Keeps the
  /// newest `keep` checkpoints there, or all if it is 0, as CheckpointOptions::keep does. For
  /// programs with their own loop; `fit` saves by FitOptions::checkpoint. In a job of several
  /// processes all call it, and compare their weights; only the chief writes. Needs
  /// <lockstep/checkpoints.hpp>. \throws FileError, ReplicasDiverged.
  /// \code
  ///   model.train_on_batch(x, y);
  ///   if (model.steps() % 1000 == 0) model.save_checkpoint("run1");
  /// \endcode
  template <class Feature = detail::ModelCheckpoints<Replicas>>
  void save_checkpoint(const std::string& directory, std::size_t keep = CheckpointOptions{}.keep) {
    if constexpr (detail::Complete<Feature>)
      replicas_.or_fail([&] { Feature::save(replicas_, kept_, directory, keep); });
    else
      static_assert(detail::always_false<Feature>,
                    "lockstep::Model: save_checkpoint needs #include <lockstep/checkpoints.hpp>");
  }
  /// Loads the newest undamaged checkpoint of `directory`. In a job of several processes all call
  /// it; only the chief reads. The model is unchanged after an error. Needs
  /// <lockstep/checkpoints.hpp>.
  /// \throws UsageError naming the property in which the models differ; CheckpointError naming the
  /// damaged file or the tensor that does not fit; FileError if the directory has no checkpoint.
  template <class Feature = detail::ModelCheckpoints<Replicas>>
  void load_checkpoint(const std::string& directory) {
    if constexpr (detail::Complete<Feature>)
      replicas_.or_fail([&] { Feature::load(replicas_, kept_, directory); });
    else
      static_assert(detail::always_false<Feature>,
                    "lockstep::Model: load_checkpoint needs #include <lockstep/checkpoints.hpp>");
  }
  /// SHA-256 of the parameters' bytes in the order of their sorted names, as hexadecimal digits.
  /// Equal weights give equal digests.
  std::string weights_sha256() const {
    return detail::hash_weights(parameters(),
                                detail::bytes_of(replicas_.weights(), replicas_.state()));
  }

  /// The steps that this model has made asynchronously or with backup workers, as the job's parameter
  /// servers have counted them; none with other strategies. Equal in all processes after a `fit`.
  const UpdateCounts& update_counts() const { return replicas_.update_counts(); }

  /// The digest of each replica of this process. Different digests mean diverged replicas.
  std::vector<std::string> replica_weights_sha256() const { return replicas_.digests(); }

  /// The same for each replica of the job, in rank order. In a job of several processes all must
  /// call it. \throws PeerLost if one of them is lost.
  std::vector<std::string> job_replica_weights_sha256() {
    return replicas_.or_fail([&] {
      return detail::call_together<std::vector<std::string>>(
          replicas_, kept_, {}, [&] { return replicas_.digests_of_job(); });
    });
  }

  /// A table of layers, shapes, parameters, memory and FLOPs, as Keras' `summary`.
  [[nodiscard]] std::string summary() const {
    return detail::summary_of<Net, device>(
        replicas_.slot_elements(), replicas_.held_slot_elements(), replicas_.held_weights());
  }
  /// Profiles a training step by layer, pass and, on a GPU, kernel. Trains a few steps on batches
  /// of `data`, or on one batch in memory, then restores the model. \returns a Profile of the first
  /// replica, which prints as a table. Include <lockstep/training/report/profile.hpp>, which
  /// lockstep.hpp does not include. \throws UsageError in a job of several processes.
  /// \code
  ///   std::cout << model.profile(train);
  /// \endcode
  template <class Data>
    requires Dataset<Data>
  auto profile(const Data& data, const ProfileOptions& options = {}) {
    static_assert(detail::explained<Data, Labels>);
    detail::Profiler<Replicas> profiler(replicas_, options);
    if constexpr (!HostDevice<device>) replicas_.prepare(data.batch_size());
    auto batches = detail::batches_over(replicas_, data, "profile: the");
    return profiler.run_batches(batches, data.batch_size(), kept_.passes, learning_rate());
  }
  auto profile(std::span<const T> x, std::span<const Target> y, std::span<const T> w = {},
               const ProfileOptions& options = {}) {
    detail::Profiler<Replicas> profiler(replicas_, options);
    const Batch batch = in_memory("profile", {}, x, y, w);
    return profiler.run([&] { return batch.loaded(); }, learning_rate());
  }
  /// Layers that the device computes in one kernel: "conv2d+re_lu", ...
  static std::vector<std::string> fused() { return detail::fused_names<Net, device>(); }
  /// Memory of a replica of this process, in bytes. Under `ls::Sharded` replicas differ in the
  /// optimizer's part. \throws UsageError unless `replica` is below local_replicas().
  MemoryUse memory(std::size_t replica = 0) const { return replicas_.memory(replica); }

  std::uint64_t seed() const { return replicas_.seed(); }
  /// Steps trained so far.
  std::uint64_t steps() const { return replicas_.steps(); }
  /// Steps without skipped ones; learning rate schedules count these. Smaller than `steps()` only
  /// on a device with loss scaling, which skips steps whose gradients overflow.
  std::uint64_t updates() const { return replicas_.updates(); }
  /// Factor of the loss' gradient within a step; 1 on a device without loss scaling.
  double loss_scale() const { return replicas_.loss_scale(); }
  /// Learning rate of the next step.
  double learning_rate() const { return kept_.rate_of(replicas_); }
  /// Overrides the optimizer's rate or schedule from the next step on, until `clear_learning_rate`.
  void set_learning_rate(double rate) { kept_.set_rate(rate); }
  /// Keras' `layer.trainable`, by patterns of names: `*` stands for any text, a block's name for all
  /// layers in it. From the next step on the gradients of layers that do not train are not computed
  /// and not exchanged, their weights stay as they are, and their BatchNormalization is in inference
  /// mode; dropout stays active. The optimizer keeps their slots. A checkpoint has the setting. All
  /// processes of a job call it; one that does not is named. The same for layers that never train,
  /// with less memory, is ls::Frozen.
  /// \throws UsageError for a pattern that selects no layer, and for a layer in ls::Frozen.
  /// \code
  ///   model.set_trainable("backbone/*", false);
  ///   model.fit(train, {.epochs = 3});
  ///   model.set_trainable("backbone/*", true);
  ///   model.fit(train, {.epochs = 3});
  /// \endcode
  void set_trainable(const NamePatterns& layers, bool on) {
    check_between_steps("set_trainable");
    replicas_.set_trainable(layers, on);
  }
  /// Names of the layers that `set_trainable` has switched off.
  std::vector<std::string> untrained_layers() const { return replicas_.settings().held; }
  /// dlib's `set_learning_rate_multiplier`: the learning rate of some parameters, as a multiple of
  /// the model's. A layer's name stands for its parameters. Kept in checkpoints; all processes of a
  /// job call it. \throws UsageError for a pattern that selects no parameter that trains, and for a
  /// negative multiplier.
  /// \code
  ///   model.set_rate_multiplier("backbone/*", 0.1);
  ///   model.set_decay_multiplier("*/bias", 0);
  /// \endcode
  void set_rate_multiplier(const NamePatterns& parameters, double multiplier) {
    set_multiplier("set_rate_multiplier", parameters, detail::Multiplier::rate, multiplier);
  }
  /// dlib's `set_weight_decay_multiplier`: the same of the optimizer's weight decay, which is also
  /// multiplied by the rate's multiplier. Regularizers are not affected.
  void set_decay_multiplier(const NamePatterns& parameters, double multiplier) {
    set_multiplier("set_decay_multiplier", parameters, detail::Multiplier::decay, multiplier);
  }
  /// Returns to the optimizer's own rate or schedule after `set_learning_rate`, a
  /// LearningRateScheduler or ReduceLROnPlateau has overridden it. All processes of a job call it.
  void clear_learning_rate() { kept_.rate = kept_.unsent_rate = std::nullopt; }
  /// Resets the optimizer: moments and averages are those of a new model, and `steps()`, on which
  /// schedule and bias corrections depend, is 0. Keeps the weights, the rate that was set, and
  /// `passes()`. All processes of a job call it.
  void reset_optimizer() { replicas_.reset_optimizer(); }
  /// Passes over training data so far: epochs of `fit` (one `fit` with `steps_per_epoch` counts as
  /// one pass), complete passes of `batches`, and calls of `train_on_batch` outside of these. Also
  /// the number of the next pass, from which, with the seed, its order, dropout masks and
  /// augmentation follow. See FitOptions::initial_epoch.
  std::uint64_t passes() const { return kept_.passes; }
  /// Replicas of the whole job that compute gradients.
  std::size_t replicas() const { return replicas_.roles().computing.count; }
  /// Replicas of this process.
  std::size_t local_replicas() const { return session().local_replicas(); }
  /// Processes of the job, and the rank of this one.
  std::size_t workers() const { return session().workers(); }
  std::size_t rank() const { return session().rank(); }
  /// Whether this process, rank 0, writes files and reports.
  bool is_chief() const { return session().is_chief(); }
  const S& strategy() const { return strategy_; }
  /// Threads of one replica.
  int threads() const { return replicas_.threads(); }

 private:
  friend detail::ModelParameters;
  using Layout = typename Replicas::Layout;
  template <class Options>
  static Options checked(Options options) {
    if constexpr (requires { options.check(); }) options.check();
    return options;
  }

  struct CheckMetric {
    template <class M>
    M operator()(M metric, const TheLoss& loss) const {
      detail::check_metric<Net, device>(metric, loss);
      return checked(std::move(metric));
    }
  };

  void set_multiplier(const char* call, const NamePatterns& parameters, detail::Multiplier which,
                      double value) {
    check_between_steps(call);
    replicas_.set_multiplier(call, parameters, which, value);
  }

  using OwnSteps = detail::ProgramSteps<Replicas>;
  OwnSteps own_steps() { return {replicas_, kept_}; }

  /// A collective call: f() in all processes.
  template <class F>
  std::invoke_result_t<F> together(const F& f) {
    const detail::CancellationDeferred deferred;
    return replicas_.or_fail(
        [&] { return detail::call_together<std::invoke_result_t<F>>(replicas_, kept_, {}, f); });
  }
  /// \throws UsageError within a step of the program's own.
  void check_between_steps(const char* call) const {
    if (replicas_.program_step() != nullptr)
      throw UsageError(
          "{}: it cannot be called in the step of a fit; call test_step or predict(batch) there, or "
          "{} in a callback",
          call, call);
    if (replicas_.is_in_phase())
      throw UsageError(
          "{}: it was called between steps that servers make in a phase (.asynchronous or "
          ".backup_workers), while no process has all weights; set "
          ".steps_per_execution = K, after which all have them, or call it in on_epoch_end",
          call);
  }
  /// The same, and within a loop over `batches`.
  void check_between_loops(const char* call) const {
    check_between_steps(call);
    if (kept_.is_in_loop)
      throw UsageError(
          "{}: a loop over batches of this model runs; call train_step there, or {} after it", call,
          call);
  }
  template <class Data, class Validation, class Step>
  History fit_with_step(const Data& train, const Validation& validation, const FitOptions& options,
                        Step& step) {
    constexpr bool is_step = std::invocable<Step&, const Batch&>;
    static_assert(!Dataset<Step>,
                  "lockstep::Model: validation data come before the options; write fit(train, "
                  "validation, options)");
    static_assert(is_step || Dataset<Step>,
                  "lockstep::Model: the step of fit takes a batch; write [&](const auto& batch) { "
                  "model.train_step(batch); }");
    if constexpr (is_step)
      return fit_by(detail::ProgramStepOf<Step>{step}, train, validation, options);
    return {};
  }
  template <class Step, class Data, class Validation>
  History fit_by(const Step& step, const Data& train, const Validation& validation,
                 const FitOptions& options) {
    constexpr bool validates = !std::same_as<Validation, detail::NoValidation>;
    constexpr bool splits = requires { Validation::is_split; };
    const detail::CancellationDeferred deferred;
    check_between_loops("fit");
    if constexpr (detail::DataFor<Data, Labels> && splits)
      return replicas_.or_fail([&] {
        const auto parts = validation.parts(train);
        return detail::run_fit(replicas_, kept_, parts.first, parts.second, options, step);
      });
    else if constexpr (detail::DataFor<Data, Labels> &&
                       (!validates || detail::DataFor<Validation, Labels>))
      return replicas_.or_fail(
          [&] { return detail::run_fit(replicas_, kept_, train, validation, options, step); });
    static_assert(detail::explained<Data, Labels>);
    if constexpr (validates && !splits)
      static_assert(sizeof(detail::ValidationVerdict<Validation, Labels>) > 0);
    return {};
  }

  Batch in_memory(const char* call, std::optional<BatchScope> scope, std::span<const T> x,
                  std::span<const Target> y, std::span<const T> w) {
    return together([&] { return own_steps().in_memory(call, scope, x, y, w); });
  }
  Logs train_on(std::optional<BatchScope> scope, std::span<const T> x, std::span<const Target> y,
                std::span<const T> w) {
    return together([&] {
      OwnSteps steps = own_steps();
      const Logs logs = steps.train(steps.in_memory("train_on_batch", scope, x, y, w));
      // After train, so that a call that throws does not count; a loop counts its passes itself.
      if (kept_.examples == 0 && replicas_.program_step() == nullptr) ++kept_.passes;
      return logs;
    });
  }
  Logs test_on(std::optional<BatchScope> scope, std::span<const T> x, std::span<const Target> y,
               std::span<const T> w) {
    return together([&] {
      OwnSteps steps = own_steps();
      return steps.test(steps.in_memory("test_on_batch", scope, x, y, w));
    });
  }

  typename Replicas::Session& session() { return replicas_.session(); }
  const typename Replicas::Session& session() const { return replicas_.session(); }

  S strategy_;
  Replicas replicas_;
  detail::BetweenRuns kept_{.totals = std::vector<double>(Replicas::Replica::sum_count)};
};

template <class Net, class S, class L, class O, class... Ms>
Model(Net, S, L, O, Ms...) -> Model<Net, S, L, O, Ms...>;
template <class Net, class S, class L, class O, class... Ms>
Model(Net, Seed, S, L, O, Ms...) -> Model<Net, S, L, O, Ms...>;
// Deduced for missing arguments, so that the error names the missing one.
template <class Net, class S>
Model(Net, S) -> Model<Net, S, detail::Missing, detail::Missing>;
template <class Net, class S, class L>
Model(Net, S, L) -> Model<Net, S, L, detail::Missing>;
template <class Net, class S, class L>
Model(Net, Seed, S, L) -> Model<Net, S, L, detail::Missing>;

}  // namespace lockstep
