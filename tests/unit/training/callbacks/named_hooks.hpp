/// \file
/// A callback that passes the name of each hook, such as "train_batch_end 0", to one function.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/concepts/callback.hpp"

namespace callbacks_test {

struct NamedHooks : lockstep::Callback {
  using Logs = lockstep::Logs;
  using Function = std::function<void(NamedHooks&, const std::string& hook, const Logs&)>;

  explicit NamedHooks(Function f) : function(std::move(f)) {}

  void on_train_begin(const Logs& l) override { function(*this, "train_begin", l); }
  void on_train_end(const Logs& l) override { function(*this, "train_end", l); }
  void on_test_begin(const Logs& l) override { function(*this, "test_begin", l); }
  void on_test_end(const Logs& l) override { function(*this, "test_end", l); }
  void on_predict_begin(const Logs& l) override { function(*this, "predict_begin", l); }
  void on_predict_end(const Logs& l) override { function(*this, "predict_end", l); }
  void on_epoch_begin(int n, const Logs& l) override { call("epoch_begin ", n, l); }
  void on_epoch_end(int n, const Logs& l) override { call("epoch_end ", n, l); }
  void on_train_batch_begin(std::size_t n, const Logs& l) override {
    call("train_batch_begin ", n, l);
  }
  void on_train_batch_end(std::size_t n, const Logs& l) override { call("train_batch_end ", n, l); }
  void on_test_batch_begin(std::size_t n, const Logs& l) override {
    call("test_batch_begin ", n, l);
  }
  void on_test_batch_end(std::size_t n, const Logs& l) override { call("test_batch_end ", n, l); }
  void on_predict_batch_begin(std::size_t n, const Logs& l) override {
    call("predict_batch_begin ", n, l);
  }
  void on_predict_batch_end(std::size_t n, const Logs& l) override {
    call("predict_batch_end ", n, l);
  }

 private:
  template <class N>
  void call(const char* name, N n, const Logs& logs) {
    function(*this, name + std::to_string(n), logs);
  }

  Function function;
};

}  // namespace callbacks_test
