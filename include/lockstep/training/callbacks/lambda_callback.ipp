#pragma once

#include "lockstep/training/callbacks/lambda_callback.hpp"

#include <utility>

namespace lockstep::detail {

class LambdaHooks final : public Callback {
 public:
  explicit LambdaHooks(LambdaCallback hooks) : hooks_(std::move(hooks)) {}

  bool may_log(std::string_view) const override { return false; }
  void on_train_begin(const Logs& logs) override { call(hooks_.on_train_begin, logs); }
  void on_train_end(const Logs& logs) override { call(hooks_.on_train_end, logs); }
  void on_test_begin(const Logs& logs) override { call(hooks_.on_test_begin, logs); }
  void on_test_end(const Logs& logs) override { call(hooks_.on_test_end, logs); }
  void on_predict_begin(const Logs& logs) override { call(hooks_.on_predict_begin, logs); }
  void on_predict_end(const Logs& logs) override { call(hooks_.on_predict_end, logs); }
  void on_epoch_begin(int epoch, const Logs& logs) override {
    call(hooks_.on_epoch_begin, epoch, logs);
  }
  void on_epoch_end(int epoch, const Logs& logs) override {
    call(hooks_.on_epoch_end, epoch, logs);
  }
  void on_train_batch_begin(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_train_batch_begin, batch, logs);
  }
  void on_train_batch_end(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_train_batch_end, batch, logs);
  }
  void on_test_batch_begin(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_test_batch_begin, batch, logs);
  }
  void on_test_batch_end(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_test_batch_end, batch, logs);
  }
  void on_predict_batch_begin(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_predict_batch_begin, batch, logs);
  }
  void on_predict_batch_end(std::size_t batch, const Logs& logs) override {
    call(hooks_.on_predict_batch_end, batch, logs);
  }

 private:
  template <class Function, class... Arguments>
  static void call(const Function& function, const Arguments&... arguments) {
    if (function) function(arguments...);
  }

  LambdaCallback hooks_;
};

}  // namespace lockstep::detail

namespace lockstep {

LambdaCallback::operator std::shared_ptr<Callback>() const {
  return std::make_shared<detail::LambdaHooks>(*this);
}

}  // namespace lockstep
