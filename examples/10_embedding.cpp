// Embeds a model in a larger program: a class has the model as a member, the library's messages go to
// the program's log, another thread can stop training, and several threads ask for predictions.
// Run it with `./dev embedding`.
//
// Expected output:
//   stopped before the last epoch: yes
//   answers: 200, equal to those of one thread: yes
//   messages in the program's log: ...
#include <fmt/format.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

class Reader {
 public:
  std::size_t train(std::stop_token stop) {
    // Logs a warning if there is no such folder.
    const auto data = ls::datasets::mnist("data/mnist", ls::datasets::digits()).train() |
                      ls::take(1'000) | ls::rescale(1.0f / 255) | ls::cache | ls::batch(50);
    const std::scoped_lock lock(mutex_);
    const auto none = ls::ProgressStyle::none;
    return model_.fit(data, {.epochs = 1'000'000, .stop = stop, .progress = none}).epoch.size();
  }
  /// A model is not thread-safe, so calls take turns.
  std::vector<float> logits(std::span<const float> image) {
    const std::scoped_lock lock(mutex_);
    const auto predictions = model_.predict(image);
    return {predictions.row(0).begin(), predictions.row(0).end()};
  }

 private:
  std::mutex mutex_;
  // The type of a model can be named, so that it can be a member.
  ls::Model<Net, ls::OneDevice<ls::Cpu>, ls::SparseCategoricalCrossentropy, ls::SGD> model_{
      Net{}, {.on = {.threads = 1}}, {.from_logits = true}, {.learning_rate = 0.05}};
};

}  // namespace

int main() {
  std::vector<std::string> messages;  // the sink gets one message at a time
  ls::set_log([&](ls::LogLevel, std::string_view text) { messages.emplace_back(text); });
  Reader reader;
  std::size_t epochs = 0;
  {
    std::jthread training([&](std::stop_token stop) { epochs = reader.train(stop); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }  // the destructor requests the stop and joins
  fmt::print("stopped before the last epoch: {}\n", epochs < 1'000'000 ? "yes" : "no");

  const std::vector<float> image(28 * 28, 0.5f), expected = reader.logits(image);
  std::atomic<int> answers = 0, equal = 0;
  const auto ask = [&] {
    for (int i = 0; i < 50; ++i, ++answers) equal += reader.logits(image) == expected;
  };
  {
    const std::jthread a(ask), b(ask), c(ask), d(ask);
  }
  fmt::print("answers: {}, equal to those of one thread: {}\n", answers.load(),
             equal == answers ? "yes" : "no");
  fmt::print("messages in the program's log: {}\n", messages.size());
  ls::set_log({});  // `messages` ends before the library
}
