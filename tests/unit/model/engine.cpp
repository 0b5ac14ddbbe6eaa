#include "lockstep/model/engine.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/model/repeat.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Oracle = ls::Reference<double>;

// Counts the calls of the kernels.
struct Calls {
  int prepared = 0, general = 0, special = 0;
  bool wanted_dx = false;
  std::vector<bool> twice_sees, gain_sees;  // memory in backward, see seen_by
};
Calls calls;

/// Which pointers of a kernel's operands are set.
std::vector<bool> seen_by(const ls::Io<Oracle>& io) {
  return {io.x[0] != nullptr,  io.y != nullptr, io.saved != nullptr, io.once != nullptr,
          io.state != nullptr, io.w != nullptr, io.dw != nullptr,    io.dy != nullptr};
}

/// y = 2 x; records whether dx is needed.
struct TwiceOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const TwiceOp&) const = default;
};
struct Twice : ls::ParameterlessLayer<TwiceOp> {
  static constexpr std::string_view name = "twice";
};

/// y = w x with one weight; has a Prepared.
struct GainOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return 1; }
  bool operator==(const GainOp&) const = default;
};
struct Gain {
  static constexpr std::string_view name = "gain";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape) {
    return {ls::Parameter{"kernel", ls::shape(1), {}, nullptr, {}, true, true}};
  }
  static constexpr GainOp op(ls::Shape in) { return {in}; }
};

/// y = the sum of all x in the group: a layer that exchanges.
struct GroupSumOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return ls::shape(1); }
  bool operator==(const GroupSumOp&) const = default;
};
struct GroupSum : ls::ParameterlessLayer<GroupSumOp> {
  static constexpr std::string_view name = "group_sum";
};

}  // namespace

namespace lockstep {
template <>
struct Kernel<TwiceOp, Oracle> : KernelTraits {
  static void forward(const TwiceOp& op, const Io<Oracle>& io) {
    ++calls.general;
    twice(op, io.x[0], io.y, io.step.count);
  }
  template <TwiceOp op>
    requires(op.in.channels() % 4 == 0)
  static void forward(Constant<op>, const Io<Oracle>& io) {
    ++calls.special;
    twice(op, io.x[0], io.y, io.step.count);
  }
  static void backward(const TwiceOp& op, const Io<Oracle>& io) {
    calls.wanted_dx = io.dx[0] != nullptr;
    calls.twice_sees = seen_by(io);
    if (io.dx[0] != nullptr) twice(op, io.dy, io.dx[0], io.step.count);
  }
  static void twice(const TwiceOp& op, const double* from, double* to, std::size_t count) {
    for (std::size_t i = 0; i < count * op.in.size(); ++i) to[i] = 2 * from[i];
  }
};

template <>
struct Kernel<GainOp, Oracle> : KernelTraits {
  static constexpr bool keeps_x = true;
  struct Prepared {
    std::size_t count;
    std::size_t scratch_bytes() const { return count * sizeof(double); }
  };
  static Prepared prepare(const GainOp&, Oracle::Context&, std::size_t count) {
    ++calls.prepared;
    return {count};
  }
  static void forward(const GainOp& op, const Io<Oracle>& io, Prepared& prepared) {
    REQUIRE(prepared.count == io.step.count);
    REQUIRE(io.scratch != nullptr);
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.w[0] * io.x[0][i];
  }
  static void backward(const GainOp& op, const Io<Oracle>& io, Prepared& prepared) {
    REQUIRE(prepared.count == io.step.count);
    calls.gain_sees = seen_by(io);
    io.dw[0] = 0;
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      io.dw[0] += io.x[0][i] * io.dy[i];
      if (io.dx[0] != nullptr) io.dx[0][i] = io.w[0] * io.dy[i];
    }
  }
};

template <>
struct Kernel<GroupSumOp, Oracle> : KernelTraits {
  static void forward(const GroupSumOp& op, const Io<Oracle>& io) {
    double sum = 0;
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) sum += io.x[0][i];
    io.step.group.all_reduce(&sum, 1);
    std::fill_n(io.y, io.step.count, sum);
  }
  static void backward(const GroupSumOp& op, const Io<Oracle>& io) {
    if (io.dx[0] == nullptr) return;
    double sum = 0;
    for (std::size_t i = 0; i < io.step.count; ++i) sum += io.dy[i];
    io.step.group.all_reduce(&sum, 1);
    std::fill_n(io.dx[0], io.step.count * op.in.size(), sum);
  }
};
}  // namespace lockstep

namespace {

template <class Net>
void gradients_are_right() {
  toy::Machine<Net, Oracle> machine(3);
  const auto gradients = machine.gradients();
  CHECK(testing::relative_error(gradients, machine.numeric_gradients()) < 1e-7);
}

using In = ls::Input<5>;

}  // namespace

TEST_CASE("gradients of a residual match finite differences") {
  struct Net : ls::Sequential<In, ls::Dense<4>, ls::Tanh,
                              ls::Residual<ls::Sequential<ls::Dense<6>, ls::Tanh, ls::Dense<4>>,
                                           ls::Sequential<ls::Dense<4>, ls::Sigmoid>>,
                              ls::Tanh, ls::Dense<2>> {};
  gradients_are_right<Net>();
}

TEST_CASE("gradients are right when the skip branch reads the model's input") {
  struct Net
      : ls::Sequential<In, ls::Residual<ls::Sequential<ls::Dense<5>, ls::Tanh>>, ls::Dense<2>> {};
  gradients_are_right<Net>();
}

TEST_CASE("gradients are right when both branches are the same value") {
  struct Net : ls::Sequential<In, ls::Dense<4>, ls::Residual<ls::Identity, ls::Identity>, ls::Tanh,
                              ls::Dense<2>> {};
  gradients_are_right<Net>();
  struct OnInput : ls::Sequential<In, ls::Residual<ls::Identity, ls::Identity>, ls::Dense<2>> {};
  gradients_are_right<OnInput>();
}

TEST_CASE("gradients are right through residuals in residuals and in-place activations") {
  struct Inner : ls::Sequential<ls::Residual<ls::Sequential<ls::Dense<4>, ls::Sigmoid>>, ls::Tanh> {
  };
  struct Net : ls::Sequential<In, ls::Dense<4>, ls::Repeat<3, Inner>,
                              ls::Residual<ls::Repeat<2, Inner>, ls::Tanh>, ls::Dense<3>> {};
  gradients_are_right<Net>();
}

TEST_CASE("gradients are right with views at the beginning, in the middle and at the end") {
  struct Net : ls::Sequential<ls::Input<4, 4, 2>, ls::Flatten, ls::Dense<4>, ls::Flatten, ls::Tanh,
                              ls::Repeat<0, ls::Dense<4>>, ls::Dense<3>, ls::Flatten> {};
  gradients_are_right<Net>();
  struct Image : ls::Sequential<ls::Input<4, 4, 2>, ls::Conv2D<3, 3>, ls::Tanh,
                                ls::AveragePooling2D<2>, ls::Flatten, ls::Dense<2>, ls::Flatten> {};
  gradients_are_right<Image>();
}

TEST_CASE("gradients that no weight needs are not computed") {
  struct First : ls::Sequential<In, Twice, ls::Dense<2>> {};
  struct Viewed : ls::Sequential<ls::Input<2, 3>, ls::Flatten, Twice, ls::Dense<2>> {};
  struct Behind : ls::Sequential<In, ls::ReLU, ls::Residual<ls::ReLU>, Twice, ls::Dense<2>> {};
  struct Second : ls::Sequential<In, ls::Dense<5>, Twice> {};
  const auto wants_dx = []<class Net>() {
    calls.wanted_dx = false;  // backward of a layer without gradient is not called
    toy::Machine<Net, Oracle>(2).gradients();
    return calls.wanted_dx;
  };
  CHECK_FALSE(wants_dx.operator()<First>());
  CHECK(wants_dx.operator()<Second>());
  CHECK_FALSE(wants_dx.operator()<Viewed>());
  CHECK_FALSE(wants_dx.operator()<Behind>());
  gradients_are_right<Behind>();
}

TEST_CASE("operands that a kernel did not request are null in backward") {
  struct Net : ls::Sequential<In, ls::Dense<4>, Twice, Gain, ls::Dense<2>> {};
  toy::Machine<Net, Oracle> machine(3);
  machine.gradients();
  //                                     x      y      saved  once   state  w      dw     dy
  CHECK(calls.twice_sees == std::vector{false, false, false, false, false, false, false, true});
  CHECK(calls.gain_sees == std::vector{true, false, false, false, false, true, true, true});
}

TEST_CASE("a kernel restricted to some shapes is chosen for these shapes only") {
  struct Net : ls::Sequential<ls::Input<8>, Twice, ls::Dense<5>, Twice, Twice> {};
  calls = {};
  toy::Machine<Net, Oracle>(2).forward();
  CHECK(calls.special == 1);
  CHECK(calls.general == 2);
}

TEST_CASE("a kernel is prepared once for each distinct op and batch size") {
  struct Net : ls::Sequential<ls::Input<4>, Gain, Gain, ls::Dense<3>, Gain> {};
  calls = {};
  toy::Machine<Net, Oracle> machine(4);
  machine.gradients();
  machine.gradients();
  CHECK(calls.prepared == 2);  // one for 4 and one for 3 examples
  machine.examples = 3;        // a smaller last batch
  machine.gradients();
  CHECK(calls.prepared == 4);
  machine.examples = 4;
  machine.gradients();
  CHECK(calls.prepared == 4);
}

TEST_CASE("gradients do not depend on earlier batch sizes") {
  struct Net : ls::Sequential<In, Gain, ls::Dense<4>, ls::Tanh, Gain, ls::Dense<2>> {};
  toy::Machine<Net, Oracle> fresh(3);
  toy::Machine<Net, Oracle> used(3);
  for (const std::size_t count : {1u, 2u}) {
    used.examples = count;
    used.gradients();
  }
  used.examples = 3;
  CHECK(used.gradients() == fresh.gradients());
}

TEST_CASE("a layer exchanges with other replicas through the step context") {
  struct Net : ls::Sequential<In, ls::Dense<3>, GroupSum, ls::Dense<1>> {};
  // Two members with equal values: a sum doubles them.
  struct Doubling {
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 2; }
    void abort() {}
    void all_reduce(float* p, std::size_t n) {
      std::transform(p, p + n, p, [](float v) { return 2 * v; });
    }
    void all_reduce(double* p, std::size_t n) {
      std::transform(p, p + n, p, [](double v) { return 2 * v; });
    }
    void all_gather(const std::byte*, std::size_t, std::byte*) {}
    void broadcast(std::byte*, std::size_t, std::size_t) {}
  };
  toy::Machine<Net, Oracle> machine(2);
  gradients_are_right<Net>();
  const auto alone = machine.forward();
  Doubling two;
  ls::StepContext step{{0, 2, 4}, true, 1, 0, ls::CollectiveRef(two)};
  const double* const y = machine.engine.forward(machine.x.data(), step);
  const double bias = machine.weights.back();
  CHECK(std::abs((y[0] - bias) - 2 * (alone[0] - bias)) < 1e-12);
}

TEST_CASE("update is called once for each weight, after its gradient is final") {
  struct Net : ls::Sequential<ls::Input<6>, ls::Dense<8>, ls::ReLU, ls::Residual<ls::Dense<8>>,
                              ls::Dense<3>> {};
  toy::Machine<Net, Oracle> machine(4);
  const std::vector<double> expected = machine.gradients();
  struct Seen {
    const double* gradients;
    std::vector<double> value;
    std::vector<int> times;
  } seen{machine.engine.gradients().data(), std::vector<double>(expected.size()),
         std::vector<int>(expected.size())};
  machine.gradients([](const auto&) {},
                    [&](double* dw, std::size_t count) {
                      for (std::size_t i = 0; i < count; ++i) {
                        const auto at = static_cast<std::size_t>(dw - seen.gradients) + i;
                        seen.value.at(at) = dw[i];
                        ++seen.times.at(at);
                      }
                    });
  CHECK(seen.times == std::vector<int>(expected.size(), 1));
  CHECK(seen.value == expected);
}

TEST_CASE("a model without steps returns its input") {
  struct View : ls::Sequential<ls::Input<2, 3>, ls::Flatten> {};
  toy::Machine<View, Oracle> machine(2);
  CHECK(machine.forward() == machine.x);
  CHECK(machine.engine.output_gradient() == nullptr);
  CHECK(machine.gradients().empty());
}
