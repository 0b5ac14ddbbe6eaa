/// \file
/// The batches of fit and evaluate: from the host's memory, or, where a device can keep the data
/// and has room, made there. Invariant: the numbers are the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/step/resident_rows.hpp"

namespace lockstep::detail {

/// From the host's memory. `Replicas`: see replicas.hpp.
template <class Replicas, class Data>
class HostBatches {
 public:
  using Batch = typename Replicas::Batch;

  [[gnu::cold]] HostBatches(const Data& data, Replicas& replicas, const ClassWeights& classes)
      : loader_(data, replicas.share(), classes) {}

  void begin(Pass pass, std::uint64_t skip_examples = 0) { loader_.begin(pass, skip_examples); }
  /// This process' share of the next batch of the pass; false at its end.
  bool next(Batch& out) {
    if (!loader_.next(out)) return false;
    check_labels<typename Replicas::Network>(out.y, out.slice.count, out.slice.first);
    return true;
  }

 private:
  Loader<typename Replicas::T, Data> loader_;
};

/// From the devices' memory, or the host's if that has no room.
template <class Replicas, class Data>
class DeviceBatches {
  using device = typename Replicas::device;

 public:
  using Batch = typename Replicas::Batch;

  [[gnu::cold]] DeviceBatches(const Data& data, Replicas& replicas, const ClassWeights& classes)
      : replicas_(&replicas) {
    auto& session = replicas.session();
    rows_ = std::make_unique<Rows>(data, session.local_replicas(),
                                   replicas.largest_slice(data.batch_size()), replicas.share(),
                                   classes);
    // All ask before one takes: they may be on one device.
    const std::size_t bytes = rows_->bytes();
    std::atomic<bool> fits = rows_->fits();
    session.each([&](const ReplicaContext<device>& r) {
      if (!r.device.keeps_data(bytes * session.local_replicas())) fits = false;
    });
    if (fits)
      session.each([&](const ReplicaContext<device>& r) {
        try {
          rows_->take_place(r.local, r.device);
        } catch (const OutOfMemory&) {
          fits = false;
        }
      });
    if (fits) {
      replicas_->data_came(bytes);
      return;
    }
    rows_.reset();
    host_ = std::make_unique<Host>(data, replicas, classes);
  }

  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;
  ~DeviceBatches() {
    if (rows_) replicas_->data_went(rows_->bytes());
  }

  void begin(Pass pass, std::uint64_t skip_examples = 0) {
    if (rows_)
      rows_->begin(pass, skip_examples);
    else
      host_->begin(pass, skip_examples);
  }
  bool next(Batch& out) {
    if (!rows_) return host_->next(out);
    if (!rows_->next(out)) return false;
    check_labels<typename Replicas::Network>(out.y, out.slice.count, out.slice.first);
    return true;
  }

 private:
  using Rows = ResidentRows<device, Data>;
  using Host = HostBatches<Replicas, Data>;
  Replicas* replicas_;
  std::unique_ptr<Rows> rows_;  // of these two one
  std::unique_ptr<Host> host_;
};

template <class Replicas, class Data>
using Batches = std::conditional_t<can_reside<typename Replicas::device, Data>,
                                   DeviceBatches<Replicas, Data>, HostBatches<Replicas, Data>>;

/// This process' share of the batches, which may have weights. \throws UsageError if the model
/// does not take such data; `what` begins the message of an empty set.
template <class Replicas, class Data>
Batches<Replicas, Data> batches_over(Replicas& replicas, const Data& data, const char* what,
                                     const ClassWeights& classes = {}) {
  using Network = typename Replicas::Network;
  using Loss = typename Replicas::Loss;
  if (WeightedDataset<Data> || !classes.empty())
    check_weighs<Network, typename Replicas::device, Loss>();
  return Batches<Replicas, Data>(checked_data<Network, Loss>(data, what), replicas, classes);
}

}  // namespace lockstep::detail
