/// \file
/// The batches of fit and evaluate, and the step executed on each. Batches are assembled in host
/// memory or, if the device can hold the whole data set, on the device. Invariant: both ways give
/// the same numbers.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/output_masks.hpp"
#include "lockstep/training/step/resident_rows.hpp"

namespace lockstep::detail {

/// Batches assembled in host memory: this process' share.
template <class Replicas, class Data>
Loader<typename Replicas::T> host_batches(const Data& data, Replicas& replicas,
                                          const ClassWeights& class_weights = {},
                                          FieldRole last = FieldRole::weight) {
  return Loader<typename Replicas::T>(data, replicas.share(), class_weights, last,
                                      Replicas::Layout::weight_shape);
}

/// Batches assembled on the devices, or on the host if a device has no room for the data:
///
///     rows fit in 32-bit indices, and every device grants the bytes?
///         yes --> upload to each device --> OutOfMemory on one of them? --no--> ResidentRows
///         no  --> Loader                             yes --> Loader
///
/// All replicas of a process use the same kind.
template <class Replicas, class Data>
class DeviceBatches {
  using device = typename Replicas::device;

 public:
  [[gnu::cold]] DeviceBatches(const Data& data, Replicas& replicas, const ClassWeights& classes)
      : replicas_(&replicas) {
    auto& session = replicas.session();
    rows_ = std::make_unique<Rows>(data, session.local_replicas(),
                                   replicas.largest_slice(data.batch_size()), replicas.share(),
                                   classes, Replicas::Layout::weight_shape);
    // All replicas ask before the first allocates, since several may share a device.
    const std::size_t bytes = rows_->bytes();
    std::atomic<bool> fits = rows_->fits();
    session.each([&](const ReplicaContext<device>& r) {
      if (!r.device.keeps_data(bytes * session.local_replicas())) fits = false;
    });
    if (fits)
      session.each([&](const ReplicaContext<device>& r) {
        try {
          rows_->upload_rows(r.local, r.device);
        } catch (const OutOfMemory&) {
          fits = false;
        }
      });
    if (fits) {
      replicas_->add_resident_data(bytes);
      return;
    }
    rows_.reset();
    host_.reset(new Loader<typename Replicas::T>(host_batches(data, replicas, classes)));
  }

  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;
  ~DeviceBatches() {
    if (rows_) replicas_->remove_resident_data(rows_->bytes());
  }

  void begin(Pass pass, std::uint64_t skip_examples = 0) {
    if (rows_)
      rows_->begin(pass, skip_examples);
    else
      host_->begin(pass, skip_examples);
  }
  bool next(LoadedBatch& out) { return rows_ ? rows_->next(out) : host_->next(out); }

 private:
  using Rows = ResidentRows<device, Data>;
  Replicas* replicas_;
  std::unique_ptr<Rows> rows_;  // exactly one of the two is set
  std::unique_ptr<Loader<typename Replicas::T>> host_;
};

/// This process' share of the batches of `data`, with sample weights if the data or `classes` have
/// any. `what` begins the message for empty data: "fit: the training". Without `may_reside`, or if the
/// host counts what the loss is a mean over, as for several outputs or masks, they are in host memory.
/// \throws UsageError if the data do not fit the model.
template <bool may_reside = true, class Replicas, class Data>
auto batches_over(Replicas& replicas, const Data& data, const char* what,
                  const ClassWeights& classes = {}) {
  using Network = typename Replicas::Network;
  using Loss = typename Replicas::Loss;
  if (has_weights<Data> || !classes.empty())
    check_weighs<Network, typename Replicas::device, Loss>();
  check_data<Network, Loss>(data, what);
  if constexpr (may_reside && std::same_as<StepLoss<Loss>, Loss> &&
                !OutputMasks<Network, typename Replicas::Layout>::exist &&
                can_reside<typename Replicas::device, Data>)
    return DeviceBatches<Replicas, Data>(data, replicas, classes);
  else
    return host_batches(data, replicas, classes);
}

/// The common part of the steps of fit, evaluate and predict. Replicas and batches must outlive the
/// object.
template <class Replicas, class Batches>
class StepsOver : public Steps {
 public:
  StepsOver(Replicas& replicas, Batches& batches) : replicas_(replicas), batches_(batches) {}
  void begin(Pass pass, std::uint64_t skip_examples) override {
    if constexpr (Replicas::can_reform)
      if (const std::uint64_t now = replicas_.generation(); now != generation_) {
        batches_.set_share(replicas_.share());
        generation_ = now;
      }
    batches_.begin(pass, skip_examples);
  }
  bool next() final {
    if (!batches_.next(batch_)) return false;
    replicas_.check_labels(batch_);
    return true;
  }

 protected:
  Replicas& replicas_;
  Batches& batches_;
  LoadedBatch batch_;

 private:
  std::uint64_t generation_ = replicas_.generation();  // of the job when the share was last set
};

/// Steps of fit.
template <class Replicas, class Batches>
class TrainingSteps final : public StepsOver<Replicas, Batches> {
 public:
  using StepsOver<Replicas, Batches>::StepsOver;
  void run_step(const RunRequests& requests, double rate, bool waits) override {
    if constexpr (Replicas::can_reform)
      if (this->replicas_.elastic() != nullptr)
        return this->replicas_.train_elastic(this->batch_, rate, requests);
    this->replicas_.train(this->batch_, rate, requests, waits);
  }
};
template <class Replicas, class Batches>
TrainingSteps(Replicas&, Batches&) -> TrainingSteps<Replicas, Batches>;

/// Steps of evaluate, and of fit's validation.
template <class Replicas, class Batches>
class EvaluationSteps final : public StepsOver<Replicas, Batches> {
 public:
  using StepsOver<Replicas, Batches>::StepsOver;
  void run_step(const RunRequests& requests, double, bool) override {
    this->replicas_.test(this->batch_, requests);
  }
};
template <class Replicas, class Batches>
EvaluationSteps(Replicas&, Batches&) -> EvaluationSteps<Replicas, Batches>;

/// Steps of predict.
template <class Replicas, class Batches>
class PredictionSteps final : public StepsOver<Replicas, Batches> {
 public:
  using StepsOver<Replicas, Batches>::StepsOver;
  void run_step(const RunRequests& requests, double, bool) override {
    this->replicas_.predict(this->batch_, outputs, requests);
  }

  std::vector<typename Replicas::T> outputs;  ///< (examples, output), in the order of the data
};
template <class Replicas, class Batches>
PredictionSteps(Replicas&, Batches&) -> PredictionSteps<Replicas, Batches>;

}  // namespace lockstep::detail
