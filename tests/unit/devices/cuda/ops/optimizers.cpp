/// \file
#include "lockstep/optimizers/optimizers.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/run_optimizer.hpp"
#include "support/sign_optimizer.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Weights, gradients and slots after three updates of all elements from `begin` on, with decay,
/// clipping and a scheduled rate.
template <class D, class O>
std::vector<std::vector<typename D::real>> updated(const O& optimizer, std::size_t size,
                                                   const Penalty& penalty, bool adjusted,
                                                   std::size_t begin = 0) {
  using T = typename D::real;
  using Op = std::remove_cvref_t<decltype(optimizer.op(0.1, 1))>;
  auto context = D{}.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  DeviceArray<D, T> w(context, as<T>(as<float>(normal_values(size, 1)))), g(context, size);
  std::vector<std::unique_ptr<DeviceArray<D, T>>> slots;
  for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
    slots.push_back(std::make_unique<DeviceArray<D, T>>(context, std::vector<T>(size, T(0.5))));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    g.upload(as<T>(as<float>(normal_values(size, 1 + step))));
    const auto op = optimizer.op(0.01 * static_cast<double>(step), step);
    UpdateIo<D> io{context, size - begin, w.data() + begin, g.data() + begin, {}, penalty};
    if (adjusted) {
      io.decay = 0.125;
      io.scale = 0.5;
      io.limit = 0.75;
    }
    for (std::size_t i = 0; i < slots.size(); ++i) io.slot[i] = slots[i]->data() + begin;
    Kernel<Op, D>::update(op, io);
    context.synchronize();
  }
  std::vector<std::vector<T>> result{w.download(), g.download()};
  for (const auto& slot : slots) result.push_back(slot->download());
  return result;
}

template <class O>
void check_optimizer(const O& optimizer) {
  for (const std::size_t size : std::initializer_list<std::size_t>{0, 1, 703})
    for (const Penalty& penalty : {Penalty{}, Penalty{0.25, 0.125}})
      for (const bool adjusted : {false, true}) {
        INFO(O::name << ", elements " << size << ", l2 " << penalty.l2 << ", adjusted "
                     << adjusted);
        const auto expected = updated<Reference<double>>(optimizer, size, penalty, adjusted);
        const auto result = updated<Cuda>(optimizer, size, penalty, adjusted);
        REQUIRE(result.size() == expected.size());
        for (std::size_t i = 0; i < result.size(); ++i)
          CHECK(relative_error(result[i], expected[i]) < tolerance);
      }
}

}  // namespace

template <>
struct lockstep::CudaText<SignOp> {
  static constexpr char functions[] = R"cuda(
struct Rule {
  float rate;
  __device__ void operator()(float& w, float g) const { w -= g > 0 ? rate : -rate; }
};
)cuda";
  static std::array<CudaDefine, 0> defines(const SignOp&) { return {}; }
};

TEST_CASE("optimizers on the GPU agree with the reference") {
  TestGpu gpu;
  check_optimizer(SGD{});
  check_optimizer(SGD{.momentum = 0.9});
  check_optimizer(SGD{.momentum = 0.9, .nesterov = true});
  check_optimizer(Adam{});
  check_optimizer(Adam{.amsgrad = true});
  check_optimizer(Adamax{});
  check_optimizer(Nadam{});
  check_optimizer(RMSprop{});
  check_optimizer(RMSprop{.momentum = 0.9});
  check_optimizer(RMSprop{.centered = true});
  check_optimizer(RMSprop{.momentum = 0.9, .centered = true});
  check_optimizer(Adagrad{});
  check_optimizer(Adadelta{});
  check_optimizer(Lion{});
  check_optimizer(Lamb{});
  check_optimizer(Sign{});
}

TEST_CASE("an update changes exactly its part of the parameters, wherever it begins") {
  TestGpu gpu;
  for (const std::size_t begin : std::initializer_list<std::size_t>{1, 4}) {
    const Adam adam{.amsgrad = true};
    const auto expected = updated<Reference<double>>(adam, 703, {0.25, 0.125}, true, begin);
    const auto result = updated<Cuda>(adam, 703, {0.25, 0.125}, true, begin);
    for (std::size_t i = 0; i < result.size(); ++i) {
      CHECK(relative_error(result[i], expected[i]) < tolerance);
      for (std::size_t k = 0; k < begin; ++k)
        CHECK(static_cast<double>(result[i][k]) == expected[i][k]);
    }
  }
}

namespace {

/// Weights, gradients and slots after three updates of parts with different settings and elements
/// between them, in one call where the device supports it.
template <class D, class O>
std::vector<std::vector<typename D::real>> updated_parts(const O& optimizer, std::size_t begin,
                                                         bool alike) {
  using T = typename D::real;
  using Op = std::remove_cvref_t<decltype(optimizer.op(0.1, 1))>;
  struct Part {
    std::size_t begin, end;
    Penalty penalty;
    double decay, scale;
  };
  const std::vector<Part> all{{begin, 5, {0.25, 0.125}, 0.5, 0.5},
                              {5, 6, {}, 0, 0.5},
                              {6, 6, {}, 0.5, 0.5},
                              {6, 1030, {0, 0.5}, 0.5, 0.5},
                              {1041, 1203, {}, 0, 0.25}};
  constexpr std::size_t size = 1210;
  auto context = D{}.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  DeviceArray<D, T> w(context, as<T>(as<float>(normal_values(size, 1)))), g(context, size);
  std::vector<std::unique_ptr<DeviceArray<D, T>>> slots;
  for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
    slots.push_back(std::make_unique<DeviceArray<D, T>>(context, std::vector<T>(size, T(0.5))));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    g.upload(as<T>(as<float>(normal_values(size, 1 + step))));
    const double rate = 0.01 * static_cast<double>(step);
    const auto op = optimizer.op(rate, step);
    std::vector<UpdateIo<D>> ios;
    for (const Part& p : all) {
      UpdateIo<D> io{context, p.end - p.begin, w.data() + p.begin, g.data() + p.begin,
                     {},      p.penalty,       rate * p.decay,     alike ? 0.5 : p.scale,
                     0.75};
      for (std::size_t i = 0; i < slots.size(); ++i) io.slot[i] = slots[i]->data() + p.begin;
      ios.push_back(io);
    }
    if constexpr (UpdatesAll<Op, D>)
      Kernel<Op, D>::update_all(op, ios);
    else
      for (const auto& io : ios) Kernel<Op, D>::update(op, io);
    context.synchronize();
  }
  std::vector<std::vector<T>> result{w.download(), g.download()};
  for (const auto& slot : slots) result.push_back(slot->download());
  return result;
}

}  // namespace

TEST_CASE("one launch updates exactly the parts, which differ in penalty, decay and scale") {
  TestGpu gpu;
  static_assert(UpdatesAll<AdamOp, Cuda> && !UpdatesAll<AdamOp, Reference<double>> &&
                !UpdatesAll<LambOp, Cuda>);
  const auto check = [&](const auto& optimizer) {
    for (const std::size_t begin : std::initializer_list<std::size_t>{0, 3})
      for (const bool alike : {true, false}) {
        INFO(optimizer.name << " from " << begin << ", scales alike " << alike);
        const auto expected = updated_parts<Reference<double>>(optimizer, begin, alike);
        const std::size_t launches = gpu.host() == nullptr ? 0 : gpu.host()->launches;
        const auto result = updated_parts<Cuda>(optimizer, begin, alike);
        if (gpu.host() != nullptr) CHECK(gpu.host()->launches == launches + 3);
        for (std::size_t i = 0; i < result.size(); ++i) {
          CHECK(relative_error(result[i], expected[i]) < tolerance);
          for (const std::size_t k : std::initializer_list<std::size_t>{1030, 1040, 1203, 1209})
            CHECK(static_cast<double>(result[i][k]) == expected[i][k]);
        }
      }
  };
  check(SGD{});
  check(SGD{.momentum = 0.9});
  check(Adam{.amsgrad = true});
}

TEST_CASE("an update begins at the first non-empty part") {
  TestGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  const auto op = SGD{.learning_rate = 0.5}.op(0.5, 1);
  using K = Kernel<std::remove_cvref_t<decltype(op)>, Cuda>;
  DeviceArray<Cuda, float> w(context, std::vector<float>(12, 1)), g(context, w.download());
  const auto part = [&](std::size_t begin, std::size_t end) {
    return UpdateIo<Cuda>{context, end - begin, w.data() + begin, g.data() + begin, {}, {}};
  };
  const auto update = [&](const std::vector<UpdateIo<Cuda>>& parts) {
    w.upload(std::vector<float>(12, 1));
    K::update_all(op, parts);
    context.synchronize();
    return w.download();
  };
  using Weights = std::vector<float>;
  constexpr float h = 0.5f;
  CHECK(update({part(0, 0), part(3, 9)}) == Weights{1, 1, 1, h, h, h, h, h, h, 1, 1, 1});
  CHECK(update({part(1, 1), part(2, 2), part(4, 7), part(8, 8), part(9, 10)}) ==
        Weights{1, 1, 1, 1, h, h, h, 1, 1, h, 1, 1});
  CHECK(update({part(0, 0), part(3, 3)}) == Weights(12, 1));
  CHECK(update({}) == Weights(12, 1));
}

TEST_CASE("one launch sums the penalties of several ranges") {
  TestGpu gpu;
  const std::vector<PenaltySegment> all{{0, 7, {}},       {7, 9, {0.5, 0}},
                                        {9, 9, {1, 1}},   {9, 3000, {0.25, 2}},
                                        {3000, 3500, {}}, {4000, 4001, {0, 8}}};
  const auto run = [&](auto device) {
    using D = decltype(device);
    using T = typename D::real;
    auto context = device.open(1, 0);
    [[maybe_unused]] const auto scope = context.scope();
    DeviceArray<D, T> w(context, as<T>(as<float>(normal_values(5003, 1))));
    DeviceArray<D, double> sum(context, std::vector<double>{7});
    if constexpr (SumsAllPenalties<D>) {
      Kernel<Penalty, D>::run_all(all, PenaltyIo<D>{context, w.data(), 5003, sum.data()});
      // No range has a penalty, so the sum is unchanged.
      Kernel<Penalty, D>::run_all({all.data(), 1}, PenaltyIo<D>{context, w.data(), 7, sum.data()});
    } else {
      for (const PenaltySegment& s : all)
        Kernel<Penalty, D>::run(
            s.penalty, PenaltyIo<D>{context, w.data() + s.begin, s.end - s.begin, sum.data()});
    }
    return sum.download()[0];
  };
  const double expected = run(Reference<double>{});
  const std::size_t launches = gpu.host() == nullptr ? 0 : gpu.host()->launches;
  const double result = run(Cuda{});
  CHECK(std::abs(result - expected) < 1e-12 * expected);
  CHECK(run(Cuda{}) == result);
  if (gpu.host() != nullptr) CHECK(gpu.host()->launches == launches + 2);
}

TEST_CASE("Ftrl on the GPU agrees with the reference") {
  TestGpu gpu;
  check_optimizer(Ftrl{});
  check_optimizer(Ftrl{.l1_regularization_strength = 0.1,
                       .l2_regularization_strength = 0.2,
                       .l2_shrinkage_regularization_strength = 0.1,
                       .beta = 0.5});
}

TEST_CASE(
    "Lamb on the GPU measures a parameter that is larger than a block, and one that is zero") {
  TestGpu gpu;
  const auto expected = updated<Reference<double>>(Lamb{}, 5003, {}, true);
  const auto result = updated<Cuda>(Lamb{}, 5003, {}, true);
  for (std::size_t i = 0; i < result.size(); ++i)
    CHECK(relative_error(result[i], expected[i]) < tolerance);
  OptimizerRun<Cuda, Lamb> run(Lamb{.learning_rate = 0.25}, {0, 0});
  run.apply({2, -2});
  CHECK(relative_error(run.weights(), std::vector<double>{-0.25, 0.25}) < 1e-6);
}

TEST_CASE("new numbers in an update compile no new kernel") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("this counts the host's compilations");
  OptimizerRun<Cuda, Adam> run(
      Adam{.learning_rate = [](std::uint64_t step) { return 0.5 / static_cast<double>(step + 1); }},
      {1, 2, 3});
  run.apply({1, 1, 1});
  const std::size_t compiled = gpu.host()->compiled;
  for (int i = 0; i < 3; ++i) run.apply({1, 1, 1});
  CHECK(gpu.host()->compiled == compiled);
}

TEST_CASE("the gradient pass on the GPU adds penalties, sums and squares") {
  TestGpu gpu;
  const auto run = [](auto device, std::size_t n, bool has_sum, const Penalty& penalty) {
    using D = decltype(device);
    using T = typename D::real;
    auto context = device.open(1, 0);
    [[maybe_unused]] const auto scope = context.scope();
    DeviceArray<D, T> w(context, as<T>(as<float>(normal_values(n, 1))));
    DeviceArray<D, T> g(context, as<T>(as<float>(normal_values(n, 2))));
    DeviceArray<D, T> sum(context, as<T>(as<float>(normal_values(n, 3))));
    DeviceArray<D, double> squares(context, std::vector<double>{7});
    Kernel<GradientPass, D>::run(
        {}, GradientPassIo<D>{context, n, w.data(), g.data(), has_sum ? sum.data() : nullptr,
                              penalty, squares.data()});
    Kernel<Penalty, D>::run(penalty, PenaltyIo<D>{context, w.data(), n, squares.data()});
    auto all = as<double>(g.download());
    for (const T v : sum.download()) all.push_back(static_cast<double>(v));
    all.push_back(squares.download()[0]);
    return all;
  };
  for (const std::size_t n : std::initializer_list<std::size_t>{0, 1, 5003})
    for (const bool has_sum : {false, true})
      for (const Penalty& penalty : {Penalty{}, Penalty{0.25, 0.125}}) {
        const auto expected = run(Reference<double>{}, n, has_sum, penalty);
        const auto result = run(Cuda{}, n, has_sum, penalty);
        CHECK(relative_error(result, expected) < 1e-6);
        CHECK(std::abs(result.back() - expected.back()) < 1e-6 * expected.back());
      }
}

TEST_CASE("moving averages on the GPU agree with the reference, and may overwrite the weights") {
  TestGpu gpu;
  const auto run = [](auto device, bool overwrites) {
    using D = decltype(device);
    using T = typename D::real;
    auto context = device.open(1, 0);
    [[maybe_unused]] const auto scope = context.scope();
    DeviceArray<D, T> w(context, as<T>(as<float>(normal_values(300, 1))));
    DeviceArray<D, T> average(context, as<T>(as<float>(normal_values(300, 2))));
    Kernel<MovingAverage, D>::run({0.9, overwrites},
                                  MovingAverageIo<D>{context, 300, w.data(), average.data()});
    auto all = as<double>(w.download());
    for (const T v : average.download()) all.push_back(static_cast<double>(v));
    return all;
  };
  for (const bool overwrites : {false, true})
    CHECK(relative_error(run(Cuda{}, overwrites), run(Reference<double>{}, overwrites)) < 1e-6);
}
