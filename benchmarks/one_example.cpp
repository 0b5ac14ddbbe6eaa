// Time of one example in ls::Predictor, one call after the other on one thread: small nets of Dense
// layers and the tutorials' CNN, and, as the limit of the CNN, the time in which one thread reads
// the 1.4 MB of its weights. --export DIR writes the nets as ONNX files and their outputs, with
// which benchmarks/peers/one_example.py times and checks PyTorch and ONNX Runtime.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/onnx.hpp>
#include <lockstep/predictor.hpp>

namespace ls = lockstep;

namespace {

template <int Units>
struct Mlp : ls::Sequential<ls::Input<Units>, ls::Dense<Units>, ls::ReLU, ls::Dense<Units>,
                            ls::ReLU, ls::Dense<Units>> {};
struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};

struct Options {
  std::string folder;
  int chunks = 200;
};

/// The input of the check: the same numbers in Python.
template <class Net>
std::vector<float> input() {
  std::vector<float> x(Net::input_shape.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) * 0.125f;
  return x;
}

void report(const char* name, std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  fmt::print("{} min {:.4f} median {:.4f} us\n", name, times.front(), times[times.size() / 2]);
}

using Vector = float __attribute__((vector_size(32)));

/// The sum of count vectors, in eight sums, which hide the latency of an addition.
#ifdef __x86_64__
[[gnu::target("avx2")]]
#endif
[[gnu::noinline]] float
sum_of(const Vector* w, std::size_t count) {
  Vector a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    a += w[i];
    b += w[i + 1];
    c += w[i + 2];
    d += w[i + 3];
    e += w[i + 4];
    f += w[i + 5];
    g += w[i + 6];
    h += w[i + 7];
  }
  const Vector sum = a + b + c + d + e + f + g + h;
  return sum[0] + sum[7];
}

/// Reads as many weights as the CNN has, again and again.
void measure_reading(const Options& options, int calls) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Vector> weights(Cnn::parameter_count / 8, Vector{} + 1.0f);
  std::vector<double> times;
  [[maybe_unused]] volatile float sum = 0;
  for (int chunk = 0; chunk < options.chunks; ++chunk) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) sum = sum_of(weights.data(), weights.size());
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                    calls);
  }
  report("reading", times);
}

template <class Net>
void measure(const char* name, const Options& options, int calls) {
  using Clock = std::chrono::steady_clock;
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}, ls::MeanSquaredError{},
                  ls::SGD{}};
  const ls::Predictor predictor(model);
  const std::vector<float> x = input<Net>();
  std::vector<float> y(Net::output_shape.size());
  std::vector<double> times;
  for (int chunk = 0; chunk < options.chunks; ++chunk) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) predictor(x, y);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                    calls);
  }
  report(name, times);
  if (options.folder.empty()) return;
  ls::export_onnx(model, fmt::format("{}/{}.onnx", options.folder, name));
  std::ofstream file(fmt::format("{}/{}.txt", options.folder, name));
  for (const float v : y) file << fmt::format("{:.9g}\n", v);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time of one example in ls::Predictor");
  Options options;
  app.add_option("--export", options.folder, "write NAME.onnx and the outputs, NAME.txt, here");
  app.add_option("--chunks", options.chunks, "timed chunks of calls")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  measure<Mlp<8>>("dense_8", options, 4000);
  measure<Mlp<32>>("dense_32", options, 4000);
  measure<Mlp<64>>("dense_64", options, 4000);
  measure<Cnn>("cnn", options, 50);
  measure_reading(options, 50);
}
