#include "lockstep/training/callbacks/callback_list.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fit_recorded.hpp"
#include "named_hooks.hpp"

namespace {

namespace ls = lockstep;
using Hooks = std::vector<std::string>;

/// A callback that adds "NAME hook: names of the logs, sorted" to `hooks`.
std::shared_ptr<ls::Callback> recorder(const std::string& name, Hooks& hooks,
                                       const std::string& stop) {
  return std::make_shared<callbacks_test::NamedHooks>(
      [=, &hooks](callbacks_test::NamedHooks& self, const std::string& hook, const ls::Logs& logs) {
        Hooks names;
        for (const auto& [key, value] : logs) names.push_back(key);
        std::sort(names.begin(), names.end());
        std::string& line = hooks.emplace_back(name + " " + hook + ":");
        for (const std::string& key : names) line += " " + key;
        if (hook == stop) self.control().stop_training();
      });
}

/// The hooks of two callbacks in the run that record_fit_callbacks.py made.
Hooks hooks_of(const recorded::Json& o) {
  Hooks hooks;
  std::string stop;
  if (!o["stop"].IsNull()) {
    stop = recorded::text(o["stop"][0]);
    if (!o["stop"][1].IsNull()) stop += " " + std::to_string(o["stop"][1].GetInt());
  }
  const ls::Callbacks callbacks{recorder("a", hooks, stop), recorder("b", hooks, {})};
  const auto steps = [&](const char* name) {
    return o[name].IsNull() ? std::optional<std::uint64_t>() : o[name].GetUint64();
  };
  auto model = recorded::slope();
  const auto data = recorded::slope_data(9), other = recorded::slope_data(8);
  const std::string call = recorded::text(o["call"]);
  if (call == "evaluate") {
    model.evaluate(other | ls::batch(4), {.callbacks = callbacks});
  } else if (call == "predict") {
    model.predict(other | ls::batch(4), {.callbacks = callbacks});
  } else {
    const ls::FitOptions options{.epochs = o["epochs"].GetInt(),
                                 .steps_per_epoch = steps("steps_per_epoch"),
                                 .initial_epoch = o["initial_epoch"].GetInt(),
                                 .validation_freq = o["validation_freq"].GetInt(),
                                 .validation_steps = steps("validation_steps"),
                                 .steps_per_execution = o["steps_per_execution"].GetUint64(),
                                 .callbacks = callbacks,
                                 .progress = ls::ProgressStyle::none};
    if (options.steps_per_epoch)
      model.fit(data | ls::repeat() | ls::batch(3), options);
    else if (o["validates"].GetBool())
      model.fit(data | ls::batch(3), other | ls::batch(4), options);
    else
      model.fit(data | ls::batch(3), options);
  }
  return hooks;
}

}  // namespace

TEST_CASE("fit, evaluate and predict call the hooks in Keras' order, with Keras' logs") {
  const auto document = recorded::read("fit_callbacks");
  REQUIRE(document["orders"].Size() == 12);
  for (const recorded::Json& row : document["orders"].GetArray()) {
    Hooks expected;
    for (const recorded::Json& hook : row["hooks"].GetArray())
      expected.push_back(recorded::text(hook));
    REQUIRE(expected.size() >= 10);
    // Keras gives the last execution of an epoch of 3 steps the index of its fourth step.
    if (row["options"]["steps_per_execution"].GetInt() == 2)
      for (std::string& hook : expected)
        if (const auto at = hook.find("train_batch_end 3"); at != hook.npos) hook[at + 16] = '2';
    CAPTURE(expected);
    CHECK(hooks_of(row["options"]) == expected);
  }
}
