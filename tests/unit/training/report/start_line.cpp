#include "lockstep/training/report/start_line.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/training/model_support.hpp"

TEST_CASE("the start line describes how a batch is divided") {
  using lockstep::detail::start_line;
  CHECK(start_line("mirrored", 3, 0, 64) ==
        "mirrored: 3 replicas; of a batch of 64 examples 1 gets 22 and 2 get 21");
  CHECK(start_line("mirrored", 2, 0, 64) ==
        "mirrored: 2 replicas; of a batch of 64 examples each gets 32");
  CHECK(start_line("mirrored", 4, 0, 3) ==
        "mirrored: 4 replicas; of a batch of 3 examples 3 get 1 and 1 gets 0");
  CHECK(start_line("mirrored", 2, 8, 61) ==
        "mirrored: 2 replicas, 8 virtual shards; of a batch of 61 examples 5 get 8 and 3 get 7");
}

TEST_CASE("fit logs the start line once for several replicas, and not without progress") {
  std::vector<std::string> message;
  auto before = lockstep::set_log(
      [&](lockstep::LogLevel, std::string_view text) { message.emplace_back(text); });
  const auto train = [&](std::size_t replicas, lockstep::ProgressStyle progress) {
    lockstep::Model m{line::Net{},
                      lockstep::Mirrored<lockstep::Reference<double>>{.replicas = replicas},
                      lockstep::MeanSquaredError{}, lockstep::SGD{}};
    m.fit(line::points() | lockstep::batch(4), {.progress = progress});
  };
  train(1, lockstep::ProgressStyle::json);
  train(2, lockstep::ProgressStyle::none);
  CHECK(message.empty());
  train(2, lockstep::ProgressStyle::json);
  lockstep::set_log(std::move(before));
  CHECK(message ==
        std::vector<std::string>{"mirrored: 2 replicas; of a batch of 4 examples each gets 2"});
}
