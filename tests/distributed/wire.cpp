/// Workers that exchange compressed gradients, in processes: equal bits on all ranks and transports, the
/// bytes that they send, checkpoints, and formats that differ.
#include "lockstep/wire.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cluster.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using Catch::Matchers::ContainsSubstring;

namespace {

namespace wire = ls::wire;

struct Net : ls::Sequential<ls::Input<2>, ls::BatchNormalization<>, ls::Dense<256>, ls::ReLU,
                            ls::Dense<280>, ls::Tanh, ls::Dense<3>> {};
struct PartlyFrozen
    : ls::Sequential<ls::Input<2>,
                     ls::Frozen<ls::Sequential<ls::BatchNormalization<>, ls::Dense<256, ls::relu>>>,
                     ls::Dense<280, ls::tanh>, ls::Dense<3>> {};
using Workers = ls::MultiWorkerMirrored<ls::Cpu>;
// Otherwise gradients would be exchanged in the replica's thread.
using Member = ls::HierarchicalGroup<ls::detail::JobGroup>::Member;
static_assert(ls::ExchangesByOthers<ls::ExchangeAtEnd<Member, float>> &&
              ls::ExchangesByOthers<ls::CommunicationThread<Member, float>> &&
              ls::ReducesBfloat16<Member>);

/// The kernel of 256 x 280 is the only matrix that a factor of rank 2 makes smaller by half.
const std::vector<wire::Format> formats{
    wire::Uncompressed{}, wire::bfloat16{}, wire::TopK{.fraction = 0.02},
    // --8<-- [start:format]
    wire::PowerSgd{.rank = 2, .start = 3}  // --8<-- [end:format]
};

auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(20); }

template <class S>
auto model_on(const S& strategy) {
  return ls::Model{Net{},
                   ls::Seed{3},
                   strategy,
                   replicas::crossentropy,
                   ls::SGD{.learning_rate = 0.05, .momentum = 0.9},
                   ls::Accuracy{}};
}

/// A digest as numbers.
std::vector<double> numbers_of(const std::string& digest) { return {digest.begin(), digest.end()}; }

struct Jobs {
  std::size_t processes, replicas, machines;
};

}  // namespace

TEST_CASE("workers that compress have equal bits on all ranks and transports") {
  for (const Jobs& job : {Jobs{2, 1, 1}, Jobs{3, 1, 1}, Jobs{2, 2, 1}, Jobs{4, 1, 2}}) {
    std::vector<double> expected;
    for (const char* transport : {"tcp", "shared_memory"}) {
      if (job.machines > 1 && transport == std::string("shared_memory")) continue;
      CAPTURE(job.processes, job.replicas, job.machines, transport);
      Processes processes(
          job.processes,
          [&](Here& here) {
            ::setenv("LOCKSTEP_TRANSPORT", job.machines > 1 ? "auto" : transport, 1);
            std::vector<double> all;
            for (const wire::Format& format : formats) {
              auto model = model_on(Workers{.replicas = job.replicas} | format);
              auto options = line::quiet(2);
              options.verify_every = 1;
              model.fit(data(), options);
              const auto digest = numbers_of(model.weights_sha256());
              all.insert(all.end(), digest.begin(), digest.end());
            }
            here.give(all);
          },
          60s, job.machines);
      REQUIRE(processes.all_end());
      for (std::size_t r = 0; r < processes.size(); ++r) {
        INFO(std::string(processes.report(r).what) << processes.logs());
        REQUIRE(processes.report(r).outcome == Outcome::done);
        if (expected.empty()) expected = processes.numbers(r);
        CHECK(processes.numbers(r) == expected);
      }
    }
  }
}

TEST_CASE("two workers send the bytes of their format") {
  constexpr double n = Net::trainable_count, big = 256 * 280;
  const auto planned = static_cast<double>(ls::plan<Net, ls::Cpu>.wire_bytes(2));
  const std::vector<double> expected{planned, planned / 2,
                                     // 2 % of each parameter, rounded, with an index of four bytes.
                                     8 * (1 + 1 + 10 + 5 + 1434 + 6 + 17 + 1),
                                     4 * (n - big + 2 * (256 + 280))};
  for (const char* transport : {"tcp", "shared_memory"}) {
    CAPTURE(transport);
    Processes job(2, [&](Here& here) {
      ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
      std::vector<double> bytes;
      for (const wire::Format& format : formats) {
        // --8<-- [start:strategy]
        const auto strategy = ls::MultiWorkerMirrored<ls::Cpu>{} | format;
        // --8<-- [end:strategy]
        auto model = model_on(strategy);
        std::uint64_t last = 0;
        std::vector<double> steps;
        auto options = line::quiet(3);
        options.callbacks = {ls::LambdaCallback{
            .on_train_batch_begin = [&](auto&&...) { last = ls::sent_bytes(); },
            .on_train_batch_end =
                [&](auto&&...) { steps.push_back(static_cast<double>(ls::sent_bytes() - last)); }}};
        model.fit(data(), options);
        std::sort(steps.begin() + 3, steps.end());  // PowerSGD begins with whole gradients
        bytes.push_back(steps[6]);
      }
      here.give(bytes);
    });
    REQUIRE(job.all_end());
    for (std::size_t r = 0; r < 2; ++r) {
      INFO(std::string(job.report(r).what) << job.logs());
      REQUIRE(job.report(r).outcome == Outcome::done);
      const std::vector<double> bytes = job.numbers(r);
      for (std::size_t i = 0; i < formats.size(); ++i) {
        CAPTURE(formats[i].text(), bytes[i], expected[i]);
        // In addition to 2 % the sums of the step, which are doubles.
        CHECK(std::abs(bytes[i] - expected[i]) < 0.02 * expected[i] + 200);
      }
    }
  }
}

TEST_CASE("two workers send no gradients of layers that do not train") {
  constexpr auto planned = static_cast<double>(ls::plan<PartlyFrozen, ls::Cpu>.wire_bytes(2));
  STATIC_REQUIRE(planned == 4 * (256 * 280 + 280 + 280 * 3 + 3));
  Processes job(2, [&](Here& here) {
    ls::Model model{PartlyFrozen{}, ls::Seed{3}, Workers{}, replicas::crossentropy, ls::SGD{}};
    std::uint64_t last = 0;
    std::vector<double> steps;
    auto options = line::quiet();
    options.callbacks = {ls::LambdaCallback{
        .on_train_batch_begin = [&](auto&&...) { last = ls::sent_bytes(); },
        .on_train_batch_end =
            [&](auto&&...) { steps.push_back(static_cast<double>(ls::sent_bytes() - last)); }}};
    model.fit(data(), options);
    model.set_trainable("dense_1", false);
    model.fit(data(), options);
    here.give({steps[1], steps.back()});
    if (here.rank == 1) model.set_trainable("dense_1", true);
    model.fit(data(), options);
  });
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < 2; ++r) {
    const std::vector<double> bytes = job.numbers(r);
    const double of_last = 4 * (280 * 3 + 3);
    CHECK(std::abs(bytes[0] - planned) < 0.02 * planned + 200);
    CHECK(std::abs(bytes[1] - of_last) < 0.02 * of_last + 300);
    CHECK_THAT(std::string(job.report(r).what),
               ContainsSubstring("a different setting of its layers") &&
                   ContainsSubstring("call the function in all processes"));
  }
}

TEST_CASE("a job that compresses continues its checkpoint with the same bits") {
  const testing::Folder folder;
  const auto run = [&](const wire::Format& format, const std::string& name, int epochs) {
    Processes job(2, [&](Here& here) {
      auto model = model_on(Workers{} | format);
      auto options = line::quiet(epochs);
      options.checkpoint.directory = (folder.path() / name).string();
      options.checkpoint.every = 2;
      model.fit(data(), options);
      here.give(numbers_of(model.weights_sha256()));
    });
    REQUIRE(job.all_end());
    for (std::size_t r = 0; r < 2; ++r) {
      INFO(std::string(job.report(r).what) << job.logs());
      REQUIRE(job.report(r).outcome == Outcome::done);
      CHECK(job.numbers(r) == job.numbers(0));
    }
    return job.numbers(0);
  };
  for (std::size_t i = 2; i < formats.size(); ++i) {
    const std::string name = std::to_string(i);
    const auto whole = run(formats[i], name + " whole", 4);
    run(formats[i], name, 2);
    CHECK(run(formats[i], name, 4) == whole);
  }
}

TEST_CASE("workers with other formats are refused before they train") {
  Processes job(2, [](Here& here) {
    model_on(Workers{} | wire::Format(wire::TopK{.fraction = here.rank == 0 ? 0.1 : 0.2}));
  });
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    const std::string what = job.report(r).what;
    CHECK(job.report(r).outcome == Outcome::error);
    CHECK_THAT(what, ContainsSubstring("update policy"));
    CHECK_THAT(what, ContainsSubstring("wire top_k of 0.1 of the elements"));
    CHECK_THAT(what, ContainsSubstring("wire top_k of 0.2 of the elements"));
  }
}
