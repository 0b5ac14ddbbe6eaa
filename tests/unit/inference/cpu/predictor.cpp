#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/predictor.hpp>

#include "support/temporary_folder.hpp"

namespace ls = lockstep;

namespace {

struct Mnist : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                              ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};
/// Each kernel of the CPU with prepared state.
struct Layers
    : ls::Sequential<ls::Input<12, 12, 3>, ls::RandomTranslation<ls::factor(0.2), ls::factor(0.2)>,
                     ls::Conv2D<16, 3, ls::Padding::same>, ls::BatchNormalization<>, ls::ReLU,
                     ls::Residual<ls::Sequential<ls::Conv2D<16, 3, ls::Padding::same>,
                                                 ls::BatchNormalization<>>>,
                     ls::ReLU, ls::Conv2D<16, 3, ls::Padding::same>, ls::ReLU,
                     ls::DepthwiseConv2D<3>, ls::Tanh, ls::SeparableConv2D<8, 3>, ls::LeakyReLU<>,
                     ls::AveragePooling2D<>, ls::Conv2DTranspose<6, 3>, ls::Sigmoid,
                     ls::LayerNormalization<>, ls::ReLU6, ls::UpSampling2D<>, ls::ZeroPadding2D<>,
                     ls::MaxPooling2D<>, ls::Dropout<ls::rate(0.3f)>, ls::Flatten, ls::Dense<40>,
                     ls::SiLU, ls::Dense<40>, ls::ReLU, ls::Dense<7>, ls::Softmax> {};

template <class Net, class D>
auto model_of(D device, std::uint64_t seed = 1) {
  return ls::Model(Net{}, ls::Seed{seed}, ls::OneDevice<D>{.on = device}, ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.01f});
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
  return values;
}

bool equal(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

template <class Net, class D>
void check_bits(D device) {
  constexpr std::size_t in = Net::input_shape.size(), out = Net::output_shape.size();
  auto model = model_of<Net>(device);
  const auto x = numbers(40 * in), y = numbers(40 * out);
  model.train_on_batch(std::span(x).first(8 * in), std::span(y).first(8 * out));
  const ls::Predictor predictor(model, {.on = device});
  for (const std::size_t count : {1u, 2u, 5u, 32u, 40u}) {
    const std::span<const float> part(x.data(), count * in);
    CAPTURE(count, device.threads);
    const auto expected = model.predict(part), got = predictor.predict(part);
    CHECK(equal(expected.elements(), got.elements()));
  }
}

}  // namespace

TEST_CASE("Predictor: on the CPU the bits are those of Model::predict") {
  for (const int threads : {1, 2}) {
    check_bits<Mnist>(ls::Cpu{.threads = threads});
    check_bits<Layers>(ls::Cpu{.threads = threads});
  }
}

TEST_CASE("Predictor: in bfloat16 the bits are those of Model::predict") {
  if (!ls::detail::has_bfloat16_vectors()) SKIP("the processor has no bfloat16");
  check_bits<Mnist>(ls::CpuBFloat16{.threads = 1});
  check_bits<Layers>(ls::CpuBFloat16{.threads = 1});
}

TEST_CASE("Predictor: one thread and 16 threads compute the same bits") {
  auto model = model_of<Layers>(ls::Cpu{.threads = 1});
  constexpr std::size_t in = Layers::input_shape.size(), examples = 48;
  const auto x = numbers(examples * in);
  const ls::Predictor predictor(model);
  std::vector<float> alone(examples * 7), together(examples * 7);
  for (std::size_t i = 0; i < examples; ++i)
    predictor(std::span(x).subspan(i * in, in), std::span(alone).subspan(i * 7, 7));
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < examples; i = next++)
        predictor(std::span(x).subspan(i * in, in), std::span(together).subspan(i * 7, 7));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(equal(alone, together));
}

TEST_CASE("Predictor: 8 threads on the CPU see one of two sets of weights") {
  const TemporaryFolder folder;
  auto a = model_of<Mnist>(ls::Cpu{.threads = 1}, 1), b = model_of<Mnist>(ls::Cpu{.threads = 1}, 2);
  a.save_weights(folder / "a");
  b.save_weights(folder / "b");
  const auto x = numbers(3 * 784);
  const auto of_a = a.predict(x), of_b = b.predict(x);
  ls::Predictor<Mnist, ls::Cpu> predictor(folder / "a");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, saw_a{0}, saw_b{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      std::vector<float> y(30);
      while (!stop) {
        predictor(x, y);
        equal(y, of_a.elements()) ? ++saw_a : equal(y, of_b.elements()) ? ++saw_b : ++wrong;
      }
    });
  for (int i = 1; i <= 40 || saw_a == 0 || saw_b == 0; ++i)
    predictor.load_weights(folder / (i % 2 == 0 ? "a" : "b"));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
