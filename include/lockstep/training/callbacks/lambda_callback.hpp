/// \file
/// A callback from functions. Invariant: a hook without a function does nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/concepts/callback.hpp"

namespace lockstep {

/// Keras' LambdaCallback: an aggregate of functions, named as the hooks. Converts to the shared
/// callback that `fit` takes.
/// \code
///   model.fit(train, {.epochs = 3, .callbacks = {lockstep::LambdaCallback{
///       .on_epoch_end = [](int epoch, const lockstep::Logs& logs) {
///         std::printf("%d %f\n", epoch, logs["loss"]);
///       }}}});
/// \endcode
struct LambdaCallback {
  using Whole = std::function<void(const Logs&)>;
  using Epoch = std::function<void(int epoch, const Logs&)>;
  using Batch = std::function<void(std::size_t batch, const Logs&)>;

  Epoch on_epoch_begin{};
  Epoch on_epoch_end{};
  Whole on_train_begin{};
  Whole on_train_end{};
  Batch on_train_batch_begin{};
  Batch on_train_batch_end{};
  Whole on_test_begin{};
  Whole on_test_end{};
  Batch on_test_batch_begin{};
  Batch on_test_batch_end{};
  Whole on_predict_begin{};
  Whole on_predict_end{};
  Batch on_predict_batch_begin{};
  Batch on_predict_batch_end{};

  template <std::same_as<std::shared_ptr<Callback>> Shared>
  operator Shared() const;
};

namespace detail {
template <std::same_as<LambdaCallback> Options>  // compiled only where it is used
class LambdaHooks final : public Callback {
 public:
  explicit LambdaHooks(Options hooks) : hooks_(std::move(hooks)) {}

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

  Options hooks_;
};
}  // namespace detail

template <std::same_as<std::shared_ptr<Callback>> Shared>
LambdaCallback::operator Shared() const {
  return std::make_shared<detail::LambdaHooks<LambdaCallback>>(*this);
}

}  // namespace lockstep
