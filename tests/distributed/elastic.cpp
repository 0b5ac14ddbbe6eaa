/// Elastic jobs of real processes: workers are killed at random moments, also several at once, also
/// the chief, also while the others recover; some are started again. The survivors get the bits of a
/// run without losses.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

using namespace distributed;

namespace {

using Float = ls::Reference<float>;

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<6>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

constexpr std::size_t workers = 4;

auto examples(std::size_t count) {
  std::vector<float> x(2 * count);
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[2 * i] = static_cast<float>(i % 17) / 17.0f;
    x[2 * i + 1] = static_cast<float>(i % 11) / 11.0f;
    y[i] = static_cast<std::int32_t>(i % 3);
  }
  return ls::tensors(x, ls::shape(2), y);
}

/// Reports the steps, each of which takes a few milliseconds.
struct Slow : ls::Callback {
  explicit Slow(Here* here, milliseconds pause) : here_(here), pause_(pause) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (here_ != nullptr) ++here_->report.steps;
    std::this_thread::sleep_for(pause_);
  }
  Here* here_;
  milliseconds pause_;
};

struct Plan {
  int epochs = 6;
  milliseconds pause{2};
};

/// The losses of all epochs, of a final evaluation, and all weights.
template <class Strategy>
std::vector<double> train(const Strategy& strategy, const Plan& plan, Here* here) {
  ls::Model model{Net{}, ls::Seed{7}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01f}, ls::Accuracy{}};
  const auto data = examples(160);
  const auto test = data | ls::batch(40);
  ls::FitOptions options{.epochs = plan.epochs,
                         .callbacks = {std::make_shared<Slow>(here, plan.pause)},
                         .progress = ls::ProgressStyle::none};
  const ls::History history = model.fit(data | ls::shuffle(64) | ls::batch(16), test, options);
  std::vector<double> found;
  for (const std::string& name : history.names())
    for (const double value : history[name]) found.push_back(value);
  for (const auto& [name, value] : model.evaluate(test)) found.push_back(value);
  for (const auto& p : model.parameters())
    for (const float w : model.weights(p.name)) found.push_back(static_cast<double>(w));
  return found;
}

void work(Here& here, const Plan& plan) {
  here.give(train(ls::MultiWorkerMirrored<Float>{.virtual_shards = 8, .elastic = {.min_workers = 2}},
                  plan, &here));
}

}  // namespace

TEST_CASE("an elastic job survives its workers") {
  const char* const seed_text = std::getenv("SEED");
  const Plan plan{.epochs = std::getenv("EPOCHS") ? std::atoi(std::getenv("EPOCHS")) : 6};
  const int kills = std::getenv("KILLS") ? std::atoi(std::getenv("KILLS")) : 2;
  const bool restarts = std::getenv("RESTARTS") != nullptr;
  std::mt19937 random(seed_text ? static_cast<std::uint32_t>(std::atoi(seed_text)) : 1);
  const std::vector<double> quiet =
      train(ls::OneDevice<Float>{.virtual_shards = 8}, {.epochs = plan.epochs, .pause = 0ms}, nullptr);
  Processes job(workers, [&](Here& here) { work(here, plan); }, 100s);
  std::vector<bool> was_killed(workers);
  REQUIRE(job.until([&] { return job.report(0).steps > 0; }));
  for (int i = 0; i < kills; ++i) {
    std::this_thread::sleep_for(milliseconds(random() % 400));
    std::vector<std::size_t> alive;
    for (std::size_t r = 0; r < workers; ++r)
      if (!job.has_ended(r)) alive.push_back(r);
    if (alive.size() > 2) {
      const std::size_t victim = alive[random() % alive.size()];
      std::printf("kill %zu at step %llu\n", victim, (unsigned long long)job.report(victim).steps.load());
      job.signal(victim, SIGKILL);
      was_killed[victim] = true;
      REQUIRE(job.until([&] { return job.has_ended(victim); }));
    }
    if (restarts && random() % 2)
      for (std::size_t r = 0; r < workers; ++r)
        if (job.has_ended(r) && was_killed[r] && job.report(r).outcome != Outcome::done) { std::printf("restart %zu\n", r); job.restart(r); }
  }
  CHECK(job.until([&] {
    for (std::size_t r = 0; r < workers; ++r)
      if (!was_killed[r] && !job.has_ended(r)) return false;
    return true;
  }));
  if (restarts) std::this_thread::sleep_for(300ms);
  INFO(job.logs());
  for (std::size_t r = 0; r < workers; ++r) {
    INFO("worker " << r << ": " << std::string(job.report(r).what));
    if (!was_killed[r]) {
      CHECK(job.report(r).outcome == Outcome::done);
      CHECK(job.numbers(r) == quiet);
    } else if (job.report(r).outcome == Outcome::done) {
      std::printf("restarted %zu has ended too\n", r);
      const auto found = job.numbers(r);
      CHECK(std::vector<double>(found.end() - 50, found.end()) == std::vector<double>(quiet.end() - 50, quiet.end()));
    }
  }
  if (std::getenv("SHOW")) std::printf("%s\n", job.logs().c_str());
}
