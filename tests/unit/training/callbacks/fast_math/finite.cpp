/// \file
/// Compiled with -ffast-math (tests/CMakeLists.txt), where std::isfinite is always true.
#include "lockstep/core/finite.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/csv.hpp"
#include "lockstep/metrics/auc.hpp"
#include "lockstep/metrics/top_k_categorical_accuracy.hpp"
#include "lockstep/training/callbacks/terminate_on_nan.hpp"
#include "lockstep/training/format_numbers.hpp"
#include "unit/training/callbacks/fake_loop.hpp"

namespace ls = lockstep;

namespace {

#if !defined(__FAST_MATH__)
#error "this file is to be compiled with -ffast-math"
#endif

// Read when the program runs.
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

/// What TerminateOnNaN does after a step of this loss.
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

}  // namespace

TEST_CASE("-ffast-math does not hide NaN and infinity") {
  tells_apart<float>();
  tells_apart<double>();
}

TEST_CASE("TerminateOnNaN stops with -ffast-math") {
  CHECK(stops(no_number<double>));
  CHECK(stops(infinity<double>));
  CHECK(stops(1.0, "the weights of dense/kernel"));
  CHECK(!stops(1.0));
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

TEST_CASE("a CSV file's NaN is refused with -ffast-math") {
  const ls::CsvOptions checked{.check_finite = true};
  CHECK_NOTHROW(ls::detail::parse_csv<float, float>("a,b\n1,2\n", "x.csv", checked));
  for (const char* const text : {"a,b\nnan,2\n", "a,b\n1,-inf\n"})
    CHECK_THROWS_AS((ls::detail::parse_csv<float, float>(text, "x.csv", checked)), ls::DataError);
}
