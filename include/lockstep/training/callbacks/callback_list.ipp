#pragma once

#include "lockstep/training/callbacks/callback_list.hpp"

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
