/// \file
/// Compiled with -ffast-math (tests/CMakeLists.txt), where std::isfinite is always true.
#include "lockstep/core/numbers/finite.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/data/sources/csv.hpp"
#include "lockstep/metrics/auc.hpp"
#include "lockstep/metrics/top_k_categorical_accuracy.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/terminate_on_nan.hpp"
#include "lockstep/training/checks/check_gradients.hpp"
#include "unit/training/callbacks/fake_loop.hpp"

namespace ls = lockstep;

namespace {

#if !defined(__FAST_MATH__)
#error "compile this file with -ffast-math"
#endif

// Volatile: read at run time, so that the compiler cannot fold the checks.
template <class T>
volatile T no_number = std::numeric_limits<T>::quiet_NaN();
template <class T>
volatile T infinity = std::numeric_limits<T>::infinity();
template <class T>
volatile T largest = std::numeric_limits<T>::max();

template <class T>
void tells_apart() {
  using ls::detail::is_finite, ls::detail::is_nan;
  for (const T sign : {T(1), T(-1)}) {
    CHECK(!is_finite(sign * T(no_number<T>)));
    CHECK(is_nan(sign * T(no_number<T>)));
    CHECK(!is_finite(sign * T(infinity<T>)));
    CHECK(!is_nan(sign * T(infinity<T>)));
    for (const T value : {T(0), T(1), T(largest<T>), std::numeric_limits<T>::min()}) {
      CHECK(is_finite(sign * value));
      CHECK(!is_nan(sign * value));
    }
  }
}

/// Whether TerminateOnNaN stops after a step with this loss.
bool stops(double loss, const std::string& not_finite = {}) {
  callbacks_test::FakeLoop loop;
  loop.what_is_not_finite = not_finite;
  const std::shared_ptr<ls::Callback> callback = ls::TerminateOnNaN{};
  const auto before = ls::set_log([](ls::LogLevel, std::string_view) {});
  callback->set_control(&loop);
  callback->on_train_begin({});
  callback->on_train_batch_begin(0, {});
  ls::Logs logs;
  logs.set("loss", loss, loss);
  callback->on_train_batch_end(0, logs);
  callback->set_control(nullptr);
  ls::set_log(before);
  return loop.stopped;
}

/// A layer whose backward does not write its weight's gradient.
struct ForgetfulOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return 1; }
  bool operator==(const ForgetfulOp&) const = default;
};
struct Forgetful {
  static constexpr std::string_view name = "forgetful";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ForgetfulOp op(ls::Shape in) { return {in}; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape) {
    return {
        ls::Parameter{"w", ls::shape(1), {}, &ls::detail::initialize<ls::zeros>, {}, true, true}};
  }
};

}  // namespace

template <>
struct ls::Kernel<ForgetfulOp, ls::Reference<double>> : ls::KernelTraits {
  static void forward(const ForgetfulOp& op, const ls::Io<ls::Reference<double>>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.x[0][i] * io.w[0];
  }
  static void backward(const ForgetfulOp& op, const ls::Io<ls::Reference<double>>& io) {
    for (std::size_t i = 0; io.dx[0] != nullptr && i < io.step.count * op.in.size(); ++i)
      io.dx[0][i] = io.dy[i] * io.w[0];
  }
};

TEST_CASE("check_gradients finds NaN with -ffast-math") {
  const auto check = ls::check_gradients<ls::Input<3>>(Forgetful{});
  CHECK(check.parameter == "forgetful/w");
  CHECK(!ls::detail::is_finite(check.error));
  CHECK(!ls::detail::is_nan(check.error));
}

TEST_CASE("fast math does not hide NaN and infinity") {
  tells_apart<float>();
  tells_apart<double>();
}

TEST_CASE("TerminateOnNaN stops with -ffast-math") {
  CHECK(stops(no_number<double>));
  CHECK(stops(infinity<double>));
  CHECK(stops(1.0, "the weights of dense/kernel"));
  CHECK(!stops(1.0));
}

TEST_CASE("NaN is never a best value with -ffast-math") {
  callbacks_test::FakeLoop loop;
  std::vector<ls::Logs> epochs;
  for (const double value : {double(no_number<double>), 9.0, 8.0, 7.0})
    epochs.push_back(callbacks_test::logs_of({{"loss", value}}));
  CHECK(loop.run(ls::EarlyStopping{.monitor = "loss", .patience = 1}, epochs).size() == 4);
}

TEST_CASE("NaN is rounded, counted and printed with -ffast-math") {
  CHECK(ls::detail::is_nan(float(ls::bfloat16(no_number<float>))));
  CHECK(ls::detail::json_number(no_number<double>) == "null");
  CHECK(ls::detail::python_number(no_number<double>) == "nan");
  CHECK(ls::detail::python_number(-infinity<double>) == "-inf");

  std::vector<double> state(8);
  const float p = no_number<float>, t = 1;
  ls::AUCOp<float>{.thresholds = 5}.example(&p, &t, state.data());
  CHECK(state == std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0});

  const float scores[] = {0, no_number<float>, 1};
  const std::int32_t label = 1;
  double found[2] = {};
  ls::TopKCategoricalAccuracyOp<std::int32_t>{.classes = 3, .k = 2}.example(scores, &label, found);
  CHECK(found[0] == 0);
}

TEST_CASE("a NaN in a CSV file is rejected with -ffast-math") {
  const ls::CsvOptions checked{};
  CHECK_NOTHROW(ls::detail::parse_csv<float, float>("a,b\n1,2\n", "x.csv", checked));
  for (const char* const text : {"a,b\nnan,2\n", "a,b\n1,-inf\n"})
    CHECK_THROWS_AS((ls::detail::parse_csv<float, float>(text, "x.csv", checked)), ls::DataError);
}
