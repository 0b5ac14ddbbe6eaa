/// \file
/// Who writes a value sums it up for who reads it: the kernels of a toy on the reference device.
#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <optional>
#include <vector>

#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Host = ls::Reference<float>;

/// What the kernels saw in a step, one after the other.
struct Seen {
  std::size_t asked = 0;  ///< prepare_sums
  std::vector<bool> gave, in_backward;
  std::vector<std::optional<std::vector<float>>> took;
};
Seen seen;

/// y = 2 x, which it can sum up, but for batches of three.
struct GiveOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const GiveOp&) const = default;
};
struct Give : ls::ParameterlessLayer<GiveOp> {
  static constexpr std::string_view name = "give";
};
/// y = x, and asks for sums.
struct TakeOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const TakeOp&) const = default;
};
struct Take : ls::ParameterlessLayer<TakeOp> {
  static constexpr std::string_view name = "take";
};

}  // namespace

namespace lockstep {

template <>
struct Kernel<GiveOp, Host> : KernelTraits {
  struct Prepared {
    std::size_t bytes = 0;
    std::size_t scratch_bytes() const { return bytes; }
  };
  static Prepared prepare(const GiveOp&, Host::Context&, std::size_t) { return {}; }
  static constexpr bool sums_y(const GiveOp&) { return true; }
  static bool prepare_sums(const GiveOp&, Host::Context&, std::size_t count, Prepared& prepared) {
    ++seen.asked;
    prepared.bytes = 1;
    return count != 3;
  }
  static void forward(const GiveOp& op, const Io<Host>& io, Prepared& prepared) {
    CHECK((io.y_sums == nullptr || prepared.bytes == 1));
    seen.gave.push_back(io.y_sums != nullptr);
    const std::size_t channels = static_cast<std::size_t>(op.in.channels());
    if (io.y_sums != nullptr) std::fill_n(io.y_sums, 3 * channels, 0.0f);
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) {
      io.y[i] = 2 * io.x[i];
      if (io.y_sums == nullptr) continue;
      io.y_sums[i % channels] += io.y[i];
      io.y_sums[channels + i % channels] += io.y[i] * io.y[i];
    }
  }
  static void backward(const GiveOp& op, const Io<Host>& io, Prepared&) {
    seen.in_backward.push_back(io.y_sums != nullptr);
    if (io.dx == nullptr) return;
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) io.dx[i] = 2 * io.dy[i];
  }
};

template <>
struct Kernel<TakeOp, Host> : KernelTraits {
  static constexpr std::size_t centers(const TakeOp& op) {
    return static_cast<std::size_t>(op.in.channels());
  }
  static constexpr bool reads_sums(const TakeOp&) { return true; }
  static void forward(const TakeOp& op, const Io<Host>& io) {
    seen.took.emplace_back();
    if (io.x_sums != nullptr) seen.took.back().emplace(io.x_sums, io.x_sums + 3 * centers(op));
    std::copy_n(io.x, io.count * op.in.size(), io.y);
  }
  static void backward(const TakeOp& op, const Io<Host>& io) {
    if (io.dx != nullptr) std::copy_n(io.dy, io.count * op.in.size(), io.dx);
  }
};

}  // namespace lockstep

namespace {

using Bools = std::vector<bool>;

template <class Net>
Seen step_of(std::size_t count) {
  seen = {};
  toy::Machine<Net, Host> machine(count);
  machine.gradients();
  return seen;
}

}  // namespace

TEST_CASE("sums of a value reach who reads it, in batches for which they are made") {
  // The same op twice: only the result of the first is summed up.
  struct Net : ls::Sequential<ls::Input<2, 1, 3>, Give, Take, Give, ls::ReLU> {};
  const Seen four = step_of<Net>(4);
  CHECK(four.asked == 1);
  CHECK(four.gave == Bools{true, false});
  CHECK(four.in_backward == Bools{false, true});
  REQUIRE(four.took.size() == 1);
  REQUIRE(four.took[0].has_value());
  toy::Machine<Net, Host> machine(4);
  std::vector<float> expected(9);
  for (std::size_t i = 0; i < machine.x.size(); ++i) {
    expected[i % 3] += 2 * machine.x[i];
    expected[3 + i % 3] += 4 * machine.x[i] * machine.x[i];
  }
  CHECK(testing::relative_error(*four.took[0], expected) < 1e-6);

  const Seen three = step_of<Net>(3);
  CHECK(three.asked == 1);
  CHECK(three.gave == Bools{false, false});
  CHECK(three.took == std::vector<std::optional<std::vector<float>>>{std::nullopt});
}

TEST_CASE("batches of two sizes take turns, of which one is summed up") {
  struct Net : ls::Sequential<ls::Input<2, 1, 3>, Give, Take> {};
  toy::Machine<Net, Host> machine(4);
  for (const std::size_t count : {4u, 3u, 4u, 3u}) {
    CAPTURE(count);
    ls::StepContext step = machine.step();
    step.count = step.global_count = count;
    machine.engine.prepare(count);
    seen = {};
    machine.engine.forward(machine.features(), step);
    CHECK(seen.gave == Bools{count == 4});
    REQUIRE(seen.took.size() == 1);
    CHECK(seen.took[0].has_value() == (count == 4));
  }
}

TEST_CASE("nothing is summed up in a step that does not train") {
  struct Net : ls::Sequential<ls::Input<2, 1, 3>, Give, Take> {};
  toy::Machine<Net, Host> machine(4);
  ls::StepContext step = machine.step();
  step.training = false;
  machine.engine.prepare(4);
  seen = {};
  machine.engine.forward(machine.features(), step);
  CHECK(seen.gave == Bools{false});
  CHECK(seen.took == std::vector<std::optional<std::vector<float>>>{std::nullopt});
}

TEST_CASE("nobody is asked for sums of a value that others see, or in other columns") {
  struct Twice : ls::Sequential<ls::Input<2, 1, 3>, Give, ls::Residual<Take>> {};
  struct Last : ls::Sequential<ls::Input<2, 1, 3>, Take, Give> {};
  struct Between : ls::Sequential<ls::Input<2, 1, 3>, Give, ls::ReLU, Take> {};
  struct Mixed : ls::Sequential<ls::Input<2, 1, 3>, Give, ls::Flatten, Take> {};
  const auto is_silent = []<class Net>() {
    const Seen all = step_of<Net>(4);
    CHECK(all.asked == 0);
    CHECK(all.gave == Bools{false});
    for (const auto& taken : all.took) CHECK_FALSE(taken.has_value());
  };
  is_silent.operator()<Twice>();
  is_silent.operator()<Last>();
  is_silent.operator()<Between>();
  is_silent.operator()<Mixed>();
}
