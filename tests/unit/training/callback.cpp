// Logs, Callback, CallbackList, LambdaCallback and History: order of hooks, names, errors.
#include "lockstep/concepts/callback.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/training/callbacks/callback_list.hpp"
#include "lockstep/training/callbacks/csv_logger.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/lambda_callback.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/history.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {
struct Loop : ls::TrainingControl {
  void stop_training() override { stopped = true; }
  bool stop_requested() const override { return stopped; }
  std::uint64_t steps() const override { return 0; }
  double learning_rate() const override { return rate; }
  void set_learning_rate(double r) override { rate = r; }
  void log(std::string_view, double) override {}
  std::vector<std::byte> weights() const override { return {}; }
  void set_weights(std::span<const std::byte>) override {}
  void save_weights(const std::string&) override {}
  void write_checkpoint(const std::string&, std::size_t) override {}
  void swap_averages(bool) override {}
  bool is_finite() const override { return true; }
  std::string not_finite() const override { return {}; }
  std::vector<ls::NamedTensor> tensors() const override { return {}; }
  const ls::TrainingParams& params() const override { return numbers; }
  ls::Architecture architecture() const override { return {}; }
  bool stopped = false;
  double rate = 0.1;
  ls::TrainingParams numbers;
};

struct Note : ls::Callback {
  Note(std::vector<std::string>& list, std::string me) : calls(list), name(std::move(me)) {}
  void on_epoch_end(int epoch, const ls::Logs& logs) override {
    calls.push_back(name + std::to_string(epoch) + (logs["loss"] > 1 ? ">1" : "<1"));
  }
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    calls.push_back(name + "b" + std::to_string(batch));
  }
  std::vector<std::string>& calls;
  std::string name;
};

void all_hooks(ls::CallbackList& call) {
  ls::Logs logs;
  logs.set("loss", 2);
  call.on_train_begin(logs);
  call.on_epoch_begin(3, logs);
  call.on_train_batch_begin(4, logs);
  call.on_train_batch_end(5, logs);
  call.on_test_begin(logs);
  call.on_test_batch_begin(6, logs);
  call.on_test_batch_end(7, logs);
  call.on_test_end(logs);
  call.on_epoch_end(8, logs);
  call.on_train_end(logs);
  call.on_predict_begin(logs);
  call.on_predict_batch_begin(9, logs);
  call.on_predict_batch_end(10, logs);
  call.on_predict_end(logs);
}
}  // namespace

TEST_CASE("logs keep the order in which names were first set") {
  ls::Logs logs;
  logs.set("loss", 1.5);
  logs.set("accuracy", 0.25);
  logs.set("loss", 1.25);
  std::string text;
  for (const auto& [name, value] : logs) text += name + "=" + std::to_string(value) + " ";
  CHECK(text == "loss=1.250000 accuracy=0.250000 ");
  CHECK(logs.size() == 2);
  CHECK(logs.get("accuracy") == 0.25);
  CHECK_FALSE(logs.get("val_loss").has_value());
}

TEST_CASE("logs distinguish the running mean from the batch's own value") {
  ls::Logs logs;
  logs.set("loss", 1.5, 0.5);
  CHECK(logs["loss"] == 1.5);
  CHECK(logs.step("loss") == 0.5);
  logs.set("loss", 1.25);
  CHECK(logs.step("loss") == 1.25);
}

TEST_CASE("logs list the known names when a name is unknown") {
  ls::Logs logs;
  CHECK_THROWS_WITH(logs["loss"], ContainsSubstring("none"));
  logs.set("loss", 1);
  logs.set("accuracy", 1);
  CHECK_THROWS_WITH(logs["los"],
                    ContainsSubstring("'los'") && ContainsSubstring("known names: loss, accuracy"));
  CHECK_THROWS_WITH(logs.step("los"), ContainsSubstring("known names: loss, accuracy"));
  CHECK_THROWS_AS(logs["los"], ls::UsageError);
}

TEST_CASE("logs update a name in place") {
  ls::Logs logs;
  const std::string name = "a_name_that_is_too_long_for_the_short_string_buffer";
  logs.set(name, 1);
  const auto* entry = &*logs.begin();
  const char* text = entry->first.data();
  for (int i = 0; i < 100; ++i) logs.set(name, i, i);
  CHECK(&*logs.begin() == entry);
  CHECK(entry->first.data() == text);
  CHECK(logs[name] == 99);
}

TEST_CASE("a callback list calls each hook in the order of its callbacks") {
  std::vector<std::string> calls;
  Note first(calls, "a");
  ls::CallbackList list;
  list.add(first);
  list.add(std::make_shared<Note>(calls, "b"));
  ls::Logs logs;
  logs.set("loss", 2);
  list.on_train_batch_end(7, logs);
  list.on_epoch_end(1, logs);
  CHECK(calls == std::vector<std::string>{"ab7", "bb7", "a1>1", "b1>1"});
}

TEST_CASE("a callback list rejects a null pointer") {
  ls::CallbackList list;
  CHECK_THROWS_WITH(list.add(std::shared_ptr<ls::Callback>{}), ContainsSubstring("element 0"));
}

TEST_CASE("Callbacks accepts options, shared pointers to options and custom callbacks") {
  struct Mine : ls::Callback {};
  const auto mine = std::make_shared<Mine>();
  const ls::Callbacks both{std::make_shared<ls::CSVLogger>(ls::CSVLogger{"a.csv"}), mine};
  REQUIRE(both.size() == 2);
  CHECK(both[0] != nullptr);
  CHECK(both[1] == mine);
  const ls::FitOptions options{
      .callbacks = {mine, ls::EarlyStopping{}, std::make_shared<ls::EarlyStopping>()}};
  REQUIRE(options.callbacks.size() == 3);
  CHECK(options.callbacks[2] != nullptr);
  const ls::Callbacks alone{std::make_shared<ls::EarlyStopping>()};
  CHECK(alone.size() == 1);
  const ls::Callbacks none{mine, std::shared_ptr<ls::CSVLogger>()};
  CHECK_THROWS_AS(ls::CallbackList(none), ls::UsageError);
}

TEST_CASE("a callback has a control during a run and not after it") {
  Loop loop;
  loop.numbers.epochs = 5;
  ls::Callback callback;
  {
    ls::CallbackList list;
    list.add(callback);
    list.set_control(&loop);
    CHECK(callback.params().epochs == 5);
    callback.control().set_learning_rate(callback.control().learning_rate() / 2);
    callback.control().stop_training();
    ls::Callback copy = callback;
    CHECK_THROWS_AS(copy.control(), ls::UsageError);
  }
  CHECK(loop.rate == 0.05);
  CHECK(loop.stopped);
  CHECK_THROWS_WITH(callback.params(), ContainsSubstring("only from hooks"));
}

TEST_CASE("a lambda callback calls the function of each hook") {
  std::string calls;
  const auto whole = [&calls](const char* name) {
    return [&calls, name](const ls::Logs& logs) {
      calls += std::string(name) + (logs["loss"] == 2 ? " " : "! ");
    };
  };
  const auto batch = [&calls](const char* name) {
    return
        [&calls, name](std::size_t n, const ls::Logs&) { calls += name + std::to_string(n) + " "; };
  };
  const auto epoch = [&calls](const char* name) {
    return [&calls, name](int n, const ls::Logs&) { calls += name + std::to_string(n) + " "; };
  };
  const ls::LambdaCallback hooks{.on_epoch_begin = epoch("epoch"),
                                 .on_epoch_end = epoch("/epoch"),
                                 .on_train_begin = whole("train"),
                                 .on_train_end = whole("/train"),
                                 .on_train_batch_begin = batch("batch"),
                                 .on_train_batch_end = batch("/batch"),
                                 .on_test_begin = whole("test"),
                                 .on_test_end = whole("/test"),
                                 .on_test_batch_begin = batch("test"),
                                 .on_test_batch_end = batch("/test"),
                                 .on_predict_begin = whole("predict"),
                                 .on_predict_end = whole("/predict"),
                                 .on_predict_batch_begin = batch("predict"),
                                 .on_predict_batch_end = batch("/predict")};
  const std::vector<std::shared_ptr<ls::Callback>> callbacks{hooks};
  ls::CallbackList list(callbacks);
  all_hooks(list);
  CHECK(calls ==
        "train epoch3 batch4 /batch5 test test6 /test7 /test /epoch8 /train predict predict9 "
        "/predict10 /predict ");
}

TEST_CASE("a lambda callback without functions does nothing") {
  const std::shared_ptr<ls::Callback> callback = ls::LambdaCallback{};
  CHECK_NOTHROW(callback->on_epoch_end(0, {}));
  CHECK_NOTHROW(callback->on_train_batch_end(0, {}));
}

TEST_CASE("history holds one value per epoch") {
  ls::History history;
  ls::Logs logs;
  history.on_train_begin(logs);
  logs.set("loss", 2);
  history.on_epoch_end(4, logs);
  logs.set("loss", 1);
  logs.set("val_loss", 3);
  history.on_epoch_end(5, logs);
  CHECK(history.epoch == std::vector<int>{4, 5});
  CHECK(history["loss"] == std::vector<double>{2, 1});
  CHECK(history["val_loss"] == std::vector<double>{3});
  CHECK(history.names() == std::vector<std::string>{"loss", "val_loss"});
  CHECK(history.contains("val_loss"));
  CHECK_FALSE(history.contains("accuracy"));
  CHECK_THROWS_WITH(history["accuracy"], ContainsSubstring("'accuracy'") &&
                                             ContainsSubstring("known names: loss, val_loss"));
  const std::vector<double>& kept = ls::History(history)["loss"];  // a temporary's: copied
  CHECK(kept.data() != history["loss"].data());
  CHECK(kept == history["loss"]);
  STATIC_CHECK(std::is_same_v<decltype(ls::History()["loss"]), std::vector<double>>);
  history.on_train_begin(logs);
  CHECK(history.epoch.empty());
  CHECK_THROWS_WITH(history["loss"], ContainsSubstring("no epoch was finished"));
}

TEST_CASE("a nested run gives a callback its previous control back") {
  Loop outer, inner;
  auto callback = std::make_shared<ls::Callback>();
  {
    ls::CallbackList list;
    list.add(callback);
    list.add(callback);  // twice
    list.set_control(&outer);
    {
      ls::CallbackList nested(std::vector<std::shared_ptr<ls::Callback>>{callback, callback});
      nested.set_control(&inner);
      CHECK(&callback->control() == &inner);
    }
    CHECK(&callback->control() == &outer);
  }
  CHECK_THROWS_AS(callback->control(), ls::UsageError);
}
