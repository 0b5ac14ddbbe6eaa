/// \file
/// Several callbacks as one. Invariants: hooks are called in the order in which callbacks were
/// added; when the list is gone each callback has the control that it had before.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

/// Calls each hook of each callback in order (Keras' CallbackList).
/// \code
///   lockstep::CallbackList callbacks(options.callbacks);   // shared, kept alive by the list
///   callbacks.add(history);                                // a plain object, outlives the list
///   callbacks.set_control(&loop);
///   callbacks.on_train_begin(logs);
/// \endcode
class CallbackList {
 public:
  CallbackList() = default;
  /// \throws UsageError if one of `callbacks` is null.
  explicit CallbackList(std::span<const std::shared_ptr<Callback>> callbacks) {
    for (const auto& callback : callbacks) add(callback);
  }
  ~CallbackList() { restore_controls(); }
  CallbackList(const CallbackList&) = delete;
  CallbackList& operator=(const CallbackList&) = delete;

  /// The list does not own `callback`.
  void add(Callback& callback) { add({std::shared_ptr<Callback>(), &callback}); }
  /// The list shares `callback`. \throws UsageError if it is null.
  [[gnu::cold]] void add(std::shared_ptr<Callback> callback) {
    if (!callback)
      throw UsageError({"callbacks: number ", callbacks_.size(),
                        " (counted from 0) is a null pointer; leave it out or make it"});
    callbacks_.push_back(std::move(callback));
  }
  std::size_t size() const { return callbacks_.size(); }
  bool empty() const { return callbacks_.empty(); }

  /// Of all callbacks added so far, while the list lives.
  void set_control(TrainingControl* control) {
    restore_controls();
    for (const auto& callback : callbacks_) before_.push_back(callback->set_control(control));
  }

  void on_train_begin(const Logs& logs) { each(&Callback::on_train_begin, logs); }
  void on_train_end(const Logs& logs) { each(&Callback::on_train_end, logs); }
  void on_test_begin(const Logs& logs) { each(&Callback::on_test_begin, logs); }
  void on_test_end(const Logs& logs) { each(&Callback::on_test_end, logs); }
  void on_predict_begin(const Logs& logs) { each(&Callback::on_predict_begin, logs); }
  void on_predict_end(const Logs& logs) { each(&Callback::on_predict_end, logs); }
  void on_epoch_begin(int epoch, const Logs& logs) { each(&Callback::on_epoch_begin, epoch, logs); }
  /// `after()` follows each callback.
  template <class After>
  void on_epoch_end(int epoch, const Logs& logs, const After& after) {
    for (const auto& callback : callbacks_) {
      callback->on_epoch_end(epoch, logs);
      after();
    }
  }
  void on_epoch_end(int epoch, const Logs& logs) {
    on_epoch_end(epoch, logs, [] {});
  }
  void on_train_batch_begin(std::size_t batch, const Logs& logs) {
    each(&Callback::on_train_batch_begin, batch, logs);
  }
  void on_train_batch_end(std::size_t batch, const Logs& logs) {
    each(&Callback::on_train_batch_end, batch, logs);
  }
  void on_test_batch_begin(std::size_t batch, const Logs& logs) {
    each(&Callback::on_test_batch_begin, batch, logs);
  }
  void on_test_batch_end(std::size_t batch, const Logs& logs) {
    each(&Callback::on_test_batch_end, batch, logs);
  }
  void on_predict_batch_begin(std::size_t batch, const Logs& logs) {
    each(&Callback::on_predict_batch_begin, batch, logs);
  }
  void on_predict_batch_end(std::size_t batch, const Logs& logs) {
    each(&Callback::on_predict_batch_end, batch, logs);
  }

 private:
  template <class Hook, class... Arguments>
  void each(Hook hook, const Arguments&... arguments) {
    for (const auto& callback : callbacks_) (callback.get()->*hook)(arguments...);
  }

  // From the last to the first: a callback may be in the list twice.
  void restore_controls() {
    for (; !before_.empty(); before_.pop_back())
      callbacks_[before_.size() - 1]->set_control(before_.back());
  }

  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::vector<TrainingControl*> before_;  // of the first callbacks: their controls outside
};

}  // namespace lockstep
