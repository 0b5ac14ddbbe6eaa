// Measures the overhead of a step outside of kernels: three Dense(1) on one thread, inside fit, so
// that the kernels do almost nothing. Prints the time of a step for two devices, and of the same
// fit without a metric.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

namespace ls = lockstep;

namespace {

struct Three : ls::Sequential<ls::Input<1>, ls::Dense<1>, ls::Dense<1>, ls::Dense<1>> {};

class Times : public ls::Callback {
 public:
  void on_epoch_begin(int, const ls::Logs&) override { start_ = Clock::now(); }
  void on_epoch_end(int, const ls::Logs&) override {
    epochs_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start_).count());
  }
  void print(const char* what, double steps) {
    std::sort(epochs_.begin(), epochs_.end());
    fmt::print("{:34} median {:6.2f} us, min {:6.2f} us a step\n", what,
               epochs_[epochs_.size() / 2] / steps, epochs_.front() / steps);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  std::vector<double> epochs_;
};

template <class Device>
void measure(const char* what, Device device, std::size_t batch) {
  constexpr std::size_t steps = 2000;
  const std::size_t examples = steps * batch;
  const auto data = ls::tensors(std::vector<float>(examples, 1.0f), ls::shape(1),
                                std::vector<float>(examples, 0.5f), ls::shape(1)) |
                    ls::shuffle(1000) | ls::batch(batch);
  ls::Model model{Three{}, ls::OneDevice<Device>{.on = device}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 1e-3}};
  auto times = std::make_shared<Times>();
  model.fit(data, {.epochs = 21, .callbacks = {times}, .progress = ls::ProgressStyle::none});
  times->print(what, static_cast<double>(steps));
}

}  // namespace

int main() {
  measure("Cpu, one thread, batch 1", ls::Cpu{.threads = 1}, 1);
  measure("Cpu, one thread, batch 64", ls::Cpu{.threads = 1}, 64);
  measure("Reference<float>, batch 1", ls::Reference<float>{}, 1);
  measure("Reference<float>, batch 64", ls::Reference<float>{}, 64);
}
