/// Jobs whose workers divide the optimizer's buffers, in processes: the bits of whole buffers on each
/// transport, checkpoints, a policy that differs, and the death of a worker, after which elastic jobs go on.
#include "lockstep/sharded.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "distributed/named_by_others.hpp"
#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cluster.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using Catch::Matchers::ContainsSubstring;

namespace {

/// More elements than are summed outside of the shared heap, in buckets of which some have several
/// owners.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<256, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::ReLU, ls::Dropout<ls::rate(0.4f)>,
                            ls::Dense<280>, ls::Tanh, ls::Dense<3>> {};
using Workers = ls::MultiWorkerMirrored<ls::Cpu>;
static_assert(ls::UpdatePolicy<ls::Sharded, ls::Cpu> &&
              ls::UpdatePolicy<ls::Sharded, ls::CpuBFloat16>);
// Otherwise gradients would be all-reduced, with the same bits.
using Member = ls::HierarchicalGroup<ls::detail::JobGroup>::Member;
static_assert(ls::ScattersGradients<ls::ExchangeAtEnd<Member, float>, float> &&
              ls::ScattersGradients<ls::CommunicationThread<Member, float>, float>);

auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(20); }

template <class S>
auto model_on(const S& strategy, const ls::Adam& adam) {
  return ls::Model{Net{}, ls::Seed{3}, strategy, replicas::crossentropy, adam, ls::Accuracy{}};
}
const ls::Adam plain{.learning_rate = 0.01};
/// Without threads of OpenMP, since processes are forked afterwards.
const ls::OneDevice<ls::Cpu> alone{.on = {.threads = 1}, .virtual_shards = 8};

/// The digest of the weights after two epochs, the logs, and those of an evaluation.
template <class S>
std::vector<double> trained(const S& strategy, const ls::Adam& adam) {
  auto model = model_on(strategy, adam);
  auto options = line::quiet(2);
  options.verify_every = 1;
  const auto history = model.fit(data(), options);
  const std::string digest = model.weights_sha256();
  std::vector<double> all(digest.begin(), digest.end());
  for (const auto& name : {"loss", "accuracy"})
    all.insert(all.end(), history[name].begin(), history[name].end());
  all.push_back(model.evaluate(data())["loss"]);
  return all;
}

struct Jobs {
  std::size_t processes, replicas, machines, shards;
};

}  // namespace

TEST_CASE("workers that divide the optimizer's buffers train with the bits of whole ones") {
  const std::vector<ls::Adam> all{plain,
                                  ls::Adam{.weight_decay = 0.01, .with = {.global_clipnorm = 0.1}},
                                  ls::Adam{.with = {.use_ema = true,
                                                    .ema_overwrite_frequency = 2,
                                                    .gradient_accumulation_steps = 2}}};
  for (const Jobs& job : {Jobs{2, 1, 1, 0}, Jobs{3, 1, 1, 0}, Jobs{2, 2, 1, 8}, Jobs{4, 1, 2, 0}})
    for (const char* transport : {"tcp", "shared_memory"}) {
      if (job.machines > 1 && transport == std::string("shared_memory")) continue;
      CAPTURE(job.processes, job.replicas, job.machines, job.shards, transport);
      Processes processes(
          job.processes,
          [&](Here& here) {
            ::setenv("LOCKSTEP_TRANSPORT", job.machines > 1 ? "auto" : transport, 1);
            const Workers workers{.replicas = job.replicas, .virtual_shards = job.shards};
            std::vector<double> equal;
            for (const ls::Adam& adam : all)
              equal.push_back(trained(workers | ls::Sharded{}, adam) == trained(workers, adam));
            here.give(equal);
          },
          60s, job.machines);
      REQUIRE(processes.all_end());
      for (std::size_t r = 0; r < processes.size(); ++r) {
        INFO(std::string(processes.report(r).what) << processes.logs());
        CHECK(processes.report(r).outcome == Outcome::done);
        CHECK(processes.numbers(r) == std::vector<double>(all.size(), 1));
      }
    }
}

TEST_CASE("the slots of all workers together are those of one device") {
  const auto whole = model_on(alone, plain).memory().optimizer;
  // --8<-- [start:strategy]
  const auto strategy = ls::MultiWorkerMirrored<ls::Cpu>{} | ls::Sharded{};
  // --8<-- [end:strategy]
  for (const std::size_t n : {2u, 3u}) {
    Processes job(n, [&](Here& here) {
      here.give({static_cast<double>(model_on(strategy, plain).memory().optimizer)});
    });
    REQUIRE(job.all_end());
    double sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
      REQUIRE(job.report(r).outcome == Outcome::done);
      sum += job.numbers(r)[0];
      // Blocks of 64 elements, of which the last is not full.
      CHECK(job.numbers(r)[0] <=
            static_cast<double>(whole) / static_cast<double>(n) + 2 * 2 * 64 * sizeof(float));
    }
    CHECK(sum == static_cast<double>(whole));
  }
}

TEST_CASE("a checkpoint of divided slots continues on other workers, and on one device") {
  const testing::Folder folder;
  const ls::Adam adam{.learning_rate = 0.01, .with = {.use_ema = true}};
  const auto fit = [&](const auto& strategy, int epochs, const std::string& in) {
    auto model = model_on(strategy, adam);
    auto options = line::quiet(epochs);
    options.checkpoint.directory = (folder.path() / in).string();
    model.fit(data(), options);
    const std::string digest = model.weights_sha256();
    return std::vector<double>(digest.begin(), digest.end());
  };
  const auto in_job = [&](std::size_t n, int epochs, const std::vector<double>& expected) {
    CAPTURE(n, epochs);
    Processes job(n, [&](Here& here) {
      here.give(fit(Workers{.virtual_shards = 8} | ls::Sharded{}, epochs, "job"));
    });
    REQUIRE(job.all_end());
    for (std::size_t r = 0; r < n; ++r) {
      INFO(std::string(job.report(r).what));
      CHECK(job.numbers(r) == expected);
    }
  };
  const auto two = fit(alone, 2, "device"), four = fit(alone, 4, "whole");
  in_job(2, 2, two);
  std::filesystem::copy(folder.path() / "job", folder.path() / "device from job",
                        std::filesystem::copy_options::recursive);
  in_job(4, 4, four);
  CHECK(fit(alone, 4, "device from job") == four);
}

TEST_CASE("workers with other update policies are refused before they train") {
  Processes job(2, [](Here& here) {
    if (here.rank == 0)
      model_on(Workers{} | ls::Sharded{}, plain);
    else
      model_on(Workers{}, plain);
  });
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r) {
    const std::string what = job.report(r).what;
    CHECK(job.report(r).outcome == Outcome::error);
    CHECK_THAT(what, ContainsSubstring("update policy"));
    CHECK_THAT(what, ContainsSubstring("sharded"));
    CHECK_THAT(what, ContainsSubstring("replicated"));
  }
}

TEST_CASE("a worker that is killed while the others gather weights is named by them") {
  for (const char* transport : {"tcp", "shared_memory"})
    check_named_by_others(3, 1, [&](Here&) {
      ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
      return model_on(Workers{} | ls::Sharded{}, plain);
    });
}

TEST_CASE("elastic workers go on with the bits of one device after the loss of a share") {
  using Elastic = ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>;
  const ls::Adam adam{.learning_rate = 0.01,
                      .with = {.use_ema = true, .ema_overwrite_frequency = 3}};
  const auto fit = [&](const auto& strategy, Here* here, std::size_t victim) {
    auto model = model_on(strategy, adam);
    auto options = line::quiet(4);
    options.verify_every = 1;
    options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](auto&&...) {
      if (here == nullptr) return;
      if (++here->report.steps == 5 && here->rank == victim && here->begin_fault())
        ::raise(SIGKILL);
    }}};
    model.fit(data(), options);
    const std::string digest = model.weights_sha256();
    return std::vector<double>(digest.begin(), digest.end());
  };
  const auto expected = fit(alone, nullptr, 0);
  struct Loss {
    std::size_t processes, victim, copies;
  };
  for (const Loss& loss : {Loss{3, 0, 2}, Loss{3, 2, 2}, Loss{2, 1, 2}, Loss{3, 1, 1}}) {
    CAPTURE(loss.processes, loss.victim, loss.copies);
    Processes job(loss.processes, [&](Here& here) {
      const Elastic workers{
          .on = {.threads = 1}, .virtual_shards = 8, .elastic = {.min_workers = 1}};
      here.give(fit(workers | ls::Sharded{.copies = loss.copies}, &here, loss.victim));
    });
    REQUIRE(job.all_end({loss.victim}));
    for (std::size_t r = 0; r < loss.processes; ++r) {
      if (r == loss.victim) continue;
      const std::string what = job.report(r).what;
      INFO(what << job.logs());
      CHECK((job.report(r).outcome == Outcome::done) == (loss.copies > 1));
      if (loss.copies > 1)
        CHECK(job.numbers(r) == expected);
      else
        CHECK_THAT(what, ContainsSubstring("no other worker has its share"));
    }
  }
}

TEST_CASE("an elastic worker that divides slots has one replica") {
  Processes job(2, [](Here&) {
    using Elastic = ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>;
    const Elastic workers{.replicas = 2, .on = {.threads = 1}, .elastic = {.min_workers = 1}};
    model_on(workers | ls::Sharded{}, plain);
  });
  REQUIRE(job.all_end());
  for (std::size_t r = 0; r < job.size(); ++r)
    CHECK_THAT(std::string(job.report(r).what), ContainsSubstring("set .replicas = 1"));
}
