// Trains two models in turn: a generator of points in the plane, and a critic that distinguishes them
// from points around (2, 1). The gradient of the critic's loss with respect to its inputs trains the
// generator. Run it with `./dev gan`.
//
// Expected output:
//   before: the points are around (2, 1): no
//   after: the points are around (2, 1): yes
#include <fmt/format.h>
#include <cmath>
#include <cstddef>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Generator : ls::Sequential<ls::Input<2>, ls::Dense<16, ls::tanh>, ls::Dense<2>> {};
struct Critic : ls::Sequential<ls::Input<2>, ls::Dense<32, ls::tanh>, ls::Dense<1>> {};

constexpr std::size_t n = 64;

/// n points around (x, y).
std::vector<float> points(ls::Philox& random, double x, double y, double deviation) {
  std::vector<float> values;
  for (std::size_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(x + deviation * random.normal()));
    values.push_back(static_cast<float>(y + deviation * random.normal()));
  }
  return values;
}

/// Whether generated points are around (2, 1).
const char* are_near(const auto& made) {
  double x = 0, y = 0;
  for (std::size_t i = 0; i < n; ++i) {
    x += made.row(i)[0];
    y += made.row(i)[1];
  }
  return std::hypot(x / n - 2, y / n - 1) < 0.5 ? "yes" : "no";
}

}  // namespace

int main() {
  const ls::OneDevice<ls::Cpu> device{.on = {.threads = 1}};
  ls::Model generator{Generator{}, ls::Seed{1}, device, ls::MeanSquaredError{},
                      ls::Adam{.learning_rate = 0.002}};
  ls::Model critic{Critic{}, ls::Seed{2}, device, ls::BinaryCrossentropy{.from_logits = true},
                   ls::Adam{.learning_rate = 0.005}};
  ls::Philox random(3);
  const std::vector<float> are_real(n, 1), are_fake(n, 0);
  const auto before = generator.predict(points(random, 0, 0, 1));
  fmt::print("before: the points are around (2, 1): {}\n", are_near(before));
  // --8<-- [start:loop]
  for (int step = 0; step < 4'000; ++step) {
    const auto noise = points(random, 0, 0, 1);
    const auto fake = generator.predict(noise);

    auto gradients = critic.gradients_of(critic.batch(points(random, 2, 1, 0.3), are_real));
    gradients += critic.gradients_of(critic.batch(fake.elements(), are_fake));
    critic.apply(gradients);

    // The generator wants the critic to take its points for real ones.
    const auto dx = critic.input_gradients(critic.batch(fake.elements(), are_real));
    generator.apply(generator.gradients_of(generator.batch(noise), dx));
  }
  // --8<-- [end:loop]
  const auto after = generator.predict(points(random, 0, 0, 1));
  fmt::print("after: the points are around (2, 1): {}\n", are_near(after));
}
