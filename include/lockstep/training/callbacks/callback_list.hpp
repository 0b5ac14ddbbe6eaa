/// \file
/// A list of callbacks. Invariants: hooks are called in the order in which callbacks were added;
/// the destructor gives each callback the control back that it had before set_control.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"

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
  LOCKSTEP_DECL explicit CallbackList(std::span<const std::shared_ptr<Callback>> callbacks);
  /// Restores the callbacks' previous controls.
  LOCKSTEP_DECL ~CallbackList();
  CallbackList(const CallbackList&) = delete;
  CallbackList& operator=(const CallbackList&) = delete;

  /// Adds a callback that the caller owns; it must outlive the list.
  LOCKSTEP_DECL void add(Callback& callback);
  /// Adds a callback and shares its ownership. \throws UsageError if the pointer is null.
  LOCKSTEP_COLD_DECL void add(std::shared_ptr<Callback> callback);
  std::size_t size() const { return callbacks_.size(); }
  bool empty() const { return callbacks_.empty(); }

  /// Sets the control of all callbacks added so far, until the list is destroyed.
  LOCKSTEP_DECL void set_control(TrainingControl* control);

  /// Names and states of the callbacks that have one. Equal names are numbered: "EarlyStopping",
  /// "EarlyStopping 2".
  using States = std::vector<std::pair<std::string, CallbackState>>;
  LOCKSTEP_COLD_DECL States states() const;
  /// Restores the states by name; a callback without one keeps its own. \returns the names of states
  /// without a callback.
  LOCKSTEP_COLD_DECL std::vector<std::string> load_states(const States& states);

  /// Whether one of the callbacks may log a value of this name.
  LOCKSTEP_COLD_DECL bool may_log(std::string_view name) const;

  LOCKSTEP_COLD_DECL void on_workers_change(const WorkersChange& change);
  LOCKSTEP_DECL void on_train_begin(const Logs& logs);
  LOCKSTEP_DECL void on_train_end(const Logs& logs);
  LOCKSTEP_DECL void on_test_begin(const Logs& logs);
  LOCKSTEP_DECL void on_test_end(const Logs& logs);
  LOCKSTEP_DECL void on_predict_begin(const Logs& logs);
  LOCKSTEP_DECL void on_predict_end(const Logs& logs);
  LOCKSTEP_DECL void on_epoch_begin(int epoch, const Logs& logs);
  /// Calls the hook of each callback, and `after()` after each.
  template <class After>
  void on_epoch_end(int epoch, const Logs& logs, const After& after) {
    for (const auto& callback : callbacks_) {
      callback->on_epoch_end(epoch, logs);
      after();
    }
  }
  LOCKSTEP_DECL void on_epoch_end(int epoch, const Logs& logs);
  LOCKSTEP_DECL void on_train_batch_begin(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void on_train_batch_end(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void on_test_batch_begin(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void on_test_batch_end(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void on_predict_batch_begin(std::size_t batch, const Logs& logs);
  LOCKSTEP_DECL void on_predict_batch_end(std::size_t batch, const Logs& logs);

 private:
  template <class Hook, class... Arguments>
  void each(Hook hook, const Arguments&... arguments) {
    for (const auto& callback : callbacks_) (callback.get()->*hook)(arguments...);
  }

  /// The name of each callback's state; empty for those without one.
  LOCKSTEP_COLD_DECL std::vector<std::string> state_names() const;
  // From the last to the first, since a callback may be in the list twice.
  LOCKSTEP_DECL void restore_controls();

  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::vector<TrainingControl*> before_;  // previous control of callbacks_[i]; may be shorter
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/callback_list.ipp"
#endif
