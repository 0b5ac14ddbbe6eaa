/// \file
/// `ls::Model`: a network on a strategy, with its loss, optimizer and metrics. Invariants: the
/// replicas hold equal weights whenever no member function is running; a step allocates nothing;
/// everything random is a function of the seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/training/callback_list.hpp"
#include "lockstep/training/faulty_model.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/memory_use.hpp"
#include "lockstep/training/model_checks.hpp"
#include "lockstep/training/predictions.hpp"
#include "lockstep/training/replica.hpp"
#include "lockstep/training/run_checks.hpp"
#include "lockstep/training/running_logs.hpp"
#include "lockstep/training/start_line.hpp"
#include "lockstep/training/summary.hpp"
#include "lockstep/training/verify_replicas.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep {

/// Seed of a model: of its weights, the order of its data, its noise.
struct Seed {
  std::uint64_t value = 1;
};

/// What a faulty combination gets: its sentence, and members that keep quiet.
template <class Net, class S, class L, class O, class... Ms>
class Model : public detail::FaultyModel {
 public:
  using FaultyModel::FaultyModel;

  static_assert(
      sizeof(detail::ModelVerdict<detail::fault_of<Net, S, L, O, Ms...>(), Net, S, L, O, Ms...>) >
      0);
};

/// A network that can be trained.
///
/// Nameable and movable: `ls::Model<Net, Strategy, Loss, Optimizer, Metrics...>` can be a member of
/// a class. Member functions run one at a time. T below is the device's element type
/// (`Device::real`). \code
///   ls::Model model{Cnn{}, ls::OneDevice<ls::Cpu>{},
///   ls::SparseCategoricalCrossentropy{.from_logits = true},
///                   ls::SGD{.learning_rate = 0.001f}, ls::Accuracy{}};
///   auto history = model.fit(train, {.epochs = 3});
/// \endcode
template <class Net, class S, class L, class O, class... Ms>
requires(detail::fault_of<Net, S, L, O, Ms...>() == detail::ModelFault::none)  //
    class Model<Net, S, L, O, Ms...> {
 public:
  using device = typename S::device;
  using T = typename device::real;
  using Target = target_as<typename L::target_type, T>;
  static constexpr std::size_t parameter_count = Net::parameter_count;
  static constexpr std::size_t trainable_count = Net::trainable_count;

  /// Opens the strategy, takes all memory but that of activations, and draws the initial weights
  /// from the seed. \throws UsageError for impossible options, DeviceError if a device refuses.
  explicit Model(Net net, S strategy, L loss, O optimizer, Ms... metrics)
      : Model(net, Seed{}, std::move(strategy), std::move(loss), std::move(optimizer),
              std::move(metrics)...) {}
  [[gnu::cold]] explicit Model(Net, Seed seed, S strategy, L loss, O optimizer, Ms... metrics)
      : seed_(seed.value),
        loss_(std::move(loss)),
        optimizer_(checked(std::move(optimizer))),
        metrics_(std::move(metrics)...),
        strategy_(std::move(strategy)),
        session_(strategy_.open()),
        replicas_(session_.local_replicas()) {
    detail::check_slices<Net, device>(session_.virtual_shards());
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local] = std::make_unique<ReplicaType>(r.device, optimizer_.slots(), slices(),
                                                         r.rank * slices_each(), slices_each());
      if (r.local == 0) threads_ = r.device.threads();
    });
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    detail::initialize_parameters<Net, T>(seed_, weights, state);
    set_all(weights, state);
  }

  Model(Model&&) noexcept = default;
  /// Member by member, the contexts would go before the memory that was taken from them.
  Model& operator=(Model&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }

  /// Trains, as Keras' `fit`. The order of callbacks' hooks is Callback's.
  ///
  /// Without `steps_per_epoch` an epoch is one pass over `train`, whose last batch may be smaller;
  /// with it the data go on from epoch to epoch, and training ends with a warning if they run out.
  /// \returns the logs of each epoch: "loss", each metric, and with validation "val_loss", ...
  /// \throws UsageError if the data do not fit the model or never end; whatever the data or a
  /// callback throws.
  template <class Data>
  History fit(const Data& train, const FitOptions& options = {}) {
    if constexpr (detail::DataFor<Data, typename L::target_type>)
      return run_fit(train, NoValidation{}, options);
    static_assert(detail::explained<Data, typename L::target_type>);
    return {};
  }
  template <class Data, class Validation>
  requires(!std::same_as<Validation, FitOptions>) History
      fit(const Data& train, const Validation& validation, const FitOptions& options = {}) {
    if constexpr (detail::DataFor<Data, typename L::target_type> &&
                  detail::DataFor<Validation, typename L::target_type>)
      return run_fit(train, validation, options);
    static_assert(detail::explained<Data, typename L::target_type>);
    static_assert(detail::explained<Validation, typename L::target_type>);
    return {};
  }

  /// Loss (penalties included) and metrics over `data`. \returns "loss" and each metric.
  template <class Data>
  Logs evaluate(const Data& data, const EvaluateOptions& options = {}) {
    if constexpr (detail::DataFor<Data, typename L::target_type>) {
      detail::check_ends(data, options.steps);
      Run run(*this, options.callbacks, options.progress);
      Loader<T, Data> loader(detail::checked_data<Net, L>(data, "evaluate: the"), share());
      run.numbers.steps = detail::step_count(data, options.steps);
      run.numbers.batch_size = data.batch_size();
      return evaluate_with(loader, options.steps, options.stop, run);
    }
    static_assert(detail::explained<Data, typename L::target_type>);
    return {};
  }

  /// Outputs for all examples of `data`, in order; the targets are not looked at.
  template <class Data>
  requires Dataset<Data> Predictions<T> predict(const Data& data,
                                                const EvaluateOptions& options = {}) {
    if constexpr (BatchedDataset<Data>) return predict_batches(data, options);
    static_assert(detail::explained<Data, typename Data::target_type>);
    return {{}, Net::output_shape};
  }

  /// Outputs for examples in memory, computed `batch_size` at a time.
  Predictions<T> predict(std::span<const T> x, std::size_t batch_size = 32) {
    const TensorView<const T> examples(x, Net::input_shape);
    if (batch_size == 0) throw UsageError("predict: batch size 0; it must be at least 1");
    check_alone();
    std::vector<T> out;
    out.reserve(examples.count() * Net::output_shape.size());
    for (std::size_t first = 0; first < examples.count(); first += batch_size) {
      const std::size_t count = std::min(batch_size, examples.count() - first);
      predict_batch({examples.row(first).data(), nullptr, count, count, 0, first}, out);
    }
    return {std::move(out), Net::output_shape};
  }

  /// One step on a batch in memory. \returns loss and metrics of this batch. \throws UsageError if
  /// sizes disagree.
  Logs train_on_batch(std::span<const T> x, std::span<const Target> y) {
    train_step(in_memory(x, y));
    return batch_logs();
  }
  /// Loss and metrics of a batch in memory.
  Logs test_on_batch(std::span<const T> x, std::span<const Target> y) {
    test_step(in_memory(x, y));
    return batch_logs();
  }

  /// Names, shapes and places of all parameters, in the order of the layers.
  static std::vector<ParameterInfo> parameters() { return detail::parameters_of<Net>(); }
  /// A parameter's values: `model.weights("conv2d/kernel")`. \throws UsageError for an unknown
  /// name.
  std::vector<T> weights(std::string_view name) const {
    const ParameterInfo info = parameter(name);
    const std::vector<T> flat = info.trainable ? host_weights() : host_state();
    const auto first = flat.begin() + static_cast<std::ptrdiff_t>(info.offset);
    return {first, first + static_cast<std::ptrdiff_t>(info.size())};
  }
  /// Replaces a parameter's values on all replicas. \throws UsageError for an unknown name or
  /// another size.
  void set_weights(std::string_view name, std::span<const T> values) {
    const ParameterInfo info = parameter(name);
    if (values.size() != info.size())
      throw UsageError({"set_weights: ", info.name, " has shape ", info.shape, ", ", info.size(),
                        " values, not ", values.size()});
    std::vector<T> all = host_weights(), state = host_state();
    std::copy(values.begin(), values.end(), (info.trainable ? all : state).data() + info.offset);
    set_all(all, state);
  }
  /// The last step's gradient of the loss, penalties included, by parameter. \throws UsageError for
  /// an unknown or untrained parameter.
  std::vector<T> gradients(std::string_view name) const {
    const ParameterInfo info = parameter(name);
    if (!info.trainable)
      throw UsageError({"gradients: ", info.name, " is not trained, it has no gradient"});
    const std::vector<T> flat = download(replicas_[0]->engine().gradients());
    const auto first = flat.begin() + static_cast<std::ptrdiff_t>(info.offset);
    return {first, first + static_cast<std::ptrdiff_t>(info.size())};
  }

  /// Writes all parameters to a safetensors file, with Keras' names and shapes. Atomic: the file is
  /// either the old or the new one. \throws FileError.
  void save_weights(const std::filesystem::path& path) const {
    if (session_.is_chief())
      detail::write_weights<T>(path, parameters(), host_weights(), host_state());
  }
  /// Reads what save_weights wrote. Nothing is changed if the file does not fit.
  /// \throws WeightsError, which names the tensor that is missing, unknown, or of another shape or
  /// type; FileError.
  void load_weights(const std::filesystem::path& path) {
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    detail::read_weights<T>(path, parameters(), weights, state);
    set_all(weights, state);
  }
  /// SHA-256 of the parameters' bytes, names sorted: equal weights, equal digest.
  std::string weights_sha256() const {
    return detail::hash_weights<T>(parameters(), host_weights(), host_state());
  }

  /// The same for each replica of this process: all equal, unless something is wrong.
  std::vector<std::string> replica_weights_sha256() const {
    std::vector<std::string> digests;
    for (const auto& replica : replicas_)
      digests.push_back(
          detail::hash_weights<T>(parameters(), weights_of(*replica), state_of(*replica)));
    return digests;
  }

  /// A table of layers, shapes, parameters, memory and FLOPs, as Keras' `summary`.
  std::string summary() const { return detail::summary_of<Net, device>(optimizer_.slots()); }
  /// What the device fuses: "conv2d+re_lu", ...
  static std::vector<std::string> fused() { return detail::fused_names<Net, device>(); }
  MemoryUse memory() const {
    const auto& r = *replicas_[0];
    MemoryUse use;
    use.weights = Net::graph.weights * sizeof(T);
    use.gradients = use.weights * (1 + r.branches());
    use.optimizer = use.weights * r.slots().size();
    use.state = Net::graph.state * sizeof(T);
    use.working = replicas_[0]->engine().working_bytes();
    return use;
  }

  std::uint64_t seed() const { return seed_; }
  /// Steps trained so far: what a schedule is asked with.
  std::uint64_t steps() const { return step_; }
  /// Rate of the next step.
  double learning_rate() const {
    return rate_override_ ? *rate_override_ : optimizer_.learning_rate(step_);
  }
  /// Replaces the rate, and a schedule, from the next step on.
  void set_learning_rate(double rate) { rate_override_ = Schedule(rate)(0); }
  std::size_t replicas() const { return session_.replicas(); }
  bool is_chief() const { return session_.is_chief(); }
  const S& strategy() const { return strategy_; }
  /// Threads of one replica.
  int threads() const { return threads_; }

 private:
  using ReplicaType = detail::Replica<Net, device, L, O, Ms...>;
  using BatchShare = detail::Share<T, Target>;
  using Stop = typename ReplicaType::Stop;

  /// A call of fit, evaluate or predict: its callbacks, and what they may do to it.
  struct Run final : TrainingControl {
    [[gnu::cold]] Run(Model& owner, const std::vector<std::shared_ptr<Callback>>& user,
                      ProgressStyle progress)
        : model(owner), callbacks(user) {
      numbers.metrics = detail::RunningLogs<Ms...>::names();
      numbers.rank = static_cast<int>(model.session_.first_replica());
      numbers.replicas = static_cast<int>(model.session_.replicas());
      numbers.first_step = model.step_;
      model.replicas_[0]->forget_stop();
      if (progress != ProgressStyle::none && model.is_chief())
        callbacks.add(std::make_shared<Progress>(progress));
      callbacks.set_control(this);
    }
    Stop asked(const std::stop_token& token) const { return {token.stop_requested(), stopped}; }
    void stop_training() override { stopped = true; }
    bool stop_requested() const override { return stopped; }
    double learning_rate() const override { return model.learning_rate(); }
    void set_learning_rate(double rate) override { model.set_learning_rate(rate); }
    const TrainingParams& params() const override { return numbers; }

    Model& model;
    TrainingParams numbers;
    CallbackList callbacks;
    bool stopped = false;
  };

  /// In the place of validation data; nothing that evaluates is compiled for it.
  struct NoValidation {};

  template <class Data, class Validation>
  History run_fit(const Data& train, const Validation& validation, const FitOptions& options) {
    detail::check_options(options);
    if (!train.size() && !options.steps_per_epoch)
      throw UsageError("fit: the data never end, so an epoch has no end; give .steps_per_epoch");
    History history;  // before the run, which lets go of it
    Run run(*this, options.callbacks, options.progress);
    run.numbers.epochs = options.epochs;
    run.numbers.initial_epoch = options.initial_epoch;
    run.numbers.steps = detail::step_count(train, options.steps_per_epoch);
    run.numbers.batch_size = train.batch_size();
    run.callbacks.add(history);

    Loader<T, Data> loader(detail::checked_data<Net, L>(train, "fit: the training"), share());
    [[maybe_unused]] auto validation_loader = loader_of(validation, options);
    if (options.steps_per_epoch)
      loader.begin({seed_, 0}, detail::examples_before(train.batch_size(), options));

    detail::RunningLogs<Ms...> running;
    LoadedBatch<T, Target> batch;
    Logs logs;
    verify_replicas();
    if (session_.replicas() > 1 && is_chief() && options.progress != ProgressStyle::none)
      log(LogLevel::info, detail::start_line(S::name, session_.replicas(),
                                             session_.virtual_shards(), train.batch_size()));
    run.callbacks.on_train_begin({});
    Stop stop;
    bool ran_out = false;
    for (int epoch = options.initial_epoch; epoch < options.epochs && !stop.training && !ran_out;
         ++epoch) {
      run.callbacks.on_epoch_begin(epoch, {});
      running.reset();
      if (!options.steps_per_epoch) loader.begin({seed_, static_cast<std::uint64_t>(epoch)});
      bool has_trained = false;
      for (std::uint64_t b = 0; !options.steps_per_epoch || b < *options.steps_per_epoch; ++b) {
        if (!loader.next(batch)) {
          if (b == 0 && epoch == options.initial_epoch)
            throw UsageError({"fit: no data are left for epoch ", epoch + 1,
                              "; lower .initial_epoch or add ls::repeat before ls::batch"});
          if (options.steps_per_epoch) {
            log(LogLevel::warning, text({"fit: the data ran out in epoch ", epoch + 1, ", step ", b,
                                         "; training ends; add ls::repeat before ls::batch"}));
            ran_out = true;
          }
          break;
        }
        run.callbacks.on_train_batch_begin(static_cast<std::size_t>(b), {});
        train_step(share_of(batch), run.asked(options.stop));
        running.add(sums(), batch.global_count, penalty_, metrics_);
        has_trained = true;
        if (options.verify_every > 0 && step_ % options.verify_every == 0) verify_replicas();
        run.callbacks.on_train_batch_end(static_cast<std::size_t>(b), running.logs());
        stop = agreed(run, options.stop);
        if (stop.training || stop.now) break;
      }
      if (stop.now || !has_trained) break;  // this epoch was not finished
      logs = running.logs();
      if constexpr (!std::same_as<Validation, NoValidation>)
        if ((epoch + 1) % options.validation_freq == 0)
          add_validation(
              logs, evaluate_with(validation_loader, options.validation_steps, options.stop, run),
              agreed(run, options.stop));
      run.callbacks.on_epoch_end(epoch, logs);
      exchange_stop(run.asked(options.stop));
      stop = agreed(run, options.stop);
      if (stop.now) break;
    }
    run.callbacks.on_train_end(logs);
    return history;
  }

  template <class Data>
  Loader<T, Data> loader_of(const Data& validation, const FitOptions& options) const {
    if (!validation.size() && !options.validation_steps)
      throw UsageError("fit: the validation data never end; give .validation_steps");
    return Loader<T, Data>(detail::checked_data<Net, L>(validation, "fit: the validation"),
                           share());
  }
  static NoValidation loader_of(const NoValidation&, const FitOptions&) { return {}; }

  template <class Data>
  Logs evaluate_with(Loader<T, Data>& loader, std::optional<std::uint64_t> steps,
                     const std::stop_token& stop, Run& run) {
    detail::RunningLogs<Ms...> running;
    LoadedBatch<T, Target> batch;
    run.callbacks.on_test_begin({});
    loader.begin({seed_, 0});
    std::uint64_t b = 0;
    for (; (!steps || b < *steps) && !agreed(run, stop).now && loader.next(batch); ++b) {
      run.callbacks.on_test_batch_begin(static_cast<std::size_t>(b), {});
      test_step(share_of(batch), run.asked(stop));
      running.add(sums(), batch.global_count, penalty_, metrics_);
      run.callbacks.on_test_batch_end(static_cast<std::size_t>(b), running.logs());
    }
    run.callbacks.on_test_end(running.logs());
    return running.logs();
  }

  template <class Data>
  Predictions<T> predict_batches(const Data& data, const EvaluateOptions& options) {
    detail::check_ends(data, options.steps);
    detail::check_examples<Net>(data);
    Run run(*this, options.callbacks, options.progress);
    Loader<T, Data> loader(data, share());
    run.numbers.steps = detail::step_count(data, options.steps);
    run.numbers.batch_size = data.batch_size();
    std::vector<T> out;
    LoadedBatch<T, target_of<Data, T>> batch;
    run.callbacks.on_predict_begin({});
    loader.begin({seed_, 0});
    for (std::uint64_t b = 0; (!options.steps || b < *options.steps) &&
                              !agreed(run, options.stop).now && loader.next(batch);
         ++b) {
      run.callbacks.on_predict_batch_begin(static_cast<std::size_t>(b), {});
      predict_batch({batch.x, nullptr, batch.slice.count, batch.global_count, batch.pass.number,
                     batch.first_ordinal},
                    out, run.asked(options.stop));
      run.callbacks.on_predict_batch_end(static_cast<std::size_t>(b), {});
    }
    run.callbacks.on_predict_end({});
    return {std::move(out), Net::output_shape};
  }

  /// Validation that was stopped half-way says nothing of the data.
  static void add_validation(Logs& logs, const Logs& found, Stop stop) {
    if (stop.now) return;
    for (const auto& [name, value] : found) logs.set("val_" + name, value);
  }

  /// `batch` is this process' share; each replica takes its part of it.
  void train_step(const BatchShare& batch, Stop stop = {}) {
    const double rate = learning_rate();
    session_.each([&](const ReplicaContext<device>& r) {
      ReplicaType& replica = *replicas_[r.local];
      replica.gradients_of([&](std::size_t i) { return slice_of_replica(batch, r, i); }, seed_,
                           step_, stop, r, loss_, metrics_);
      const double penalty = replica.penalty();
      replica.update(optimizer_, rate, step_ + 1);
      if (r.local == 0) penalty_ = penalty;
    });
    ++step_;
    last_count_ = batch.global_count;
  }

  void test_step(const BatchShare& batch, Stop stop = {}) {
    session_.each([&](const ReplicaContext<device>& r) {
      ReplicaType& replica = *replicas_[r.local];
      replica.test([&](std::size_t i) { return slice_of_replica(batch, r, i); }, seed_, stop, r,
                   loss_, metrics_);
      const double penalty = replica.penalty();
      if (r.local == 0) penalty_ = penalty;
    });
    last_count_ = batch.global_count;
  }

  /// Appends the outputs for all examples of the global batch.
  void predict_batch(const BatchShare& batch, std::vector<T>& out, Stop stop = {}) {
    const std::size_t before = out.size(), width = Net::output_shape.size();
    out.resize(before + batch.global_count * width);
    const std::size_t largest = slice_of(batch.global_count, slices(), 0).count * width;
    session_.each([&](const ReplicaContext<device>& r) {
      std::vector<T> own(is_alone() ? 0 : slices_each() * largest);
      for (std::size_t i = 0; i < slices_each(); ++i) {
        const BatchShare part = slice_of_replica(batch, r, i);
        const Slice rows = slice_of(batch.global_count, slices(), r.rank * slices_each() + i);
        T* const to = is_alone() ? out.data() + before + rows.first * width : &own[i * largest];
        replicas_[r.local]->predict_to(to, part, seed_, r.group);
      }
      if (is_alone()) return;
      std::vector<T> all(slices() * largest);
      r.group.all_gather(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(T),
                         reinterpret_cast<std::byte*>(all.data()));
      for (std::size_t i = 0; i < slices() && r.local == 0; ++i) {
        const Slice rows = slice_of(batch.global_count, slices(), i);
        std::copy_n(all.data() + i * largest, rows.count * width,
                    out.data() + before + rows.first * width);
      }
    });
    exchange_stop(stop);
  }

  /// Whether all replicas of the job are in this process.
  bool is_alone() const { return session_.local_replicas() == session_.replicas(); }

  /// What all processes do after this step: what one of them asked for before it. A process that is
  /// alone need not wait for the next step to know.
  Stop agreed(const Run& run, const std::stop_token& token) const {
    return is_alone() ? run.asked(token) : replicas_[0]->stop();
  }
  /// Makes known what this process asks for, between steps.
  void exchange_stop(Stop stop) {
    if (is_alone()) return;
    session_.each(
        [&](const ReplicaContext<device>& r) { replicas_[r.local]->exchange_stop(stop, r); });
  }

  /// How many slices a batch is cut into: the same for any number of replicas if they are virtual
  /// shards.
  std::size_t slices() const {
    return session_.virtual_shards() > 0 ? session_.virtual_shards() : session_.replicas();
  }
  std::size_t slices_each() const { return slices() / session_.replicas(); }

  /// The i-th slice of a replica, out of this process' share of the batch.
  BatchShare slice_of_replica(const BatchShare& batch, const ReplicaContext<device>& r,
                              std::size_t i) const {
    const std::size_t each = slices_each();
    const Slice mine = slice_of(batch.global_count, slices(), r.rank * each + i);
    const std::size_t first =
        mine.first - slice_of(batch.global_count, slices(), session_.first_replica() * each).first;
    BatchShare part = batch;
    part.x += first * Net::input_shape.size();
    if (part.y) part.y += first * L::target_shape(Net::output_shape).size();
    part.count = mine.count;
    part.first_ordinal += first;
    return part;
  }

  /// Which part of a global batch this process loads: its replicas' slices.
  auto share() const {
    const std::size_t each = slices_each(), first = session_.first_replica() * each;
    return [slices = slices(), first,
            last = first + session_.local_replicas() * each - 1](std::size_t global) {
      const Slice a = slice_of(global, slices, first), b = slice_of(global, slices, last);
      return Slice{a.first, b.first + b.count - a.first};
    };
  }

  /// \throws ReplicasDiverged if the replicas do not hold the same weights and optimizer state, bit
  /// by bit.
  [[gnu::cold]] void verify_replicas() {
    if (session_.replicas() == 1) return;
    const std::vector<ParameterInfo> infos = parameters();
    session_.each([&](const ReplicaContext<device>& r) {
      ReplicaType& replica = *replicas_[r.local];
      std::vector<std::vector<T>> values{weights_of(replica), state_of(replica)};
      for (const auto& slot : replica.slots()) values.push_back(download(slot));
      std::vector<detail::NamedBytes> tensors;
      const auto add = [&](std::string name, const ParameterInfo& p, const std::vector<T>& flat) {
        tensors.push_back(
            {std::move(name), std::as_bytes(std::span(flat).subspan(p.offset, p.size()))});
      };
      for (const ParameterInfo& p : infos) add(p.name, p, values[p.trainable ? 0 : 1]);
      for (std::size_t i = 2; i < values.size(); ++i)
        for (const ParameterInfo& p : infos)
          if (p.trainable) add(text({optimizer_.slot_name(i - 2), " of ", p.name}), p, values[i]);
      detail::verify_equal(r.group, tensors, step_);
    });
  }

  BatchShare share_of(const LoadedBatch<T, Target>& batch) const {
    detail::check_labels<Net>(batch.y, batch.slice.count, batch.slice.first);
    return {batch.x,           batch.y,
            batch.slice.count, batch.global_count,
            batch.pass.number, batch.first_ordinal};
  }

  void check_alone() const {
    if (!is_alone())
      throw UsageError(
          "batch: a batch in memory cannot be shared with other processes; use fit, evaluate or "
          "predict with a data pipeline");
  }

  BatchShare in_memory(std::span<const T> x, std::span<const Target> y) const {
    const TensorView<const T> examples(x, Net::input_shape);
    const std::size_t width = L::target_shape(Net::output_shape).size();
    if (examples.count() == 0) throw UsageError("batch: it has no example; give at least one");
    if (y.size() != examples.count() * width)
      throw UsageError({"batch: ", examples.count(), " examples need ", examples.count() * width,
                        " target values, not ", y.size()});
    check_alone();
    detail::check_labels<Net>(y.data(), examples.count(), 0);
    return {x.data(), y.data(), examples.count(), examples.count(), step_, 0};
  }

  static O checked(O optimizer) {
    if constexpr (requires { optimizer.check(); }) optimizer.check();
    return optimizer;
  }

  const typename ReplicaType::Sums& sums() const { return replicas_[0]->sums(); }
  Logs batch_logs() const {
    detail::RunningLogs<Ms...> running;
    running.add(sums(), last_count_, penalty_, metrics_);
    return running.logs();
  }

  static ParameterInfo parameter(std::string_view name) {
    std::string known;
    for (ParameterInfo& info : parameters()) {
      if (info.name == name) return std::move(info);
      known += (known.empty() ? "" : ", ") + info.name;
    }
    throw UsageError({"parameter '", name, "': the model has no such parameter; it has ", known});
  }
  template <class Buffer>
  static std::vector<T> download(const Buffer& buffer) {
    std::vector<T> host(buffer.size());
    buffer.download(host.data());
    return host;
  }
  static std::vector<T> weights_of(ReplicaType& r) { return download(r.engine().weights()); }
  static std::vector<T> state_of(ReplicaType& r) { return download(r.engine().state()); }
  std::vector<T> host_weights() const { return weights_of(*replicas_[0]); }
  std::vector<T> host_state() const { return state_of(*replicas_[0]); }
  void set_all(const std::vector<T>& weights, const std::vector<T>& state) {
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->engine().weights().upload(weights.data());
      replicas_[r.local]->engine().state().upload(state.data());
      r.device.synchronize();
    });
  }

  std::uint64_t seed_;
  L loss_;
  O optimizer_;
  std::tuple<Ms...> metrics_;
  S strategy_;
  decltype(std::declval<const S&>().open()) session_;
  std::vector<std::unique_ptr<ReplicaType>> replicas_;  // after session_: it must go first
  std::uint64_t step_ = 0;
  std::optional<double> rate_override_;
  double penalty_ = 0;
  std::size_t last_count_ = 0;
  int threads_ = 1;
};

template <class Net, class S, class L, class O, class... Ms>
Model(Net, S, L, O, Ms...) -> Model<Net, S, L, O, Ms...>;
template <class Net, class S, class L, class O, class... Ms>
Model(Net, Seed, S, L, O, Ms...) -> Model<Net, S, L, O, Ms...>;

}  // namespace lockstep
