/// \file
#include "lockstep/layers/embedding.hpp"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/lockstep.hpp"
#include "unit/devices/cuda/compare.hpp"
#include "unit/model/toy_device.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr auto small = Embedding<4, 2>::op(shape(3));
struct Words : Sequential<Input<3>, Embedding<4, 2>, GlobalAveragePooling1D, Dense<1>> {};
template <int N>
struct Topics : Sequential<Input<3>, Embedding<4, N>, GlobalAveragePooling1D> {};

const std::vector<float> table{0, 1, 10, 11, 20, 21, 30, 31};

}  // namespace

TEST_CASE("an embedding looks up its indices and adds the gradients of equal ones") {
  TestGpu gpu;
  const auto run =
      run_layer<Cuda>(small, 2, {3, 0, 3, 1, 3, 1}, table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(run.y == std::vector<float>{30, 31, 0, 1, 30, 31, 10, 11, 30, 31, 10, 11});
  CHECK(run.dw == std::vector<float>{3, 4, 18, 20, 0, 0, 15, 18});
  CHECK(run.dx == std::vector<float>(6, 0));
}

TEST_CASE("embeddings of generated sizes agree with the reference") {
  Philox g(12);
  for (int i = 0; i < generated_shapes; ++i) {
    const EmbeddingOp op{shape(between(g, 1, 40)), between(g, 1, 50), between(g, 1, 40)};
    const auto count = static_cast<std::size_t>(between(g, 0, 30));
    const int rank = one_of(g, -140, -40, -3, 0, 3, 30, 100);
    INFO("steps " << op.in[0] << ", vocabulary " << op.vocabulary << ", units " << op.units
                  << ", examples " << count << ", gradients about 2^" << rank);
    Numbers n = numbers(op, op.in.size(), op.table_size(), count);
    for (float& x : n.x) x = static_cast<float>(between(g, 0, op.vocabulary - 1));
    for (float& v : n.dy) v = std::ldexp(v, rank);
    check_against_reference(op, count, n);
  }
}

TEST_CASE("small gradients next to a large one keep their digits") {
  TestGpu gpu;
  const auto op = Embedding<2, 1>::op(shape(3000));
  Numbers n = numbers(op, 3000, 2, 1);
  n.x.assign(3000, 1);
  n.x[7] = 0;
  n.dy[7] = 1e4f;
  const auto expected = run<Reference<double>>(op, 1, n);
  const auto result = run<Cuda>(op, 1, n);
  CHECK(result.dw[0] == 1e4f);
  CHECK(std::abs(static_cast<double>(result.dw[1]) / expected.dw[1] - 1) < 1e-6);
}

TEST_CASE("an infinite gradient makes its own place NaN and no other") {
  TestGpu gpu;
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto run = run_layer<Cuda>(small, 1, {3, 0, 3}, table, {1, 2, 3, 4, 5, wrong});
    for (std::size_t i = 0; i < 8; ++i) CHECK(std::isnan(run.dw[i]) == (i == 7));
  }
}

TEST_CASE("an index outside of the table is refused when the host waits for the GPU") {
  TestGpu gpu;
  for (const float number :
       {-1.0f, 4.0f, 1.5f, -0.5f, 1e30f, std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity()}) {
    CAPTURE(number);
    std::string message;
    try {
      run_layer<Cuda>(small, 1, {0, number, 1}, table, {}, {.training = false});
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(message.find("whole numbers from 0 to 3; check the data") != std::string::npos);
    if (number == 1.5f) CHECK(message.find("1.5") != std::string::npos);
  }
}

TEST_CASE("the context remains usable after a refused index") {
  TestGpu gpu;
  using K = Kernel<EmbeddingOp, Cuda>;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<Cuda, float> x(context, std::vector<float>{1, 7, 2}), w(context, table),
      y(context, 6);
  GroupOfOne group;
  const StepContext step{{.count = 1}, true, 0, 0, CollectiveRef(group)};
  const float* const operand = x.data();
  float* const no_gradient = nullptr;
  const Io<Cuda> io{step,    context, 7,       &operand, y.data(),     w.data(), nullptr,
                    nullptr, nullptr, nullptr, nullptr,  &no_gradient, nullptr};
  auto prepared = K::prepare(small, context, 1);
  K::forward(small, io, prepared);
  CHECK_THROWS_AS(context.synchronize(), UsageError);
  CHECK(y.download() == std::vector<float>{10, 11, 0, 0, 20, 21});
  x.upload({1, 3, 2});
  K::forward(small, io, prepared);
  CHECK(y.download() == std::vector<float>{10, 11, 30, 31, 20, 21});
}

TEST_CASE("fit refuses an index outside of the table and can be called again") {
  TestGpu gpu;
  Model model{Words{}, OneDevice<Cuda>{}, MeanSquaredError{}, SGD{.learning_rate = 0.1f}};
  const auto data = [](float number) {
    return tensors(std::vector<float>{0, 1, 2, 3, 2, number, 1, 1, 1, 0, 0, 0}, shape(3),
                   std::vector<float>{1, 2, 3, 4}, shape(1)) |
           batch(2);
  };
  const FitOptions quiet{.epochs = 2, .progress = ProgressStyle::none};
  const double before = model.fit(data(1), quiet)["loss"].back();
  CHECK_THROWS_AS(model.fit(data(9), quiet), UsageError);
  CHECK(model.fit(data(1), quiet)["loss"].back() < before);
}

// Whatever makes a step wait between the exchange and the update, the update happens.
TEST_CASE("after a refused index all replicas have made the update") {
  TestGpu gpu;
  struct Run {
    std::size_t steps = 1;
    bool keeps_data = true, on_batch = false;
  };
  const auto check = [](auto net, SGD optimizer, Run run, auto loss, auto... metrics) {
    using Target = typename decltype(loss)::target_type;
    const Cuda device{0, CudaOptions{.keeps_data = run.keeps_data}};
    Model model{net, Mirrored<Cuda>{{device, device}}, loss, optimizer, metrics...};
    const auto before = model.weights("embedding/embeddings");
    const auto refused = Catch::Matchers::ContainsSubstring("whole numbers from 0 to 3");
    // The second example belongs to the second replica.
    const std::vector<float> x{0, 1, 2, 3, 2, 9};
    const std::vector<Target> y{1, 2};
    if (run.on_batch)
      CHECK_THROWS_WITH(model.train_on_batch(x, y), refused);
    else
      CHECK_THROWS_WITH(
          model.fit(
              tensors(x, shape(3), y, loss.target_shape(shape(1))) | repeat(run.steps) | batch(2),
              {.steps_per_execution = run.steps, .progress = ProgressStyle::none}),
          refused);
    CHECK(model.steps() == run.steps);
    const bool is_changed = model.weights("embedding/embeddings") != before;
    CHECK(is_changed);
    const auto digests = model.replica_weights_sha256();
    CHECK(digests[0] == digests[1]);
  };
  const SGD plain{.learning_rate = 0.1f};
  const SGD clipped{.learning_rate = 0.1f, .with = {.global_clipnorm = 1}};
  const MeanSquaredError squares;
  const SparseCategoricalCrossentropy logits{.from_logits = true};
  SECTION("a clipped gradient") { check(Words{}, clipped, {}, squares); }
  SECTION("the first batch of a model") { check(Words{}, plain, {.on_batch = true}, squares); }
  SECTION("a large metric") { check(Topics<100>{}, plain, {}, logits, ConfusionMatrix<100>{}); }
  SECTION("sums of many steps") {
    check(Topics<30>{}, plain, {.steps = 8}, logits, ConfusionMatrix<30>{});
  }
  SECTION("more batches than are fed at once") {
    check(Words{}, plain, {.steps = 40, .keeps_data = false}, squares);
  }
}

// A scaled loss makes the step wait between the exchange and the update.
TEMPLATE_TEST_CASE("replicas are equal after one has refused an index, and continue", "", Cuda,
                   CudaFloat16) {
  TestGpu gpu;
  Model model{Words{}, Mirrored<TestType>{.devices = {"/gpu:0", "/gpu:0"}}, MeanSquaredError{},
              SGD{.learning_rate = 0.1f}};
  const auto data = [](float number) {
    return tensors(std::vector<float>{0, 1, 2, 3, 2, number}, shape(3), std::vector<float>{1, 2},
                   shape(1)) |
           batch(2);
  };
  const auto before = model.weights("embedding/embeddings");
  // The second example belongs to the second replica.
  CHECK_THROWS_AS(model.fit(data(9), {.progress = ProgressStyle::none}), UsageError);
  CHECK(model.weights("embedding/embeddings") != before);
  const FitOptions verified{.epochs = 2, .verify_every = 1, .progress = ProgressStyle::none};
  const auto losses = model.fit(data(1), verified)["loss"];
  CHECK(losses[1] < losses[0]);
}

TEST_CASE("a vocabulary that float32 cannot count is refused") {
  TestGpu gpu;
  constexpr auto large = EmbeddingOp{shape(1), (1 << 24) + 1, 1};
  std::string message;
  try {
    run_layer<Cuda>(large, 1, {0}, {}, {}, {.training = false});
  } catch (const UsageError& error) {
    message = error.what();
  }
  CHECK(message.find("float32 represents whole numbers exactly only up to 16777216") !=
        std::string::npos);
}

TEST_CASE("an embedding reads its part of the row of a graph") {
  TestGpu gpu;
  struct Net : lockstep::Graph<In<"number", 2>, In<"words", Integers<3>>,
                               Let<"w", From<"words">, Embedding<5, 2>, Flatten>,
                               Out<"y", From<"number", "w">, Concatenate>> {};
  toy::Machine<Net, Cuda> machine(2);
  machine.x = {0.5f, 1, 4, 0, 4, 2, 3, 1, 1, 1};
  toy::Machine<Net, Reference<float>> reference(2);
  reference.x = machine.x;
  CHECK(machine.forward() == reference.forward());
  CHECK(machine.gradients() == reference.gradients());
}

TEST_CASE("learned positions agree with the reference on a GPU") {
  const auto op = PositionEmbedding<7>::op(shape(5, 12));
  for (const std::size_t count : {0u, 3u})
    check_against_reference(op, count, numbers(op, op.in.size(), op.weights(), count));
}
