#pragma once

#include "lockstep/training/callbacks/callback_list.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {

CallbackList::CallbackList(std::span<const std::shared_ptr<Callback>> callbacks) {
  for (const auto& callback : callbacks) add(callback);
}

CallbackList::~CallbackList() { restore_controls(); }

void CallbackList::add(Callback& callback) { add({std::shared_ptr<Callback>(), &callback}); }

void CallbackList::add(std::shared_ptr<Callback> callback) {
  if (!callback)
    throw UsageError("callbacks: element {} is a null pointer; remove it or create the callback",
                     callbacks_.size());
  callbacks_.push_back(std::move(callback));
}

void CallbackList::set_control(TrainingControl* control) {
  restore_controls();
  for (const auto& callback : callbacks_) before_.push_back(callback->set_control(control));
}

std::vector<std::string> CallbackList::state_names() const {
  std::vector<std::string> names;
  for (const auto& callback : callbacks_) {
    const std::string name(callback->state_name());
    std::string numbered = name;
    for (int n = 2; !name.empty() && std::count(names.begin(), names.end(), numbered) > 0; ++n)
      numbered = name + " " + std::to_string(n);
    names.push_back(std::move(numbered));
  }
  return names;
}

CallbackList::States CallbackList::states() const {
  const std::vector<std::string> names = state_names();
  States states;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    callbacks_[i]->save_state(states.emplace_back(names[i], CallbackState{}).second);
  }
  return states;
}

std::vector<std::string> CallbackList::load_states(const States& states) {
  const std::vector<std::string> names = state_names();
  std::vector<std::string> left;
  for (const auto& [name, state] : states) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      left.push_back(name);
    else
      callbacks_[static_cast<std::size_t>(found - names.begin())]->load_state(state);
  }
  return left;
}

bool CallbackList::may_log(std::string_view name) const {
  return std::any_of(callbacks_.begin(), callbacks_.end(),
                     [&](const auto& callback) { return callback->may_log(name); });
}

void CallbackList::on_workers_change(const WorkersChange& change) {
  each(&Callback::on_workers_change, change);
}

void CallbackList::on_train_begin(const Logs& logs) { each(&Callback::on_train_begin, logs); }

void CallbackList::on_train_end(const Logs& logs) { each(&Callback::on_train_end, logs); }

void CallbackList::on_test_begin(const Logs& logs) { each(&Callback::on_test_begin, logs); }

void CallbackList::on_test_end(const Logs& logs) { each(&Callback::on_test_end, logs); }

void CallbackList::on_predict_begin(const Logs& logs) { each(&Callback::on_predict_begin, logs); }

void CallbackList::on_predict_end(const Logs& logs) { each(&Callback::on_predict_end, logs); }

void CallbackList::on_epoch_begin(int epoch, const Logs& logs) {
  each(&Callback::on_epoch_begin, epoch, logs);
}

void CallbackList::on_epoch_end(int epoch, const Logs& logs) {
  on_epoch_end(epoch, logs, [] {});
}

void CallbackList::on_train_batch_begin(std::size_t batch, const Logs& logs) {
  each(&Callback::on_train_batch_begin, batch, logs);
}

void CallbackList::on_train_batch_end(std::size_t batch, const Logs& logs) {
  each(&Callback::on_train_batch_end, batch, logs);
}

void CallbackList::on_test_batch_begin(std::size_t batch, const Logs& logs) {
  each(&Callback::on_test_batch_begin, batch, logs);
}

void CallbackList::on_test_batch_end(std::size_t batch, const Logs& logs) {
  each(&Callback::on_test_batch_end, batch, logs);
}

void CallbackList::on_predict_batch_begin(std::size_t batch, const Logs& logs) {
  each(&Callback::on_predict_batch_begin, batch, logs);
}

void CallbackList::on_predict_batch_end(std::size_t batch, const Logs& logs) {
  each(&Callback::on_predict_batch_end, batch, logs);
}

void CallbackList::restore_controls() {
  for (; !before_.empty(); before_.pop_back())
    callbacks_[before_.size() - 1]->set_control(before_.back());
}

}  // namespace lockstep
